"""The scripts of a queue inside Redis, and an item of it as Redis holds it.

    {name}:waiting   a stream, an entry for each item     {name}:parked    a stream of its own
    {name}:names     canonical key -> writes that wait    {name}:writes    how many there are
    {name}:tokens    idempotency key -> entry; and {name}:parkedtokens     {name}:lease

All of it changes together, in scripts; the braces put it into one slot of a cluster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from bloomery.errors import InvalidParameter, QueueUnavailable
from bloomery.guard.codec import read_item
from bloomery.guard.protocols import Item


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


PUT = Script("""
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
""")
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
DONE = Script(f"""{_TAKE_OUT}
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
""")
PARK = Script(f"""{_TAKE_OUT}
local fields = take_out(ARGV[1])
if fields then
    fields[#fields + 1] = 'why'
    fields[#fields + 1] = ARGV[2]
    local id = redis.call('XADD', KEYS[5], '*', unpack(fields))
    redis.call('HSET', KEYS[6], fields[10], id)
end
""")
LEASE = Script("""
local held = redis.call('GET', KEYS[7])
if held and held ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[7], ARGV[1], 'PX', ARGV[2])
return 1
""")
RENEW = Script("""
if redis.call('GET', KEYS[7]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[7], ARGV[2])
""")
RELEASE = Script("""
if redis.call('GET', KEYS[7]) == ARGV[1] then redis.call('DEL', KEYS[7]) end
""")


def redis_keys(name: str) -> list[str]:
    """The keys of a queue, in the order in which its scripts have them."""
    if type(name) is not str or not name or set(name) & set("{}"):
        raise InvalidParameter(f"name is {name!r}, must be a string without braces")
    parts = ("waiting", "names", "writes", "tokens", "parked", "parkedtokens", "lease")
    return [f"{{{name}}}:{part}" for part in parts]


def refuse_eviction(memory: Any) -> None:
    """Raise if this Redis, by its INFO about memory, may drop what waits. Keys of a queue never
    expire, so only a policy for all keys does."""
    policy = memory.get("maxmemory_policy", "") if isinstance(memory, dict) else ""
    if policy.startswith("allkeys") and memory.get("maxmemory"):
        raise InvalidParameter(
            f"this Redis drops any key when its memory is full (maxmemory-policy {policy}), "
            "and a queue loses what waits: use one with noeviction"
        )


def read_entry(number: bytes, fields: Any, prefix: bytes = b"") -> tuple[Item, str]:
    """An entry of a stream as an item, and why it was set aside; the prefix tells the streams
    apart in its id."""
    try:
        if not isinstance(fields, dict):  # as a script or an old protocol has them
            fields = dict(zip(fields[::2], fields[1::2], strict=True))
        item = read_item(
            fields[b"what"].decode(),
            fields[b"key"],
            fields[b"value"],
            fields[b"token"].decode(),
            float(fields[b"at"]),
            prefix + number,
        )
        return item, fields.get(b"why", b"").decode()
    except (ValueError, KeyError) as problem:
        why = "a part of it is missing" if isinstance(problem, KeyError) else problem
        raise QueueUnavailable(
            f"entry {number.decode()} of the queue in Redis is damaged ({why}): nothing behind it "
            "is done until it is deleted, by XDEL"
        ) from None
