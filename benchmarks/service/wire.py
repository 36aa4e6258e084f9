"""The Redis protocol from a plain socket: quick enough that the server is what is measured."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from typing import Any

import hiredis

Word = str | bytes | int | float

WINDOW = 16
"""Requests under way at once: neither side waits, and the replies fit the buffers."""


def encoded(word: Word) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


def packed(words: Sequence[Word]) -> bytes:
    """A request."""
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in map(encoded, words)]
    return b"*%d\r\n" % len(words) + b"".join(parts)


def key(number: int) -> bytes:
    """A key as redis-benchmark writes its __rand_int__."""
    return b"%012d" % number


def packed_many(words: Sequence[Word], numbers: Sequence[int]) -> bytes:
    """A request of these words and a key for each number."""
    head = packed(words).partition(b"\r\n")[2]
    count = len(words) + len(numbers)
    return b"*%d\r\n%b" % (count, head) + (b"$12\r\n%012d\r\n" * len(numbers)) % tuple(numbers)


class Wire:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *words: Word) -> None:
        self.socket.sendall(packed(words))

    def reply(self) -> Any:
        """The next reply; an error is raised."""
        while (value := self._reader.gets()) is False:
            data = self.socket.recv(1 << 18)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._reader.feed(data)
        if isinstance(value, hiredis.ReplyError):
            raise value
        return value

    def receive(self) -> int:
        """How many whole replies there are, when some bytes have come; none may be an error."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._reader.feed(data)
        count = 0
        while (value := self._reader.gets()) is not False:
            if isinstance(value, hiredis.ReplyError):
                raise value
            count += 1
        return count

    def call(self, *words: Word) -> Any:
        self.send(*words)
        return self.reply()

    def many(self, words: Sequence[Word], numbers: range, each: int = 1000) -> Iterator[list[Any]]:
        """The replies to requests of up to `each` keys, some of them under way at once."""
        waiting = 0
        for at in range(0, len(numbers), each):
            if waiting == WINDOW:
                yield self.reply()
                waiting -= 1
            self.socket.sendall(packed_many(words, numbers[at : at + each]))
            waiting += 1
        for _ in range(waiting):
            yield self.reply()

    def add(self, name: str, numbers: range, command: Sequence[Word] = ("BF.MADD",)) -> int:
        """Add keys; how many were definitely new."""
        words = [command[0], name, *command[1:]]
        return sum(map(_yes, self.many(words, numbers)))

    def count(self, name: str, numbers: range, command: str = "BF.MEXISTS") -> int:
        """How many of the keys may be there."""
        return sum(map(_yes, self.many([command, name], numbers)))


def _yes(replies: list[Any]) -> int:
    for one in replies:
        if isinstance(one, hiredis.ReplyError):
            raise one
    return sum(map(bool, replies))
