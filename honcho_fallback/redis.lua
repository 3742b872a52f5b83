-- One exchange, atomic, on the server's clock. KEYS: first those of the reports, then those of the
-- targets offered: of each its model's, its credential's and its host's, as far as they are known.
-- ARGV: owner, base and cap and lease in milliseconds, number of reports, then per report its health,
-- the milliseconds of the provider's Retry-After ("" for none) and whether it was a probe ("1"); at
-- last the number of keys of each target.
-- Returns for each key offered {} or {milliseconds left, failures, lease left, "1" if it is ours}.
local owner, base, cap, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local count = tonumber(ARGV[5])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function read(key)
  local fields = redis.call('HMGET', key, 'until', 'failures', 'owner', 'leased')
  if not fields[1] then return nil end
  return {due = tonumber(fields[1]), failures = tonumber(fields[2]), owner = fields[3] or '',
          leased = tonumber(fields[4] or 0)}
end

local function write(key, entry)
  redis.call('HSET', key, 'until', entry.due, 'failures', entry.failures, 'owner', entry.owner,
             'leased', entry.leased)
  redis.call('PEXPIRE', key, math.max(0, entry.due - now) + cap)
end

for number = 1, count do
  local key, at = KEYS[number], 5 + (number - 1) * 3
  local health, retry_after, probe = ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3] == '1'
  local entry = read(key)
  local mine = entry ~= nil and probe and entry.owner == owner
  if health == 'down' then
    local failures = entry and entry.failures + (mine and 1 or 0) or 0
    local rest = math.min(retry_after or base * 2 ^ math.min(failures, 40), cap)
    if entry == nil or mine then
      write(key, {due = now + rest, failures = failures, owner = '', leased = 0})
    elseif retry_after then
      entry.due = math.max(entry.due, now + rest)
      write(key, entry)
    end
  elseif mine and health == 'up' then
    redis.call('DEL', key)
  elseif mine then
    entry.owner = ''
    write(key, entry)
  end
end

local reply, probe_needed, first = {}, true, count + 1
for argument = 6 + count * 3, #ARGV do
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
