-- symbol.lua: the numbers that a variant function computes with while it is traced.
--
-- Who calls it: trace.lua opens and closes a trace; the user's function calls the operators without
-- knowing it; argument.lua makes leaves and parameters, load.lua loads, overload.lua the functions.
--
--     q - k < 16        a symbol is cdata {id, generation} with every operator;
--     |   |   |         `-` makes a node of the C graph, which folds and shares;
--     id  id  decide    `<` must answer true or false at once: it asks the plan of this path
--
-- Outside a trace a variant function can be called with plain numbers; a parameter then stands for
-- its value.

local ffi = require 'ffi'
local base = require 'attn.ffi'
local tensor = require 'attn.tensor'
local words = require 'attn.words'
local C, fail = base.C, base.fail
local min, tonumber, type = math.min, tonumber, type

local M = {}

local MAX_DECISIONS = 64
local MAX_STEPS = 20000 -- operations on one path

local node_t = ffi.typeof 'struct { int32_t id, generation; }'
local partial_t = ffi.typeof 'struct { int32_t place, generation; }' -- load.lua's
local param_t = ffi.typeof 'struct { double value; char label[48]; }'
local info = ffi.new 'attn_node'
info.size = ffi.sizeof(info)

local T -- the trace under way, or nil; see M.open

-- -- Errors -------------------------------------------------------------------------------------

local function text_of(id)
    local n = tonumber(C.attn_graph_text(T.graph, id, nil, 0))
    local buffer = ffi.new('char[?]', n > 0 and n or 1)
    C.attn_graph_text(T.graph, id, buffer, n)
    return ffi.string(buffer)
end

-- The decisions of this path, for errors: "k <= q and not (h == 0)"; "" before the first one.
local function path()
    local parts = {}
    for i = 1, min(T.depth, 4) do
        local text = text_of(T.plan[i].id)
        parts[i] = T.plan[i].value and text or ('not (%s)'):format(text)
    end
    if T.depth > 4 then
        parts[5] = ('%d more'):format(T.depth - 4)
    end
    return table.concat(parts, ' and ')
end

-- Raises an error that blames `place`, "file:line:"; cause: what the variant raised itself.
function M.blame(place, message, cause)
    local where = path()
    error(setmetatable({
        code = 'VARIANT', arg = 'variant', where = place, cause = cause,
        message = where == '' and message or ('%s, where %s'):format(message, where),
    }, base.Error), 0)
end

-- Raises an error that no pcall inside the user's function can swallow: it stays in the trace.
local function refuse(message, code, arg)
    if T then
        local where = path()
        local _, e = pcall(fail, code or 'VARIANT', arg or 'variant',
            where == '' and message or ('%s, where %s'):format(message, where))
        if e.where == '' then -- a tail call left no line
            e.where = T.place
        end
        T.err = T.err or e
        error(T.err, 0)
    end
    fail(code or 'VARIANT', arg or 'variant', message)
end
M.refuse, M.path, M.text = refuse, path, text_of

local function check(status)
    if status < 0 then
        local code = ffi.string(C.attn_status_name(status))
        refuse(ffi.string(C.attn_error()), code, ffi.string(C.attn_error_arg()))
    end
    return status
end
M.check = check

local function is_node(x)
    return ffi.istype(node_t, x)
end

local function is_param(x)
    return ffi.istype(param_t, x)
end

local function is_symbol(x)
    return type(x) == 'cdata' and (is_node(x) or is_param(x))
end
M.is_param, M.is = is_param, is_symbol
M.node_t, M.param_t, M.partial_t = node_t, param_t, partial_t

-- -- Nodes --------------------------------------------------------------------------------------

-- A trace holds:
--     graph generation        the C graph; a number no other trace has
--     plan depth known        the decisions of this path, how many were met, answers by condition
--     steps                   operations on this path
--     made used               node ids that the function got, and those it did something with
--     symbols params captures what it reads: by memory, by name, and in order
--     partials                tensors that wait for more indices
--     names taken             names for tensors: by storage, and those given
--     watch                   an unused node: whoever makes it again is to blame
function M.open(trace)
    T = trace
    tensor.trace(trace ~= nil)
end

function M.current()
    return T
end

local function tick()
    if T.err then
        error(T.err, 0)
    end
    T.steps = T.steps + 1
    if T.steps > MAX_STEPS then
        refuse(('more than %d operations on one path: an endless loop?'):format(MAX_STEPS))
    end
end

-- What the library knows of a node; overwritten by the next call.
local function node_info(id)
    check(C.attn_graph_node(T.graph, id, info))
    return info
end
M.node = node_info

local function unused(id)
    local of = text_of(id)
    if node_info(id).type == C.ATTN_BOOL then
        refuse(('%s is never compared or returned, and Lua takes every symbol for true: write %s '
            .. '== true'):format(of, of))
    end
    refuse(('the value of %s is never used, and Lua takes every number for true: write %s ~= 0 if '
        .. 'a condition was meant'):format(of, of))
end

-- A node for the user's hands.
local function wrap(id)
    T.made[id] = true
    if id == T.watch then
        unused(id)
    end
    return node_t(id, T.generation)
end
M.wrap = wrap

local ops = {} -- numbers by name
for number = 0, math.huge do
    local name = C.attn_op_name(number)
    if name == nil then
        break
    end
    ops[ffi.string(name)] = number
end

local function apply(number, a, b, c)
    tick()
    return check(C.attn_graph_op(T.graph, number, a, b or -1, c or -1))
