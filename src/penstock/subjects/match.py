"""Compares two subjects: a literal with a pattern, or a pattern with a pattern.

The relations have the reference server's exact meaning. `match_literal`: the subscription trie
finds the pattern for the literal. `is_subset`: one pattern covers another. `collides`: some literal
may match both patterns. `overlap`: the pattern of those literals. All functions are pure and accept
any string; for valid subjects they follow the protocol, and no empty token equals a wildcard.
"""

from penstock.subjects.tokens import ANY_TAIL, ANY_TOKEN, SEPARATOR, WILDCARDS, tokenise


def match_literal(literal: str, pattern: str) -> bool:
    """Return whether a trie that holds only `pattern` finds it for `literal`.

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
    """Return whether `outer` matches every literal that `inner` matches.

    As in the reference, a token of `outer` that only *starts* with `*` covers any literal token,
    so `a.b` counts as inside `*x.b`. Tokens after the `>` of `outer` are ignored.
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
    """Return whether some literal may match both patterns.

    If both have wildcards, a token that only *starts* with `*` or `>` counts as a wildcard, as in
    the reference: `*x.*` and `a.*` collide. This can report a collision where there is none.
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
    """Return the pattern of the subjects that both match, or None if there are none."""
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
