"""A queue inside Redis: what each of its methods asks Redis, written once for threads and asyncio.

    {name}:waiting   a stream, an entry for each item     {name}:parked    a stream of its own
    {name}:names     canonical key -> writes that wait    {name}:writes    how many there are
    {name}:tokens    idempotency key -> entry; and {name}:parkedtokens     {name}:lease

All of it changes together, in scripts; the braces put it into one slot of a cluster. A method is a
flow (`bloomery.flow`) that yields commands and is sent the replies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from typing import Any, TypeAlias, TypeVar

import bloomery._native as _native
from bloomery.errors import InvalidParameter, QueueUnavailable
from bloomery.guard.codec import encode, read_item
from bloomery.guard.protocols import Item

__all__ = ["RedisFlow", "RedisScripts", "Script", "as_sent"]

T = TypeVar("T")
RedisFlow: TypeAlias = Generator[tuple[Any, ...], Any, T]
_SOME = 1000  # entries at a time

_PUT = """
local kept, seen, most = {}, {}, tonumber(ARGV[1])
local looks = true
for i = 2, #ARGV, 6 do
    if ARGV[i] ~= 'look' then looks = false end
    local token = ARGV[i + 4]
    if not seen[token] and redis.call('HEXISTS', KEYS[4], token) == 0 then
        kept[#kept + 1] = i
        seen[token] = true
    end
end
if looks then most = math.floor(most / 2) end
local waiting = redis.call('XLEN', KEYS[1])
if #kept > 0 and waiting + #kept > most then return {waiting, most} end
for _, i in ipairs(kept) do
    local name, token = ARGV[i + 1], ARGV[i + 4]
    local id = redis.call('XADD', KEYS[1], '*', 'what', ARGV[i], 'name', name, 'key', ARGV[i + 2],
        'value', ARGV[i + 3], 'token', token, 'at', ARGV[i + 5])
    redis.call('HSET', KEYS[4], token, id)
    if ARGV[i] ~= 'look' then
        redis.call('HINCRBY', KEYS[2], name, 1)
        redis.call('INCR', KEYS[3])
    end
    local parked = redis.call('HGET', KEYS[6], token)
    if parked then
        redis.call('XDEL', KEYS[5], parked)
        redis.call('HDEL', KEYS[6], token)
    end
end
return {}
"""
_TAKE_OUT = """
local function take_out(id)
    local row = redis.call('XRANGE', KEYS[1], id, id)[1]
    if not row then return nil end
    local fields = row[2]
    redis.call('XDEL', KEYS[1], id)
    redis.call('HDEL', KEYS[4], fields[10])
    if fields[2] ~= 'look' then
        if redis.call('HINCRBY', KEYS[2], fields[4], -1) <= 0 then
            redis.call('HDEL', KEYS[2], fields[4])
        end
        redis.call('DECR', KEYS[3])
    end
    return fields
end
"""
# Entries of the two streams may have the same number: one that is parked has a p before it.
_DONE = f"""{_TAKE_OUT}
local waited = 0
for _, id in ipairs(ARGV) do
    if string.sub(id, 1, 1) == 'p' then
        id = string.sub(id, 2)
        local row = redis.call('XRANGE', KEYS[5], id, id)[1]
        if row then
            redis.call('XDEL', KEYS[5], id)
            redis.call('HDEL', KEYS[6], row[2][10])
        end
    elseif take_out(id) then
        waited = waited + 1
    end
end
return waited
"""
_PARK = f"""{_TAKE_OUT}
local fields = take_out(ARGV[1])
if fields then
    fields[#fields + 1] = 'why'
    fields[#fields + 1] = ARGV[2]
    local id = redis.call('XADD', KEYS[5], '*', unpack(fields))
    redis.call('HSET', KEYS[6], fields[10], id)
end
"""
_LEASE = """
local held = redis.call('GET', KEYS[7])
if held and held ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[7], ARGV[1], 'PX', ARGV[2])
return 1
"""
_RENEW = """
if redis.call('GET', KEYS[7]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[7], ARGV[2])
"""
_RELEASE = """
if redis.call('GET', KEYS[7]) == ARGV[1] then redis.call('DEL', KEYS[7]) end
"""


class Script(str):
    """A script of Redis, in the place of a command's name."""

    __slots__ = ()

    @property
    def sha(self) -> str:
        """By which Redis knows it."""
        return hashlib.sha1(self.encode(), usedforsecurity=False).hexdigest()


def as_sent(commands: Sequence[tuple[Any, ...]], *, whole: bool) -> list[tuple[Any, ...]]:
    """Commands as they are sent, scripts by their digests, or as a whole."""
    return [
        command
        if not isinstance(command[0], Script)
        else ("EVAL", *command)
        if whole
        else ("EVALSHA", command[0].sha, *command[1:])
        for command in commands
    ]


class RedisScripts:
    """What the methods of a queue ask Redis."""

    def __init__(self, name: str, max_items: int) -> None:
        if type(name) is not str or not name or set(name) & set("{}"):
            raise InvalidParameter(f"name is {name!r}, must be a string without braces")
        if type(max_items) is not int or max_items < 2:
            raise InvalidParameter(f"max_items is {max_items!r}, must be an integer of at least 2")
        self.max_items = max_items
        parts = ("waiting", "names", "writes", "tokens", "parked", "parkedtokens", "lease")
        self._keys = [f"{{{name}}}:{part}" for part in parts]
        self._waiting, self._names, self._writes, _, self._parked, _, _ = self._keys

    def check(self) -> RedisFlow[None]:
        """Raise if this Redis may drop what waits. Its keys never expire, so only a policy for all
        keys does."""
        memory = yield ("INFO", "memory")
        policy = memory.get("maxmemory_policy", "") if isinstance(memory, dict) else ""
        if policy.startswith("allkeys") and memory.get("maxmemory"):
            raise InvalidParameter(
                f"this Redis drops any key when its memory is full (maxmemory-policy {policy}), "
                "and a queue loses what waits: use one with noeviction"
            )

    def put(self, items: Sequence[Item]) -> RedisFlow[None]:
        """Write them down."""
        values: list[Any] = [self.max_items]
        for item in items:
            values += (item.what, _native.canonical(item.key), encode(item.key))
            values += (encode(item.value), item.idempotency_key, repr(item.at))
        full = yield self._script(_PUT, *values)
        if full:
            waiting, most = full
            looks = " with look-ups" if most < self.max_items else ""
            raise QueueUnavailable(
                f"{self._waiting}: the queue is full ({waiting} items wait, of at most {most}"
                f"{looks}): let the source answer again, or give a larger max_items"
            )

    def pending(self, keys: Sequence[bytes]) -> RedisFlow[set[bytes]]:
        """Which of these have a write that waits."""
        counts = (yield ("HMGET", self._names, *keys)) if keys else []
        return {key for key, count in zip(keys, counts, strict=True) if count is not None}

    def writes(self) -> RedisFlow[int]:
        """How many writes wait."""
        return int((yield ("GET", self._writes)) or 0)

    def waiting(self) -> RedisFlow[int]:
        """How many items wait."""
        return int((yield ("XLEN", self._waiting)))

    def keys(self) -> RedisFlow[list[Any]]:
        """The keys of all adds that wait."""
        items = yield from self._all(self._waiting)
        return [item.key for item, _ in items if item.what == "add"]

    def head(self, most: int) -> RedisFlow[list[Item]]:
        """The first items."""
        rows = yield ("XRANGE", self._waiting, "-", "+", "COUNT", most)
        return [_item(*row)[0] for row in rows or ()]

    def done(self, items: Sequence[Item]) -> RedisFlow[int]:
        """They wait no more; how many did."""
        if not items:
            return 0
        return int((yield self._script(_DONE, *(item.id for item in items))))

    def park(self, item: Item, why: str) -> RedisFlow[None]:
        """Set it aside."""
        yield self._script(_PARK, item.id, why)

    def parked(self) -> RedisFlow[list[tuple[Item, str]]]:
        """What was set aside, and why."""
        return (yield from self._all(self._parked, b"p"))

    def lease(self, owner: str, seconds: float) -> RedisFlow[bool]:
        """May this one drain?"""
        return bool((yield self._script(_LEASE, owner, max(1, int(seconds * 1000)))))

    def renew(self, owner: str, seconds: float) -> RedisFlow[bool]:
        """May this one go on?"""
        return bool((yield self._script(_RENEW, owner, max(1, int(seconds * 1000)))))

    def release(self, owner: str) -> RedisFlow[None]:
        """Drain no longer."""
        yield self._script(_RELEASE, owner)

    def _script(self, text: str, *values: Any) -> tuple[Any, ...]:
        return (Script(text), len(self._keys), *self._keys, *values)

    def _all(self, stream: str, mark: bytes = b"") -> RedisFlow[list[tuple[Item, str]]]:
        items: list[tuple[Item, str]] = []
        start: Any = "-"
        while rows := (yield ("XRANGE", stream, start, "+", "COUNT", _SOME)):
            items += [_item(number, fields, mark) for number, fields in rows]
            start = b"(" + rows[-1][0]
        return items


def _item(number: bytes, fields: Any, mark: bytes = b"") -> tuple[Item, str]:
    try:
        if not isinstance(fields, dict):  # as a script or an old protocol has them
            fields = dict(zip(fields[::2], fields[1::2], strict=True))
        item = read_item(
            fields[b"what"].decode(),
            fields[b"key"],
            fields[b"value"],
            fields[b"token"].decode(),
            float(fields[b"at"]),
            mark + number,
        )
        return item, fields.get(b"why", b"").decode()
    except (ValueError, KeyError) as problem:
        why = "a part of it is missing" if isinstance(problem, KeyError) else problem
        raise QueueUnavailable(
            f"entry {number.decode()} of the queue in Redis is damaged ({why}): nothing behind it "
            "is done until it is deleted, by XDEL"
        ) from None
