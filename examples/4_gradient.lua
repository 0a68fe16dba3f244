-- 4. A learned table: a number per head and distance, its gradient, a step against it.
package.path = (arg[0]:match '^(.*/)' or './') .. '../lua/?.lua;' .. package.path
local attn = require 'attn'
local dev = os.getenv 'DEV'
local q, k, v, target = attn.randn(4, {1, 2, 16, 8}, {seed = 1, device = dev})
local rel = attn.zeros({2, 16}, {device = dev})
local function f(s, _, h, i, j) return s + rel[h][math.min(math.abs(i - j), 15)] end
for _ = 0, 1 do
    local o, call = attn.attention(q, k, v, {variant = f})
    rel:add_(call:backward(o - target, {rel})[rel], -0.5)
    print(('loss %.3f'):format(((o - target) * (o - target)):sum() / 2))
end
-- prints:
--    loss 139.622
--    loss 131.652
