-- variants.lua: variant objects: made from functions, texts, lists and the ready-made ones;
-- composed.
--
-- Who calls it: attn.lua exports the constructors; attention.lua and picture.lua turn whatever was
-- given as a variant into an object by M.of and its captures into an array by M.bind.
--
-- A variant is {handle, text, symbols, captures, axes}: the library's frozen variant, its canonical
-- text and what it reads; by name, the values of that: tensors, parameters, or numbers of
-- parameters that were made inside a function; and for tensors of ready-made variants which size of
-- the call each axis must have (false: any). Where two parts of a composition read different things
-- under one name, the later one is renamed in its
-- text:
--
--     {bias(a), bias(b)}     s + bias[..]  and  s + bias[..]   ->   s + bias[..] + bias_2[..]

local ffi = require 'ffi'
local base = require 'attn.ffi'
local words = require 'attn.words'
local memo = require 'attn.memo'
local tensor = require 'attn.tensor'
local symbol = require 'attn.symbol'
local load = require 'attn.load'
local trace = require 'attn.trace'
local options = require 'attn.options'
local C, check, fail = base.C, base.check, base.fail
local floor, huge, max = math.floor, math.huge, math.max

local M = {}

local Variant = {}
Variant.__index = Variant

local box = ffi.new 'attn_variant *[1]'
local info = ffi.new 'attn_symbol'
info.size = ffi.sizeof(info)

function Variant.__tostring(variant)
    return variant.text
end

function M.is(x)
    return getmetatable(x) == Variant
end

-- What the variant reads, in the library's order.
local function symbols(handle)
    local list, n = {}, check(C.attn_variant_symbol(handle, 0, info))
    for i = 0, n - 1 do
        C.attn_variant_symbol(handle, i, info)
        list[i + 1] = {name = ffi.string(info.name), rank = info.rank, type = info.type}
    end
    return list
end

-- The object of the variant in `box`; of `values` and `axes` (by name) it keeps what is read.
local function new(values, axes)
    local handle = ffi.gc(box[0], C.attn_variant_release)
    local variant = {handle = handle, captures = {}, axes = {}, symbols = symbols(handle),
        text = ffi.string(C.attn_variant_text(handle))}
    for _, one in ipairs(variant.symbols) do
        variant.captures[one.name] = values[one.name]
        variant.axes[one.name] = axes and axes[one.name]
    end
    return setmetatable(variant, Variant)
end

-- -- Composition --------------------------------------------------------------------------------

local function same(a, b)
    return rawequal(a, b) or tensor.is(a) and tensor.is(b)
        and load.memory_key(a) == load.memory_key(b)
end

-- `part` under names that clash with nothing in `taken`, nor with each other.
local function renamed(part, taken)
    local names, values, axes, own = {}, {}, {}, {}
    local list = part.symbols
    for _, one in ipairs(list) do
        own[one.name] = true
    end
    for _, one in ipairs(list) do
        local value = part.captures[one.name]
        local name, n = one.name, 1
        while taken[name] ~= nil and not same(taken[name], value)
            or name ~= one.name and (own[name] or values[name] ~= nil) do
            n = n + 1
            name = ('%s_%d'):format(one.name:sub(1, 40), n)
        end
        names[one.name] = name
        values[name], axes[name] = value, part.axes[one.name]
    end
    local text = part.text
    local new_text = text:gsub('%f[%w_][%a_][%w_]*', names)
    if new_text == text then
        return part
    end
    check(C.attn_variant_parse(new_text, box))
    return new(values, axes)
end

-- Refuses a list that holds itself; above: the lists that it stands in.
local function check_finite(list, above)
    if above[list] then
        fail('VARIANT', 'variant', 'a list of variants holds itself')
    end
    above[list] = true
    for _, part in ipairs(list) do
        if type(part) == 'table' and not M.is(part) then
            check_finite(part, above)
        end
    end
    above[list] = nil
end

local MOST_JOINED = 64
local joined = memo.new(MOST_JOINED) -- variants that read nothing, by how they were joined

