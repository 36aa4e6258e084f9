"""Lua scripts, for what must be one step inside Redis.

None of them is on the way of a batch: a loop there took three times as long as one BITFIELD a key.
"""

from __future__ import annotations

# Strings live so many milliseconds longer than the configuration: one that has no more left is
# what remains of a filter that has expired.
MARGIN = 1000
# A string that adding has made where none was goes again; a whole one is somebody's new filter.
STRAY = (
    "if redis.call('STRLEN', KEYS[1]) < tonumber(ARGV[1]) then redis.call('UNLINK', KEYS[1]) end"
)
# Adding nothing to the last byte writes it, and changes no bit. Another creator's string stays.
MAKE = f"""
local left, whole = redis.call('PTTL', KEYS[1]), tonumber(ARGV[1])
if redis.call('STRLEN', KEYS[1]) ~= whole or (left >= 0 and left <= {MARGIN}) then
  redis.call('UNLINK', KEYS[1])
  redis.call('BITFIELD', KEYS[1], 'OVERFLOW', 'SAT', 'INCRBY', 'u8', whole * 8 - 8, 0)
  left = -1
end
if ARGV[2] ~= '' then redis.call('PEXPIRE', KEYS[1], ARGV[2])
elseif left >= 0 then redis.call('PERSIST', KEYS[1]) end
return redis.call('STRLEN', KEYS[1])
"""
CLEAR = """
local before, left = redis.call('STRLEN', KEYS[1]), redis.call('PTTL', KEYS[1])
if before == tonumber(ARGV[1]) then
  redis.call('UNLINK', KEYS[1])
  redis.call('BITFIELD', KEYS[1], 'OVERFLOW', 'SAT', 'INCRBY', 'u8', before * 8 - 8, 0)
  if left >= 0 then redis.call('PEXPIRE', KEYS[1], left) end
end
return before
"""
# The configuration, if it is still the one that strings were made for.
SETTLE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
end
return redis.call('GET', KEYS[1])
"""

# KEYS: the string, the hash. ARGV: the number, how long the string is, when it ends and when it
# begins, and the oldest that is still asked for. One of the future would make all others old, and
# is not made; nor is one that is over: the client learns the time next, and asks for another.
MAKE_GENERATION = """
if redis.call('HEXISTS', KEYS[2], 'made') == 0 then return 0 end
local now = redis.call('TIME')
now = now[1] * 1000 + now[2] / 1000
if now < tonumber(ARGV[4]) or now >= tonumber(ARGV[3]) then return 1 end
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 then
  redis.call('UNLINK', KEYS[1])
  redis.call('SETRANGE', KEYS[1], ARGV[2] - 1, '\\0')
  redis.call('PEXPIREAT', KEYS[1], ARGV[3])
  redis.call('HSET', KEYS[2], ARGV[1], 1)
end
for _, one in ipairs(redis.call('HKEYS', KEYS[2])) do
  local number = tonumber(one)
  if number and number < tonumber(ARGV[5]) then redis.call('HDEL', KEYS[2], one) end
end
return 1
"""

# KEYS as before; ARGV: the number, how long the string is, and when it ends. What adding has made
# of one that was gone goes again. 1: it was not yet its time. It stays in the hash, and is missed
# until nobody asks for it any more: by then no key of it is within the window.
LOST_GENERATION = """
if redis.call('STRLEN', KEYS[1]) == tonumber(ARGV[2]) then return 0 end
redis.call('UNLINK', KEYS[1])
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 then return 0 end
if redis.call('TIME')[1] * 1000 >= tonumber(ARGV[3]) then return 0 end
return 1
"""

# KEYS: the hash, the strings of all generations that it names. ARGV: these numbers. 0: it is gone.
CLEAR_GENERATIONS = """
if redis.call('HEXISTS', KEYS[1], 'made') == 0 then return 0 end
for at, number in ipairs(ARGV) do
  redis.call('UNLINK', KEYS[at + 1])
  redis.call('HDEL', KEYS[1], number)
end
return 1
"""
