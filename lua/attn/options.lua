-- options.lua: the options of a call, by name, into the members of attn_call.
--
-- Who calls it: attention.lua. Every option has one reader in the table below; an unknown name is
-- refused with the nearest known one. What the library can judge (extents, ranges) is left to the
-- library.

local ffi = require 'ffi'
local base = require 'attn.ffi'
local tensor = require 'attn.tensor'
local kind_of = require 'attn.kind'.of
local symbol = require 'attn.symbol'
local words = require 'attn.words'
local C, fail = base.C, base.fail
local check_names = words.check_names
local floor = math.floor
local void_p, address_t = ffi.typeof 'void *', ffi.typeof 'uintptr_t'
local is_tensor, device_of = tensor.is, require 'attn.storage'.device_of

local M = {}

local function want(kind, name, x)
    if type(x) ~= kind then
        fail('INVALID', name, ('%s is %s, a %s is wanted'):format(name, symbol.describe(x), kind))
    end
    return x
end
M.want = want

local function want_tensor(name, x)
    if not tensor.is(x) then
        fail('INVALID', name, ('%s is %s, a tensor is wanted'):format(name, symbol.describe(x)))
    end
    return x
end
M.want_tensor = want_tensor

-- -- Tensors ------------------------------------------------------------------------------------

-- A call is put together in: c (attn_call), device, keep (tensors by option name), own (those that
-- were made from tables here), key (what its plan depends on, as a list: memo.lua).

local function put_result(call, name, t)
    if not is_tensor(t) or device_of(t.storage) ~= call.device then
        local device = tensor.device_of(want_tensor(name, t)) -- refuses a freed one
        fail('DEVICE', name, ('%s is on %s, but q is on %s: use :to'):format(name, device.name,
            call.device.name))
    end
    call.keep[name] = t
    return t.head
end
M.put_result = put_result

local function put(call, name, t)
    local head, key = put_result(call, name, t), call.key
    key[#key + 1] = kind_of(t).number
    return head
end
M.put = put

-- A tensor, or a table that becomes one of type `dtype`.
local function put_list(call, name, x, dtype)
    if type(x) == 'table' then
        x = tensor.tensor(x, {dtype = dtype, device = call.device}, name)
        call.own[#call.own + 1] = x
    elseif not tensor.is(x) then
        fail('INVALID', name, ('%s is %s, a tensor or a table is wanted'):format(name,
            symbol.describe(x)))
    end
    return put(call, name, x)
end

M.put_list = put_list

-- The same for an option; a number is a list of one f32.
local function tensor_reader(dtype)
    return function(call, name, x)
        if type(x) == 'number' and dtype == 'f32' then
            x = {x}
        end
        call.c[name] = put_list(call, name, x, dtype)
    end
end

-- -- Numbers ------------------------------------------------------------------------------------

-- A number on which the plan depends.
local function put_number(call, name, x)
    local key = call.key
    call.c[name], key[#key + 1] = x, x
end

local function whole(name, x, most)
    if type(x) ~= 'number' or x ~= floor(x) or x < 0 or x > most then
        fail('INVALID', name, ('%s is %s, a whole number from 0 to %.0f is wanted'):format(name,
            type(x) == 'number' and ('%.17g'):format(x) or symbol.describe(x), most))
    end
    return x
end

-- A number, a 64-bit integer, or an i32 tensor of two elements in the device's memory, low one
-- first.
local function seed(call, name, x)
    if tensor.is(x) then
        if x.dtype ~= 'i32' or #x.shape ~= 1 or x.shape[1] ~= 2 then
            fail('SHAPE', name, 'a seed in memory is an i32 tensor of 2 elements, low one first')
        end
        call.c.seed_at = ffi.cast('const uint64_t *', put(call, name, x).data)
    elseif ffi.istype('uint64_t', x) or ffi.istype('int64_t', x) then
        call.c.seed = x
    else
        call.c.seed = whole(name, x, 2 ^ 53)
    end
end

local function flag(value)
    return function(call, name, x)
        local key = call.key
        key[#key + 1] = want('boolean', name, x)
        if x then
            call.c.flags = call.c.flags + value
        end
    end
end

local function names_of(t)
    local names = {}
    for name in pairs(t) do
        names[#names + 1] = name
    end
    table.sort(names)
    return names
end

-- A table of whole numbers; the name in attn_call of each.
local function group(members)
    local known = names_of(members)
    return function(call, name, x)
        check_names(name, want('table', name, x), known)
        for member, value in pairs(x) do
            call.key[#call.key + 1] = member
            put_number(call, members[member], whole(name .. '.' .. member, value, 2 ^ 31 - 1))
        end
    end
end

local function blocks(call, name, x)
    check_names(name, want('table', name, x), {'bm', 'bn', 'counts', 'indices'})
    local b = ffi.new 'attn_blocks'
    b.size = ffi.sizeof(b)
    b.bm, b.bn = whole('blocks.bm', x.bm, 2 ^ 31 - 1), whole('blocks.bn', x.bn, 2 ^ 31 - 1)
    call.key[#call.key + 1], call.key[#call.key + 2] = x.bm, x.bn
    for _, key in ipairs {'counts', 'indices'} do
        b[key] = put_list(call, 'blocks.' .. key, x[key], 'i32')
    end
    call.blocks, call.c.blocks = b, b
end

local function longest(call, name, x)
    put_number(call, name, whole(name, x, 2 ^ 31 - 1))
end

-- -- The table ----------------------------------------------------------------------------------

local f32, i32 = tensor_reader 'f32', tensor_reader 'i32'
local readers = {
    scale = function(call, name, x)
        call.c.scale = want('number', name, x)
        call.c.flags = call.c.flags + C.ATTN_SCALE_GIVEN
    end,
    sink = f32,
    dropout = function(call, name, x)
        put_number(call, name, want('number', name, x))
    end,
    seed = seed,
    offset = function(call, name, x)
        call.c.offset = whole(name, x, 2 ^ 32 - 1)
    end,
    q_offsets = i32, k_offsets = i32, q_used = i32, k_used = i32,
    q_longest = longest, k_longest = longest,
    q_scale = f32, k_scale = f32, v_scale = f32,
    origins = group {b = 'b0', h = 'h0', i = 'i0', k = 'k0'},
    totals = group {batch = 'batch', nh = 'nh', hk = 'hk', nq = 'nq', nk = 'nk'},
    deterministic = flag(C.ATTN_DETERMINISTIC),
    batch_invariant = flag(C.ATTN_BATCH_INVARIANT),
    top_left = flag(C.ATTN_TOP_LEFT),
    blocks = blocks,
    stream = function(call, name, x)
        call.stream = ffi.cast(void_p, want('cdata', name, x))
        call.stream_number = tonumber(ffi.cast(address_t, call.stream))
    end,
    -- read by attention.lua itself
    variant = false, out = false,
}
local names = names_of(readers)

-- Reads the options into the call.
function M.read(call, opt)
    local key = call.key
    for name, x in pairs(opt) do
        local reader = readers[name]
        if reader then
            key[#key + 1] = name
            reader(call, name, x)
        elseif reader == nil then
            check_names('attn.attention', opt, names)
        end
    end
end

return M