-- Joins parts, n of them, by a function of the library.
local function join_parts(parts, n, how)
    local taken, axes = {}, {}
    local handles = ffi.new('const attn_variant *[?]', n + 1)
    for i = 1, n do
        parts[i] = renamed(parts[i], taken)
        for name, value in pairs(parts[i].captures) do
            taken[name], axes[name] = value, parts[i].axes[name]
        end
        handles[i - 1] = parts[i].handle
    end
    check(C[how](handles, n, box))
    return new(taken, axes)
end

local function join(list, how)
    check_finite(list, {})
    for key in pairs(list) do
        if type(key) ~= 'number' then
            fail('VARIANT', 'variant', ("a list of variants has no field '%s'")
                :format(tostring(key)))
        end
    end
    local parts, n, texts, reads = {}, #list, {how}, false
    for i = 1, n do
        local part = M.of(list[i])
        parts[i], texts[i + 1] = part, part.text
        reads = reads or part.symbols[1] ~= nil
    end
    if reads then
        return join_parts(parts, n, how)
    end
    local variant = joined:get(texts, n + 1)
    if not variant then
        variant = join_parts(parts, n, how)
        joined:put(texts, n + 1, variant)
    end
    return variant
end

function Variant.__concat(a, b)
    return join({a, b}, 'attn_variant_compose')
end

local function combined(how)
    return function(...)
        if symbol.current() then
            symbol.refuse 'a variant is made inside a variant function: make it before'
        end
        local n, list = select('#', ...), {...}
        if n == 1 and type(list[1]) == 'table' and not M.is(list[1]) then
            return join(list[1], how)
        end
        for i = 1, n do
            list[i] = M.of(list[i]) -- nil is none
        end
        return join(list, how)
    end
end

-- Visible where any of the masks is; where all are, which is what a list says.
M.any, M.all = combined 'attn_variant_any', combined 'attn_variant_compose'

-- Do a, b, ... combine as variants, and not as conditions?
function M.among(...)
    for i = 1, select('#', ...) do
        local kind = type((select(i, ...)))
        if kind == 'string' or kind == 'function' or kind == 'table' then
            return true
        end
    end
    return false
end

-- -- From functions and texts -------------------------------------------------------------------

local function traced(f)
    local graph, root, captures = trace.trace(f)
    local values = {}
    for _, one in ipairs(captures) do
        values[one.name] = one.value
    end
    check(C.attn_graph_finish(graph, root, box))
    return new(values)
end

local function is_value(x)
    return type(x) == 'number' or tensor.is(x) or symbol.is_param(x)
end

