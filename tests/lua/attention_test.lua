-- attention_test.lua: attn.attention from Lua: every option and gradient against the oracle, and
-- by what it must change; merging, errors. plans_test.lua has plans, workspaces and memory.

local here = arg[0]:match '^(.*/)' or './'
package.path = here .. '?.lua;' .. here .. '../../lua/?.lua;' .. package.path
local test = require 'tap'
local ffi = require 'ffi'
local attn = require 'attn'
local tensor = require 'attn.tensor'

local B, H, HK, N, D = 2, 4, 2, 12, 16
local NEAR = 2e-5

-- A copy of nested options with every tensor on another device.
local function moved(x, device)
    if tensor.is(x) then
        return x:to(device)
    elseif type(x) ~= 'table' or getmetatable(x) then
        return x
    end
    local to = {}
    for key, value in pairs(x) do
        to[key] = moved(value, device)
    end
    return to
end

local function near(t, given, wanted, what, error_)
    t.near(given:to('cpu'):max_error(wanted:to('cpu')), 0, error_ or NEAR, what)
end

local function inputs(opt)
    opt = opt or {}
    local nq, nk = opt.nq or N, opt.nk or N
    local q = attn.randn(1, {B, H, nq, D}, {seed = 1})
    local k, v = attn.randn(2, {B, HK, nk, D}, {seed = 2})
    return q, k, v
end

-- A variant object and what of it stands in wrt, reading tensors of the device.
local function variant_on(device, variant, wrt)
    local captures, list = moved(variant.captures, device), {}
    for i, x in ipairs(wrt) do
        list[i] = x
        for name, value in pairs(variant.captures) do
            list[i] = rawequal(value, x) and captures[name] or list[i]
        end
    end
    return attn.variant(tostring(variant), captures), list
end

-- o, lse and all gradients agree with the oracle; returns o, call and g of the device.
local function against_oracle(t, q, k, v, opt, wrt, error_)
    local ref_opt, ref_wrt = moved(opt, 'ref'), wrt
    if wrt then
        ref_opt.variant, ref_wrt = variant_on('ref', opt.variant, wrt)
    end
    local o, call = attn.attention(q, k, v, opt)
    local o2, call2 = attn.attention(q:to 'ref', k:to 'ref', v:to 'ref', ref_opt)
    near(t, o, o2, 'o', error_)
    near(t, call.lse, call2.lse, 'lse', error_)
    local dout = attn.randn(1, o.shape, {seed = 3})
    if q.dtype:find '^e' then
        return o, call
    end
    local g = call:backward(dout, wrt)
    local g2 = call2:backward(dout:to 'ref', ref_wrt)
    for _, name in ipairs {'q', 'k', 'v', 'sink'} do
        t.equal(g[name] == nil, g2[name] == nil, name)
        if g[name] then
            near(t, g[name], g2[name], 'g.' .. name, error_)
        end
    end
    for i, x in ipairs(wrt or {}) do
        local given, wanted = g[x], g2[ref_wrt[i]]
        if type(given) == 'number' then
            t.near(given, wanted, 1e-4 * math.max(1, math.abs(wanted)), 'the parameter ' .. i)
        else
            near(t, given, wanted, 'wrt ' .. i, 1e-4)
        end
    end
    return o, call, g
end

-- -- The plain thing ------------------------------------------------------------------------------

