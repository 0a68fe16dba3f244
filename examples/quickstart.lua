-- quickstart.lua: the devices that are here, a mask in characters, and attention with its gradients
-- against the double-precision oracle.
--
--   luajit examples/quickstart.lua            DEV=name: another device than the fastest

local here = arg[0]:match '^(.*)/' or '.'
package.path = here .. '/../lua/?.lua;' .. package.path
local attn = require 'attn'

print('attn ' .. attn.version())
for _, d in ipairs(attn.devices()) do
    local threads = d.threads > 0 and (', %d threads'):format(d.threads) or ''
    print(('  %-10s %s'):format(d.name, d.missing ~= '' and d.missing
        or 'is here: ' .. d.arch .. threads))
end

local H, N, D = 4, 256, 64
local near = attn.variant(function(s, b, h, q, k)
    return s - math.log(1 + math.abs(q - k)) / 8
end)
local mix = {attn.first_keys(2, 10), near} -- left to right: scores chain, masks AND

print('\nWho sees whom: 24 queries down, 24 keys across; the first 2 keys and the last 11.\n')
print(attn.picture(mix, {nq = 24, nk = 24}))

-- The same numbers on every device: the generator is defined bit by bit.
local function run(device)
    local q, k, v, dout = attn.randn(4, {1, H, N, D}, {seed = 1, device = device})
    local o, call = attn.attention(q, k, v, {variant = mix})
    return o, call.lse, call:backward(dout)
end

local name = os.getenv 'DEV' or 'auto'
local o, lse, g = run(name)
local o_ref, lse_ref, g_ref = run 'ref'
print(('\nLargest difference to the double-precision oracle, %d heads of %d x %d, f32:')
    :format(H, N, N))
local wrong = false
for _, row in ipairs {
    {'out', o, o_ref}, {'LSE', lse, lse_ref},
    {'dq', g.q, g_ref.q}, {'dk', g.k, g_ref.k}, {'dv', g.v, g_ref.v},
} do
    local error = row[2]:max_error(row[3])
    local right = error <= 1e-5
    wrong = wrong or not right
    print(('  %-4s %.1e  %s'):format(row[1], error, right and 'right' or 'WRONG'))
end
assert(not wrong, 'a result is wrong')
