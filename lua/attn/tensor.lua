-- tensor.lua: tensors: their memory, their shapes, their elements.
--
-- Who calls it: attn.lua exports the constructors; attention.lua passes c(t) to the library. What
-- computes or prints stands in tensor_math.lua and tensor_text.lua.
--
-- A tensor is cdata, so that `#t`, `t[i]` and finalizers work:
--
--     attn_lua_tensor
--     +--------------+----------+--------+---------+------+
--     | attn_tensor  | extent[] | step[] | storage | kind |   numbers of what storage.lua and
--     | shape strides|          |        |         |      |   kind.lua hold in tables of Lua
--     +---|-------|--+----------+--------+---------+------+
--         |       +------------^ in elements
--         +---------^
--
-- Views share a storage and count it; see storage.lua. Indices count from 0; a shape is an ordinary
-- table, from 1. Memory of a device that is not the host's is only touched by the library: an
-- element is read and written by a copy, which waits for what stream NULL was given before it.

local ffi = require 'ffi'
local base = require 'attn.ffi'
local words = require 'attn.words'
local devices = require 'attn.device'
local dtypes = require 'attn.dtype'
local storages = require 'attn.storage'
local C, check, fail = base.C, base.check, base.fail
local types, dtype_named, device_of = dtypes.types, dtypes.named, storages.device_of
local floor = math.floor

local MAX_RANK, MOST_ELEMENTS = 8, 2 ^ 48
local M = {MAX_RANK = MAX_RANK}

ffi.cdef [[
typedef struct attn_lua_tensor {
    attn_tensor head;
    int64_t extent[8], step[8];
    double storage, kind; /* 0: none yet */
} attn_lua_tensor;
]]

local tensor_t = ffi.typeof 'attn_lua_tensor'
local TENSOR_BYTES = ffi.sizeof(tensor_t)
local tensor_p = ffi.typeof 'attn_tensor *'
local byte_p = ffi.typeof 'char *'

local function dtype_of(t)
    return types[t.head.dtype.code + t.head.dtype.bits * 256]
end

-- -- Descriptors --------------------------------------------------------------------------------

local function is(x)
    return ffi.istype(tensor_t, x)
end
M.is = is

function M.is_alive(t)
    return device_of(t.storage) ~= nil
end

local function alive(t)
    if not device_of(t.storage) then
        fail('INVALID', 'tensor', 'the tensor was freed')
    end
    return t
end

-- What the library takes. The pointer does not keep the tensor alive: hold on to `t` meanwhile.
function M.c(t)
    if not is(t) then
        fail('INVALID', 'tensor', ('a tensor is wanted, not %s'):format(words.describe(t)))
    end
    return ffi.cast(tensor_p, alive(t).head)
end

-- Are t's elements in memory that Lua can read?
local function is_host(t)
    return device_of(t.storage).is_host
end

-- The device object of a tensor; t.device is its name.
function M.device_of(t)
    return device_of(alive(t).storage)
end

local function whole(x)
    return type(x) == 'number' and floor(x) == x
end

local function too_large(n)
    fail('SHAPE', 'shape', ('a shape of %.4g elements is too large'):format(n))
end

