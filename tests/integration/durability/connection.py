"""A client that never sends a command twice: what is acknowledged is known exactly. (redis-py tries
again when a connection breaks, and then nobody knows how often something was done.)"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import hiredis

Word = bytes | str | int | float


class Refused(Exception):
    """An error reply."""


class Connection:
    """A connection to a server that may be killed at any moment: then ConnectionError."""

    def __init__(self, port: int, timeout: float = 60.0) -> None:
        try:
            self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        except OSError as problem:
            raise ConnectionError(str(problem)) from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.replies: list[Any] = []
        self.reader = hiredis.Reader(replyError=Refused)

    def __enter__(self) -> Connection:
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
        self.socket.close()

    def ask(self, *words: Word) -> Any:
        """Send a command; its reply. An error reply is raised."""
        (reply,) = self.ask_all([words])
        if isinstance(reply, Refused):
            raise reply
        return reply

    def ask_all(self, commands: Iterable[tuple[Word, ...]]) -> list[Any]:
        """Send commands at once; their replies, error replies among them."""
        packed = [_packed(words) for words in commands]
        replies = self.replies = []  # those that came, if it breaks in between
        try:
            self.socket.sendall(b"".join(packed))
            for _ in packed:
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


def _packed(words: tuple[Word, ...]) -> bytes:
    raw = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%b\r\n" % (len(one), one) for one in raw)


def ask(port: int, *words: Word) -> Any:
    """One command, by a connection of its own."""
    with contextlib.closing(Connection(port)) as connection:
        return connection.ask(*words)
