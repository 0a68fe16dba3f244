-- trace_test.lua: what Lua a variant function may use, idiom by idiom: its graph or its refusal,
-- with the JIT on and off. docs/lua.md states the rules.

local here = arg[0]:match '^(.*/)' or './'
package.path = here .. '?.lua;' .. here .. '../../lua/?.lua;' .. package.path
local test = require 'tap'
local attn = require 'attn'
local jit = require 'jit'

local max, exp, band = math.max, math.exp, bit.band
local slopes = attn.tensor {0.5, 0.25, 0.125, 0.0625}
local rel = attn.tensor {{0, 1, 2, 3, 4}, {5, 6, 7, 8, 9}}
local seen = attn.tensor {true, false, true, true, false, true, true, true}
local ids = attn.tensor({0, 0, 1, 1, 2, 2, 3, 3}, {dtype = 'i32'})
local plain_table, plain_rows = {1, 2, 3, 4}, {{1, 2}, {3, 4}}
local record = {slopes = attn.tensor {1, 2, 3}, list = {1, 2, 3}, exp = math.exp}

-- The graph of f is that of the text; f is traced with the JIT on and off, twice each.
local function works(name, f, text)
    test(name, function(t)
        for _, mode in ipairs {'on', 'off'} do
            jit[mode]()
            for _ = 1, 2 do
                t.equal(tostring(attn.variant(f)), tostring(attn.variant(text)), 'JIT ' .. mode)
            end
        end
        jit.on()
    end)
end

-- f is refused with this text in the sentence, and the sentence blames a line of f.
local function refused(name, f, text, code)
    local lines = debug.getinfo(f, 'S')
    test(name, function(t)
        for _, mode in ipairs {'on', 'off'} do
            jit[mode]()
            local e = t.fails(function() attn.variant(f) end, text)
            t.equal(e.code, code or 'VARIANT')
            local line = tonumber(e.where:match 'trace_test%.lua:(%d+):$')
            t.ok(line, 'a place in this file: ' .. e.where)
            t.ok(line >= lines.linedefined and line <= lines.lastlinedefined, e.where)
        end
        jit.on()
    end)
end

-- -- Comparisons and conditions -------------------------------------------------------------------

works('if, a comparison of two symbols', function(s, _, _, q, k)
    if k > q then
        return false
    end
    return s
end, 'k <= q')
works('elseif', function(s, _, h)
    if h == 0 then
        return s
    elseif h == 1 then
        return s * 2
    else
        return s * 3
    end
end, 'h == 0 ? s : h == 1 ? s * 2 : s * 3')
works('<', function(_, _, _, q, k) return k < q end, 'k < q')
works('<=', function(_, _, _, q, k) return k <= q end, 'k <= q')
works('>', function(_, _, _, q, k) return k > q end, 'q < k')
works('>=', function(_, _, _, q, k) return k >= q end, 'q <= k')
works('a number on the right', function(_, _, _, q) return q < 16 end, 'q < 16')
works('a number on the left', function(_, _, _, q) return 16 < q end, '16 < q')
works('== with a number', function(_, _, h) return h == 3 end, 'h == 3')
works('== with a number on the left', function(_, _, h) return 3 == h end, 'h == 3')
works('~= with a number', function(_, _, h) return h ~= 3 end, 'h != 3')
works('== with a symbol', function(_, _, _, q, k) return q == k end, 'q == k')
works('~= with a symbol', function(_, _, _, q, k) return q ~= k end, 'q != k')
works('== with true', function(_, _, _, q) return seen[q] == true end, 'bool seen[1]; seen[q]')
works('== with false', function(_, _, _, q) return seen[q] == false end, 'bool seen[1]; !seen[q]')
works('~= with true', function(_, _, _, q) return seen[q] ~= true end, 'bool seen[1]; !seen[q]')
refused('== with a string', function(s, _, h)
    return h == 'first' and s
end, "the string 'first' is no number")
works('x == nil is false', function(s, _, _, q)
    if q == nil or nil == q then
        return 0
    end
    return q ~= nil and s
end, 's')
works('c and a or b', function(s, _, _, q, k)
    return k <= q and s or s - 1
end, 'k <= q ? s : s - 1')
works('c and false or x is x: the Lua trap', function(s, _, _, q, k)
    return k > q and false or s
end, 's')
-- luacheck: push ignore 581
works('not (a < b)', function(_, _, _, q, k) return not (q < k) end, 'k <= q')
works('(a < b) ~= (c < d)', function(_, b, h, q, k)
    return (q < k) ~= (b < h)
end, 'q < k ? !(b < h) : b < h')
works('conditions in locals', function(s, _, h, q, k)
    local near, first = q - k < 8, h == 0
    return (near or first) and s
end, 'q - k < 8 || h == 0')
works('return q >= k and s', function(s, _, _, q, k) return q >= k and s end, 'k <= q')
works('a boolean result', function(_, _, _, q, k) return q >= k end, 'k <= q')
works('true keeps s', function() return true end, 's')
works('false masks', function() return false end, 'false')
works('some paths return a condition, others a score', function(s, _, h, q, k)
    if h == 0 then
        return k <= q
    end
    return s * 2
end, 'h == 0 ? (k <= q ? s : -inf) : s * 2')
works('-math.huge masks', function(s, _, _, q, k) return k <= q and s or -math.huge end, 'k <= q')
works('a >= b, b <= a and not (a < b) are one decision', function(s, _, _, q, k)
    if q >= k then
        if k <= q and not (q < k) and not (k > q) then
            return s
        end
        return 'never' -- an impossible path
    end
    return false
end, 'k <= q')
-- luacheck: pop

