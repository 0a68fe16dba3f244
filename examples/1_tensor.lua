-- 1. Attention takes three tensors [batch][heads][rows][head dimension] and gives one.
package.path = (arg[0]:match '^(.*/)' or './') .. '../lua/?.lua;' .. package.path
local attn = require 'attn'

-- The same numbers on every device; DEV=name: another than the fastest.
local q, k, v = attn.randn(3, {1, 2, 4, 8}, {seed = 1, device = os.getenv 'DEV'})
local o, call = attn.attention(q, k, v)
print(('o {%s}, o[0][0][0][0] = %.4f'):format(table.concat(o.shape, ', '), o[0][0][0][0]))
print(('log-sum-exp of the first row: %.4f'):format(call.lse[0][0][0]))
-- prints:
--    o {1, 2, 4, 8}, o[0][0][0][0] = -0.1092
--    log-sum-exp of the first row: 1.9674
