-- characters.lua: a two-layer model learns which character follows, in sonnets, once for each of
-- three variants; all else is the same: how far it sees, and whether distance counts.
--
--   luajit examples/characters.lua            STEPS=300   steps of each (20)
--                                             DEV=name    the device of attention (cpu)
--                                             ONLY=ALiBi  one of the variants
--                                             OUT=x.svg   the loss curves as a picture
--                                             LOG=x.txt   every loss, to compare devices
--
-- The text: eight sonnets of William Shakespeare (1609), characters/sonnets.txt.

local here = arg[0]:match '^(.*)/' or '.'
package.path = here .. '/../lua/?.lua;' .. here .. '/characters/?.lua;' .. package.path
local ffi = require 'ffi'
local attn = require 'attn'
local model = require 'model'
local curves = require 'curves'

local steps = tonumber(os.getenv 'STEPS' or 20)
local device = os.getenv 'DEV' or 'cpu'
local H = 2
local variants = {
    {'causal', attn.causal},
    {'window of 8', attn.window(7, 0)},
    {'ALiBi', {attn.causal, attn.alibi(H)}},
}

local file = assert(io.open(here .. '/characters/sonnets.txt'))
local text = file:read '*a'
file:close()

-- Numbers of the text's characters, in order of their first use.
local number, V, all = {}, 0, {}
for i = 1, #text do
    local c = text:sub(i, i)
    if not number[c] then number[c], V = V, V + 1 end
    all[i] = number[c]
end
local shape = {V = V, B = 4, N = 64, H = H, d = 32}

-- Sequences of step n: they begin where a fixed generator says.
local function batch(n)
    local from, after = ffi.new('int[?]', shape.B * shape.N), ffi.new('int[?]', shape.B * shape.N)
    for b = 0, shape.B - 1 do
        local first = (n * shape.B + b) * 7919 % (#all - shape.N) + 1
        for i = 0, shape.N - 1 do
            from[b * shape.N + i], after[b * shape.N + i] = all[first + i], all[first + i + 1]
        end
    end
    return from, after
end

print(('%d characters, %d different; attention on %s'):format(#text, V, device))
local log = os.getenv 'LOG' and assert(io.open(os.getenv 'LOG', 'w'))
local lines = {}
local function train(name, variant)
    local m, losses = model.new(shape, variant, device), {}
    for n = 1, steps do
        local from, after = batch(n)
        losses[n] = m:step(from, after, 0.003)
        if log then log:write(('%s %d %.9g\n'):format(name, n, losses[n])) end
        if n == 1 or n == steps or n % 50 == 0 then
            print(('%-12s step %4d  loss %.6f'):format(name, n, losses[n]))
        end
    end
    assert(losses[steps] < losses[1] or steps == 1, 'the loss did not fall')
    lines[#lines + 1] = {name = name, y = losses}
end

local only = os.getenv 'ONLY'
for _, v in ipairs(variants) do
    if not only or only == v[1] then train(v[1], v[2]) end
end
if log then log:close() end
if os.getenv 'OUT' then curves.write(os.getenv 'OUT', lines, 'step', 'loss') end
