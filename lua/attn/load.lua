-- load.lua: what t[q] means when q is a symbol, and t[0] during a trace: a load of a tensor that
-- the variant captures, so that every run reads it and it has a gradient.
--
-- Who calls it: tensor.lua, through symbolic_index, for every index that is no string; during a
-- trace for numbers too. rel[h][d] goes through a partial index object, which waits for the rest of
-- its indices:
--
--     rel[h] -> partial {rel, h};  partial[d] -> node load(rel, h, d)
--
-- A tensor becomes a named symbol of the graph at its first load. Tensors are told apart by their
-- memory, not by their object, since a row view is a new object every time.

local ffi = require 'ffi'
local base = require 'attn.ffi'
local tensor = require 'attn.tensor'
local symbol = require 'attn.symbol'
local argument = require 'attn.argument'
local C, data_of = base.C, require 'attn.storage'.data_of
local refuse, check, apply, lift, ops = symbol.refuse, symbol.check, symbol.apply, symbol.lift,
    symbol.ops
local floor, tonumber, unpack = math.floor, tonumber, unpack

local M = {}
local MAX_RANK = 4

local kinds = {
    i32 = C.ATTN_I32, bool = C.ATTN_BOOL, u8 = C.ATTN_BOOL,
    f32 = C.ATTN_F32, f16 = C.ATTN_F32, bf16 = C.ATTN_F32,
}

-- -- Captures -----------------------------------------------------------------------------------

-- Equal for two tensors that are the same elements of the same memory.
function M.memory_key(t)
    local head, parts = t.head, {}
    for axis = 0, head.ndim - 1 do
        parts[axis + 1] = ('%d:%d'):format(tonumber(t.extent[axis]), tonumber(t.step[axis]))
    end
    local offset = ffi.cast('char *', head.data) - ffi.cast('char *', data_of(t.storage))
    return ('%d+%d %s %s'):format(t.storage, tonumber(offset), t.dtype, table.concat(parts, ' '))
end

-- The name the user gave the tensor (an upvalue, a field, a global) if it is a name in the variant
-- text, else "t"; with a number where it is taken.
local function name_for(T, t)
    local name = T.names[t.storage]
    if not name then
        for key, value in pairs(T.globals) do
            if rawequal(value, t) and type(key) == 'string' then
                name = key
            end
        end
    end
    if not (name and argument.is_name(name)) then
        name = name and argument.is_name(name .. '_t') and name .. '_t' or 't'
    end
    local unique, n = name, 1
    while T.taken[unique] do
        n = n + 1
        unique = ('%s_%d'):format(name, n)
    end
    T.taken[unique] = true
    return unique
end

