-- Decides the checks in order. The contract stands at the top of the script.

local reply = { tonumber(ARGV[1]), now_us }
local key, arg, out = 0, 3, 2
local levels, marks, unsaved = {}, {}, {}

while ARGV[arg] do
  local charges, legs = ARGV[arg] == '1', tonumber(ARGV[arg + 1])
  local first_key, first_arg = key, arg + 2
  local verdict = 1

  arg = first_arg
  for leg = 1, legs do
    local algorithm = tonumber(ARGV[arg])
    local cost, capacity = tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
    local level, mark, is_unsaved = read[algorithm](
      KEYS[first_key + leg], capacity, tonumber(ARGV[arg + 3]), tonumber(ARGV[arg + 4]))
    if level == nil then
      verdict = -1
      -- Foreign data is not ours to overwrite, but it must not stay for ever.
      if charges then
        local left_ms = call('PTTL', KEYS[first_key + leg])
        if left_ms < 0 or left_ms > mark then
          call('PEXPIRE', KEYS[first_key + leg], mark)
        end
      end
      level, mark, is_unsaved = 0, 0, false
    elseif verdict == 1
      and (cost > capacity or (level > slack[algorithm] and level + cost > capacity)) then
      verdict = 0
    end
    levels[leg], marks[leg], unsaved[leg] = level, mark, is_unsaved
    arg = arg + 5
  end

  out = out + 1
  reply[out] = verdict
  arg = first_arg
  for leg = 1, legs do
    local cost = tonumber(ARGV[arg + 1])
    if charges and (unsaved[leg] or (verdict == 1 and cost > 0)) then
      if verdict == 1 then
        levels[leg] = levels[leg] + cost
      end
      write[tonumber(ARGV[arg])](
        KEYS[first_key + leg], levels[leg], marks[leg],
        tonumber(ARGV[arg + 2]), tonumber(ARGV[arg + 3]))
    end
    reply[out + 1], reply[out + 2] = levels[leg], marks[leg]
    out = out + 2
    arg = arg + 5
  end
  key = first_key + legs
end

return reply