test('attention is softmax(scale q k) v', function(t)
    local q, k, v = inputs()
    local o, call = attn.attention(q, k, v)
    for _, at in ipairs {{0, 0, 0}, {1, 3, 5}, {1, 1, 11}} do
        local b, h, i = unpack(at)
        local sum, out = 0, {}
        for j = 0, N - 1 do
            local s = 0
            for d = 0, D - 1 do
                s = s + q[b][h][i][d] * k[b][math.floor(h / 2)][j][d]
            end
            local p = math.exp(s / math.sqrt(D))
            sum = sum + p
            for d = 0, D - 1 do
                out[d] = (out[d] or 0) + p * v[b][math.floor(h / 2)][j][d]
            end
        end
        t.near(call.lse[b][h][i], math.log(sum), 1e-5)
        for d = 0, D - 1 do
            t.near(o[b][h][i][d], out[d] / sum, 1e-5)
        end
    end
end)
test('shapes, dtypes and devices of the results', function(t)
    local q, k = inputs {nq = 5, nk = 9}
    local v = attn.randn(1, {B, HK, 9, 7}, {seed = 5})
    for _, dtype in ipairs {'f32', 'f16', 'bf16'} do
        local o, call = attn.attention(q:to(dtype), k:to(dtype), v:to(dtype))
        t.same(o.shape, {B, H, 5, 7})
        t.same(call.lse.shape, {B, H, 5})
        t.equal(o.dtype, dtype)
        t.equal(call.lse.dtype, 'f32')
        t.equal(o.device, 'cpu')
        local g = call:backward(o)
        t.same(g.k.shape, k.shape)
        t.equal(g.v.dtype, dtype)
    end
end)
test("the oracle's gradients do not depend on a shift of the scores", function(t)
    local q, k, v = inputs()
    local dout = attn.randn(1, q.shape, {seed = 3, device = 'ref'})
    local function run(variant, dlse)
        local o, call = attn.attention(q:to 'ref', k:to 'ref', v:to 'ref', {variant = variant})
        t.equal(call.lse.dtype, 'f64')
        local g = call:backward(dout, {}, dlse)
        return o, call.lse, g
    end
    for i = 1, 2 do
        local dlse = i == 2 and attn.zeros({B, H, N}, {device = 'ref'}) + 1 or nil
        local o, lse, g = run('s', dlse)
        local o2, lse2, g2 = run('s + 1e6', dlse)
        near(t, o2, o, 'o', 1e-6)
        near(t, lse2 - 1e6, lse, 'lse', 1e-9)
        for _, name in ipairs {'q', 'k', 'v'} do
            near(t, g2[name], g[name], 'g.' .. name, 1e-6)
        end
        local _, merged = attn.merge {{o, lse}, {o2, lse2}}
        t.equal(merged.dtype, 'f64')
        near(t, merged, lse2, 'merged lse', 1e-9)
    end
end)
test('without a variant and with an empty list', function(t)
    local q, k, v = inputs()
    local o, call = against_oracle(t, q, k, v)
    t.equal(attn.attention(q, k, v, {variant = {}}):max_error(o), 0)
    t.equal(call:text(), tostring(attn.variant 's'))
end)

-- -- Options --------------------------------------------------------------------------------------