local function parsed(text, values)
    words.check_text('PARSE', 'text', text)
    check(C.attn_variant_parse(text, box))
    local variant, unknown = new(values), {}
    for name, value in pairs(values) do
        if variant.captures[name] == nil then
            unknown[#unknown + 1] = tostring(name)
        elseif not is_value(value) then
            fail('CAPTURE', 'captures.' .. name, ('%s is %s: a tensor, a parameter or a number is '
                .. 'wanted'):format(name, symbol.describe(value)))
        end
    end
    if unknown[1] then
        table.sort(unknown)
        fail('CAPTURE', 'captures.' .. unknown[1], ('the variant does not read %s')
            :format(table.concat(unknown, ', ')))
    end
    return variant
end

-- attn.variant(x[, values]): x is a function (traced now, then frozen), a text (values: what it
-- reads, by name), a list (composed left to right) or a variant.
function M.variant(x, values)
    local kind = type(x)
    if kind == 'function' then
        return traced(x)
    elseif kind == 'string' then
        return parsed(x, values == nil and {} or options.want('table', 'values', values))
    elseif M.is(x) then
        return x
    elseif kind == 'table' and (#x > 0 or next(x) == nil) then
        return join(x, 'attn_variant_compose')
    end
    return fail('VARIANT', 'variant', ('a variant is a function, a text, a variant or a list of '
        .. 'them, not %s'):format(symbol.describe(x)))
end
M.of = M.variant

-- Tensors that were made here from tables: their copies by device.
local from_table = setmetatable({}, {__mode = 'k'})

-- Tensor t for a call on `device`.
local function on_device(t, device, name)
    local own = tensor.device_of(t)
    if own == device then
        return t
    end
    local copies = from_table[t]
    if not copies then
        fail('DEVICE', 'captures.' .. name, ('%s is on %s, but q is on %s: use :to'):format(name,
            own.name, device.name))
    end
    copies[device] = copies[device] or t:to(device)
    return copies[device]
end

local captures_t = ffi.typeof 'attn_capture[?]'
local nothing = {array = nil, n = 0, values = {}}

local function alive_value(value, device, name)
    if not tensor.is_alive(value) then
        fail('INVALID', 'captures.' .. name, ('captures.%s was freed, and the variant reads it')
            :format(name))
    end
    return device and on_device(value, device, name) or tensor.on_host(value)
end

-- What the variant reads as the library takes it: {array, n, values, grads}; device: of the call,
-- nil for the host's memory; grads: tensors by name. The table keeps alive what the array points
-- to; values are in the order of the variant's symbols.
function M.bind(variant, device, grads)
    local list, n = variant.symbols, 0
    if #list == 0 then
        return nothing
    end
    local captures = {array = captures_t(#list), values = {}, grads = grads}
    for i = 1, #list do
        local name = list[i].name
        local value, grad = variant.captures[name], grads and grads[name]
        if type(value) ~= 'nil' then
            local to = captures.array[n]
            n = n + 1
            if tensor.is(value) then
                value = alive_value(value, device, name)
                to.value = tensor.c(value)
            else
                to.number = type(value) == 'number' and value or value.value
            end
            to.name, to.grad = name, grad and tensor.c(grad) or nil
            captures.values[i] = value
        end
    end
    captures.n = n
    return captures
end

-- -- A variant as a function --------------------------------------------------------------------

local function want_whole(name, x)
    if type(x) ~= 'number' or x ~= floor(x) or x < -2 ^ 31 or x >= 2 ^ 31 then
        fail('INVALID', name, ('%s is %s: a whole number is wanted'):format(name,
            type(x) == 'number' and ('%.9g'):format(x) or symbol.describe(x)))
    end
    return x
end

-- The call in which a query stands at q and a key at k: what x leaves open is the least that holds
-- them.
local function window_at(b, h, q, k, x)
    words.check_names('x', options.want('table', 'x', x), {'i', 'nq', 'nk', 'nh', 'hk', 'batch'})
    for name, value in pairs(x) do
        want_whole('x.' .. name, value)
    end
    local w = ffi.new 'attn_window'
    w.size, w.rows, w.columns = ffi.sizeof(w), 1, 1
    w.b, w.h, w.k = want_whole('b', b), want_whole('h', h), want_whole('k', k)
    local nk = x.nk or max(want_whole('q', q), k, 0) + 1
    local i = x.i or x.nq and q - nk + x.nq or max(q, 0)
    local nq = x.nq or nk - q + i
    if q ~= i + nk - nq then
        if q ~= i then
            fail('INVALID', 'q', ('q is %d, which is neither i + nk - nq nor i of an x of i %d, '
                .. 'nk %d, nq %d'):format(q, i, nk, nq))
        end
        w.flags = C.ATTN_TOP_LEFT
    end
    w.i, w.nq, w.nk = i, nq, nk
    w.nh, w.hk, w.batch = x.nh or h + 1, x.hk or 1, x.batch or b + 1
    return w
end

-- variant(s, b, h, q, k[, x]) with plain numbers, as its function would be called: the score, or
-- false where it masks. variant() is the variant, so that attn.causal() is attn.causal.
function Variant.__call(variant, ...)
    if select('#', ...) == 0 then
        return variant
    end
    local s, b, h, q, k, x = ...
    if symbol.is(s) or symbol.is(b) or symbol.is(h) or symbol.is(q) or symbol.is(k) then
        symbol.refuse 'a variant is called with symbols: compose it, {variant, f}, instead'
    elseif type(s) ~= 'number' then
        fail('INVALID', 's', ('s is %s: variant(s, b, h, q, k[, x]) takes numbers')
            :format(symbol.describe(s)))
    end
    local from, to = ffi.new('float[1]', s), ffi.new 'float[1]'
    local window, captures = window_at(b, h, q, k, x or {}), M.bind(variant)
    window.captures, window.n_captures = captures.array, captures.n
    check(C.attn_variant_sample(variant.handle, window, from, to))
    return to[0] ~= -huge and to[0]
end

M.box, M.new, M.from_table = box, new, from_table
M.ready = require 'attn.ready'(M)

return M
