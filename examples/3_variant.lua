-- 3. A variant of your own: a Lua function of score, batch entry, head, query, key positions.
package.path = (arg[0]:match '^(.*/)' or './') .. '../lua/?.lua;' .. package.path
local attn = require 'attn'

local near = attn.variant(function(s, _, h, q, k)
    if k > q or h == 0 and q - k > 16 then
        return false -- masked
    end
    return s - math.log(1 + q - k) / 8
end)
print(near) -- as the library reads it
local q, k, v = attn.randn(3, {1, 2, 32, 8}, {seed = 1, device = os.getenv 'DEV'})
print(('o[0][0][31][0] = %.4f'):format(attn.attention(q, k, v, {variant = near})[0][0][31][0]))
-- prints:
--    attn 1;
--    !(q < k || h == 0 && 16 < q - k) ? s - log(q + 1 - k) / 8 : -inf
--    o[0][0][31][0] = 0.1343
