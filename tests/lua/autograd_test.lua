-- autograd_test.lua: the named variants, forward and backward, against PyTorch's autograd.
-- tests/data/make_autograd_fixture.py wrote the expected values, in f64 by ordinary tensor
-- operations on whole matrices of scores; the loss is sum(o dout) + sum(lse dlse).
--
--     luajit tests/lua/autograd_test.lua              on cpu and ref
--     DEVICES='emu:sm_80 emu:gfx942' luajit ...       on others: minutes, for the kernels' compiler
--
-- In f32, and on cpu in f16 and bf16, too, within what such a type can tell apart.

local here = arg[0]:match '^(.*/)' or './'
package.path = here .. '?.lua;' .. here .. '../../lua/?.lua;' .. package.path
local test = require 'tap'
local attn = require 'attn'

local file = attn.load(here .. '../data/autograd.safetensors')

-- Options of attention, and the tensors of x whose gradients are wanted besides.
local cases = {
    {'full', function() return {} end},
    {'scale', function() return {variant = attn.causal, scale = -0.7} end},
    {'causal', function() return {variant = attn.causal} end},
    {'window', function() return {variant = attn.window(4, 2)} end},
    {'prefix', function() return {variant = attn.prefix(12)} end},
    {'first_keys', function() return {variant = attn.first_keys(2, 4)} end},
    {'dilated', function() return {variant = attn.dilated(3)} end},
    {'any', function() return {variant = attn.any(attn.window(3, 0), 'k < 5')} end},
    {'empty', function() return {variant = 'k > q'} end},
    {'empty_sink', function(x) return {variant = 'k > q', sink = x.sink} end},
    {'document', function(x) return {variant = attn.document(x.ids)} end},
    {'alibi', function() return {variant = {attn.causal, attn.alibi(4)}} end},
    {'slope', function(x)
        local slope = x.slope
        return {variant = {attn.causal, function(s, b, h, q, k)
            return s - slope[h] * math.abs(q - k)
        end}}
    end, 'slope'},
    {'softcap', function() return {variant = {attn.causal, attn.softcap(1.5)}} end},
    {'cap', function(x)
        return {variant = attn.variant('cap[h] * tanh(s / cap[h])', {cap = x.cap})}
    end, 'cap'},
    {'relative', function(x) return {variant = attn.relative(x.table)} end, 'table'},
    {'bias', function(x) return {variant = attn.bias(x.bias)} end, 'bias'},
    {'of_keys', function(x) return {variant = {attn.causal, attn.bias(x.of_keys)}} end, 'of_keys'},
    {'of_rows', function(x)
        return {variant = {attn.variant 's * 1.5', attn.bias(x.of_rows)}, scale = 0.5}
    end, 'of_rows'},
    {'gain', function(x)
        return {variant = attn.variant('k <= q ? s * gain[b][k] : -inf', {gain = x.gain})}
    end, 'gain'},
    {'sink', function(x) return {variant = attn.causal, sink = x.sink} end},
    {'dropout', function()
        return {variant = attn.causal, dropout = 0.25, seed = 5 + 3 * 2 ^ 32}
    end},
    {'all', function(x)
        local slope = x.slope
        return {variant = {attn.window(9, 0), attn.bias(x.bias), attn.softcap(2),
            function(s, b, h, q, k) return s - slope[h] * math.abs(q - k) end},
            sink = x.sink, dropout = 0.25, seed = 11}
    end, 'bias', 'slope'},
}

local function check(t, name, got, wanted, most)
    local size = 0
    for _, x in ipairs(wanted:view {wanted.bytes / 4}:totable()) do
        size = x > -math.huge and math.max(size, math.abs(x)) or size
    end
    t.ok(size > 0, name .. ': the largest element')
    local off = got:to('cpu'):to('f32'):max_error(wanted)
    t.ok(off <= most * math.max(1, size),
        ('%s: an error of %g, largest %g; is it small'):format(name, off, size))
end

local function run(device, dtype, most)
    local x = {}
    for name, tensor in pairs(file) do
        if not name:find('.', 1, true) then
            x[name] = tensor:to(device)
        end
    end
    local q, k, v, dout = x.q:to(dtype), x.k:to(dtype), x.v:to(dtype), x.dout:to(dtype)
    for _, case in ipairs(cases) do
        local name, options, wrt = case[1], case[2](x), {}
        test(('%s, %s, %s'):format(name, device, dtype), function(t)
            for i = 3, #case do
                wrt[#wrt + 1] = x[case[i]]
            end
            local o, call = attn.attention(q, k, v, options)
            local g = call:backward(dout, wrt, x.dlse)
            check(t, 'o', o, file[name .. '.o'], most)
            check(t, 'lse', call.lse, file[name .. '.lse'], most)
            for _, of in ipairs {'q', 'k', 'v', options.sink and 'sink'} do
                check(t, 'd' .. of, g[of], file[name .. '.d' .. of], most)
            end
            for i, tensor in ipairs(wrt) do
                check(t, 'd' .. case[i + 2], g[tensor], file[name .. '.d' .. case[i + 2]], most)
            end
        end)
    end
end

local chosen = os.getenv 'DEVICES'
for device in (chosen or 'cpu ref'):gmatch '%S+' do
    run(device, 'f32', device == 'ref' and 2e-7 or 4e-6)
end
if not chosen then
    run('cpu', 'f16', 4e-3)
    run('cpu', 'bf16', 4e-2)
end

test.done()