-- -- Truth of symbols -----------------------------------------------------------------------------

refused('if t[q] then', function(s, _, _, q)
    if seen[q] then
        return s
    end
    return false
end, 'write seen[q] == true')
refused('not t[q]', function(s, _, _, q)
    return not seen[q] and s or s
end, 'write seen[q] == true')
refused('attn.lt(a, b) as a condition', function(s, _, _, q, k)
    if attn.lt(q, k) then
        return s
    end
    return false
end, 'write q < k == true')
works('a bool load as a result', function(_, _, _, q) return seen[q] end, 'bool seen[1]; seen[q]')
works('s and x or y is x', function(s, _, _, q, k) return s and q or k end, 'float(q)')
refused('a number that is only tested for truth', function(s, _, _, q)
    return q % 2 and s or s * 2
end, 'write q % 2 ~= 0 if a condition was meant')
works('0 is true', function(s) return 0 and s or s * 2 end, 's')

-- -- Arithmetic -----------------------------------------------------------------------------------

works('+ - * and unary minus', function(s, _, h, q, k)
    return -(s + (q - k) * 2) - h
end, '-(s + (q - k) * 2) - h')
works('/ of two i32 is f32', function(s, _, _, q, k) return s + q / k end, 's + q / k')
works('^', function(s, _, _, q) return s ^ 2 + 2 ^ q end, 'pow(s, 2) + pow(2, q)')
works('%', function(_, _, _, q) return q % 4 == 0 end, 'q % 4 == 0')
works('math.fmod', function(_, _, _, q) return math.fmod(q, 4) == 0 end, 'fmod(q, 4) == 0')
works('math.floor(a / b) of i32 is floordiv', function(_, _, _, q, k)
    return math.floor(q / 16) == math.floor(k / 16)
end, 'floordiv(q, 16) == floordiv(k, 16)')
for _, text in ipairs {'a // b', 'a & b', 'a << b', 'a != b'} do
    test(text .. ' is no Lua', function(t)
        t.equal(loadstring('local a, b = 1, 2; return ' .. text), nil)
    end)
end
test('<const> is no Lua', function(t) t.equal(loadstring 'local a <const> = 1', nil) end)
works('bit.band', function(_, _, _, q) return bit.band(q, 63) == 0 end, 'band(q, 63) == 0')
works('bit.bor, bit.bxor, bit.bnot', function(_, _, _, q, k)
    return bit.bxor(bit.bor(q, 1, k), bit.bnot(k)) == 0
end, 'bxor(bor(bor(q, 1), k), bnot(k)) == 0')
works('shifts', function(_, _, _, q)
    return bit.lshift(q, 1) + bit.rshift(q, 2) == bit.arshift(q, 3)
end, 'shl(q, 1) + shr(q, 2) == sar(q, 3)')
refused('bit.tohex', function(s, _, _, q) return s + bit.tohex(q) end,
    'bit.tohex has no counterpart in a variant')