test('variant', function(t)
    local q, k, v = inputs()
    local plain = attn.attention(q, k, v)
    local function far(s, _, h, i, j) return s - (i - j) * (h + 1) / 16 end
    for _, variant in ipairs {
        attn.causal, {attn.causal, attn.softcap(3)}, far, {attn.alibi(H), far}, 'k <= q ? s : -inf',
        attn.any(attn.window(2, 0), attn.prefix(3)), attn.dilated(3), attn.first_keys(1, 2),
        attn.document {{0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2}, {0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    } do
        local o = against_oracle(t, q, k, v, {variant = variant})
        t.ok(o:max_error(plain) > 1e-3)
    end
end)
test('scale', function(t)
    local q, k, v = inputs()
    local o, call = against_oracle(t, q, k, v, {scale = 0})
    t.near(call.lse[0][0][0], math.log(N), 1e-6)
    t.ok(attn.attention(q, k, v, {scale = -1}):max_error(o) > 0.1)
    near(t, attn.attention(q, k, v, {scale = 0.25}), attn.attention(q, k, v), 'the default', 1e-6)
end)
test('sink', function(t)
    local q, k, v = inputs()
    local _, call = attn.attention(q, k, v)
    local o, with = against_oracle(t, q, k, v, {sink = attn.tensor {0, 1, -1, 50}})
    local lse = call.lse[1][1][3]
    t.near(with.lse[1][1][3], math.log(math.exp(lse) + math.exp(1)), 1e-5)
    t.near(o[0][3][0]:max_error(0), 0, 1e-6)
    local same = attn.attention(q, k, v, {sink = {0, 1, -1, 50}})
    t.equal(same:max_error(o), 0)
end)
test('dropout, seed and offset', function(t)
    local q, k, v = inputs()
    local opt = {dropout = 0.3, seed = 7, offset = 5}
    local o = against_oracle(t, q, k, v, opt)
    local function again(changes)
        return (attn.attention(q, k, v, setmetatable(changes, nil)))
    end
    t.equal(again {dropout = 0.3, seed = 7, offset = 5}:max_error(o), 0)
    t.equal(again {dropout = 0.3, seed = 7ULL, offset = 5}:max_error(o), 0)
    t.equal(again {dropout = 0.3, seed = attn.tensor({7, 0}, {dtype = 'i32'}), offset = 5}
        :max_error(o), 0)
    t.ok(again {dropout = 0.3, seed = 8, offset = 5}:max_error(o) > 0)
    t.ok(again {dropout = 0.3, seed = 7, offset = 6}:max_error(o) > 0)
    t.ok(again {dropout = 0.4, seed = 7, offset = 5}:max_error(o) > 0)
    t.ok(again {dropout = 0.3, seed = 7 + 2 ^ 32, offset = 5}:max_error(o) > 0)
end)
test('packed sequences', function(t)
    local q = attn.randn(1, {9, H, D}, {seed = 1})
    local k, v = attn.randn(2, {11, HK, D}, {seed = 2})
    local opt = {variant = attn.causal, q_offsets = {0, 4, 4, 9}, k_offsets = {0, 3, 5, 11}}
    local o, call = against_oracle(t, q, k, v, opt)
    t.same(o.shape, {9, H, D})
    t.same(call.lse.shape, {H, 9})
    opt.q_offsets = attn.tensor({0, 4, 4, 9}, {dtype = 'i32'})
    t.equal(attn.attention(q, k, v, opt):max_error(o), 0)
    -- the last sequence alone
    local q1, k1, v1 = attn.zeros {1, H, 5, D}, attn.zeros {1, HK, 6, D}, attn.zeros {1, HK, 6, D}
    for h = 0, H - 1 do
        for i = 0, 4 do
            q1[0][h][i] = q[4 + i][h]
        end
    end
    for h = 0, HK - 1 do
        for j = 0, 5 do
            k1[0][h][j], v1[0][h][j] = k[5 + j][h], v[5 + j][h]
        end
    end
    local o1 = attn.attention(q1, k1, v1, {variant = attn.causal})
    t.near(o1[0][2][3]:max_error(o[7][2]), 0, 1e-6)
end)
test('packed sequences: a bound of their lengths', function(t)
    local q = attn.randn(1, {600, H, D}, {seed = 1})
    local k, v = attn.randn(2, {700, HK, D}, {seed = 2})
    local opt = {variant = attn.causal, q_offsets = {0, 10, 600}, k_offsets = {0, 500, 700}}
    local wanted, whole = attn.attention(q, k, v, opt)
    opt.q_longest, opt.k_longest = 590, 500
    local o, call = attn.attention(q, k, v, opt)
    t.equal(o:max_error(wanted), 0)
    t.equal(whole:info().blocks, 5 * 6)
    t.equal(call:info().blocks, 5 * 4)
    opt.k_longest = 700
    local _, other = attn.attention(q, k, v, opt)
    t.equal(other:info().blocks, 5 * 6)
end)
test('used lengths', function(t)
    local q, k, v = inputs()
    local opt = {q_used = {12, 5}, k_used = {7, 12}, variant = attn.causal}
    local o, call = against_oracle(t, q, k, v, opt)
    t.equal(o[1][0][5]:max_error(0), 0)
    t.equal(call.lse[1][0][5], -math.huge)
    t.ok(o[1][0][4]:max_error(0) > 0)
    opt.k_used = {12, 12}
    t.ok(attn.attention(q, k, v, opt):max_error(o) > 1e-3)
end)
test('fp8 and its scales', function(t)
    local q, k, v = inputs()
    q, k, v = q:to 'e4m3fn', k:to 'e4m3fn', v:to 'e4m3fn'
    local plain = attn.attention(q, k, v)
    t.equal(plain.dtype, 'bf16')
    local o = against_oracle(t, q, k, v, {q_scale = 0.5, k_scale = {2}, v_scale = 4}, nil, 0.1)
    t.ok(o:max_error(plain * 4) < 0.1)
    local by_head = attn.tensor {{1, 2}, {3, 4}}
    o = against_oracle(t, q, k, v, {v_scale = by_head}, nil, 0.2)
    t.near(o[1][3][2]:max_error(plain[1][3][2] * 4), 0, 0.1)
end)
test('origins and totals', function(t)
    local q, k, v = inputs()
    local variant = {attn.causal, attn.alibi(H)}
    local whole = attn.attention(q, k, v, {variant = variant, dropout = 0.2, seed = 3})
    -- the second half of the heads, the last 5 rows
    local qs = attn.zeros {B, 2, 5, D}
    local ks, vs = attn.zeros {B, 1, N, D}, attn.zeros {B, 1, N, D}
    for b = 0, B - 1 do
        for h = 0, 1 do
            for i = 0, 4 do
                qs[b][h][i] = q[b][2 + h][7 + i]
            end
        end
        ks[b][0], vs[b][0] = k[b][1], v[b][1]
    end
    local part = against_oracle(t, qs, ks, vs, {variant = variant, dropout = 0.2, seed = 3,
        origins = {h = 2, i = 7}, totals = {nh = H, hk = HK, nq = N}})
    for b = 0, B - 1 do
        for h = 0, 1 do
            for i = 0, 4 do
                t.near(part[b][h][i]:max_error(whole[b][2 + h][7 + i]), 0, 1e-5)
            end
        end
    end
end)
test('a shard of the keys, merged', function(t)
    local q, k, v = inputs()
    local variant = {attn.causal, attn.alibi(H)}
    local opt = {variant = variant}
    local whole, call = attn.attention(q, k, v, opt)
    local parts = {}
    for i, first in ipairs {0, 5} do
        local n = i == 1 and 5 or 7
        local ks, vs = attn.zeros {B, HK, n, D}, attn.zeros {B, HK, n, D}
        for b = 0, B - 1 do
            for h = 0, HK - 1 do
                for j = 0, n - 1 do
                    ks[b][h][j], vs[b][h][j] = k[b][h][first + j], v[b][h][first + j]
                end
            end
        end
        local o, c = against_oracle(t, q, ks, vs,
            {variant = variant, origins = {k = first}, totals = {nk = N}})
        parts[i] = {o, c.lse}
    end
    local o, lse = attn.merge(parts)
    near(t, o, whole, 'o', 1e-5)
    near(t, lse, call.lse, 'lse', 1e-5)
end)
test('a shard of the batch', function(t)
    local q, k, v = inputs()
    local bias = attn.randn(1, {B, H, N, N}, {seed = 6})
    local whole = attn.attention(q, k, v, {variant = attn.bias(bias), dropout = 0.5})
    local part = attn.attention(q[1]:view {1, H, N, D}, k[1]:view {1, HK, N, D},
        v[1]:view {1, HK, N, D}, {variant = attn.bias(bias), dropout = 0.5, origins = {b = 1},
        totals = {batch = B}})
    near(t, part[0], whole[1], 'the second entry', 1e-6)
end)
test('out', function(t)
    local q, k, v = inputs()
    local wanted = attn.attention(q, k, v)
    local out = attn.zeros({B, N, H, D}):transpose(1, 2)
    local o, call = attn.attention(q, k, v, {out = out})
    t.ok(rawequal(o, out))
    t.equal(out:max_error(wanted), 0)
    t.ok(call:backward(out).q:max_error(0) > 0)
end)
test('deterministic and batch_invariant', function(t)
    local q, k, v = inputs()
    against_oracle(t, q, k, v,
        {deterministic = true, batch_invariant = true, variant = attn.causal})
    local o = attn.attention(q, k, v, {batch_invariant = true})
    local alone = attn.attention(q[1]:view {1, H, N, D}, k[1]:view {1, HK, N, D},
        v[1]:view {1, HK, N, D}, {batch_invariant = true})
    t.equal(alone[0]:max_error(o[1]), 0)
end)
test('top_left', function(t)
    local q, k, v = inputs {nq = 4, nk = 8}
    local o = against_oracle(t, q, k, v, {variant = attn.causal, top_left = true})
    t.near(o[0][0][0]:max_error(v[0][0][0]), 0, 1e-6)
    local o2 = against_oracle(t, q, k, v, {variant = attn.causal, top_left = false})
    t.ok(o2:max_error(o) > 1e-3)
end)
test('blocks', function(t)
    local q, k, v = inputs()
    local blocks = {bm = 4, bn = 4, counts = {{{1, 1, 2}}}, indices = {{{{0, 0}, {1, 0}, {0, 2}}}}}
    local o = against_oracle(t, q, k, v, {blocks = blocks})
    local mask = attn.variant(function(_, _, _, i, j)
        local rows, columns = math.floor(i / 4), math.floor(j / 4)
        return rows == 2 and columns ~= 1 or rows == columns and rows ~= 2
    end)
    near(t, attn.attention(q, k, v, {variant = mask}), o, 'the same as a mask', 1e-6)
    blocks.counts = attn.tensor({{{1, 1, 2}}}, {dtype = 'i32'})
    t.equal(attn.attention(q, k, v, {blocks = blocks}):max_error(o), 0)
end)
test('strides: transposed inputs', function(t)
    local q, k, v = inputs()
    local wanted = attn.attention(q, k, v)
    local qt = q:transpose(1, 2):copy():transpose(1, 2)
    t.ok(qt.strides[2] ~= q.strides[2])
    t.equal(attn.attention(qt, k, v):max_error(wanted), 0)
end)
test('views that begin anywhere', function(t)
    for dtype, size in pairs {f32 = 4, bf16 = 2} do
        local all = attn.randn(1, {4, 1, 2, 5, 9}, {seed = 8}):to(dtype) -- 90 elements each
        local q, k, v, dout = all[0], all[1], all[2], all[3]
        local opt = {variant = attn.causal}
        local o, call = attn.attention(q, k, v, opt)
        t.equal(call.c.alignment, dtype == 'f32' and 8 or 4)
        local wanted, compact = attn.attention(q:copy(), k:copy(), v:copy(), opt)
        t.equal(compact.c.alignment, 16)
        t.equal(o:max_error(wanted), 0)
        local g, g2 = call:backward(dout), compact:backward(dout:copy())
        for _, name in ipairs {'q', 'k', 'v'} do
            t.equal(g[name]:max_error(g2[name]), 0, name)
        end
        -- one element later, in a compact call as well
        local shape = {1, 2, 5, 9}
        local odd = tensor.view(all, 1, shape)
        local o3, call3 = attn.attention(odd, k, v, opt)
        t.equal(call3.c.alignment, size)
        t.equal(o3:max_error((attn.attention(odd:copy(), k:copy(), v:copy(), opt))), 0)
        local late = tensor.view(attn.zeros({181}, {dtype = dtype}), 91, shape)
        local late_g = compact:backward(tensor.view(late, 0, shape))
        t.equal(late_g.q:max_error(0), 0)
        local out = tensor.view(attn.zeros({91}, {dtype = dtype}), 1, shape)
        local o4, call4 = attn.attention(q, k, v, {variant = attn.causal, out = out})
        t.equal(o4:max_error(wanted), 0)
        t.equal(call4:backward(dout).k:max_error(g.k), 0)
    end
end)

-- -- Gradients of what a variant reads ------------------------------------------------------------

test('gradients of captured tensors and parameters', function(t)
    local q, k, v = inputs()
    local rel = attn.randn(1, {H, N}, {seed = 4})
    local bias = attn.randn(1, {1, H, N, N}, {seed = 5})
    local gain, cap = attn.param('gain', 0.7), attn.param('cap', 5)
    local variant = attn.variant {
        function(s, _, h, i, j) return s * gain + rel[h][math.abs(i - j)] end,
        attn.bias(bias),
        function(s) return cap * math.tanh(s / cap) end,
        attn.causal,
    }
    local _, call, g = against_oracle(t, q, k, v, {variant = variant},
        {rel, bias, gain, cap, 'gain'})
    t.same(g[rel].shape, {H, N})
    t.same(g[bias].shape, {1, H, N, N})
    t.equal(type(g[gain]), 'number')
    t.equal(g.gain, g[gain])
    -- by differences of the loss sum(o * dout)
    local dout = attn.randn(1, {B, H, N, D}, {seed = 3})
    local function loss()
        local o = attn.attention(q, k, v, {variant = variant})
        return (o * dout):sum()
    end
    for _, at in ipairs {{0, 0}, {1, 3}, {3, 11}} do
        local h, d = unpack(at)
        local x, e = rel[h][d], 1e-2
        rel[h][d] = x + e
        local up = loss()
        rel[h][d] = x - e
        local down = loss()
        rel[h][d] = x
        t.near(g[rel][h][d], (up - down) / (2 * e), 5e-3)
    end
    gain.value = 0.71
    local up = loss()
    gain.value = 0.69
    t.near(g[gain], (up - loss()) / 0.02, 5e-3 * math.max(1, math.abs(g[gain])))
    gain.value = 0.7
    t.ok(call:backward(dout, {})[rel] == nil)
end)
test('a tensor read by two parts has one gradient, the sum', function(t)
    local q, k, v = inputs()
    local w = attn.randn(1, {H}, {seed = 4})
    local function a(s, _, h) return s * w[h] end
    local other_name = w
    local function b(s, _, h, _, j) return s + other_name[h] * j / 8 end
    local dout = attn.randn(1, q.shape, {seed = 3})
    local _, one = attn.attention(q, k, v, {variant = {a, b}})
    local _, two = attn.attention(q, k, v, {variant = function(s, _, h, _, j)
        return s * w[h] + w[h] * j / 8
    end})
    near(t, one:backward(dout, {w})[w], two:backward(dout, {w})[w], 'the gradient', 1e-4)
end)
test('nested lists: each tensor has its own gradient', function(t)
    local q, k, v = inputs()
    local a, b, c = attn.randn(3, {H, N, N}, {seed = 7})
    local dout = attn.randn(1, q.shape, {seed = 3})
    local function score(s, _, h, i, j)
        return math.tanh(s * (1 + a[h][i][j])) * b[h][i][j] + c[h][i][j]
    end
    -- the same with equal names, in parts
    local function part(text, x)
        return attn.variant(text, {w = x})
    end
    local parts = {part('s * (1 + w[h][i][k])', a), 'tanh(s)',
        {part('s * w[h][i][k]', b), {part('s + w[h][i][k]', c), attn.causal}}}
    local o, call = attn.attention(q, k, v, {variant = {score, attn.causal}})
    local o2, call2 = attn.attention(q, k, v, {variant = parts})
    near(t, o2, o, 'o', 1e-6)
    local wrt = {a, b, c}
    local g, g2 = call:backward(dout, wrt), call2:backward(dout, wrt)
    for i, x in ipairs(wrt) do
        near(t, g2[x], g[x], 'gradient ' .. i, 1e-6)
        t.ok(g[x]:max_error(0) > 1e-2)
    end
end)
test('parameters change without another plan', function(t)
    local q, k, v = inputs()
    local c = attn.param('c', 2)
    local variant = attn.variant(function(s) return s * c end)
    local o = attn.attention(q, k, v, {variant = variant})
    near(t, o, attn.attention(q, k, v, {scale = 0.5}), 'c = 2', 1e-6)
    c.value = 4
    near(t, attn.attention(q, k, v, {variant = variant}), attn.attention(q, k, v, {scale = 1}),
        'c = 4', 1e-6)
end)
test('gradient through lse', function(t)
    local q, k, v = inputs()
    local _, call = attn.attention(q, k, v)
    local zero = attn.zeros(q.shape)
    local g = call:backward(zero, {}, attn.zeros({B, H, N}):fill(1))
    -- d lse / d q = scale * sum p k
    local mean = attn.attention(q, k, k)
    near(t, g.q, mean * 0.25, 'dq', 1e-5)
    t.equal(call:backward(zero).q:max_error(0), 0)
end)

-- -- The call -------------------------------------------------------------------------------------

test('text, info, free', function(t)
    local q, k, v = inputs()
    local _, call = attn.attention(q, k, v, {variant = attn.causal, sink = {0, 0, 0, 0}})
    t.equal(call:text(), tostring(attn.causal))
    local info = call:info()
    for _, name in ipairs {'workspace', 'flops', 'bytes', 'block', 'blocks', 'blocks_part',
        'blocks_full'} do
        t.equal(type(info[name]), 'number', name)
    end
    t.ok(#info.kernel > 0)
    t.equal(info.device, 'cpu')
    local lse = call.lse
    call:free()
    call:free()
    t.fails(function() call:backward(q) end, 'the call was freed')
    t.fails(function() call:text() end, 'the call was freed')
    t.fails(function() return lse[0][0][0] end, 'the tensor was freed')
end)
test('merge', function(t)
    local q, k, v = inputs()
    local sink = attn.tensor {0.5, 1, -1, 2}
    local whole, call = attn.attention(q, k, v, {sink = sink})
    local function keys(t4, first, n)
        local part = attn.zeros {B, HK, n, D}
        for b = 0, B - 1 do
            for h = 0, HK - 1 do
                for j = 0, n - 1 do
                    part[b][h][j] = t4[b][h][first + j]
                end
            end
        end
        return part
    end
    local parts = {}
    for i, range in ipairs {{0, 5}, {5, 0}, {5, 7}} do
        local o, c = attn.attention(q, keys(k, unpack(range)), keys(v, unpack(range)))
        parts[i] = {o, c.lse}
    end
    local o, lse = attn.merge(parts, {sink = sink})
    near(t, o, whole, 'o', 1e-6)
    near(t, lse, call.lse, 'lse', 1e-6)
    o, lse = attn.merge(parts)
    local plain, plain_call = attn.attention(q, k, v)
    near(t, o, plain, 'o without sink', 1e-6)
    near(t, lse, plain_call.lse, 'lse without sink', 1e-6)
    t.fails(function() attn.merge {} end, 'parts is empty')
    t.fails(function() attn.merge {{o}} end, 'parts[1] is no pair')
    t.fails(function() attn.merge(parts, {snk = sink}) end, "did you mean 'sink'?")
end)
test('devices', function(t)
    local names = {}
    for _, d in ipairs(attn.devices()) do
        names[d.name] = d
        t.equal(type(d.emulated), 'boolean')
    end
    t.equal(names.cpu.missing, '')
    t.equal(names.ref.missing, '')
    local d = attn.device 'cpu'
    t.equal(d.name, 'cpu')
    t.ok(attn.device('cpu', {threads = 1}).threads == 1)
    t.equal(t.fails(function() attn.device 'nonsense' end, 'nonsense').code, 'DEVICE')
end)

-- -- Errors ---------------------------------------------------------------------------------------

test('errors have a code, an argument, and blame the line', function(t)
    local q, k, v = inputs()
    local function is(code, arg, text, f)
        local e = t.fails(f, text)
        t.equal(e.code, code, text)
        t.equal(e.arg, arg, text)
        t.ok(e.where:find 'attention_test%.lua:%d+:$', e.where)
    end
    local function call(opt)
        return function() attn.attention(q, k, v, opt) end
    end
    is('INVALID', 'q', 'q is nil, a tensor is wanted', function() attn.attention(nil, k, v) end)
    is('INVALID', 'v', 'v is a table, a tensor', function() attn.attention(q, k, {}) end)
    is('INVALID', 'opt', 'opt is', function() attn.attention(q, k, v, 'causal') end)
    is('SHAPE', 'q', 'q has rank 2', function() attn.attention(attn.zeros {2, 2}, k, v) end)
    is('SHAPE', 'k', 'k has 3 heads and q 4', function()
        attn.attention(q, attn.zeros {B, 3, N, D}, v)
    end)
    is('DTYPE', 'k', 'k is f16', function() attn.attention(q, k:to 'f16', v) end)
    is('DEVICE', 'k', 'k is on ref, but q is on cpu', function()
        attn.attention(q, k:to 'ref', v)
    end)
    is('DEVICE', 'sink', 'sink is on ref', call {sink = attn.zeros({H}, {device = 'ref'})})
    is('INVALID', 'varant', "did you mean 'variant'?", call {varant = attn.causal})
    is('INVALID', 'causal', "attn.attention has no 'causal'", call {causal = true})
    is('INVALID', 'scale', 'scale is the string', call {scale = 'big'})
    is('INVALID', 'scale', 'finite in f32', call {scale = 0 / 0})
    is('INVALID', 'scale', 'finite in f32', call {scale = math.huge})
    is('INVALID', 'dropout', 'dropout is 1; 0 <=', call {dropout = 1})
    is('INVALID', 'seed', 'seed is 1.5', call {dropout = 0.1, seed = 1.5})
    is('INVALID', 'seed', 'seed is -1', call {dropout = 0.1, seed = -1})
    is('SHAPE', 'seed', 'i32 tensor of 2', call {dropout = 0.1, seed = attn.zeros {2}})
    is('INVALID', 'offset', 'offset is 4294967296', call {offset = 2 ^ 32})
    is('INVALID', 'deterministic', 'a boolean is wanted', call {deterministic = 1})
    is('SHAPE', 'sink', 'sink has 2 heads; 4 wanted', call {sink = {1, 2}})
    is('DTYPE', 'q_used', 'q_used is f32', call {q_used = attn.zeros {B}})
    is('INVALID', 'q_used', 'q_used is a number', call {q_used = 3})
    is('INVALID', 'k_used', 'k_used[1] is 1.5: i32 holds whole', call {k_used = {1.5, 1}})
    is('INVALID', 'k_used', 'k_used[2] is 300.7', call {k_used = {1, 300.7}})
    is('INVALID', 'sink', "sink[2] is the string 'x'", call {sink = {1, 'x', 1, 1}})
    is('INVALID', 'x', "did you mean 'b'?", call {origins = {x = 1}})
    is('INVALID', 'origins.h', 'whole number', call {origins = {h = 0.5}})
    is('INVALID', 'q_longest', 'without offsets', call {q_longest = 5})
    is('INVALID', 'k_longest', 'k_longest is 0.5, a whole number', call {k_longest = 0.5})
    is('INVALID', 'totals', 'totals is a number', call {totals = 3})
    is('INVALID', 'blocks.bm', 'blocks.bm is nil', call {blocks = {}})
    is('INVALID', 'out', 'out is a table', call {out = {}})
    is('SHAPE', 'o', 'o has 17 elements on its last axis', call {out = attn.zeros {B, H, N, D + 1}})
    is('VARIANT', 'variant', 'a variant is a function', call {variant = 5})
    is('VARIANT', 'variant', "returns the string 'x'", call {variant = function() return 'x' end})
    is('VARIANT', 'variant', 'more than 64', call {variant = function(s, _, h)
        for i = 0, 6 do
            s = bit.band(h, 2 ^ i) == 0 and s + 2 ^ i or s
        end
        return s
    end})
    is('VARIANT', 'variant', "a loop's bounds", call {variant = function(s, _, _, i)
        for _ = 1, i do
            s = s + 1
        end
        return s
    end})
    is('CAPTURE', 'captures.slopes', 'slopes is missing', call {variant = 's + slopes[h]'})
    is('SHAPE', 'captures.bias', 'axis 1 of bias has extent 3, and the call has nh 4',
        call {variant = attn.bias(attn.zeros {1, 3, N, N})})
    is('SHAPE', 'captures.slopes', 'slopes has extent 3', call {variant = attn.alibi {1, 2, 3}})
    local ids = attn.zeros({B, N}, {dtype = 'i32'})
    local _, good = attn.attention(q, k, v, {variant = attn.document(ids)})
    local mask = attn.zeros(q.shape, {dtype = 'bool'})
    is('DTYPE', 'dout', 'dout is bool', function() good:backward(mask) end)
    is('INVALID', 'dout', 'dout is nil', function() good:backward() end)
    is('SHAPE', 'dout', 'dout has 1 elements on its last axis', function()
        good:backward(attn.zeros {B, H, N, 1})
    end)
    is('DEVICE', 'dout', 'dout is on ref', function() good:backward(q:to 'ref') end)
    is('INVALID', 'wrt', 'wrt is a', function() good:backward(q, q) end)
    is('CAPTURE', 'wrt', 'wrt[1], a tensor, is nothing', function() good:backward(q, {q}) end)
    is('CAPTURE', 'wrt', 'wrt[1], ids, is i32: integers and conditions have no', function()
        good:backward(q, {'ids'})
    end)
    is('INVALID', 'dlse', 'dlse is a number', function() good:backward(q, {}, 1) end)
    is('INVALID', 'stream', 'stream is a number, a cdata is wanted', call {stream = 1})
    is('INVALID', 'stream', 'only NULL', call {stream = ffi.cast('void *', 8)})
    is('INVALID', 'sink', 'sink is a number', function()
        attn.merge({{q, good.lse}}, {sink = 1})
    end)
    local q2 = q:copy()
    local _, late = attn.attention(q2, k, v)
    q2:free()
    is('INVALID', 'q', 'q was freed', function() late:backward(q) end)
end)
test('an error leaves everything usable', function(t)
    local q, k, v = inputs()
    local wanted = attn.attention(q, k, v, {variant = attn.causal})
    for _ = 1, 20 do
        t.ok(not pcall(attn.attention, q, k, v, {variant = function(s) return s .. 'x' end}))
        t.ok(not pcall(attn.attention, q, k, attn.zeros {1}, {}))
    end
    t.equal(attn.attention(q, k, v, {variant = attn.causal}):max_error(wanted), 0)
    t.equal(math.exp(0), 1)
end)

test.done()
