"""Encrypted cursors, for users who may see only some of the filters.

A cursor is the number of a filter, and numbers are given in order: from two of them one could tell
how many filters others have made. So these users get it encrypted, as a number of 62 bits, by a
Feistel network with four rounds. The key is the process's own: a restart invalidates all cursors.
"""

from __future__ import annotations

import hashlib
import secrets

from bloomery import errors

_HALF = 31
_MASK = (1 << _HALF) - 1
_ROUNDS = (b"1", b"2", b"3", b"4")


class Cursors:
    """Numbers of filters to cursors and back."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(16)

    def seal(self, number: int) -> int:
        """The cursor of a number; 0, the beginning and the end, stays 0."""
        return self._network(number, _ROUNDS) if number else 0

    def open(self, cursor: int, below: int) -> int:
        """The number of a cursor, which must be below this one; InvalidParameter if it is not."""
        if cursor == 0:
            return 0
        number = self._network(cursor, _ROUNDS[::-1]) if cursor < 1 << 2 * _HALF else below
        if not 0 < number < below:
            raise errors.InvalidParameter(
                "the cursor is none of this server's, or of before it was started: begin with 0"
            )
        return number

    def _network(self, number: int, rounds: tuple[bytes, ...]) -> int:
        left, right = number >> _HALF, number & _MASK
        for name in rounds:
            left, right = right, left ^ self._mixed(name, right)
        return right << _HALF | left  # swapped, so that the rounds in reverse undo it

    def _mixed(self, name: bytes, half: int) -> int:
        digest = hashlib.blake2s(half.to_bytes(4, "big"), key=self._secret, person=name)
        return int.from_bytes(digest.digest()[:4], "big") & _MASK