refused('arithmetic on a condition', function(s, _, _, q)
    return s + seen[q]
end, '`+` takes numbers')
refused('arithmetic with a string', function(s) return s + '1' end, "the string '1' is no number")
refused('arithmetic with nil', function(s) return s + nil end, 'nil is no number')
refused('arithmetic with a tensor', function(s) return s + slopes end, 'a tensor without an index')
works('numbers fold', function(s) return s + math.exp(0) * (3 - 1) end, 's + 2')

-- -- math.* ---------------------------------------------------------------------------------------

works('math.exp log tanh sqrt sin cos', function(s)
    return math.exp(s) + math.log(s) + math.tanh(s) + math.sqrt(s) + math.sin(s) + math.cos(s)
end, 'exp(s) + log(s) + tanh(s) + sqrt(s) + sin(s) + cos(s)')
works('math.abs floor ceil', function(s, _, _, q, k)
    return math.abs(q - k) + math.floor(s) + math.ceil(s)
end, 'abs(q - k) + floor(s) + ceil(s)')
works('math.max and min of many', function(s, _, _, q, k)
    return math.max(s, q, 1) + math.min(k, 3, s)
end, 'max(max(s, q), 1) + min(min(k, 3), s)')
works('math.pow', function(s) return math.pow(s, 3) end, 'pow(s, 3)')
works('math.huge and math.pi', function(s) return math.min(s, math.huge) * math.pi end,
    'min(s, inf) * 3.141592653589793')
local function helper(x)
    return math.exp(x) + max(x, 0)
end
works('math.* in a helper', function(s) return helper(s) end, 'exp(s) + max(s, 0)')
works('local copies of math functions as upvalues', function(s, _, _, q)
    return band(q, 1) == 0 and exp(s) or max(s, 0)
end, 'band(q, 1) == 0 ? exp(s) : max(s, 0)')
works('a local copy inside', function(s)
    local e = math.exp
    return e(s)
end, 'exp(s)')
refused('a copy in a table', function(s) return record.exp(s) end, 'attn.exp')
works('attn.exp and its like', function(s) return attn.exp(attn.exp2(s)) end, 'exp(exp2(s))')
works('math.log(x, 2)', function(s) return math.log(s, 2) end, 'log2(s)')
works('math.log(x, 10)', function(s) return math.log(s, 10) end, 'log(s) / log(10)')
refused('math.sinh', function(s) return math.sinh(s) end,
    'math.sinh has no counterpart in a variant')
refused('math.modf', function(s) return (math.modf(s)) end,
    'math.modf has no counterpart in a variant')
works('math.* of plain numbers stays what it is', function(s)
    return s * math.sinh(0) + math.modf(2.5)
end, 's * 0 + 2')

-- -- Lua around it --------------------------------------------------------------------------------

works('nested closures', function(s, _, _, q, k)
    local function distance() return math.abs(q - k) end
    return (function() return s - distance() end)()
end, 's - abs(q - k)')
local function total(...)
    local sum = 0
    for i = 1, select('#', ...) do
        sum = sum + select(i, ...)
    end
    return sum
end
works('varargs', function(s, b, h) return total(s, b, h) end, 's + 0 + b + h')
works('a table of symbols', function(s, _, _, q, k)
    local at = {q, k, score = s}
    return at.score + at[1] - at[2]
end, 's + q - k')
works('pcall', function(s, _, _, q, k)
    local ok, c = pcall(function() return k <= q end)
    return ok and c and s
end, 'k <= q')
refused("pcall does not swallow the tracer's errors", function(s)
    pcall(function() return s .. 'x' end)
    return s
end, "'..' joins text")
works('a coroutine that finishes inside', function(s, _, _, q, k)
    local co = coroutine.wrap(function()
        coroutine.yield(q - k)
        return nil
    end)
    local d = co()
    co()
    return d < 8 and s
end, 'q - k < 8')
works('one tensor index', function(s, _, h) return s * slopes[h] end,
    'f32 slopes[1]; s * slopes[h]')
works('two tensor indices', function(s, _, h, q, k)
    return s + rel[h][math.min(math.abs(q - k), 4)]
end, 'f32 rel[2]; s + rel[h][min(abs(q - k), 4)]')
works('a symbol and a number as indices', function(s, _, h) return s + rel[h][2] end,
    'f32 rel[2]; s + rel[h][2]')
works('a number and a symbol as indices', function(s, _, _, q) return s + rel[1][q] end,
    'f32 rel[2]; s + rel[1][q]')
