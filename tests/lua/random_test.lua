-- random_test.lua: the generator: docs/random.md once more in Lua, known numbers, moments.

local here = arg[0]:match '^(.*/)' or './'
package.path = here .. '?.lua;' .. here .. '../../lua/?.lua;' .. package.path
local test = require 'tap'
local ffi = require 'ffi'
local bit = require 'bit'
local T = require 'attn.tensor'

-- -- docs/random.md, written a second time --------------------------------------------------------

local function u32(x) return tonumber(ffi.cast('uint32_t', x)) end

local function philox(key, counter)
    local c0, c1, c2, c3 = counter[1], counter[2], counter[3], counter[4]
    local k0, k1 = key % 2 ^ 32, math.floor(key / 2 ^ 32)
    for _ = 1, 7 do
        local a, b = 0xD2511F53ULL * c0, 0xCD9E8D57ULL * c2
        c0, c1, c2, c3 = u32(bit.bxor(u32(b / 2ULL ^ 32), c1, k0)), u32(b),
            u32(bit.bxor(u32(a / 2ULL ^ 32), c3, k1)), u32(a)
        k0, k1 = (k0 + 0x9E3779B9) % 2 ^ 32, (k1 + 0xBB67AE85) % 2 ^ 32
    end
    return {c0, c1, c2, c3}
end

local function block(distribution, seed, g)
    return philox(seed, {g % 2 ^ 32, math.floor(g / 2 ^ 32), distribution, 0xFFFFFFFF})
end

local function log_series(x)
    local m, e = math.frexp(x)
    m, e = m * 2, e - 1
    if m >= 1.5 then
        m, e = m / 2, e + 1
    end
    local s = (m - 1) / (m + 1)
    local sum = 0
    for k = 7, 0, -1 do
        sum = sum * (s * s) + 1 / (2 * k + 1)
    end
    return e * 0.693147180559945309417 + 2 * s * sum
end

local function sin_cos(a)
    local s, c = 1, 1
    for k = 8, 1, -1 do
        s = 1 - a * a * (1 / (2 * k * (2 * k + 1))) * s
        c = 1 - a * a * (1 / ((2 * k - 1) * 2 * k)) * c
    end
    return a * s, c
end

local function normal(seed, n)
    local w = block(1, seed, math.floor(n / 4))
    local j = n % 4
    local w0, w1 = w[j < 2 and 1 or 3], w[j < 2 and 2 or 4]
    local r = math.sqrt(-2 * log_series((w0 + 0.5) / 2 ^ 32))
    local s, c = sin_cos((w1 % 2 ^ 30 + 0.5) / 2 ^ 30 * 1.57079632679489661923)
    local quarter = math.floor(w1 / 2 ^ 30)
    local x = ({[0] = c, -s, -c, s})[quarter]
    local y = ({[0] = s, c, -s, -c})[quarter]
    return tonumber(ffi.new('float', r * (j % 2 == 0 and x or y)))
end

local function uniform(seed, n)
    return math.floor(block(2, seed, math.floor(n / 4))[n % 4 + 1] / 256) / 2 ^ 24
end

-- -- Tests ----------------------------------------------------------------------------------------

test('Philox4x32-7 gives the known answers of Random123', function(t)
    t.same(philox(0, {0, 0, 0, 0}), {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48})
end)

test('every bit is the formula\'s', function(t)
    for _, seed in ipairs {0, 1, 12345, 2 ^ 32, 2 ^ 53} do
        local x = T.randn(1, {1003}, {seed = seed})
        local u = T.randn(1, {1003}, {seed = seed, distribution = 'uniform'})
        for n = 0, 1002 do
            t.equal(x[n], normal(seed, n), 'normal ' .. n)
            t.equal(u[n], uniform(seed, n), 'uniform ' .. n)
        end
    end
end)

test('known numbers', function(t)
    local function show(x)
        local list = {}
        for i = 1, #x do
            list[i] = ('%.9g'):format(x[i - 1])
        end
        return table.concat(list, ' ')
    end
    t.equal(show(T.randn(1, {5}, {seed = 7})),
        '-0.641991258 1.52871323 -0.55612582 1.42732716 -1.87023687')
    t.equal(show(T.randn(1, {5}, {seed = 7, distribution = 'uniform'})),
        '0.563488007 0.117281735 0.546252012 0.470139444 0.943666816')
end)