-- Elements of a checked shape.
local function count_of(shape)
    if type(shape) ~= 'table' then
        fail('SHAPE', 'shape', ('shape is %s: a table of extents is wanted')
            :format(words.describe(shape)))
    end
    if #shape > MAX_RANK then
        fail('SHAPE', 'shape', ('shape has %d axes: at most %d are allowed')
            :format(#shape, MAX_RANK))
    end
    local n = 1
    for axis, extent in ipairs(shape) do
        if not whole(extent) or extent < 0 then
            fail('SHAPE', 'shape', ('extent %d of the shape is %s: a whole number >= 0 is wanted')
                :format(axis, tostring(extent)))
        end
        n = n * extent
    end
    if n > MOST_ELEMENTS then
        too_large(n)
    end
    return n
end

-- The caller has counted the view that t becomes.
local function describe(t, storage, data, dtype, shape, strides)
    local head, device, n = t.head, device_of(storage), 1
    t.storage = storage
    head.data, head.ndim = data, #shape
    head.device.device_type, head.device.device_id = device.kind, device.index
    head.dtype.code, head.dtype.bits, head.dtype.lanes = dtype.code, dtype.bits, 1
    head.shape, head.strides = t.extent, t.step
    for axis = #shape, 1, -1 do -- without strides: compact
        t.extent[axis - 1], t.step[axis - 1] = shape[axis], strides and strides[axis] or n
        n = n * shape[axis]
    end
    return t
end

-- A view of t's storage that begins `offset` elements later.
local function view(t, offset, shape, strides)
    local dtype, to = dtype_of(t), tensor_t()
    storages.hold(t.storage)
    return describe(to, t.storage, ffi.cast(byte_p, t.head.data) + offset * dtype.bytes, dtype,
        shape, strides)
end

-- A number per axis, as a Lua table.
local function per_axis(t, numbers)
    local list = {}
    for axis = 1, t.head.ndim do
        list[axis] = tonumber(numbers[axis - 1])
    end
    return list
end

local function shape_of(t) return per_axis(t, t.extent) end
local function strides_of(t) return per_axis(t, t.step) end

local function is_compact(t)
    local n = 1
    for axis = t.head.ndim - 1, 0, -1 do
        local extent = tonumber(t.extent[axis])
        if extent ~= 1 and tonumber(t.step[axis]) ~= n then
            return false
        end
        n = n * extent
    end
    return true
end

local OPTIONS = {'dtype', 'device'}

-- A compact tensor with undefined contents, for work on `stream` (nil: NULL). opt: dtype (f32),
-- device (auto).
function M.empty(shape, opt, stream)
    local n = count_of(shape)
    opt = words.check_options(opt, OPTIONS)
    local dtype = dtype_named(opt.dtype or 'f32')
    local device = devices.of(opt.device)
    local t = tensor_t()
    local storage, data = storages.new(device, n * dtype.bytes, stream)
    return describe(t, storage, data, dtype, shape)
end

-- The same, of a kind (kind.lua) and on its device, in few steps: the way of a call's results.
function M.like(kind, device, stream)
    local t = tensor_t()
    local storage, data = storages.new(device, kind.bytes, stream)
    ffi.copy(t, kind.image, TENSOR_BYTES)
    local head = t.head
    head.data, head.shape, head.strides, t.storage = data, t.extent, t.step, storage
    return t
end

local function check_strides(strides, rank)
    if type(strides) ~= 'table' or #strides ~= rank then
        fail('LAYOUT', 'strides', ('strides has %s, not one for each of %d axes')
            :format(type(strides) == 'table' and #strides or 'type ' .. type(strides), rank))
    end
    for axis, stride in ipairs(strides) do
        if not whole(stride) then
            fail('LAYOUT', 'strides', ('stride %d is %s: a whole number is wanted')
                :format(axis, tostring(stride)))
        end
    end
end

-- Host memory that others own; strides may be nil. The pointer and the anchor live as long.
function M.wrap(pointer, dtype, shape, strides, anchor)
    if type(pointer) ~= 'cdata' then
        fail('INVALID', 'ptr', ('ptr is %s: an FFI pointer or array is wanted')
            :format(words.describe(pointer)))
    end
    local n = count_of(shape)
    if strides then
        check_strides(strides, #shape)
    end
    local data, element = ffi.cast('void *', pointer), dtype_named(dtype)
    if data == nil and n > 0 then
        fail('INVALID', 'ptr', 'ptr is NULL')
    end
    local t = tensor_t()
    local storage = storages.new(devices.of 'cpu', 0, nil, data, {pointer, anchor})
    return describe(t, storage, data, element, shape, strides)
end

-- -- Elements -----------------------------------------------------------------------------------

-- One f64 element, through which pass the types that Lua does not know, and all of memory that it
-- does not reach; converted by the library.
local cell = ffi.new 'double[1]'
local cell_head, far_head = ffi.new 'attn_tensor', ffi.new 'attn_tensor'
cell_head.data, cell_head.device.device_type = cell, 1
cell_head.dtype.code, cell_head.dtype.bits, cell_head.dtype.lanes = types.f64.code, 64, 1

local function far(t, offset, dtype)
    far_head.data = ffi.cast(byte_p, t.head.data) + offset * dtype.bytes
    far_head.device, far_head.dtype = t.head.device, t.head.dtype
    return device_of(t.storage).handle
end

local function read(t, offset)
    local dtype = dtype_of(t)
    local x
    if dtype.pointer and is_host(t) then
        x = tonumber(ffi.cast(dtype.pointer, t.head.data)[offset])
    else
        local device = far(t, offset, dtype)
        check(C.attn_tensor_copy(device, cell_head, far_head, nil))
        x = cell[0]
    end
    if dtype == types.bool then
        return x ~= 0
    end
    return x
end

local function number_of(x)
    if type(x) == 'boolean' then
        return x and 1 or 0
    elseif type(x) ~= 'number' then
        fail('INVALID', 'value', ('the value is %s: a number is wanted'):format(words.describe(x)))
    end
    return x
end

local function write(t, offset, x)
    local dtype = dtype_of(t)
    x = dtypes.check_number(dtype, number_of(x), 'the value', 'value')
    if (dtype == types.f32 or dtype == types.f64) and is_host(t) then
        ffi.cast(dtype.pointer, t.head.data)[offset] = x
        return
    end
    cell[0] = x
    local device = far(t, offset, dtype)
    check(C.attn_tensor_copy(device, far_head, cell_head, nil))
end

-- The offset that index i of an axis adds.
local function offset_of(t, axis, i)
    if not whole(i) or i < 0 or i >= tonumber(t.extent[axis]) then
        local extent = tonumber(t.extent[axis])
        fail('INVALID', 'index', ('index %s of axis %d: %s'):format(tostring(i), axis, extent == 0
            and 'the axis is empty' or ('0 to %d is allowed'):format(extent - 1)))
    end
    return i * tonumber(t.step[axis])
end

-- Offset of a full index (i, j, ...); `n` of them are given.
local function locate(t, n, ...)
    alive(t)
    if n ~= t.head.ndim then
        fail('SHAPE', 'index', ('%d indices are given for %d axes'):format(n, t.head.ndim))
    end
    local offset = 0
    for axis = 0, n - 1 do
        offset = offset + offset_of(t, axis, (select(axis + 1, ...)))
    end
    return offset
end

local function row(t, i)
    alive(t)
    if t.head.ndim == 0 then
        fail('SHAPE', 'index', 'a tensor without axes has no index: read it by t:get()')
    end
    local offset = offset_of(t, 0, i)
    if t.head.ndim == 1 then
        return nil, offset
    end
    local shape, strides = shape_of(t), strides_of(t)
    table.remove(shape, 1)
    table.remove(strides, 1)
    return view(t, offset, shape, strides)
end

-- -- Fields, methods, indexing ------------------------------------------------------------------

local fields = {
    shape = shape_of,
    strides = strides_of,
    dtype = function(t) return dtype_of(t).name end,
    device = function(t) return M.device_of(t).name end,
    bytes = function(t) return count_of(shape_of(t)) * dtype_of(t).bytes end,
}
local methods = {}
M.methods = methods

function methods.get(t, ...)
    return read(t, locate(t, select('#', ...), ...))
end

-- t:set(i, j, ..., x)
function methods.set(t, ...)
    local n = select('#', ...)
    if n == 0 then
        fail('INVALID', 'value', 'set wants the indices and then the value')
    end
    write(t, locate(t, n - 1, ...), (select(n, ...)))
    return t
end

function methods.free(t)
    storages.release(t.storage)
end

-- What an index means that is neither a number nor a string, and during a trace a number too;
-- load.lua sets it.
function M.symbolic_index(_, key)
    fail('INVALID', 'index', ('a tensor is indexed by numbers, not by a %s'):format(type(key)))
end

local tracing = false

-- symbol.lua says when a trace begins and when it ends.
function M.trace(on)
    tracing = on
end

-- The element or the view of row i as it is now.
function M.element(t, i)
    local part, offset = row(t, i)
    return part or read(t, offset)
end

local meta = {}

function meta.__gc(t)
    if t.storage ~= 0 then
        storages.drop(t.storage)
    end
end

M.meta = meta

function meta.__index(t, key)
    local kind = type(key)
    if kind == 'number' and not tracing then
        return M.element(t, key)
    elseif kind == 'string' then
        if methods[key] then
            return methods[key]
        elseif fields[key] then
            return fields[key](alive(t))
        end
        fail('INVALID', key, ("a tensor has no field or method '%s'"):format(key))
    end
    return M.symbolic_index(t, key)
end

function meta.__newindex(t, key, value)
    if type(key) ~= 'number' then
        fail('INVALID', 'index', ('only elements and rows can be assigned, not %s')
            :format(tostring(key)))
    end
    local part, offset = row(t, key)
    if not part then
        write(t, offset, value)
    elseif is(value) then
        M.assign(part, value)
    else
        part:fill(value)
    end
end

function meta.__len(t)
    alive(t)
    if t.head.ndim == 0 then
        fail('SHAPE', 'tensor', 'a tensor without axes has no length')
    end
    return tonumber(t.extent[0])
end

M.memory, M.collect = storages.memory, storages.collect

-- What the files beside this one build on.
M.types, M.dtype_of, M.dtype_named = types, dtype_of, dtype_named
M.alive, M.view, M.shape_of, M.strides_of = alive, view, shape_of, strides_of
M.is_host = is_host
M.count_of, M.is_compact, M.whole, M.number_of = count_of, is_compact, whole, number_of
M.OPTIONS = OPTIONS

require 'attn.tensor_math'(M)
require 'attn.tensor_make'(M)
require 'attn.tensor_text'(M)
ffi.metatype(tensor_t, meta)

return M
