"""Where the bits of a filter in Redis are kept, whatever its backend, and its time to live."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from bloomery.errors import InvalidParameter, UnknownFilter, UnsupportedKey
from bloomery.integrations.redis.wire.flow import reply_to

if TYPE_CHECKING:
    from bloomery.integrations.redis.config import Config
    from bloomery.integrations.redis.naming import Keys
    from bloomery.integrations.redis.wire.flow import Ask, Flow
    from bloomery.types import Batch, Key, Mask

_LONGEST_LIFE = 1e10  # seconds: 300 years


def as_batch(key: Key) -> list[Key]:
    """Return a key as a batch. None in a batch is a row without a value; alone it is a mistake, and
    raises what a local filter raises."""
    if key is None:
        raise UnsupportedKey(
            "NoneType cannot be a key: a key is a str, bytes, int, UUID, datetime or a tuple of "
            "these; leave None out"
        )
    return [key]


def milliseconds(seconds: Any, what: str = "ttl") -> int | None:
    """Check a time to live in seconds; return it as Redis takes it."""
    if seconds is None:
        return None
    right = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not right or not 0.001 <= seconds <= _LONGEST_LIFE:
        raise InvalidParameter(
            f"{what} is {seconds!r}, must be None or in the range [0.001, {_LONGEST_LIFE:g}]"
        )
    return max(1, round(float(seconds) * 1000))


def expire_command(key: bytes, life: int | None, more: int = 0) -> tuple[bytes | str | int, ...]:
    """Return the command that lets a key expire in so many milliseconds, or never."""
    return ("PERSIST", key) if life is None else ("PEXPIRE", key, life + more)


class FilterStore(ABC):
    """Keeps the keys of a filter in Redis: in strings, in generations, or by a server's BF.*. Its
    methods are flows, so that they are written once for threads and for asyncio."""

    def __init__(self, keys: Keys, config: Config) -> None:
        self.keys = keys
        self.config = config

    @abstractmethod
    def add(self, keys: Batch) -> Flow[Mask]:
        """Add keys; True where one is definitely new."""

    @abstractmethod
    def contains(self, keys: Batch) -> Flow[Mask]:
        """Ask for keys; False is certain."""

    def single_ask(self, key: Key, *, write: bool) -> tuple[Any, list[Ask]] | None:
        """Return the round trip of a single key, for `single_answer`; None if it takes several."""
        return None

    def single_answer(self, sent: Any, replies: list[Any]) -> bool | None:
        """Return the answer to that; None if something is wrong, and the flow is to say what."""
        return None

    @abstractmethod
    def clear(self) -> Flow[None]:
        """Forget every key."""

    @abstractmethod
    def delete(self) -> Flow[None]:
        """Take the filter away."""

    @abstractmethod
    def expire(self, seconds: float | None) -> Flow[None]:
        """Let it end in so many seconds, or never."""

    def ttl(self) -> Flow[float | None]:
        """Seconds that are left, or None: it does not end. UnknownFilter if it is gone."""
        rest = yield from reply_to(self.keys.config, "PTTL", self.keys.config)
        if not isinstance(rest, int) or rest == -2:
            raise UnknownFilter(f"there is no filter {self.keys.name!r} in this Redis")
        return None if rest < 0 else rest / 1000

    @abstractmethod
    def info(self) -> Flow[dict[str, Any]]:
        """Everything that is known about it."""


S = TypeVar("S", bound=FilterStore)
