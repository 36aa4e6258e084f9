"""Names by pattern, as Redis's KEYS has them: * ? [a-z] and backslash."""

from __future__ import annotations

from collections.abc import Callable

from bloomery import errors

__all__ = ["glob"]

# Names have 1,024. A pattern takes some thousand times its own memory: of megabytes, all there is.
_MOST = 4096


def glob(pattern: bytes) -> Callable[[bytes], bool]:
    """Return what tells whether a name matches a pattern of Redis's KEYS.

    It looks back no further than the last star: as a regular expression, a pattern of many stars
    would take for ever. InvalidParameter if the pattern is too long.
    """
    if len(pattern) > _MOST:
        raise errors.InvalidParameter(
            f"a pattern of {len(pattern)} bytes, must have at most {_MOST}"
        )
    tokens: list[frozenset[int] | None] = []  # which bytes may come next; None: any number of any
    at = 0
    while at < len(pattern):
        one = pattern[at]
        at += 1
        if one == ord("*"):
            tokens.append(None)
        elif one == ord("?"):
            tokens.append(_ANY)
        elif one == ord("["):
            token, at = _class(pattern, at)
            tokens.append(token)
        else:
            if one == ord("\\") and at < len(pattern):
                one = pattern[at]
                at += 1
            tokens.append(frozenset((one,)))

    def match(name: bytes) -> bool:
        here, token, star, since = 0, 0, -1, 0
        while here < len(name):
            wanted = tokens[token] if token < len(tokens) else frozenset[int]()
            if wanted is None:
                star, since = token, here
                token += 1
            elif name[here] in wanted:
                here, token = here + 1, token + 1
            elif star >= 0:
                since += 1
                here, token = since, star + 1
            else:
                return False
        return all(rest is None for rest in tokens[token:])

    return match


_ANY = frozenset(range(256))


def _class(pattern: bytes, at: int) -> tuple[frozenset[int], int]:
    """The bytes that a pattern's brackets stand for, and where they end; as in Redis, those that
    are not closed end with the pattern."""
    negated = pattern[at : at + 1] == b"^"
    at += negated
    found: set[int] = set()
    while at < len(pattern) and pattern[at] != ord("]"):
        if pattern[at] == ord("\\") and at + 1 < len(pattern):
            found.add(pattern[at + 1])
            at += 2
        elif pattern[at + 1 : at + 2] == b"-" and at + 2 < len(pattern):
            low, high = sorted((pattern[at], pattern[at + 2]))
            found.update(range(low, high + 1))
            at += 3
        else:
            found.add(pattern[at])
            at += 1
    return _ANY - found if negated else frozenset(found), at + 1
