"""What is sent again after a failover or a lost connection, and for how long: no server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    ConnectionError,
    MovedError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from bloomery.errors import StoreRefused, StoreUnavailable
from bloomery.integrations.redis.wire.flow import Ask, packed
from bloomery.integrations.redis.wire.retry import RoundTrip, single_commands

GET = packed(("GET", "a"))
SET = packed(("SET", "a", "b\r\n$1\r\n"))


def begun(again: bool = True, timeout: float = 5.0) -> RoundTrip:
    """A round of one ask with three commands."""
    return RoundTrip([Ask(b"a", GET + SET + GET, 3, again)], timeout, "somewhere")


@given(st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=4), max_size=5))
def test_commands_one_by_one(words: list[list[bytes]]) -> None:
    """Packed commands are taken apart where they were put together, whatever they hold."""
    each = [packed(one) for one in words]
    assert single_commands(b"".join(each)) == each


def test_answered_at_once() -> None:
    """Without an error it is over."""
    trip = begun()
    trip.answered(trip.left[0], [1, 2, 3])
    assert trip.pause() is None
    assert trip.replies == [[1, 2, 3]]


PASSING: list[Any] = [
    MovedError("1 host:5"),
    ClusterDownError("down"),
    TryAgainError("again"),
    ReadOnlyError("You can't write against a read only replica."),
]


@pytest.mark.parametrize("problem", PASSING, ids=lambda p: type(p).__name__)
def test_whole_or_in_part(problem: Any) -> None:
    """What may be sent twice is sent whole; else only what was refused, and replies stay."""
    whole = begun()
    assert whole.refused(whole.left[0], [1, problem, 3], "cluster")
    assert whole.pause() == 0.0
    assert [(part.data, part.count) for part in whole.left] == [(GET + SET + GET, 3)]
    once = begun(again=False)
    assert once.refused(once.left[0], [1, problem, problem], "cluster")
    assert once.pause() == 0.0
    assert [(part.data, part.count) for part in once.left] == [(SET + GET, 2)]
    once.answered(once.left[0], [b"two", b"three"])
    assert once.pause() is None
    assert once.replies == [[1, b"two", b"three"]]


def test_asking() -> None:
    """ASK is followed to where it leads, with ASKING before each command."""
    for again, sent in ((True, [GET, SET, GET]), (False, [SET])):
        trip = begun(again)
        assert trip.refused(trip.left[0], [1, AskError("1 host:5"), 3], "cluster")
        assert trip.pause() == 0.0
        (part,) = trip.left
        assert part.redirect == ("host", 5)
        assert not trip.moved
        asking = packed(("ASKING",))
        assert single_commands(part.data) == [one for cmd in sent for one in (asking, cmd)]
        trip.answered(part, [b"OK", b"new"] * len(sent))
        assert trip.replies == [[b"new"] * 3 if again else [1, b"new", 3]]


def test_one_server() -> None:
    """A plain client is told MOVED and READONLY as they are; a replica is tried once more."""
    trip = begun()
    assert not trip.refused(trip.left[0], [1, MovedError("1 host:5"), 3], "single")
    assert trip.pause() is None
    trip = begun()
    assert trip.refused(trip.left[0], [1, ReadOnlyError("no"), 3], "single")
    assert trip.pause() == 0.0
    assert not trip.refused(trip.left[0], [1, ReadOnlyError("no"), 3], "single")
    assert trip.pause() is None
    assert isinstance(trip.replies[0][1], ReadOnlyError)
    trip = begun()
    assert not trip.refused(trip.left[0], [ResponseError("ERR"), 2, 3], "cluster")
    assert trip.pause() is None


def test_lost_connections() -> None:
    """Sent and not answered: again if that may be; else it is not known. Not sent: again."""
    trip = begun()
    trip.lost(trip.left, ConnectionError("cut"))
    assert trip.pause() == 0.0
    assert trip.moved
    once = begun(again=False)
    once.unsent(once.left, ConnectionError("refused"))
    assert once.pause() == 0.0
    once.lost(once.left, ConnectionError("cut"))
    with pytest.raises(StoreUnavailable, match="may or may not have been done"):
        once.pause()


def test_time_that_is_up() -> None:
    """Pauses grow, to a quarter of a second; when time is up the last problem is told."""
    trip = begun(timeout=0.0)
    trip.unsent(trip.left, ConnectionError("refused"))
    with pytest.raises(StoreUnavailable, match=r"somewhere cannot be reached within 0 s.*refused"):
        trip.pause()
    trip = begun(timeout=1000)
    pauses: list[float] = []
    for _ in range(12):
        trip.unsent(trip.left, ConnectionError("refused"))
        pauses.append(trip.pause() or 0.0)
    assert pauses[0] == 0.0
    assert pauses == sorted(pauses)
    assert pauses[-1] == 0.25


def test_a_password_that_is_wrong() -> None:
    """Nothing is tried again where that would bring the same."""
    for again in (True, False):
        trip = begun(again)
        trip.lost(trip.left, AuthenticationError("invalid username-password pair"))
        with pytest.raises(StoreRefused, match="no such user"):
            trip.pause()
