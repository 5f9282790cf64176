"""Jobs over streams, archives and folds; each is a function, and a command `penstock pipeline`."""

from penstock.spark.jobs.archive import ArchiveReport, archive, open_archive
from penstock.spark.jobs.archived import archived
from penstock.spark.jobs.fold import FoldJobError, FoldReport, fold
from penstock.spark.jobs.origins import Origin, ServerOrigin, StoreOrigin
from penstock.spark.jobs.profile import Profile, draw, profile
from penstock.spark.jobs.replay import ReplayReport, replay
from penstock.spark.jobs.selecting import Selection, selected
from penstock.spark.jobs.table import ArchiveError, CommitLost, Version
from penstock.spark.jobs.verify import Check, VerifyReport, verify

__all__ = [
    "ArchiveError",
    "ArchiveReport",
    "Check",
    "CommitLost",
    "FoldJobError",
    "FoldReport",
    "Origin",
    "Profile",
    "ReplayReport",
    "Selection",
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
