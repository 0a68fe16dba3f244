-- examples_test.lua: the five-step ladder: each is short, runs, and prints what stands in it, on
-- any device; the quickstart; the experiment; characters.

local here = arg[0]:match '^(.*/)' or './'
package.path = here .. '?.lua;' .. here .. '../../lua/?.lua;' .. package.path
local test = require 'tap'

local folder = here .. '../../examples/'

-- What the file's last comment promises: the lines after "-- prints:".
local function promise(text)
    local lines = {}
    for line in text:match('\n%-%- prints:\n(.*)$'):gmatch '[^\n]+' do
        lines[#lines + 1] = assert(line:match '^%-%-    (.*)$' or line == '--' and '', line)
    end
    return table.concat(lines, '\n') .. '\n'
end

-- Runs the file as `DEV=device luajit path` would and returns what it prints.
local function output(path, device)
    local parts = {}
    local function write(...)
        for i = 1, select('#', ...) do
            parts[#parts + 1] = tostring((select(i, ...)))
        end
    end
    local env = setmetatable({
        arg = {[0] = path},
        io = setmetatable({write = write}, {__index = io}),
        os = setmetatable({getenv = function(name)
            return name == 'DEV' and device or name ~= 'DEV' and os.getenv(name) or nil
        end}, {__index = os}),
        print = function(...)
            write((...), '\n')
        end,
    }, {__index = _G})
    setfenv(assert(loadfile(path)), env)()
    return table.concat(parts)
end

for _, name in ipairs {'1_tensor', '2_causal', '3_variant', '4_gradient', '5_picture'} do
    test(name, function(t)
        local path = folder .. name .. '.lua'
        local file = assert(io.open(path))
        local text = file:read '*a'
        file:close()
        local _, lines = text:match('^(.-)\n%-%- prints:'):gsub('\n', '\n')
        t.ok(lines < 15, 'fewer than 15 lines')
        t.equal(output(path), promise(text))
        if name ~= '5_picture' then -- which computes on no device
            t.equal(output(path, 'emu:sm_80'), promise(text), 'on a chip')
            t.fails(function() output(path, 'nowhere') end, 'there is no device "nowhere"')
        end
    end)
end

test('quickstart: right on the processor and on a chip', function(t)
    for _, device in ipairs {'auto', 'emu:sm_80'} do
        t.equal(select(2, output(folder .. 'quickstart.lua', device):gsub('right\n', '')), 5)
    end
end)

test('experiment: the loss falls', function(t)
    local losses = {}
    for loss in output(folder .. 'experiment.lua'):gmatch 'loss ([%d.]+)' do
        losses[#losses + 1] = tonumber(loss)
    end
    t.equal(#losses, 6)
    for i = 2, #losses do
        t.ok(losses[i] < losses[i - 1], 'step ' .. i)
    end
    t.ok(losses[6] < losses[1] / 50)
end)

-- The losses that characters.lua writes; env: what it reads of the environment.
local function losses(device, env)
    local path = os.tmpname()
    local get = os.getenv
    -- output() asks it for all but DEV
    os.getenv = function(name) -- luacheck: ignore 122
        return name == 'LOG' and path or env[name] or get(name)
    end
    local ok, why = pcall(output, folder .. 'characters.lua', device)
    os.getenv = get -- luacheck: ignore 122
    assert(ok, why)
    local list = {}
    for line in io.lines(path) do list[#list + 1] = tonumber(line:match '(%S+)$') end
    os.remove(path)
    return list
end

test('characters: the losses of a chip are those of the processor', function(t)
    local env = {STEPS = '3', ONLY = 'ALiBi'}
    local cpu, chip = losses('cpu', env), losses('emu:gfx942', env)
    t.equal(#cpu, 3)
    for i = 1, 3 do
        t.ok(math.abs(cpu[i] - chip[i]) < 1e-5, ('step %d: %.9g, %.9g'):format(i, cpu[i], chip[i]))
    end
end)

test.done()
