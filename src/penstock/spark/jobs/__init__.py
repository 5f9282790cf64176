"""Jobs over streams, archives and folds; each is a function and a command of `penstock
pipeline`."""

from penstock.spark.jobs.archive_frame import archived
from penstock.spark.jobs.archive_job import ArchiveReport, archive, open_archive
from penstock.spark.jobs.fold_job import FoldJobError, FoldReport, fold
from penstock.spark.jobs.job_inputs import Origin, ServerOrigin, StoreOrigin
from penstock.spark.jobs.message_selection import MessageSelection, selected
from penstock.spark.jobs.parquet_table import ArchiveError, CommitLost, Version
from penstock.spark.jobs.profile_job import Profile, draw, profile
from penstock.spark.jobs.replay_job import ReplayReport, replay
from penstock.spark.jobs.verify_job import Check, VerifyReport, verify

__all__ = [
    "ArchiveError",
    "ArchiveReport",
    "Check",
    "CommitLost",
    "FoldJobError",
    "FoldReport",
    "MessageSelection",
    "Origin",
    "Profile",
    "ReplayReport",
    "ServerOrigin",
    "StoreOrigin",
    "VerifyReport",
    "Version",
    "archive",
    "archived",
    "draw",
    "fold",
    "open_archive",
    "profile",
    "replay",
    "selected",
    "verify",
]
