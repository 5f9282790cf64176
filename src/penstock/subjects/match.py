"""Comparing two subjects: a literal with a pattern, or a pattern with a pattern.

Three relations, each with the reference server's exact meaning: `match_literal` is what the
subscription trie answers for one entry, `is_subset` says that one pattern covers another, and
`collides` that two patterns may meet in one literal; `overlap` is where they meet. All are pure
and take any string; on valid subjects they mean what the protocol says, and no empty token ever
equals a wildcard.
"""

from penstock.subjects.tokens import ANY_TAIL, ANY_TOKEN, SEPARATOR, WILDCARDS, tokenise


def match_literal(literal: str, pattern: str) -> bool:
    """Whether a trie holding only `pattern` finds it for `literal`.

    The tokens of `literal` are never read as wildcards. A message sent to `a.*` is found by the
    patterns `a.*` and `a.>` but not by `a.b`.
    """
    tokens = tokenise(literal)
    wanted = tokenise(pattern)
    if "" in tokens:
        return False
    if wanted[-1] == ANY_TAIL:
        del wanted[-1]
        if len(tokens) <= len(wanted):
            return False
    elif len(tokens) != len(wanted):
        return False
    return all(want in (ANY_TOKEN, token) for token, want in zip(tokens, wanted, strict=False))


def is_subset(inner: str, outer: str) -> bool:
    """Whether every literal matched by `inner` is matched by `outer`.

    Kept from the reference: a token of `outer` that merely *starts* with `*` covers any literal
    token, so `a.b` counts as inside `*x.b`. What follows the `>` of `outer` is not looked at.
    """
    inner_tokens = tokenise(inner)
    outer_tokens = tokenise(outer)
    for token, want in zip(inner_tokens, outer_tokens, strict=False):
        if want == ANY_TAIL:
            return True
        if not _covers_token(token, want):
            return False
    return len(inner_tokens) == len(outer_tokens)


def collides(left: str, right: str) -> bool:
    """Whether some literal may match both patterns.

    When both hold wildcards, a token that merely *starts* with `*` or `>` is taken for a wildcard,
    as the reference does: `*x.*` and `a.*` collide. That errs on the side of a collision.
    """
    if left == right:
        return True
    left_tokens = tokenise(left)
    right_tokens = tokenise(right)
    left_wild = not WILDCARDS.isdisjoint(left_tokens)
    right_wild = not WILDCARDS.isdisjoint(right_tokens)
    if not (left_wild and right_wild):
        return (right_wild and is_subset(left, right)) or (left_wild and is_subset(right, left))
    shorter, longer = sorted((left_tokens, right_tokens), key=len)
    if len(shorter) != len(longer) and ANY_TAIL not in shorter:
        return False
    return all(_may_meet(one, other) for one, other in zip(shorter, longer, strict=False))


def overlap(left: str, right: str) -> str | None:
    """The pattern of what both match, or None if nothing does."""
    ours, theirs = tokenise(left), tokenise(right)
    common: list[str] = []
    for at, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one == ANY_TAIL:
            return SEPARATOR.join([*common, *theirs[at:]])
        if other == ANY_TAIL:
            return SEPARATOR.join([*common, *ours[at:]])
        if ANY_TOKEN not in (one, other) and one != other:
            return None
        common.append(other if one == ANY_TOKEN else one)
    return SEPARATOR.join(common) if len(ours) == len(theirs) else None


def _covers_token(token: str, want: str) -> bool:
    if not token or not want or token == ANY_TAIL:
        return False
    if token == ANY_TOKEN:
        return want == ANY_TOKEN
    return want[0] == ANY_TOKEN or want == token


def _may_meet(one: str, other: str) -> bool:
    if not one or not other:
        return False
    return one == other or one[0] in WILDCARDS or other[0] in WILDCARDS
