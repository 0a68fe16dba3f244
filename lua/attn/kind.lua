-- kind.lua: what a plan can know of a tensor: device, type, extents, alignment of its address.
--
-- Who calls it: options.lua and attention.lua. Tensors that are equal in these are of one kind. A
-- tensor holds its kind's number, so it is looked for once in a tensor's life:
--
--     t.kind --by_number--> kind {number, alignment, bytes, image}    image: tensor.like copies it

local bit = require 'bit'
local ffi = require 'ffi'
local memo = require 'attn.memo'
local tensor = require 'attn.tensor'
local band, bor = bit.band, bit.bor

local M = {}

local MOST = 128
local address_t = ffi.typeof 'uintptr_t'
local kinds, by_number, last = memo.new(MOST), setmetatable({}, {__mode = 'v'}), 0

-- t without its memory and, if it is a view with gaps, without these.
local function image_of(t, rank, number)
    local image, n = ffi.new 'attn_lua_tensor', 1
    ffi.copy(image, t, ffi.sizeof(image))
    image.head.data, image.storage, image.kind = nil, 0, number
    for axis = rank - 1, 0, -1 do
        image.step[axis] = n
        n = n * tonumber(t.extent[axis])
    end
    return image, n
end

local keys = {}

local function learn(t)
    local device, dtype, rank = tensor.device_of(t), tensor.dtype_of(t), t.head.ndim
    -- the largest power of two up to 16 that divides the address
    local low = bor(tonumber(ffi.cast(address_t, t.head.data)) % 16, 16)
    keys[1], keys[2], keys[3] = device.number, dtype.name, band(low, -low)
    for axis = 1, rank do
        keys[axis + 3] = tonumber(t.extent[axis - 1])
    end
    local kind = kinds:get(keys, rank + 3)
    if not kind then
        last = last + 1
        local image, n = image_of(t, rank, last)
        kind = {number = last, alignment = keys[3], bytes = n * dtype.bytes, image = image}
        kinds:put(keys, rank + 3, kind)
        by_number[last] = kind
    end
    t.kind = kind.number
    return kind
end

-- The kind of a tensor that is not freed.
function M.of(t)
    return by_number[t.kind] or learn(t)
end

return M
