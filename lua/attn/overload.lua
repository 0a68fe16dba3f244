-- overload.lua: the functions of a variant: math.*, bit.* and attn.where, lt, le, eq, any, all.
--
-- Who calls it: guard.lua puts M.replace in the place of the original functions during a trace;
-- attn.lua exports M.functions. Each takes symbols as well as plain numbers and then does what the
-- original did.

local bit = require 'bit'
local symbol = require 'attn.symbol'
local refuse, wrap, apply, lift, ops, plain = symbol.refuse, symbol.wrap, symbol.apply, symbol.lift,
    symbol.ops, symbol.plain
local select, tonumber, type, unpack = select, tonumber, type, unpack
local log, floor, ceil = math.log, math.floor, math.ceil

local M = {}

local function symbolic(...)
    for i = 1, select('#', ...) do
        if symbol.is((select(i, ...))) then
            return true
        end
    end
    return false
end

-- how(...) outside a trace, where parameters stand for their values.
local function plainly(how, ...)
    local n, args = select('#', ...), {...}
    for i = 1, n do
        args[i] = plain(args[i])
    end
    return how(unpack(args, 1, n))
end

-- `on_symbols` where there is one among the arguments, and `how` on plain numbers.
local function either(on_symbols, how)
    return function(...)
        if not symbolic(...) then
            return how(...)
        elseif not symbol.current() then
            return plainly(how, ...)
        end
        return on_symbols(...)
    end
end

local function unary(op, how)
    return either(function(x)
        return wrap(apply(op, lift(x)))
    end, how)
end

local function binary(op, how)
    return either(function(x, y)
        return wrap(apply(op, lift(x), lift(y)))
    end, how)
end

-- op taken over any number of arguments, from the left.
local function chain(op, how)
    return either(function(...)
        local id = lift((...))
        for i = 2, select('#', ...) do
            id = apply(op, id, lift((select(i, ...))))
        end
        return wrap(id)
    end, how)
end

-- -- math and bit -------------------------------------------------------------------------------

local function log_node(x, to)
    if to == 2 then
        return wrap(apply(ops.log2, lift(x)))
    elseif to == nil then
        return wrap(apply(ops.log, lift(x)))
    end
    return wrap(apply(ops.div, apply(ops.log, lift(x)), apply(ops.log, lift(to))))
end

local of_math = {
    abs = unary(ops.abs, math.abs),
    ceil = unary(ops.ceil, ceil),
    cos = unary(ops.cos, math.cos),
    exp = unary(ops.exp, math.exp),
    floor = unary(ops.floor, floor),
    fmod = binary(ops.fmod, math.fmod),
    log = either(log_node, log),
    max = chain(ops.max, math.max),
    min = chain(ops.min, math.min),
    pow = binary(ops.pow, math.pow),
    sin = unary(ops.sin, math.sin),
    sqrt = unary(ops.sqrt, math.sqrt),
    tanh = unary(ops.tanh, math.tanh),
}
local of_bit = {
    band = chain(ops.band, bit.band),
    bor = chain(ops.bor, bit.bor),
    bxor = chain(ops.bxor, bit.bxor),
    bnot = unary(ops.bnot, bit.bnot),
    lshift = binary(ops.shl, bit.lshift),
    rshift = binary(ops.shr, bit.rshift),
    arshift = binary(ops.sar, bit.arshift),
}

local function names(t)
    local list = {}
    for name in pairs(t) do
        list[#list + 1] = name
    end
    table.sort(list)
    return table.concat(list, ' ')
end

-- A function of Lua that has no counterpart: still itself on plain numbers.
local function absent(full, how, known)
    return either(function()
        refuse(('%s has no counterpart in a variant; there are %s'):format(full, known))
    end, how)
end

local function impure(full)
    return function()
        refuse(('%s: a variant is a pure function, the same for every call'):format(full))
    end
end

local function number_of(x, ...)
    if symbol.is(x) then
        refuse(('tonumber(%s): a symbol has no value while it is traced'):format(tostring(x)))
    end
    return tonumber(x, ...)
end

-- The original functions and what stands for them during a trace: by table and name, and by
-- function.
M.patches = {
    {of = math, by = {random = impure 'math.random', randomseed = impure 'math.randomseed'}},
    {of = bit, by = {}},
    {of = os, by = {clock = impure 'os.clock', time = impure 'os.time', date = impure 'os.date'}},
    {of = _G, by = {tonumber = number_of}},
}
for i, known in ipairs {of_math, of_bit} do
    local patch, prefix, list = M.patches[i], i == 1 and 'math.' or 'bit.', names(known)
    for name, how in pairs(patch.of) do
        if type(how) == 'function' then
            patch.by[name] = patch.by[name] or known[name] or absent(prefix .. name, how, list)
        end
    end
end

M.replace = {}
for _, patch in ipairs(M.patches) do
    for name, by in pairs(patch.by) do
        M.replace[patch.of[name]] = by
    end
end

-- -- attn's own ---------------------------------------------------------------------------------

local F = {
    exp2 = unary(ops.exp2, function(x) return 2 ^ x end),
    int = unary(ops.int, function(x) return x < 0 and ceil(x) or floor(x) end),
    lt = binary(ops.lt, function(a, b) return a < b end),
    le = binary(ops.le, function(a, b) return a <= b end),
    eq = binary(ops.eq, function(a, b) return a == b end),
    any = chain(ops['or'], function(...)
        for i = 1, select('#', ...) do
            if (select(i, ...)) then
                return true
            end
        end
        return false
    end),
    all = chain(ops['and'], function(...)
        for i = 1, select('#', ...) do
            if not (select(i, ...)) then
                return false
            end
        end
        return true
    end),
}
for name, how in pairs(of_math) do
    F[name] = how
end

-- a where condition c holds, else b; without deciding, so it costs no path.
local function choose(c, a, b)
    if type(c) ~= 'boolean' then
        refuse(('attn.where(c, a, b): c is a condition such as attn.lt(q, k), not %s')
            :format(symbol.describe(c)))
    end
    if c then
        return a
    end
    return b
end
F.where = either(function(c, a, b)
    local yes, no = lift(a), lift(b)
    if not symbol.is(c) then
        return choose(c, a, b)
    end
    return wrap(apply(ops.select, lift(c), yes, no))
end, choose)

M.functions = F

return M
