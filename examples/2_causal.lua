-- 2. A variant says who sees whom. Causal: the first row sees the first key alone.
package.path = (arg[0]:match '^(.*/)' or './') .. '../lua/?.lua;' .. package.path
local attn = require 'attn'

local q, k, v = attn.randn(3, {1, 2, 4, 8}, {seed = 1, device = os.getenv 'DEV'})
local o = attn.attention(q, k, v, {variant = {attn.causal, attn.alibi(2)}})
print('first row of o is the first row of v: ' .. tostring(o[0][1][0]:max_error(v[0][1][0]) < 1e-6))
-- prints:
--    first row of o is the first row of v: true
