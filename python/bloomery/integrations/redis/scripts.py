"""What is done inside Redis, where several commands must be one step: in Lua.

None of them is on the way of a batch: a loop there took three times as long as one BITFIELD a key.
"""

from __future__ import annotations

__all__ = ["CLEAR", "MAKE", "MARGIN", "SETTLE", "STRAY"]

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
