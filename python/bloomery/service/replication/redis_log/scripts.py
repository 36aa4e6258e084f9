"""The steps that Redis does, each as a whole: Lua, with the conditions of docs/decisions/0041.

A mark is a position and a tag (the bytes 4 to 20 of the entry there). KEYS: log, manifest, last,
foreign; then the claim to restore; for snapshots also what the names of chunks begin with. An error
of a script means that nothing was done: Redis refuses the first thing that it writes, or nothing.

A stream without entries counts as no stream: XTRIM or XDEL leave one.

An entry that no node can have written, by its fields, is moved to `foreign` where a script meets
it. The stream's last number is set back too, so the log is as if it had never been there: it is in
no node's history, and neither its number nor its time matters to later entries.

`last` is only a shortcut: where it is not the mark that is asked for, the stream decides. It is
written in the same step as the entry, and taken away before entries are put back, so it never names
an entry that the stream has not got.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha1


@dataclass(frozen=True, slots=True)
class LogScript:
    """A script, and the name by which Redis knows it once it was there."""

    text: bytes
    keys: int = 4
    sha: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", sha1(self.text).hexdigest().encode())


# 49 bytes: the head of an entry (`core.entries`).
_FOREIGN = b"""
local log, foreign = KEYS[1], KEYS[4]

local function tag_of(entry) return string.sub(entry, 5, 20) end

local function is_foreign(one)
  local fields = one[2]
  return #fields ~= 2 or fields[1] ~= 'e' or #fields[2] < 49
end

local function set_aside(one)
  local fields = string.sub(table.concat(one[2], ' '), 1, 4096)
  redis.call('XADD', foreign, 'MAXLEN', 100, '*', 'position', one[1], 'fields', fields)
  redis.call('XDEL', log, one[1])
  local before = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
  if before then redis.pcall('XSETID', log, before[1]) else redis.call('DEL', log) end
end

local function final_entry()
  while true do
    local one = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
    if not one or not is_foreign(one) then return one end
    set_aside(one)
  end
end
"""

# ARGV: position and tag of the mark (none: ''), most entries, most bytes.
# Replies {kind, end, its tag, position, entry, …}: 0: the mark is not there, entries from its
# position on; 1: it is, entries behind it.
_READ = (
    _FOREIGN
    + b"""
local last, at, tag = KEYS[3], ARGV[1], ARGV[2]

