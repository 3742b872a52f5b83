-- One exchange, atomic, on the server's clock. KEYS: one to write to, those of the news, then those of
-- the targets offered: of each its model's, its credential's and its host's, as far as they are known.
-- ARGV: owner; for how many milliseconds an entry is kept after its rest; the lease of a probe in
-- milliseconds; whether to show first that writing works ("1"); number of news, then of each its
-- health, the milliseconds left of its rest, its failed probes and whether it ended a probe ("1"); at
-- last the number of keys of each target.
-- Returns for each key offered {} or {milliseconds left, failures, lease left, "1" if it is ours}.
local owner, kept, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local count = tonumber(ARGV[5])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

if ARGV[4] == '1' then redis.call('SET', KEYS[1], owner, 'PX', 1000) end

local function read(key)
  local fields = redis.call('HMGET', key, 'until', 'failures', 'owner', 'leased')
  if not fields[1] then return nil end
  return {due = tonumber(fields[1]), failures = tonumber(fields[2]), owner = fields[3] or '',
          leased = tonumber(fields[4] or 0)}
end

local function write(key, entry)
  redis.call('HSET', key, 'until', entry.due, 'failures', entry.failures, 'owner', entry.owner,
             'leased', entry.leased)
  redis.call('PEXPIRE', key, math.max(0, entry.due - now) + kept)
end

for number = 1, count do
  local key, at = KEYS[number + 1], 6 + (number - 1) * 4
  local health, due = ARGV[at], now + tonumber(ARGV[at + 1])
  local failures, probe = tonumber(ARGV[at + 2]), ARGV[at + 3] == '1'
  local entry = read(key)
  local mine = entry ~= nil and probe and entry.owner == owner
  if health == 'up' then
    redis.call('DEL', key)
  elseif health == 'down' and (entry == nil or mine) then
    write(key, {due = due, failures = failures, owner = '', leased = 0})
  elseif health == 'down' then
    entry.due = math.max(entry.due, due)
    write(key, entry)
  elseif mine then
    entry.owner = ''
    write(key, entry)
  end
end

local reply, probe_needed, first = {}, true, count + 2
for argument = 6 + count * 4, #ARGV do
  local last = first + tonumber(ARGV[argument]) - 1
  local down, ready = {}, true
  for number = first, last do
    local entry = read(KEYS[number])
    if entry ~= nil then
      local free = entry.owner == '' or entry.owner == owner or entry.leased <= now
      ready = ready and entry.due <= now and free
      down[number] = entry
    end
  end
  if next(down) == nil then
    probe_needed = false -- a free target: no target behind it needs a probe
  elseif probe_needed and ready then
    probe_needed = false
    for number, entry in pairs(down) do
      entry.owner, entry.leased = owner, now + lease
      write(KEYS[number], entry)
    end
  end
  for number = first, last do
    local entry = down[number]
    if entry == nil then
      reply[#reply + 1] = {}
    else
      local left = entry.owner == '' and 0 or math.max(0, entry.leased - now)
      reply[#reply + 1] = {math.max(0, entry.due - now), entry.failures, left,
                           entry.owner == owner and '1' or '0'}
    end
  end
  first = last + 1
end
return reply
