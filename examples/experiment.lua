-- experiment.lua: a score nobody has named. A learned table of distances is composed with ALiBi
-- and a window, and trained by plain gradient steps towards the output of a hidden table.
--
--   luajit examples/experiment.lua            DEV=ref: another device that has backward
package.path = (arg[0]:match '^(.*/)' or './') .. '../lua/?.lua;' .. package.path
local attn = require 'attn'

local dev = attn.device(os.getenv 'DEV' or 'auto')
local B, H, N, D, R = 1, 4, 128, 32, 32
local q, k, v = attn.randn(3, {B, H, N, D}, {seed = 1, device = dev})

-- The variant that adds table[h][distance], as a part of a composition.
local function near(rel)
    return attn.variant(function(s, b, h, q, k) -- luacheck: ignore
        return s + rel[h][math.min(q - k, R)] + math.log(1 + math.abs(q - k)) / 8
    end)
end
local function mix(rel)
    return {attn.alibi(H), attn.window(64, 0), near(rel)} -- left to right: scores chain, masks AND
end

local hidden = attn.randn(1, {H, R + 1}, {seed = 2, device = dev})
local target = attn.attention(q, k, v, {variant = mix(hidden)})
local rel = attn.zeros({H, R + 1}, {device = dev})
local variant = attn.variant(mix(rel)) -- traced once; a step changes the table, not the variant

io.write(attn.picture(variant, {nq = 8, nk = 8}), '\n')
for step = 0, 100 do
    local o, call = attn.attention(q, k, v, {variant = variant})
    local d = o - target
    local g = call:backward(d, {rel}) -- g.q g.k g.v g[rel]
    if step % 20 == 0 then
        print(('step %3d  loss %.5f'):format(step, (d * d):sum() / 2))
    end
    rel:add_(g[rel], -0.005)
    call:free()
end