works('numbers alone are a load too', function(s) return s * slopes[0] + rel[1][2] end,
    'f32 slopes[1]; f32 rel[2]; s * slopes[0] + rel[1][2]')
works('a decision on an element', function(s)
    if slopes[1] > 1 then
        return s * 2
    end
    return s
end, 'slopes[1] > 1 ? s * 2 : s')
works('the same element by a number and by a text', function(s, _, _, _, k)
    return ids[0] == ids[k] and s
end, 'i32 ids[1]; ids[0] == ids[k]')
refused('if t[0] then', function(s)
    if seen[0] then
        return s
    end
    return false
end, 'write seen[0] == true')
refused('for j = 0, t[0]', function(s)
    for _ = 0, ids[0] do
        s = s + 1
    end
    return s
end, "'for' limit must be a number (a loop's bounds cannot depend on a symbol)")
refused('a number outside the tensor', function(s) return s + slopes[4] end,
    'index 4 of axis 0: a whole number from 0 to 3 is allowed', 'INVALID')
refused('a number outside the second axis', function(s, _, h) return s + rel[h][-1] end,
    'index -1 of axis 1: a whole number from 0 to 4 is allowed', 'INVALID')
refused('a fraction as a number', function(s) return s + slopes[0.5] end,
    'index 0.5 of axis 0: a whole number', 'INVALID')
works('#tensor[1] and the shapes', function(_, _, _, q)
    return q < #rel[1] + rel[1].shape[1] + rel.shape[2]
end, 'q < 15')
refused('a method of a row', function(s) return s + rel[1]:sum() end,
    '.sum: a row of a tensor has # and .shape')
