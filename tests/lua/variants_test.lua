-- variants_test.lua: variant objects: what they capture, their graphs against their functions,
-- composition, the ready-made ones. trace_test.lua has the idioms.

local here = arg[0]:match '^(.*/)' or './'
package.path = here .. '?.lua;' .. here .. '../../lua/?.lua;' .. package.path
local test = require 'tap'
local attn = require 'attn'
local sample = require('attn.picture').sample

local slopes = attn.tensor {0.5, 0.25, 0.125, 0.0625}
local rel = attn.tensor {{0, 1, 2, 3, 4}, {5, 6, 7, 8, 9}}
local seen = attn.tensor {true, false, true, true, false, true, true, true}
local ids = attn.tensor({0, 0, 1, 1, 2, 2, 3, 3}, {dtype = 'i32'})

-- -- Captures and parameters ----------------------------------------------------------------------

test('captured tensors are named after upvalues, fields and globals', function(t)
    local h = attn.tensor {1, 2} -- the name of a leaf
    rawset(_G, 'global_bias', attn.tensor {3, 4})
    local other = (function()
        local slopes = attn.tensor {9, 9} -- luacheck: ignore 431
        return function(s, _, head) return s * slopes[head] end
    end)()
    local w = attn.variant(function(s, b, head)
        return other(s, b, head) + slopes[head] + h[head] + rawget(_G, 'global_bias')[head]
    end)
    local values = {}
    for name, value in pairs(w.captures) do
        values[name] = value[0]
    end
    t.equal(values.h_t, 1)
    t.equal(values.global_bias, 3)
    t.equal(values.slopes + values.slopes_2, 9.5)
    rawset(_G, 'global_bias', nil)
end)
test('a captured tensor that was freed', function(t)
    local weights = attn.tensor {1, 2}
    local v = attn.variant(function(s, _, h) return s * weights[h] end)
    weights:free()
    local e = t.fails(function() attn.picture(v) end, 'captures.weights was freed, and the variant')
    t.equal(e.arg, 'captures.weights')
    local q = attn.zeros {1, 1, 2, 4}
    t.fails(function() attn.attention(q, q, q, {variant = v}) end, 'captures.weights was freed')
end)
test('the variant keeps what it captures', function(t)
    local function make()
        local table_of_mine = attn.tensor {1, 2, 3}
        return attn.variant(function(s, _, h) return s + table_of_mine[h] end)
    end
    local v = make()
    attn.collect()
    t.equal(v.captures.table_of_mine[2], 3)
end)
test('tensors are told apart by memory, not by object', function(t)
    local one, again, other = rel[0], rel[0], rel[1]
    local v = attn.variant(function(s, _, _, q, k) return s + one[q] + again[k] + other[q] end)
    local n = 0
    for _ in pairs(v.captures) do
        n = n + 1
    end
    t.equal(n, 2)
end)
test('what a variant cannot read', function(t)
    local wide = attn.tensor({1}, {dtype = 'f64'})
    local function f(s, _, h) return s + wide[h] end
    local e = t.fails(function() attn.variant(f) end, "t:to('f32')")
    t.equal(e.code, 'DTYPE')
    local deep = attn.zeros {1, 1, 1, 1, 1}
    t.fails(function() attn.variant(function(s, _, h) return s + deep[h] end) end, '1 to 4 axes')
end)
test('parameters', function(t)
    local c = attn.param('c', 30)
    t.equal(c.name, 'c')
    t.equal(c.value, 30)
    local function cap(s) return c * attn.tanh(s / c) end
    local v = attn.variant(cap)
    t.equal(tostring(v), tostring(attn.variant 'c * tanh(s / c)'))
    t.ok(rawequal(v.captures.c, c))
    t.near(cap(1), 30 * math.tanh(1 / 30), 1e-12) -- called with plain numbers
    t.equal(c + 1, 31)
    t.ok(c > 29 and c == 30 and c <= 30)
    local inside = attn.variant(function(s) return s * attn.param('gain', 2) end)
    t.equal(inside.captures.gain, 2)
    t.fails(function() attn.param('q', 1) end, "no word of the language")
    t.fails(function() attn.param('gain', 'x') end, 'a number is wanted')
    local d = attn.param('c', 1)
    t.fails(function() attn.variant(function(s) return s * c * d end) end, "named 'c'")
end)
test('names are what the language allows', function(t)
    for name in ('add mul neg leaf load param not eq t1 _ x2 S'):gmatch '%S+' do
        t.equal(attn.param(name, 1).name, name)
        t.ok(tostring(attn.variant('s * ' .. name)):find('f32 ' .. name .. ';', 1, true), name)
    end
    local words = 's b h q k i nq nk nh hk batch true false inf nan f32 i32 bool in attn select '
        .. 'exp floordiv min'
    for name in words:gmatch '%S+' do
        t.fails(function() attn.param(name, 1) end, 'no word of the language')
        t.equal(pcall(attn.variant, ('f32 %s; s * %s'):format(name, name)), false, name)
    end
    for _, name in ipairs {'', '1x', 'a b', 'a-b', 'a\0b', 'é', ('x'):rep(41)} do
        t.fails(function() attn.param(name, 1) end, "a parameter's name is an identifier")
    end
    t.equal(#attn.param(('x'):rep(40), 1).name, 40)
end)
test('a tensor under any name of the language', function(t)
    local add, exp = attn.tensor {3}, attn.tensor {4}
    local v = attn.variant(function(s, _, h) return s + add[h] * exp[h] end)
    t.equal(v.captures.add[0], 3)
    t.equal(v.captures.exp_t[0], 4)
end)
test('parts that read different things under one name', function(t)
    local function scaled(x)
        local weights = attn.tensor(x)
        return attn.variant(function(s, _, h) return s * weights[h] end)
    end
    local a, b = scaled {1, 2}, scaled {3, 4}
    local v = a .. b
    t.equal(v.captures.weights[0], 1)
    t.equal(v.captures.weights_2[0], 3)
    local same = a .. a
    t.equal(same.captures.weights_2, nil)
end)
test('nested lists that read different things under one name', function(t)
    local function bias(x) return attn.bias(attn.tensor {{x, x}, {x, x}}) end
    local function is(variant, sum, wanted)
        local given = {}
        for _, value in pairs(variant.captures) do
            given[#given + 1] = value[0][0]
        end
        table.sort(given)
        t.same(given, wanted)
        t.equal(sample(variant, {nq = 2})[1][0], sum)
    end
    local a, b, c, d = bias(1), bias(2), bias(4), bias(8)
    is(attn.variant {a, {b, c}}, 7, {1, 2, 4})
    is(attn.variant {{a, b}, {c, d}}, 15, {1, 2, 4, 8})
    is(attn.variant {a, {b, {c, d}}}, 15, {1, 2, 4, 8})
    is(a .. (b .. (c .. (d .. bias(16)))), 31, {1, 2, 4, 8, 16})
    is(attn.variant {{a, b}, {c, {d, {bias(16), bias(32)}}}}, 63, {1, 2, 4, 8, 16, 32})
    is(attn.variant {{a, b}, {c, b}}, 9, {1, 2, 4}) -- b under its name
    is(attn.variant {{a, b}, {b, c}}, 9, {1, 2, 2, 4}) -- and under another one
end)
test('a long name that clashes', function(t)
    local name = ('x'):rep(47)
    local function part(x) return attn.variant('s + ' .. name, {[name] = x}) end
    t.equal(sample({part(1), part(2), part(4)}, {nq = 1})[0][0], 7)
end)

-- -- The graph against the function ---------------------------------------------------------------

-- Variant functions that are also called with plain numbers.
local oracle = {
    causal = function(_, _, _, q, k) return k <= q end,
    window = function(s, _, _, q, k) return q - k < 6 and k - q < 3 and s end,
    alibi = function(s, _, h, q, k) return s - slopes[h] * math.abs(q - k) end,
    relative = function(s, _, h, q, k)
        return s + rel[h % 2][math.max(-2, math.min(k - q, 2)) + 2]
    end,
    document = function(s, _, _, q, k)
        return ids[math.max(0, math.min(q, 7))] == ids[math.min(k, 7)] and s
    end,
    seen = function(_, _, _, _, k) return seen[math.min(k, 7)] == true end,
    softcap = function(s) return 3 * math.tanh(s / 3) end,
    buckets = function(s, _, h, q, k)
        local d = math.abs(q - k)
        local bucket = d < 2 and d or 2 + math.floor(math.log(d / 2, 2))
        return s + rel[h % 2][math.min(bucket, 4)]
    end,
    integers = function(s, b, h, q, k)
        local x = math.floor((q - 3) / 4) * 5 + (q - 7) % 3 - math.fmod(k - 9, 4) - k % -5
        return s + x + bit.band(k, 6) - bit.bxor(q, h) + bit.lshift(b, 3) - bit.arshift(q - 9, 1)
    end,
    logical_shift = function(s, _, _, q)
        return s + bit.rshift(q - 8, 20) - bit.bor(q, 9) + bit.bnot(q)
    end,
    floats = function(s, _, h, q, k)
        return math.exp(-math.abs(s)) + math.sqrt(k + 1) / (h + 1) - math.sin(q) * math.cos(k)
            + s ^ 2 + math.log(k + 2) - math.log(k + 2, 10) + math.floor(s * 3) - math.ceil(s)
    end,
    extremes = function(s, _, _, q, k) return math.max(s, q - k, -2) - math.min(s, 0.5, k) end,
    branches = function(s, b, h, q, k)
        if h == 0 then
            if q - k > 4 then
                return false
            end
            return s
        elseif h == 1 and k ~= 3 then
            return s * 2
        end
        return b == 1 and -s or (s > 0.25 and s - k or s + k)
    end,
    chain = function(s, _, _, q, k)
        local n = 0
        repeat
            n = n + 1
        until q - k < 3 * n or n == 4
        return s * n
    end,
    loop = function(_, _, _, q, k)
        for _, d in ipairs {1, 4, 9} do
            if math.abs(q - k) == d then
                return true
            end
        end
        return false
    end,
    xor = function(s, _, h, q, k) return (q < k) ~= (h < 2) and s end,
    where = function(s, _, h, q, k)
        local c = attn.any(attn.lt(q, k), attn.all(attn.le(k, 4), attn.eq(h % 2, 0)))
        return attn.where(c, s + attn.int(s * 4), attn.exp2(s))
    end,
    sizes = function(s, _, h, _, k, x)
        return x.i + x.nq < x.nk and s or s * x.nh + x.hk - x.batch + h + k
    end,
    row = function(s, _, _, q) return s * rel[1][math.max(q, 0) % 5] + #rel end,
}

test('every oracle variant gives what its function gives', function(t)
    local points, state = 0, 1
    local function random(n) -- 0 .. n - 1
        state = (state * 16807) % 2147483647
        return state % n
    end
    local s = attn.zeros {3, 8}
    for name, f in pairs(oracle) do
        local v = attn.variant(f)
        for _ = 1, 60 do
            local w = {nq = 3 + random(9), nk = 8 + random(9), nh = 4, hk = 2, batch = 3,
                b = random(3), h = random(4), rows = 3, columns = 8}
            w.i, w.k = random(w.nq - 2), random(w.nk - 7)
            local x = {nq = w.nq, nk = w.nk, nh = 4, hk = 2, batch = 3}
            for r = 0, 2 do
                for c = 0, 7 do
                    s[r][c] = (random(6001) - 3000) / 1000
                end
            end
            local scores = sample(v, w, s)
            for r = 0, 2 do
                for c = 0, 7 do
                    x.i = w.i + r
                    local q, k = x.i + w.nk - w.nq, w.k + c
                    local wanted = f(s[r][c], w.b, w.h, q, k, x)
                    if type(wanted) == 'boolean' then
                        wanted = wanted and s[r][c] or -math.huge
                    end
                    local given = scores[r][c]
                    points = points + 1
                    if given ~= wanted then
                        t.near(given, wanted, 2e-6 * math.max(1, math.abs(wanted)),
                            ('%s(%g, %d, %d, %d, %d)'):format(name, s[r][c], w.b, w.h, q, k))
                    end
                end
            end
        end
    end
    t.ok(points > 20000)
end)

-- -- Variants from elsewhere ----------------------------------------------------------------------

test('what is no variant', function(t)
    for _, x in ipairs {5, true, slopes, {a = 1}} do
        local e = t.fails(function() attn.variant(x) end, 'a variant is a function, a text')
        t.equal(e.code, 'VARIANT')
    end
    t.equal(t.fails(function() attn.variant 'k <= ' end, 'the text ends').code, 'PARSE')
    t.fails(function() attn.variant('s * x', {y = 1}) end, 'does not read y')
    t.fails(function() attn.variant('s * x', {x = 'one'}) end, 'a number is wanted')
    t.fails(function() attn.variant(print) end, 'written in C')
end)
test('lists, .. and attn.any', function(t)
    local function double(s) return s * 2 end
    local list = attn.variant {attn.causal, double}
    t.equal(tostring(list), tostring(attn.causal .. double))
    t.equal(tostring(list .. {attn.softcap(30)}), tostring(attn.variant {list, attn.softcap(30)}))
    t.equal(tostring(attn.variant {}), tostring(attn.variant 's'))
    local either = attn.any(attn.causal, function(_, _, _, _, k) return k < 4 end)
    t.equal(tostring(either), tostring(attn.variant 'k <= q || k < 4'))
    t.equal(tostring(attn.any {attn.causal, attn.prefix(4)}), tostring(attn.prefix(4)))
    t.fails(function() attn.variant {attn.causal, softcap = 30} end,
        "a list of variants has no field 'softcap'")
    t.fails(function() attn.any(attn.causal, double) end, 'parts[1] changes the score')
end)
test('attn.any and attn.all of texts, functions, lists', function(t)
    local function is(v, text)
        t.equal(tostring(v), tostring(attn.variant(text)), text)
    end
    is(attn.any('k<=q', 'k<3'), 'k <= q || k < 3')
    is(attn.any {'k<=q', 'k<3'}, 'k <= q || k < 3')
    is(attn.all('k<=q', 'k<3'), 'k <= q && k < 3')
    is(attn.all(attn.causal, function(_, _, _, _, k) return k < 3 end), 'k <= q && k < 3')
    is(attn.all(attn.causal, attn.softcap(2)), 'k <= q ? 2 * tanh(s / 2) : -inf')
    t.fails(function() attn.any(attn.causal, nil, 'k < 3') end, 'a list of them, not nil')
    t.fails(function() attn.variant('s * a', 5) end, 'values is a number, a table is wanted')
    t.equal(attn.any(false, 1 < 2), true)
    t.equal(attn.all(true, 1 > 2), false)
    local e = t.fails(function()
        attn.variant(function(s, _, _, q, k) return attn.all(attn.lt(k, q), 'k < 3') and s end)
    end, 'a variant is made inside a variant function')
    t.equal(e.code, 'VARIANT')
end)
test('a list that holds itself, a text with NUL', function(t)
    local list = {attn.causal}
    list[2] = {list}
    local e = t.fails(function() attn.variant(list) end, 'a list of variants holds itself')
    t.equal(e.code, 'VARIANT')
    list[2] = {attn.causal, {attn.causal}}
    t.equal(tostring(attn.variant {list, list}), tostring(attn.causal))
    e = t.fails(function() attn.variant 's\0+1' end, 'text has a NUL at byte 2')
    t.equal(e.code, 'PARSE')
end)
test('what a variant reads is on the device of the call', function(t)
    local q, k, v = attn.randn(3, {1, 2, 4, 8})
    local w = attn.tensor({2, 3}, {device = 'ref'})
    local function run(variant, device)
        return attn.attention(q:to(device), k:to(device), v:to(device), {variant = variant})
    end
    local e = t.fails(function() run(function(s, _, h) return s * w[h] end, 'cpu') end,
        'w is on ref, but q is on cpu: use :to')
    t.equal(e.code, 'DEVICE')
    t.equal(e.arg, 'captures.w')
    run(function(s, _, h) return s * w[h] end, 'ref')
    for _, variant in ipairs {attn.alibi {1, 2}, attn.bias {{0, 1, 2, 3}, {0, 1, 2, 3},
        {0, 1, 2, 3}, {0, 1, 2, 3}}} do -- of tables, for every device
        local o = run(variant, 'cpu')
        t.near(o:max_error(run(variant, 'ref'):to 'cpu'), 0, 1e-5)
        t.equal(run({variant, attn.causal}, 'ref').device, 'ref')
    end
end)
test('ready-made variants', function(t)
    local function is(v, text)
        t.equal(tostring(v), tostring(attn.variant(text)), text)
    end
    is(attn.causal, 'k <= q')
    is(attn.window(8, 2), 'q - k <= 8 && k - q <= 2')
    is(attn.prefix(4), 'k < 4 || k <= q')
    is(attn.first_keys(4, 8), 'k <= q && (k < 4 || q - k <= 8)')
    is(attn.dilated(4), '(q - k) % 4 == 0')
    is(attn.softcap(30), '30 * tanh(s / 30)')
    is(attn.alibi(slopes), 's - slopes[h] * abs(q - k)')
    is(attn.alibi {1, 2}, 's - slopes[h] * abs(q - k)')
    is(attn.document {{0, 0, 1}}, 'i32 ids[2]; ids[b][q] == ids[b][k]')
    is(attn.bias(attn.zeros {2, 4, 8, 8}), 't = bias[b][h][i][k]; t == -inf ? -inf : s + t')
    is(attn.bias(attn.zeros {1, 4, 1, 8}), 't = bias[0][h][0][k]; t == -inf ? -inf : s + t')
    is(attn.bias(attn.zeros {8, 8}), 't = bias[i][k]; t == -inf ? -inf : s + t')
    is(attn.relative(rel), 's + table[h][max(-2, min(k - q, 2)) + 2]')
    t.equal(attn.alibi(slopes).captures.slopes[1], 0.25)
end)
test('ready-made variants refuse bad arguments', function(t)
    t.fails(function() attn.window(8) end, 'attn.window(l, r): r is nil, a number is wanted')
    t.fails(function() attn.window(-1, 0) end, 'window: l is -1')
    t.fails(function() attn.window(1.5, 0) end, 'window: l is 1.5')
    t.fails(function() attn.softcap(0) end, 'softcap: c is 0')
    t.fails(function() attn.softcap(0 / 0) end, 'softcap: c is')
    t.fails(function() attn.dilated(0) end, 'dilated: n is 0')
    t.fails(function() attn.prefix 'four' end, "n is the string 'four'")
    t.fails(function() attn.alibi(0) end, 'alibi: H is 0')
    t.fails(function() attn.alibi(rel) end, 'slopes has 2 axes, 1 are wanted')
    t.fails(function() attn.document(slopes) end, 'ids has 1 axes, 2 are wanted')
    t.fails(function() attn.bias(1) end, 'a tensor is wanted')
    t.fails(function() attn.bias(attn.zeros {2}) end, 'bias has 1 axes, 2 to 4 are wanted')
    t.fails(function() attn.relative(attn.zeros {2, 4}) end, 'an odd number 2r+1')
    local e = t.fails(function() attn.relative 'x' end, 'a tensor is wanted')
    t.ok(e.where:find 'variants_test')
end)
test('every shape of a bias', function(t)
    for n = 2, 4 do
        for bits = 0, 2 ^ n - 1 do
            local shape, at = {}, {}
            for i = 1, n do
                local broadcasts = bit.band(bits, 2 ^ (i - 1)) ~= 0
                shape[i] = broadcasts and 1 or i + 1
                at[i] = broadcasts and '[0]' or ('[%s]'):format(('bhik'):sub(4 - n + i, 4 - n + i))
            end
            local text = ('t = bias%s; t == -inf ? -inf : s + t'):format(table.concat(at))
            local v = attn.bias(attn.zeros(shape))
            t.equal(tostring(v), tostring(attn.variant(text)), text)
            t.same(v.captures.bias.shape, shape)
        end
    end
end)

-- -- A variant as a function ----------------------------------------------------------------------

test('a variant called with plain numbers gives what its function gives', function(t)
    local sizes = {nq = 7, nk = 9, nh = 4, hk = 2, batch = 3}
    for name, f in pairs(oracle) do
        local v = attn.variant(f)
        for n = 0, 39 do
            local x = setmetatable({i = n % 7}, {__index = sizes})
            local s, b, h, q, k = n / 8 - 2, n % 3, n % 4, x.i + 2, n % 9
            local wanted, given = f(s, b, h, q, k, x), v(s, b, h, q, k,
                {i = x.i, nq = 7, nk = 9, nh = 4, hk = 2, batch = 3})
            if wanted == true then
                wanted = s
            end
            t.equal(type(given), type(wanted), name)
            if wanted then
                t.near(given, wanted, 2e-6 * math.max(1, math.abs(wanted)), name)
            end
        end
    end
end)
test('a call without x, or with a part of it', function(t)
    local v = attn.variant(function(_, _, _, q, _, x)
        return x.i + 10 * x.nq + 100 * x.nk + 1000 * q
    end)
    t.equal(v(0, 0, 0, 3, 2), 3 + 40 + 400 + 3000)
    t.equal(v(0, 0, 0, 2, 3), 2 + 40 + 400 + 2000)
    t.equal(v(0, 0, 0, -2, 0), 30 + 100 - 2000)
    t.equal(v(0, 0, 0, 3, 2, {nk = 6}), 3 + 60 + 600 + 3000)
    t.equal(v(0, 0, 0, 3, 2, {nk = 6, nq = 4}), 1 + 40 + 600 + 3000)
    t.equal(v(0, 0, 0, 3, 2, {nk = 6, i = 1}), 1 + 40 + 600 + 3000)
    t.equal(v(0, 0, 0, 3, 2, {nk = 4, nq = 8, i = 3}), 3 + 80 + 400 + 3000) -- top_left
    local heads = attn.variant(function(_, b, h, _, _, x)
        return x.nh + 10 * x.hk + 100 * x.batch + 1000 * h + 10000 * b
    end)
    t.equal(heads(0, 2, 3, 0, 0), 4 + 10 + 300 + 3000 + 20000)
    t.equal(heads(0, 2, 3, 0, 0, {nh = 8, hk = 2, batch = 5}), 8 + 20 + 500 + 3000 + 20000)
end)
test('what a call of a variant gives and refuses', function(t)
    t.ok(rawequal(attn.causal(), attn.causal))
    t.equal(attn.causal(0.5, 0, 0, 3, 4), false)
    t.equal(attn.causal(0.5, 0, 0, 3, 3), 0.5)
    t.equal(attn.bias(attn.tensor {{-math.huge, 2}, {3, 4}})(1, 0, 0, 1, 1), 5)
    t.equal(attn.bias(attn.tensor {{-math.huge, 2}, {3, 4}})(1, 0, 0, 0, 0), false)
    local c = attn.param('c', 2)
    local v = attn.variant(function(s) return s * c end)
    t.equal(v(3, 0, 0, 0, 0), 6)
    c.value = 4
    t.equal(v(3, 0, 0, 0, 0), 12)
    local e = t.fails(function() attn.causal(5) end, 'b is nil: a whole number is wanted')
    t.ok(e.where:find 'variants_test%.lua:%d+:$', e.where)
    t.fails(function() attn.causal('x', 0, 0, 0, 0) end, "s is the string 'x': variant(s, b, h")
    t.fails(function() attn.causal(0, 0, 0, 0.5, 0) end, 'q is 0.5: a whole number')
    t.fails(function() attn.causal(0, 0, 0, 0, 0, {nk = 'x'}) end, "x.nk is the string 'x'")
    t.fails(function() attn.causal(0, 0, 0, 0, 0, {nj = 3}) end, "x has no 'nj'")
    t.fails(function() attn.causal(0, 0, 0, 0, 0, 5) end, 'x is a number, a table is wanted')
    t.fails(function() attn.causal(0, 0, 0, 3, 2, {nk = 4, nq = 4, i = 1}) end,
        'q is 3, which is neither i + nk - nq nor i of an x of i 1, nk 4, nq 4')
    t.fails(function() attn.causal(0, 0, 0, 3, 7, {nk = 4}) end, 'window.k is 7')
    t.fails(function() attn.variant('s * x[h]')(0, 0, 0, 0, 0) end,
        'captures.x is missing')
    e = t.fails(function()
        attn.variant(function(s, b, h, q, k) return attn.causal(s, b, h, q, k) end)
    end, 'a variant is called with symbols: compose it')
    t.equal(e.code, 'VARIANT')
end)
test('attn.try', function(t)
    t.equal(attn.try(function(x) return x + 1 end, 2), 3)
    local r, why, e = attn.try(attn.variant, 5)
    t.equal(r, nil)
    t.ok(why:find 'a variant is')
    t.equal(e.code, 'VARIANT')
end)

test.done()