local function read()
  local most, room = tonumber(ARGV[3]), tonumber(ARGV[4])
  local reply, from, take, largest, whole = {0, '', ''}, at, 4, 1, false
  if at == '' then from = '-' end
  repeat
    local some = redis.call('XRANGE', log, from, '+', 'COUNT', take)
    for _, one in ipairs(some) do
      local id, entry = one[1], one[2][2]
      if is_foreign(one) then
        set_aside(one)
      elseif id == at and tag_of(entry) == tag then
        reply[1] = 1
      else
        reply[#reply + 1] = id
        reply[#reply + 1] = entry
      end
      room = room - #entry
      largest = math.max(largest, #entry)
    end
    most = most - #some
    whole = #some < take
    if not whole then from = '(' .. some[take][1] end
    take = math.min(4 * take, most, math.ceil(room / largest))
  until whole or take <= 0
  return reply, whole
end

local function with_end(reply, whole)
  local count = #reply
  if whole and count > 3 then
    reply[2], reply[3] = reply[count - 1], tag_of(reply[count])
  elseif whole and reply[1] == 1 then
    reply[2], reply[3] = at, tag
  else
    local final = final_entry()
    if final then reply[2], reply[3] = final[1], tag_of(final[2][2]) end
  end
  return reply
end
"""
)

# What others wrote there without `last`, and be it garbage, is seen by all: nothing is skipped.
_IS_LAST = b"""
local function is_last()
  return redis.call('GET', KEYS[3]) == ARGV[1] .. ARGV[2]
    and redis.call('XLEN', KEYS[1]) > 0
    and #redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', 1) == 0
end
"""

FETCH = LogScript(
    _IS_LAST
    + b"""
if is_last() then return {1, ARGV[1], ARGV[2]} end
"""
    + _READ
    + b"return with_end(read())"
)

# ARGV: as above, and the entry. Replies {2, position, '', entries between the mark and it}; 3: not
# all of those; or what a fetch replies, and nothing is appended.
APPEND = LogScript(
    _IS_LAST
    + b"""
if is_last() then
  local id = redis.call('XADD', KEYS[1], '*', 'e', ARGV[5])
  redis.call('SET', KEYS[3], id .. string.sub(ARGV[5], 5, 20))
  return {2, id}
end
"""
    + _READ
    + b"""
local reply, whole = read()
if at == '' then
  if redis.call('XLEN', log) > 0 or redis.call('EXISTS', KEYS[2]) == 1 then
    return with_end(reply, whole)
  end
elseif reply[1] == 0 then
  return with_end(reply, whole)
end
if redis.call('EXISTS', KEYS[5]) == 1 then return with_end(reply, whole) end
local id = redis.call('XADD', log, '*', 'e', ARGV[5])
redis.call('SET', last, id .. tag_of(ARGV[5]))
reply[1], reply[2] = whole and 2 or 3, id
return reply
""",
    keys=5,
)

# ARGV: position and tag of the mark that the stream must end with; then positions and entries.
# With a claim there is no `last`, so that each append looks for the claim.
PUT_BACK = LogScript(
    _FOREIGN
    + b"""
local last, final = KEYS[3], final_entry()
if not final or final[1] ~= ARGV[1] or tag_of(final[2][2]) ~= ARGV[2] then return 0 end
redis.call('DEL', last)
for n = 3, #ARGV, 2 do redis.call('XADD', log, ARGV[n], 'e', ARGV[n + 1]) end
if redis.call('EXISTS', KEYS[5]) == 0 then
  redis.call('SET', last, ARGV[#ARGV - 1] .. string.sub(ARGV[#ARGV], 5, 20))
end
return 1
""",
    keys=5,
)

# ARGV[1] and [2]: position and tag of the mark that the stream must end with ('': there is none).
_ENDS = (
    _FOREIGN
    + b"""
local function ends()
  local final = final_entry()
  if not final then return ARGV[1] == '' end
  return final[1] == ARGV[1] and tag_of(final[2][2]) == ARGV[2]
end
"""
)

# ARGV: the mark; the node, milliseconds, whether it is willing, whether any end will do ('1').
# Without `last` each append looks for the claim. A claim that ends later than it can was made
# before Redis's clock jumped back.
CLAIM = LogScript(
    _ENDS
    + b"""
if ARGV[6] ~= '1' and not ends() then return 0 end
local claim, ms, time = KEYS[5], tonumber(ARGV[4]), redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held = redis.call('HMGET', claim, 'node', 'until')
local left = (tonumber(held[2] or '') or 0) - now
local free = not held[1] or held[1] == ARGV[3] or left <= 0 or left > ms
redis.call('HSET', claim, 'seen', now)
if ARGV[5] == '1' and free then
  redis.call('HSET', claim, 'node', ARGV[3], 'until', string.format('%.0f', now + ms))
end
redis.call('PEXPIRE', claim, 2 * ms)
redis.call('DEL', KEYS[3])
return (ARGV[5] == '1' and free) and 1 or 0
""",
    keys=5,
)

_SNAPSHOTS = b"""
local log, manifest, last, chunk = KEYS[1], KEYS[2], KEYS[3], KEYS[6]

local function parts(id, first, count)
  local names = {}
  for n = first, first + count - 1 do names[#names + 1] = chunk .. id .. ':' .. n end
  return names
end

local function count_of(id)  -- of its chunks, if all are there
  local head = redis.call('GET', chunk .. id)
  if not head or #head < 12 then return nil end
  local count = struct.unpack('<I4', string.sub(head, 9, 12))
  for first = 0, count - 1, 1000 do
    local names = parts(id, first, math.min(1000, count - first))
    if redis.call('EXISTS', unpack(names)) < #names then return nil end
  end
  return count
end

local function keep(id, count)
  redis.call('PERSIST', chunk .. id)
  for _, name in ipairs(parts(id, 0, count)) do redis.call('PERSIST', name) end
end

local function named()
  local head, found = redis.call('GETRANGE', manifest, 8, 72), {}
  for n = 1, string.byte(head, 1) or 0 do found[n] = string.sub(head, 32 * n - 30, 32 * n + 1) end
  return found
end

local function drop(old, ids)  -- chunks of those that are not named any more
  for _, id in ipairs(old) do
    if not string.find(ids, id, 1, true) then
      redis.call('UNLINK', chunk .. id)
      local first = 0
      while redis.call('UNLINK', unpack(parts(id, first, 1000))) > 0 do first = first + 1000 end
    end
  end
end
"""

# ARGV: the newest snapshot as it was read (none: ''), the manifest, the ids that it names; of the
# first one the position and tag; before which position to trim (nowhere: '').
SWAP = LogScript(
    _SNAPSHOTS
    + b"""
local old, id = named(), string.sub(ARGV[3], 1, 32)
if (old[1] or '') ~= ARGV[1] then return 0 end
local found = redis.call('XRANGE', log, ARGV[4], ARGV[4])[1]
if not found or string.sub(found[2][2], 5, 20) ~= ARGV[5] then return 0 end
local count = count_of(id)
if not count then return 0 end
redis.call('SET', manifest, ARGV[2])
keep(id, count)
drop(old, ARGV[3])
if ARGV[6] ~= '' then redis.call('XTRIM', log, 'MINID', ARGV[6]) end
return 1
""",
    keys=6,
)

# ARGV: the id of the newest snapshot as it was read, the position and tag of its last entry.
# Replies 1: chunks are missing; 2: the log lacks that entry; 0: neither, or there is another
# snapshot now.
CHECK = LogScript(
    _SNAPSHOTS
    + b"""
if named()[1] ~= ARGV[1] then return 0 end
if not count_of(ARGV[1]) then return 1 end
local found = redis.call('XRANGE', log, ARGV[2], ARGV[2])[1]
if not found or string.sub(found[2][2], 5, 20) ~= ARGV[3] then return 2 end
return 0
""",
    keys=6,
)

# ARGV: the id of a snapshot.
DROP = LogScript(
    _SNAPSHOTS
    + b"""
drop({ARGV[1]}, table.concat(named(), ' '))
return 1
""",
    keys=6,
)

# ARGV: the mark; the manifest, the ids that it names; position and bytes of the first one's last
# entry.
RESTORE = LogScript(
    _SNAPSHOTS
    + _ENDS
    + b"""
local id = string.sub(ARGV[4], 1, 32)
if not ends() then return 0 end
local count = count_of(id)
if not count then return 0 end
local old = named()
redis.call('SET', manifest, ARGV[3])
keep(id, count)
drop(old, ARGV[4])
redis.call('DEL', log, last, KEYS[5])
redis.call('XADD', log, ARGV[5], 'e', ARGV[6])
redis.call('SET', last, ARGV[5] .. string.sub(ARGV[6], 5, 20))
return 1
""",
    keys=6,
)