works('get is the number of now', function(s) return s + slopes:get(0) end, 's + 0.5')
works('a table of a tensor', function(s) return s + rel:totable()[1][3] end, 's + 2')
test('a frozen variant reads t[0] at every run, outside of a trace it is a number', function(t)
    for _, device in ipairs {'cpu', 'ref'} do
        local q, k, v = attn.randn(3, {1, 1, 4, 8}, {device = device})
        local w = attn.tensor({2, 3, 4, 5}, {device = device})
        local function f(s, _, _, _, j) return s * w[0] + w[j] end
        local lua, text = attn.variant(f), attn.variant('s * w[0] + w[k]', {w = w})
        local function run(variant)
            local o, call = attn.attention(q, k, v, {variant = variant})
            return o, call:backward(o, {w})[w]
        end
        local old = run(lua)
        t.equal(run(lua):max_error(old), 0)
        t.equal(select(2, run(lua)):max_error((select(2, run(text)))), 0)
        w[0] = 7
        t.ok(run(lua):max_error(old) > 1e-3, 'the change is seen')
        t.equal(run(lua):max_error((run(text))), 0)
        t.equal(type(w[0]), 'number')
        t.equal(f(1, 0, 0, 0, 1), 10)
    end
end)
works('#tensor', function(_, _, h) return h < #slopes end, 'h < 4')
works('#tensor[h]', function(_, _, h, q) return q < #rel[h] end, 'q < 5')
works('i32 tensors', function(_, _, _, q, k) return ids[q] == ids[k] end,
    'i32 ids[1]; ids[q] == ids[k]')
works('a whole f32 as an index', function(s, _, h, q, k)
    return s + rel[h][math.floor(math.log(1 + math.abs(q - k)))]
end, 'f32 rel[2]; s + rel[h][int(floor(log(1 + abs(q - k))))]')
refused('a fraction as an index', function(s) return s + slopes[s / 2] end,
    'write math.floor(s / 2)')
refused('a condition as an index', function(s, _, _, q) return s + slopes[seen[q]] end,
    'an index is a number, not the condition seen[q]')
refused('too few indices', function(s, _, h) return s + rel[h] end, 'write t[...][...]')
refused('too few indices in the result', function(_, _, h) return rel[h] end, 'write t[...][...]')
works('a tensor in a record', function(s, _, h) return s * record.slopes[h] end,
    'f32 slopes[1]; s * slopes[h]')
refused('a plain table in an upvalue', function(s, _, h) return s * (plain_table[h] or 0) end,
    'a plain table is indexed by the symbol h: wrap it with attn.tensor')
refused('a plain table in a record', function(s, _, h) return s * (record.list[h] or 0) end,
    'wrap it with attn.tensor')
refused('a row of a plain table', function(s, _, h) return s * (plain_rows[1][h] or 0) end,
    'wrap it with attn.tensor')
-- luacheck: push globals global_table global_record global_helper
global_table, global_record = {1, 2, 3, 4}, {list = {1, 2, 3}}
function global_helper(h) return plain_table[h] or 0 end
refused('a plain table in a global', function(s, _, h) return s * (global_table[h] or 0) end,
    'a plain table is indexed by the symbol h: wrap it with attn.tensor')
refused('a plain table in a global record', function(s, _, h)
    return s * (global_record.list[h] or 0)
end, 'wrap it with attn.tensor')
refused('a plain table in a global, from a function inside', function(s, _, h)
    local function at(i) return global_table[i] or 0 end
    return s * at(h)
end, 'wrap it with attn.tensor')
test('a plain table in an upvalue of a global function', function(t)
    t.fails(function()
        attn.variant(function(s, _, h) return s * global_helper(h) end)
    end, 'wrap it with attn.tensor')
end)
test('a plain table in the environment of a function', function(t)
    local f = setfenv(function(s, _, h) return s * (global_table[h] or 0) end,
        {global_table = {1}})
    t.fails(function() attn.variant(f) end, 'wrap it with attn.tensor')
end)
works('a plain table in a global by a number', function(s) return s * global_table[2] end, 's * 2')
test('tables of globals are what they were', function(t)
    t.equal(getmetatable(global_table), nil)
    t.equal(getmetatable(global_record), nil)
    t.equal(getmetatable(global_record.list), nil)
    t.equal(getmetatable(_G), nil)
    t.equal(getmetatable(math), nil)
end)
-- luacheck: pop
works('a plain table by a plain number', function(s) return s * plain_table[2] end, 's * 2')
works('for i = 1, 3', function(s, _, _, q, k)
    for i = 1, 3 do
        if q - k == 2 ^ i then
            return s
        end
    end
    return false
end, 'q - k == 2 || (q - k == 4 || q - k == 8)')
works('ipairs and an early return', function(_, _, _, q, k)
    for _, d in ipairs {1, 4, 16} do
        if q - k == d then
            return true
        end
    end
    return false
end, 'q - k == 1 || (q - k == 4 || q - k == 16)')
refused('for i = 1, q', function(s, _, _, q)
    for _ = 1, q do
        s = s + 1
    end
    return s
end, "a loop's bounds cannot depend on a symbol")
refused('while q > k', function(s, _, _, q, k)
    while q > k do
        s = s + 0
    end
    return s
end, 'more than 20000 operations on one path: an endless loop?')
refused('while q > 0 do q = q - 1', function(s, _, _, q)
    while q > 0 do
        q = q - 1
    end
    return s
end, 'more than 64 decisions on one path')
works('repeat until', function(s, _, _, q, k)
    local n = 0
    repeat
        n = n + 1
    until q - k < 16 * n or n == 4
    return s * n
end, 'd = q - k; d < 16 ? s : d < 32 ? s * 2 : d < 48 ? s * 3 : s * 4')

local function ifs(n)
    return function(s, _, h)
        for i = 0, n - 1 do
            s = bit.band(h, 2 ^ i) == 0 and s + 2 ^ i or s
        end
        return s
    end
end
test('six independent ifs are 64 paths', function(t)
    local v = attn.variant(ifs(6))
    t.ok(tostring(v):find('band(h, 32)', 1, true))
end)
test('seven are too many', function(t)
    local e = t.fails(function() attn.variant(ifs(7)) end, 'more than 64 paths: attn.where')
    t.equal(e.code, 'VARIANT')
end)
works('attn.where makes no path', function(s, _, h)
    for i = 0, 7 do
        s = attn.where(attn.eq(h, i), s + i, s)
    end
    return s
end, (function()
    local text = 's'
    for i = 0, 7 do
        text = ('(h == %d ? %s + %d : %s)'):format(i, text, i, text)
    end
    return text
end)())
test('parts of a list add paths', function(t)
    local v = attn.variant {ifs(6), ifs(6)}
    t.ok(tostring(v):find('band(h, 32)', 1, true))
end)
works('attn.lt le eq any all', function(s, _, h, q, k)
    return attn.where(attn.any(attn.lt(q, k), attn.all(attn.le(k, 4), attn.eq(h, 0))), s, s * 2)
end, 'q < k || k <= 4 && h == 0 ? s : s * 2')
works('attn.where of a decided condition', function(s, _, _, q, k)
    return attn.where(q < k, s, s * 2)
end, 'q < k ? s : s * 2')

-- -- What fails -----------------------------------------------------------------------------------

refused('assert', function(s, _, _, q, k)
    assert(q >= k)
    return s
end, 'both outcomes of a condition are run')
test('what error() was given stands in the cause', function(t)
    local thrown = {message = 'the past', code = 7}
    local e = t.fails(function()
        attn.variant(function(s, _, _, q, k)
            if k < q then
                error(thrown)
            end
            return s
        end)
    end, 'the past, where k < q')
    t.equal(e.code, 'VARIANT')
    t.ok(rawequal(e.cause, thrown))
    e = t.fails(function() attn.variant(function() error {} end) end, 'the variant raises a table')
    t.equal(type(e.cause), 'table')
    e = t.fails(function() attn.variant(function() error() end) end, 'the variant raises nil')
    t.equal(e.cause, nil)
end)
refused('error() on a branch', function(s, _, _, q, k)
    if q < k then
        error 'the future'
    end
    return s
end, 'the future, where q < k')
refused("q .. 'x'", function(_, _, _, q) return q .. 'x' end, "'..' joins text: q is a symbol")
refused('#q', function(_, _, _, q) return #q end, '#q: a symbol is a number and has no length')
refused('q.foo', function(_, _, _, q) return q.foo end, '.foo: a symbol is a number')
refused('q.foo = 1', function(_, _, _, q)
    q.foo = 1
    return q
end, 'has no fields')
refused('q()', function(_, _, _, q) return q() end, 'q(...): a symbol is a number')
refused('q[1]', function(_, _, _, q) return q[1] end, 'a symbol is a number')
refused('5LL', function(s) return s + 5LL end, '5LL is no number')
refused('5LL as a result', function() return 5LL end, 'the variant returns the cdata 5LL')
refused('a number beyond f32', function(s)
    return s - 1e300
end, '1e+300', 'INVALID')
refused('a number beyond f32 in a comparison', function(s)
    return s < -4e38
end, '-4e+38', 'INVALID')
works('math.huge and the largest f32', function(s)
    return s < math.huge and math.max(s, -3.4028234e38)
end, 's < inf ? max(s, -3.4028234e38) : -inf')
refused('a string as a result', function(_, _, h)
    if h == 1 then
        return 'one'
    end
    return 1
end, "the variant returns the string 'one' where h == 1")
refused('a table as a result', function() return {} end, 'the variant returns a table')
refused('no result on a path', function(s, _, _, q, k)
    if k <= q then
        return s
    end
end, 'the variant returns nothing where not (k <= q)')
refused('nil as a result', function() return nil end, 'the variant returns nothing')
refused('two results', function(s, _, _, q) return s, q end, 'the variant returns 2 values')
refused('ipairs(q)', function(s, _, _, q)
    for _ in ipairs(q) do
        s = s + 1
    end
    return s
end, 'a symbol is a number, not a table')
refused('pairs(q)', function(s, _, _, q)
    for _ in pairs(q) do
        s = s + 1
    end
    return s
end, 'a symbol is a number, not a table')
refused("('%d'):format(q)", function(s, _, _, q)
    return s + #('%d'):format(q)
end, '; %s formats a symbol)')
refused('table.concat {q}', function(s, _, _, q)
    return s + #table.concat {q}
end, 'a symbol is a number, not a string')
refused('tonumber(q)', function(s, _, _, q) return s + (tonumber(q) or 0) end,
    'tonumber(q): a symbol has no value while it is traced')
works('tonumber of a string', function(s) return s + tonumber '3' end, 's + 3')
test('%s and tostring show the expression', function(t)
    local text, text2
    attn.variant(function(s, _, _, q, k)
        text, text2 = ('%s'):format(q - k), tostring(s)
        return true
    end)
    t.equal(text, 'q - k')
    t.equal(text2, 's')
end)
test("type(q) is 'cdata'; rawequal and table keys go by identity", function(t)
    local kind, same, found
    attn.variant(function(s, _, _, q, k)
        kind, same = type(q), rawequal(q - k, q - k)
        found = ({[q] = 1})[q]
        return s + (q - k)
    end)
    t.equal(kind, 'cdata')
    t.equal(same, false)
    t.equal(found, 1)
end)
refused('x.foo', function(s, _, _, _, _, x) return s + x.foo end, 'x has i nq nk nh hk batch')
refused('x.nq = 1', function(s, _, _, _, _, x)
    x.nq = 1
    return s
end, 'the arguments of a variant are fixed')
works('x', function(s, _, _, _, _, x)
    return s + x.i + x.nq + x.nk + x.nh + x.hk + x.batch
end, 's + i + nq + nk + nh + hk + batch')

-- -- Purity ---------------------------------------------------------------------------------------

refused('math.random', function(s) return s + math.random() end,
    'math.random: a variant is a pure function')
refused('os.clock', function(s) return s + os.clock() end, 'os.clock: a variant is a pure function')
local counter = 0
refused('a counter in the result', function(s)
    counter = counter + 1
    return s + counter
end, 'the function is not pure: it returned')
refused('a counter on the last path alone', function(s, _, h)
    if h == 0 then
        return s
    end
    counter = counter + 1
    return s + counter
end, 'the function is not pure: it returned')
refused('a counter in a decision', function(s, _, h)
    counter = counter + 1
    if h == counter then
        return s
    end
    return false
end, 'the function is not pure: decision 1 was')
test('a decision that does not come again', function(t)
    local first = true
    t.fails(function()
        attn.variant(function(s, _, h)
            if first then
                first = false
                return h == 0 and s
            end
            return s
        end)
    end, 'decision 1, h == 0, did not come again')
end)
refused('yielding out of the function', function(s)
    coroutine.yield(s)
    return s
end, 'yields out of its function')
local kept
test('a symbol kept from an earlier trace', function(t)
    attn.variant(function(s, _, _, q)
        kept = q
        return s
    end)
    t.fails(function() attn.variant(function(s) return s + kept end) end, 'an earlier trace')
    t.fails(function() return kept + 1 end, 'outside its trace')
    t.equal(tostring(kept), 'a symbol of an earlier trace')
end)
refused('a trace inside a trace', function(s)
    attn.variant(function() return s end)
    return s
end, 'a variant is made inside a variant function')
test('more than 64 decisions on a path', function(t)
    t.fails(function()
        attn.variant(function(s, _, _, q)
            local n = 0
            for i = 1, 65 do
                n = q == i and n or n + 1
            end
            return s * n
        end)
    end, 'more than 64 ')
end)
test('more than 20000 nodes', function(t)
    t.fails(function()
        attn.variant(function(s)
            while true do
                s = s + 1
            end
        end)
    end, 'a variant has at most 20000 nodes')
end)

-- -- After a trace --------------------------------------------------------------------------------

test('Lua is what it was after a trace, a failed one too', function(t)
    local before = {math.exp, math.random, bit.band, tonumber, os.clock, exp, band}
    local function f(s, _, h)
        local list = plain_table
        return exp(s) + band(h, 1) + #list
    end
    local function g(s, _, h)
        return exp(s) .. plain_table[h]
    end
    attn.variant(f)
    t.ok(not pcall(attn.variant, g))
    t.ok(not pcall(attn.variant, function(s)
        coroutine.yield()
        return s
    end))
    t.same({math.exp, math.random, bit.band, tonumber, os.clock, exp, band}, before)
    t.equal(getmetatable(plain_table), nil)
    t.equal(plain_table[100], nil)
    t.equal(f(0, 0, 3), 6)
    t.equal(select(2, debug.getupvalue(f, 2)), math.exp)
end)
test('compiled code keeps neither the replacements nor the originals', function(t)
    local function f(s, _, h, q, k) return max(exp(s), q - k) + slopes[h] end
    local function plain()
        local sum = 0
        for i = 1, 300 do
            sum = sum + f(0.5, 0, i % 4, i, 3)
        end
        return sum
    end
    local sum, text = plain(), tostring(attn.variant(f))
    for _ = 1, 200 do
        t.equal(tostring(attn.variant(f)), text)
    end
    t.equal(plain(), sum)
end)
test('a bare function is traced at every call, a variant object is frozen', function(t)
    local c = 2
    local function f(s) return s * c end
    local v = attn.variant(f)
    c = 3
    t.equal(tostring(v), tostring(attn.variant 's * 2'))
    t.equal(tostring(attn.variant {f}), tostring(attn.variant {'s * 3'}))
end)

test.done()