end
M.apply, M.ops = apply, ops

local function param_node(name, value)
    local known = T.params[name]
    if known == nil then
        T.params[name] = value
        T.captures[#T.captures + 1] = {name = name, value = value}
    elseif not rawequal(known, value) then
        refuse(("two parameters are named '%s'"):format(name), 'CAPTURE', name)
    end
    return check(C.attn_graph_param(T.graph, name, C.ATTN_F32))
end
M.param_node = param_node

-- What the user calls a value, for errors.
local function describe(x)
    if type(x) == 'cdata' and tensor.is(x) then
        return 'a tensor without an index'
    elseif ffi.istype(partial_t, x) then
        return tostring(x)
    end
    return words.describe(x)
end
M.describe = describe

-- The node of an operand: a symbol, a number or a boolean.
local function lift(x)
    local kind = type(x)
    if kind == 'cdata' then
        if is_node(x) then
            if x.generation ~= T.generation then
                refuse 'a symbol is kept from an earlier trace: symbols live inside one call'
            end
            T.used[x.id] = true
            return x.id
        elseif is_param(x) then
            return param_node(ffi.string(x.label), x)
        end
    elseif kind == 'number' then
        return check(C.attn_graph_number(T.graph, x))
    elseif kind == 'boolean' then
        return check(C.attn_graph_bool(T.graph, x and 1 or 0))
    end
    return refuse(('%s is no number: a symbol takes numbers, symbols and booleans')
        :format(describe(x)))
end
M.lift = lift

-- The number a value stands for outside a trace.
local function plain(x)
    if type(x) ~= 'cdata' then
        return x
    elseif is_param(x) then
        return x.value
    elseif is_node(x) then
        refuse 'a symbol is used outside its trace: symbols live inside one call'
    end
    return x
end
M.plain = plain

-- -- Decisions ----------------------------------------------------------------------------------

-- The answer to condition `id` on this path; the first one is true, so that errors come in reading
-- order.
local function decide(id)
    tick()
    local node = node_info(id)
    if node.constant == 1 then
        return node.value ~= 0
    end
    local answer = T.known[id]
    if answer ~= nil then
        return answer
    end
    local depth = T.depth + 1
    if depth > MAX_DECISIONS then
        refuse(('more than %d decisions on one path'):format(MAX_DECISIONS))
    end
    local step = T.plan[depth]
    if not step then
        step = {id = id, value = true}
        T.plan[depth] = step
    elseif step.id ~= id then
        refuse(('the function is not pure: decision %d was %s, on replay %s'):format(depth,
            text_of(step.id), text_of(id)))
    end
    T.depth = depth
    T.known[id] = step.value
    T.known[check(C.attn_graph_op(T.graph, ops['not'], id, -1, -1))] = not step.value
    return step.value
end

local function compare(number, a, b)
    return decide(apply(number, lift(a), lift(b)))
end

-- -- Operators ----------------------------------------------------------------------------------

local meta = {}

for name, how in pairs {
    add = function(a, b) return a + b end,
    sub = function(a, b) return a - b end,
    mul = function(a, b) return a * b end,
    div = function(a, b) return a / b end,
    mod = function(a, b) return a % b end,
    pow = function(a, b) return a ^ b end,
} do
    meta['__' .. name] = function(a, b)
        if not T then
            return how(plain(a), plain(b))
        end
        return wrap(apply(ops[name], lift(a), lift(b)))
    end
end

function meta.__unm(a)
    return T and wrap(apply(ops.neg, lift(a))) or -plain(a)
end

function meta.__lt(a, b)
    if not T then
        return plain(a) < plain(b)
    end
    return compare(ops.lt, a, b)
end

function meta.__le(a, b)
    if not T then
        return plain(a) <= plain(b)
    end
    return compare(ops.le, a, b)
end

function meta.__eq(a, b)
    if type(a) == 'nil' or type(b) == 'nil' then
        if T and is_node(a) then
            lift(a)
        end
        return false
    elseif not T then
        return plain(a) == plain(b)
    end
    return compare(ops.eq, a, b)
end

function meta.__concat(a, b)
    if not T then
        return plain(a) .. plain(b)
    end
    return refuse(("'..' joins text: %s is a symbol"):format(tostring(is_symbol(a) and a or b)))
end

function meta.__len(a)
    return refuse(('#%s: a symbol is a number and has no length'):format(tostring(a)))
end

function meta.__call(a)
    return refuse(('%s(...): a symbol is a number and cannot be called'):format(tostring(a)))
end

function meta.__newindex(a, key)
    return refuse(('%s.%s = ...: a symbol is a number and has no fields'):format(tostring(a),
        tostring(key)))
end

-- A number has no fields; a parameter has its name.
local function index(a, key)
    if key == 'name' and is_param(a) then
        return ffi.string(a.label)
    end
    return refuse(is_symbol(key) and 'a symbol is a number and has no index'
        or ('.%s: a symbol is a number and has no fields'):format(tostring(key)))
end

function meta.__tostring(a)
    if is_param(a) then
        return ('%s = %.9g'):format(ffi.string(a.label), a.value)
    elseif not T or a.generation ~= T.generation then
        return 'a symbol of an earlier trace'
    end
    T.used[a.id] = true
    return text_of(a.id)
end

meta.__index = index
ffi.metatype(node_t, meta)
ffi.metatype(param_t, meta)

return M