test('elements are numbered row by row, whatever the strides', function(t)
    local base = require 'attn.ffi'
    local flat = T.randn(1, {60}, {seed = 2}):view {3, 4, 5}
    local turned = T.zeros {5, 4, 3}:transpose(0, 2)
    base.check(base.C.attn_random(T.device_of(turned).handle, T.c(turned), 1, 2, nil))
    t.equal(turned:max_error(flat), 0)
    local every = T.zeros {3, 4, 10}
    local half = T.view(every, 1, {3, 4, 5}, {40, 10, 2})
    base.check(base.C.attn_random(T.device_of(half).handle, T.c(half), 1, 2, nil))
    t.equal(half:max_error(flat), 0)
    t.equal(every:sum(), flat:sum(), 'what lies between')
    local one = T.view(T.zeros {1}, 0, {5}, {0})
    t.fails(function()
        base.check(base.C.attn_random(T.device_of(one).handle, T.c(one), 1, 2, nil))
    end, 'two elements in one place')
end)

test('narrow types hold the rounded f32', function(t)
    local x = T.randn(1, {1000}, {seed = 5})
    for _, dtype in ipairs {'f64', 'f16', 'bf16', 'e4m3fn', 'e5m2'} do
        t.equal(T.randn(1, {1000}, {seed = 5, dtype = dtype}):max_error(x:to(dtype)), 0, dtype)
    end
end)

-- Bounds are five standard errors of 2^20 draws.
test('moments of the normal distribution', function(t)
    local n = 2 ^ 20
    local x = T.randn(1, {n}, {seed = 11})
    local p = ffi.cast('float *', T.c(x).data)
    local m1, m2, m3, m4, cross = 0, 0, 0, 0, 0
    for i = 0, n - 1 do
        local a = p[i]
        m1, m2, m3, m4 = m1 + a, m2 + a ^ 2, m3 + a ^ 3, m4 + a ^ 4
        cross = cross + (i % 2 == 0 and a * p[i + 1] * 2 or 0)
    end
    t.near(m1 / n, 0, 5 / 2 ^ 10, 'mean')
    t.near(m2 / n, 1, 5 * math.sqrt(2) / 2 ^ 10, 'variance')
    t.near(m3 / n, 0, 5 * math.sqrt(15) / 2 ^ 10, 'third moment')
    t.near(m4 / n, 3, 5 * math.sqrt(96) / 2 ^ 10, 'fourth moment')
    t.near(cross / n, 0, 5 * math.sqrt(2) / 2 ^ 10, 'correlation of the two of a pair')
end)

-- Distribution function of the normal distribution: 1/2 + density * (x + x^3/3 + x^5/15 + ...).
local function phi(x)
    if math.abs(x) > 8 then
        return x > 0 and 1 or 0
    end
    local term, sum, k = x, x, 1
    while math.abs(term) > 1e-18 * math.abs(sum) do
        k = k + 2
        term = term * x * x / k
        sum = sum + term
    end
    return 0.5 + sum * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
end

-- The Kolmogorov-Smirnov statistic times sqrt(n) exceeds 2.2 once in 8,000 samples.
local function distance(t, x, f)
    local list = x:totable()
    table.sort(list)
    local worst, n = 0, #list
    for i, a in ipairs(list) do
        local p = f(a)
        worst = math.max(worst, p - (i - 1) / n, i / n - p)
    end
    t.ok(worst * math.sqrt(n) < 2.2, ('Kolmogorov-Smirnov %.3f'):format(worst * math.sqrt(n)))
    t.ok(worst > 0)
end

test('the distributions are those named', function(t)
    for seed = 1, 4 do
        distance(t, T.randn(1, {50000}, {seed = seed}), phi)
        distance(t, T.randn(1, {50000}, {seed = seed, distribution = 'uniform'}),
            function(a) return a end)
    end
    t.fails(function()
        distance(t, T.randn(1, {50000}, {seed = 1}) * 1.06, phi)
    end, 'Kolmogorov')
end)

test('the series are as good as docs/random.md says', function(t)
    local worst = 0
    for i = 1, 20000 do
        local x = (i - 0.5) / 20000
        worst = math.max(worst, math.abs(log_series(x) / math.log(x) - 1))
        local s, c = sin_cos(x * math.pi / 2)
        worst = math.max(worst, math.abs(s - math.sin(x * math.pi / 2)),
            math.abs(c - math.cos(x * math.pi / 2)))
    end
    t.ok(worst < 1e-12, ('error %.3g'):format(worst))
    t.near(math.sqrt(-2 * log_series(2 ^ -33)), 6.7637, 1e-4)
end)

test.done()
