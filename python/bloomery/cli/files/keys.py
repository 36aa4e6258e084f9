"""Keys as a command line has them, text, and what they are in a filter: ints, UUIDs, datetimes.

`5` and `"5"` are two keys. Which of them a text means, `--type` says, or the file. Where neither
does, a question is asked for each key that is written like this: a no is certain then too, and a
maybe is wrong as often as two questions are. What is added or removed is text then.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import compress, product
from typing import Any
from uuid import UUID

from bloomery.errors import InvalidParameter
from bloomery.filters.files import key_type

# What is done to lines: those that were selected, bytes consumed, how many lines, how many of them.
Lines = Callable[..., tuple[bytes, int, int, int]]
Parse = Callable[[bytes], Any]

_TIME = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)[ T](?P<minute>\d\d:\d\d)(?P<second>:\d\d)?(?:\.(?P<fraction>\d+))?"
    r"(?P<zone>Z|[+-]\d\d(?::?\d\d){0,2})?",
    re.ASCII,
)


def _time(text: str) -> datetime:
    """A time as databases write it: Python 3.10 by itself does not read `+00`, say."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError
    zone = (match["zone"] or "").replace("Z", "+00")
    digits = zone[1:].replace(":", "").ljust(4, "0")
    if zone:
        zone = zone[0] + ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))
    fraction = (match["fraction"] or "")[:6].ljust(6, "0")
    second = match["second"] or ":00"
    return datetime.fromisoformat(f"{match['day']}T{match['minute']}{second}.{fraction}{zone}")


_FORMS: dict[str, tuple[bytes, Callable[[str], object], str]] = {
    "int": (rb"[+-]?[0-9]+", int, "a whole number"),
    "uuid": (rb"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", UUID, "a UUID"),
    "datetime": (
        rb"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9:.+Z-]*",
        _time,
        "a time such as 2024-02-29T12:00:00",
    ),
}
_PATTERN = {name: re.compile(pattern) for name, (pattern, _, _) in _FORMS.items()}
# In a chunk of lines with a newline before it: found at the speed of looking for newlines.
_ANY = re.compile(
    rb"\n(?:" + rb"|".join(form[0] for form in _FORMS.values()) + rb")(?=\n|\Z)", re.DOTALL
)


def resolve(file: str, given: str | None) -> str | None:
    """The type of a command's keys: as given, or as the file says; None if neither does."""
    type_of_file = given or key_type(file)
    if type_of_file == "tuple":
        raise InvalidParameter(
            f"{file} has keys of several columns, which no text is: ask it in Python"
            " (`bloomery.open`), or name the --type of other keys that it has"
        )
    return type_of_file


def parser(kind: str | None) -> Parse:
    """Return the function that makes a key of a text; without a type, the text is the key."""
    if kind is None or is_text(kind):
        return lambda text: text
    _, make, described = _FORMS[kind]

    def parse(text: bytes) -> object:
        try:
            if _PATTERN[kind].fullmatch(text):
                return make(text.decode())
        except ValueError:
            pass
        shown = os.fsdecode(text[:40])
        raise InvalidParameter(f"{shown!r} is not {described}: keys are of type {kind} here")

    return parse


def forms(text: bytes) -> list[Any]:
    """Every key that is written like this: the text itself first."""
    keys: list[Any] = [text]
    for kind, pattern in _PATTERN.items():
        if pattern.fullmatch(text):
            try:
                keys.append(_FORMS[kind][1](text.decode()))
            except ValueError:
                if kind == "int":  # more digits than Python reads, and it may be in the filter
                    raise InvalidParameter(
                        f"a key of {len(text):,} digits may be text or an int that is too long to "
                        "read: name its --type"
                    ) from None
                continue  # the 31st of June
    return keys


def reader(kind: str | None) -> Callable[[bytes], list[Any]]:
    """Return the function that gives the keys that a text may mean, for a question."""
    if kind is None:
        return forms
    parse = parser(kind)
    return lambda text: [parse(text)]


def is_text(kind: str | None) -> bool:
    """True if keys of this type are their text."""
    return kind not in _FORMS


def saved_as(kind: str) -> str:
    """What a file says of keys of a type: bytes and text are the same keys."""
    return "str" if kind == "bytes" else kind


def are_text(kind: str | None, lines: memoryview) -> bool:
    """True if keys are text: by their type, or since none is written like another."""
    return is_text(kind) if kind else _ANY.search(b"\n" + lines) is None


def ask_forms(
    ask: Callable[..., Iterable[bool]], rows: Sequence[Sequence[list[Any]]]
) -> list[bool]:
    """What `ask` says of each row in any of its forms; it takes a list of each column's keys."""
    there = [False] * len(rows)
    asked = [(at, key) for at, row in enumerate(rows) for key in product(*row)]
    columns = zip(*(key for _, key in asked), strict=True)
    for (at, _), answer in zip(asked, ask(*map(list, columns)), strict=True):
        there[at] |= bool(answer)
    return there


def split_lines(data: memoryview | bytes, final: bool) -> tuple[list[bytes], int]:
    """The whole lines of a chunk, without their line ends, and how many bytes they take."""
    text = bytes(data)
    end = len(text) if final else text.rfind(b"\n") + 1
    return text[:end].removesuffix(b"\n").split(b"\n"), end


def join_lines(lines: Iterable[bytes]) -> bytes:
    """Lines as they are printed."""
    return b"".join(line + b"\n" for line in lines)


def join_answers(keys: Iterable[bytes], answers: Iterable[bool]) -> bytes:
    """Keys and what a filter says of each, as lines of JSON."""
    from json import dumps

    pairs = zip(keys, answers, strict=True)
    return join_lines(
        dumps({"key": os.fsdecode(key), "maybe": maybe}).encode() for key, maybe in pairs
    )


def by_batch(select: Callable[[list[bytes]], Iterable[bool]]) -> Lines:
    """Turn a function of a batch of keys into one of lines."""

    def lines_of(data: memoryview, *, final: bool = False) -> tuple[bytes, int, int, int]:
        lines, end = split_lines(data, final)
        chosen = list(compress(lines, select(lines)))
        return join_lines(chosen), end, len(lines), len(chosen)

    return lines_of