local function symbol_of(T, t)
    local known = T.symbols[t]
    if known then
        return known
    end
    local key = M.memory_key(t)
    known = T.symbols[key]
    if not known then
        local kind = kinds[t.dtype]
        if not kind then
            refuse(("a variant reads f32 f16 bf16 i32 bool u8, not %s: convert it by t:to('f32')")
                :format(t.dtype), 'DTYPE')
        end
        local name = name_for(T, t)
        known = check(C.attn_graph_tensor(T.graph, name, kind, t.head.ndim, 0, 0))
        T.symbols[key] = known
        T.captures[#T.captures + 1] = {name = name, value = t}
    end
    T.symbols[t] = known
    return known
end

-- -- Indices ------------------------------------------------------------------------------------

local whole = {[ops.floor] = true, [ops.ceil] = true, [ops.float] = true}
local keeps_whole = {}
for name in ('neg abs add sub mul min max mod fmod select'):gmatch '%S+' do
    keeps_whole[ops[name]] = true
end

-- Are the values of f32 node `id` whole?
local function is_whole(id)
    local node = symbol.node(id)
    if node.type == C.ATTN_I32 then
        return true
    elseif node.constant == 1 then
        return node.value == floor(node.value)
    elseif not keeps_whole[node.op] then
        return whole[node.op] or false
    end
    local first = node.op == ops.select and 1 or 0
    local args = {}
    for i = first, node.n_args - 1 do
        args[#args + 1] = node.args[i]
    end
    for _, arg in ipairs(args) do -- `node` is overwritten from here on
        if not is_whole(arg) then
            return false
        end
    end
    return true
end

-- x as an index of an axis of t, counted from 0.
local function index_node(t, axis, x)
    local extent = tonumber(t.extent[axis])
    if type(x) == 'number' and (x ~= floor(x) or x < 0 or x >= extent) then
        refuse(('index %.9g of axis %d: %s'):format(x, axis, extent == 0 and 'the axis is empty'
            or ('a whole number from 0 to %d is allowed'):format(extent - 1)), 'INVALID', 'index')
    end
    local id = lift(x)
    local kind = symbol.node(id).type
    if kind == C.ATTN_F32 and is_whole(id) then
        return apply(ops.int, id)
    elseif kind ~= C.ATTN_I32 then
        local text = symbol.text(id)
        refuse(kind == C.ATTN_BOOL and ('an index is a number, not the condition %s'):format(text)
            or ('an index is a whole number: write math.floor(%s)'):format(text))
    end
    return id
end

-- -- Partial indices ----------------------------------------------------------------------------

-- cdata, since `#` of a table asks no metatable: a place in the trace's list of {tensor, indices}.
local partial_t = symbol.partial_t

local function indexed(t, indices)
    local T, rank = symbol.current(), t.head.ndim
    if #indices < rank then
        T.partials[#T.partials + 1] = {tensor = t, indices = indices}
        return partial_t(#T.partials, T.generation)
    end
    return symbol.wrap(check(C.attn_graph_load(T.graph, symbol_of(T, t),
        ffi.new('int32_t[4]', indices), rank)))
end

local function open(self)
    local T = symbol.current()
    if not T or self.generation ~= T.generation then
        refuse 'an indexed tensor is kept from an earlier trace'
    end
    return T.partials[self.place]
end

local partial = {}

function partial:__index(key)
    local one = open(self)
    local indices = {unpack(one.indices)}
    if type(key) == 'string' then
        if key == 'shape' then
            return {unpack(one.tensor.shape, #indices + 1)}
        end
        refuse(('.%s: a row of a tensor has # and .shape in a variant, and no other field')
            :format(key))
    end
    indices[#indices + 1] = index_node(one.tensor, #indices, key)
    return indexed(one.tensor, indices)
end

function partial:__len()
    local one = open(self)
    return tonumber(one.tensor.extent[#one.indices])
end

function partial:__tostring()
    local one = open(self)
    local given, rank = #one.indices, one.tensor.head.ndim
    return ('a tensor of %d axes with %d %s (write t%s)'):format(rank, given,
        given == 1 and 'index' or 'indices', ('[...]'):rep(rank))
end

local function incomplete(a, b)
    refuse(symbol.describe(ffi.istype(partial_t, a) and a or b) .. ' is no number')
end
for name in ('add sub mul div mod pow unm lt le eq concat call newindex'):gmatch '%S+' do
    partial['__' .. name] = incomplete
end
ffi.metatype(partial_t, partial)

function tensor.symbolic_index(t, key)
    if not symbol.is(key) and type(key) ~= 'number' then
        refuse(('a tensor is indexed by numbers and symbols, not by %s')
            :format(symbol.describe(key)), 'INVALID', 'index')
    end
    local rank = tensor.alive(t).head.ndim
    if not symbol.current() then
        return tensor.element(t, symbol.plain(key))
    elseif rank == 0 or rank > MAX_RANK then
        refuse(('a variant reads tensors of 1 to %d axes, not of %d'):format(MAX_RANK, rank),
            'SHAPE')
    end
    return indexed(t, {index_node(t, 0, key)})
end

return M
