"""Licences of users signed by a scoped key: the key's template, filled in for each user.

Subjects of a template may refer to the user, its account, or one of their tags; a tag with several
values expands to several subjects. If no allowed subject remains after expansion, nothing is
allowed. If a denied subject cannot be filled in, the user is refused.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from penstock.server.auth.claims import ClaimsFault, Licence, Subjects
from penstock.subjects.tokens import is_valid_subject

if TYPE_CHECKING:
    from penstock.server.auth.claims import AccountClaims, KeyScope, UserClaims

EXPANSIONS_MAX: Final = 4096
"""Maximum number of subjects to which one list of subjects may expand."""
NOTHING: Final = ">"

_BLANK = re.compile(r"\{\{[^}]+\}\}")
_TAG = re.compile(r"(tag|account-tag)\((.*)\)", re.IGNORECASE)


def licence_of(user: UserClaims, account: AccountClaims, scope: KeyScope | None) -> Licence:
    """Return the licence of a user: from its own claims, or from the scope of its signing key."""
    if scope is None:
        return user.licence
    if not is_unlicensed(user):
        raise ClaimsFault("scoped users require no permissions or limits set")
    fill = _Filling(user, account)
    template = scope.template
    return replace(template, pub=fill.direction(template.pub), sub=fill.direction(template.sub))


def is_unlicensed(user: UserClaims) -> bool:
    """Return whether the user's own claims grant nothing, as a scoped user's must."""
    return user.licence == Licence()


class _Filling:
    """Template values of one user."""

    def __init__(self, user: UserClaims, account: AccountClaims) -> None:
        self._tags = {"tag": user.tags, "account-tag": account.tags}
        self._words = {
            "name()": user.about.name,
            "subject()": user.about.subject,
            "account-name()": account.about.name,
            "account-subject()": user.issuer_account,
        }

    def direction(self, subjects: Subjects) -> Subjects:
        allow = self._subjects(subjects.allow, must_be_valid=False)
        deny = self._subjects(subjects.deny, must_be_valid=True)
        if subjects.allow and not allow:
            deny = (*deny, NOTHING)
        return Subjects(allow=allow, deny=deny)

    def _subjects(self, templates: tuple[str, ...], *, must_be_valid: bool) -> tuple[str, ...]:
        if not any(_BLANK.search(one) for one in templates):
            return templates
        filled: list[str] = []
        for template in templates:
            for subject in self._filled(template):
                if is_valid_subject(subject):
                    filled.append(subject)
                elif must_be_valid:
                    raise ClaimsFault("generated invalid subject")
                if len(filled) > EXPANSIONS_MAX:
                    raise ClaimsFault(f"more than {EXPANSIONS_MAX} subjects of one template")
        return tuple(filled)

    def _filled(self, template: str) -> list[str]:
        blanks = _BLANK.findall(template)
        values = [self._values(blank[2:-2].strip()) for blank in blanks]
        made = []
        for chosen in itertools.islice(itertools.product(*values), EXPANSIONS_MAX + 1):
            subject = template
            for blank, value in zip(blanks, chosen, strict=True):
                subject = subject.replace(blank, value)
            made.append(subject)
        return made

    def _values(self, operation: str) -> list[str]:
        word = self._words.get(operation.lower())
        if word is not None:
            return [word]
        tag = _TAG.fullmatch(operation)
        if tag is None:
            raise ClaimsFault(f'template operation "{operation}" is not defined')
        prefix = f"{tag[2].lower()}:"
        tags = self._tags[tag[1].lower()]
        # A missing tag becomes a blank, which makes the subject invalid.
        return [one.removeprefix(prefix) for one in tags if one.startswith(prefix)] or [" "]
