"""A filter's name as text: names are any bytes, and SQL, logs and people want characters.

Printable characters stay as they are. A backslash is doubled, and every other byte (controls, what
is no UTF-8) is `\\xNN`, so that no two names look the same and each can be read back. Names that
would take more than LONGEST bytes are cut, and end in `\\~` and their SHA-256: those cannot be read
back, but still differ from all others.
"""

import hashlib
import re

from bloomery.errors import InvalidParameter

# PostgreSQL takes no more than 2,704 bytes into an index, and names are in a UNIQUE one.
LONGEST = 1024

_ESCAPED = re.compile(rb"\\(?:\\|x([0-9a-f]{2}))|([^\\])", re.DOTALL)


def printable(name: bytes) -> str:
    """The text for a name: `caf\xe9` as it is, b"a\\x00" as `a\\x00`."""
    # A long name is looked at no further than it can be shown: it may have megabytes.
    head = name[: LONGEST + 1].decode("utf-8", "surrogateescape")
    text = "".join(_escaped(character) for character in head)
    if len(name) <= LONGEST and len(text.encode()) <= LONGEST:
        return text
    end = f"\\~{hashlib.sha256(name).hexdigest()}"
    kept, size = [], len(end)
    for character in head:
        shown = _escaped(character)
        size += len(shown.encode())
        if size > LONGEST:
            break
        kept.append(shown)
    return "".join(kept) + end


def unprintable(text: str) -> bytes:
    """The name that `printable` gave this text for; InvalidParameter if it gave it for none."""
    name = typed(text)
    if printable(name) != text:
        raise _no_name(text)
    return name


def typed(text: str) -> bytes:
    """The name that a person or a program means by a text: like `unprintable`, but characters that
    it would not print may stand for themselves."""
    data = text.encode("utf-8", "surrogatepass")
    parts, end = [], 0
    for match in _ESCAPED.finditer(data):
        if match.start() != end:
            break
        end = match.end()
        parts.append(bytes.fromhex(match[1].decode()) if match[1] else match[2] or b"\\")
    if end != len(data):
        raise _no_name(text)
    return b"".join(parts)


def _no_name(text: str) -> InvalidParameter:
    return InvalidParameter(
        f"{text[:80]!r} is no printed name: a backslash is \\\\, and a byte that cannot be "
        "shown \\x00 to \\xff; a name that was cut (\\~) cannot be read back"
    )


def _escaped(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
