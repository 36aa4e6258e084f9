"""A client of the Redis protocol for tests, which never sends a command twice. `Wire` shows replies
as they are, byte by byte, and `Connection` as values.

redis-py tries again when a connection breaks, and then nobody knows how often something was done.
"""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

import hiredis

from waiting import PATIENCE

if TYPE_CHECKING:
    from typing_extensions import Self

Word = bytes | str | int | float


def request(*words: Word) -> bytes:
    """A command as clients send it."""
    raw = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%b\r\n" % (len(one), one) for one in raw)


class Wire:
    """A connection."""

    def __init__(
        self, port: int, protocol: int = 2, timeout: float = PATIENCE, source: str | None = None
    ) -> None:
        # A port of its own only where the address matters: there are fewer of those.
        own = None if source is None else (source, 0)
        self.socket = socket.create_connection(("127.0.0.1", port), timeout, own)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")
        if protocol == 3:
            assert self.ask("HELLO", 3).startswith(b"%")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self.file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes, whatever they are."""
        self.socket.sendall(data)

    def end(self) -> None:
        """Say that nothing more comes; the server may have closed already."""
        with suppress(OSError):  # "not connected", which is no ConnectionError
            self.socket.shutdown(socket.SHUT_WR)

    def ask(self, *words: Word) -> bytes:
        """Send a command; its reply, raw."""
        self.send(request(*words))
        return self.reply()

    def line(self, text: str) -> bytes:
        """Send a command as a person would type it; its reply, raw."""
        return self.ask(*shlex.split(text))

    def reply(self) -> bytes:
        """Read one reply, raw; b"" when the server has hung up."""
        head = self.file.readline()
        if not head:
            return b""
        mark, number = head[:1], head[1:-2]
        if mark in b"$=" and number != b"-1":
            return head + self.file.read(int(number) + 2)
        if mark in b"*~" and number != b"-1":
            return head + b"".join(self.reply() for _ in range(int(number)))
        if mark == b"%":
            return head + b"".join(self.reply() for _ in range(2 * int(number)))
        assert mark in b"+-:,#_$*", head
        return head

    def closed(self) -> bool:
        """Whether the server hung up; what it still sends is passed over."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True


class Refused(Exception):
    """An error reply."""


class Connection(Wire):
    """A connection whose replies come as values, to a server that may be killed at any moment: then
    ConnectionError."""

    def __init__(self, port: int, timeout: float = PATIENCE) -> None:
        try:
            super().__init__(port, timeout=timeout)
        except OSError as problem:
            raise ConnectionError(str(problem)) from None
        self.replies: list[Any] = []
        self.reader = hiredis.Reader(replyError=Refused)

    def ask(self, *words: Word) -> Any:
        """Send a command; its reply. An error reply is raised."""
        (reply,) = self.ask_all([words])
        if isinstance(reply, Refused):
            raise reply
        return reply

    def ask_all(self, commands: Iterable[tuple[Word, ...]]) -> list[Any]:
        """Send commands at once; their replies, error replies among them."""
        requests = [request(*words) for words in commands]
        replies = self.replies = []  # those that came, if it breaks in between
        try:
            self.send(b"".join(requests))
            for _ in requests:
                while (reply := self.reader.gets()) is False:
                    received = self.socket.recv(1 << 16)
                    if not received:
                        raise ConnectionError("the server has hung up")
                    self.reader.feed(received)
                replies.append(reply)
        except TimeoutError:
            raise
        except OSError as problem:
            raise ConnectionError(str(problem)) from None
        return replies

    def info(self) -> dict[str, str]:
        """What INFO says."""
        text: str = self.ask("INFO").decode()
        pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
        return {name: value for name, _, value in pairs}


def ask(port: int, *words: Word) -> Any:
    """One command, by a connection of its own."""
    with Connection(port) as connection:
        return connection.ask(*words)


def shown(reply: bytes) -> Any:
    """A raw reply as a value: lists, dicts, and `+OK`, `-ERR …`, `:1`, `$text` as they are."""
    value, rest = _shown(reply)
    assert rest == b"", rest
    return value


def _shown(reply: bytes) -> tuple[Any, bytes]:
    head, _, rest = reply.partition(b"\r\n")
    mark, number = head[:1], head[1:]
    if mark in b"$=" and number != b"-1":
        size = int(number)
        return (mark + rest[:size]).decode("latin-1"), rest[size + 2 :]
    if mark in b"*~%" and number != b"-1":
        items: list[Any] = []
        for _ in range(int(number) * (2 if mark == b"%" else 1)):
            item, rest = _shown(rest)
            items.append(item)
        if mark == b"%":
            return dict(zip(items[::2], items[1::2], strict=True)), rest
        return items, rest
    return head.decode("latin-1"), rest


def facts(wire: Wire, *sections: str) -> dict[str, str]:
    """INFO's lines."""
    lines = shown(wire.ask("INFO", *sections))[1:].removeprefix("txt:").split("\r\n")
    return dict(line.split(":", 1) for line in lines if line and not line.startswith("#"))


def told(reply: bytes) -> str:
    """A raw reply in one line, as tests expect it.

    `+OK` simple · `-ERR …` error · `:1` integer · `#t` boolean · `"a"` bulk · `[a, b]` array ·
    `{a: b}` map · `nil` RESP2's null, `null` RESP3's
    """
    return _told(shown(reply))


def _told(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_told, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_told(k)}: {_told(v)}" for k, v in value.items()) + "}"
    if value == "$-1":
        return "nil"
    if value == "_":
        return "null"
    text = str(value)
    return f'"{text[1:]}"' if text[:1] in "$=" else text


def check(wire: Wire, protocol: int, script: str) -> None:
    """Do the commands of a script, one a line, and compare their replies.

    `command => reply`, or `command => RESP2's reply | RESP3's`; `#` begins a remark; `-WRONGTYPE`
    has its usual text. The number of blanks does not count. What is wrong is shown all at once.
    """
    wrong = []
    for line in script.splitlines():
        if not line.strip() or line.strip().startswith("# "):
            continue
        asked, _, replies = line.strip().partition(" => ")
        resp2, _, resp3 = replies.partition(" | ")
        right = (resp3 if resp3 and protocol == 3 else resp2).strip()
        if right == "-WRONGTYPE":
            right += " Operation against a key holding the wrong kind of value"
        got, right = (" ".join(text.split()) for text in (told(wire.line(asked)), right))
        if got != right:
            wrong.append(f"{asked.strip()}\n    got   {got}\n    right {right}")
    assert not wrong, "\n" + "\n".join(wrong)


def dump(wire: Wire, command: str, name: Word) -> list[tuple[int, bytes]]:
    """Every part of a dump, with the iterator that came with it."""
    parts: list[tuple[int, bytes]] = []
    iterator = 0
    while True:
        following, data = shown(wire.ask(command, name, iterator))
        iterator = int(following[1:])
        if iterator == 0:
            return parts
        parts.append((iterator, data[1:].encode("latin-1")))
