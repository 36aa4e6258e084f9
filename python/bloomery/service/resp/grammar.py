"""Grammars of commands: how many arguments they take, where the names of filters stand, and the
arguments one by one, as COMMAND DOCS describes them.

    key [CAPACITY n] [NX|XX] ITEMS item [item ...]

A word in upper case is a token, one in lower case a value. Brackets make a part optional, and a
part that ends with `...` repeats the values before it.
"""

from __future__ import annotations

import re
from typing import Any

_INTEGERS = frozenset(
    {
        *("n", "capacity", "bucketsize", "count", "cursor", "index", "iterator", "numreplicas"),
        *("ttl", "seconds", "milliseconds", "unix-time-seconds", "unix-time-milliseconds"),
        *("client-id", "frequency", "protover", "timeout"),
    }
)
_DOUBLES = frozenset({"rate", "error_rate", "share", "ratio"})
_TOKEN = re.compile(r"[A-Z][A-Z-]*(\|[A-Z-]+)*")

Argument = dict[bytes, Any]


def arity(grammar: str) -> tuple[int, int | None]:
    """Return how many arguments a grammar requires, and how many it allows; None: any number."""
    required, optional, depth = 0, 0, 0
    for word in _words(grammar):
        depth += (word == "[") - (word == "]")
        if word not in ("[", "]"):
            required, optional = (required, optional + 1) if depth else (required + 1, optional)
    return required, None if "..." in grammar else required + optional


def keys(name: str, grammar: str) -> tuple[int, int, int]:
    """Return where the names of filters stand in a request: the first, the last, the step."""
    if not grammar.startswith("key"):
        return 0, 0, 0
    first = name.count(" ") + 1
    return first, -1 if grammar.startswith("key [key") else first, 1


def arguments(grammar: str) -> list[Argument]:
    """Return the arguments of a command, as Redis 7 describes them."""
    return _sequence(_words(grammar))


def _words(grammar: str) -> list[str]:
    return grammar.replace("[", " [ ").replace("]", " ] ").split()


def _sequence(words: list[str]) -> list[Argument]:
    """Read words up to the bracket that closes them, or to the end; the words are used up."""
    found: list[Argument] = []
    while words:
        word = words.pop(0)
        if word == "]":
            break
        if word == "|":
            rest = _sequence(words)
            return [_oneof(b"alternative", [_joined(found), _joined(rest)])]
        if word == "[":
            if _repeats(words):
                _repeat(found, words)
            else:
                found.append(_optional(_sequence(words)))
        elif _TOKEN.fullmatch(word):
            found.append(_token(word, words))
        else:
            found.append(_value(word))
    return found


def _repeats(words: list[str]) -> bool:
    inner = words[: words.index("]")]
    return inner[-1:] == ["..."] and "[" not in inner


def _repeat(found: list[Argument], words: list[str]) -> None:
    """Mark the arguments before `[… ...]` as repeated."""
    end = words.index("]")
    count = end - 1  # without the dots
    del words[: end + 1]
    repeated = _joined(found[-count:])
    found[-count:] = [_flagged(repeated, "multiple")]


def _optional(inner: list[Argument]) -> Argument:
    return _flagged(_joined(inner), "optional")


def _flagged(argument: Argument, flag: str) -> Argument:
    """Return the argument with one more flag; its own arguments stay last, as in Redis."""
    flags = argument.get(b"flags", frozenset()) | {flag}
    inner = argument.pop(b"arguments", None)
    argument[b"flags"] = flags
    if inner is not None:
        argument[b"arguments"] = inner
    return argument


def _joined(parts: list[Argument]) -> Argument:
    """Return one argument that stands for several."""
    if len(parts) == 1:
        return parts[0]
    return {b"name": parts[0][b"name"], b"type": b"block", b"arguments": parts}


def _oneof(name: bytes, choices: list[Argument]) -> Argument:
    return {b"name": name, b"type": b"oneof", b"arguments": choices}


def _token(word: str, words: list[str]) -> Argument:
    """Describe a token, with its value if one follows that does not repeat."""
    if "|" in word:
        return _oneof(b"option", [_pure(choice) for choice in word.split("|")])
    has_value = bool(words) and words[0] not in ("[", "]", "|") and not _TOKEN.fullmatch(words[0])
    if not has_value or (words[1:2] == ["["] and _repeats(words[2:])):
        return _pure(word)
    argument = _value(words.pop(0))
    inner = argument.pop(b"arguments", None)
    argument |= {b"name": word.lower().encode(), b"token": word.encode()}
    if inner is not None:
        argument[b"arguments"] = inner
    return argument


def _pure(word: str) -> Argument:
    return {
        b"name": word.lower().encode(),
        b"type": b"pure-token",
        b"token": word.upper().encode(),
    }


def _value(word: str) -> Argument:
    """Describe a value by its name: `4|8` and `grow|reject` are choices."""
    name = word.encode()
    if "|" in word:
        return _oneof(b"option", [_pure(choice) for choice in word.split("|")])
    if word in ("key", "newkey", "source", "destination"):
        return {b"name": name, b"type": b"key"}
    kind = b"integer" if word in _INTEGERS else b"double" if word in _DOUBLES else b"string"
    return {b"name": name, b"type": kind}
