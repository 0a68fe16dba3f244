-- storage.lua: the memory behind tensors: counted, accounted, released once.
--
-- Who calls it: tensor.lua. A storage is malloc'ed and counts the tensors (views) that share it:
--
--     data     what goes back to the device, where there is one
--     bytes    its size
--     refs     views that are not yet collected; at 0 the storage itself is freed
--     live     0 after release: whoever still holds a view gets an error, not freed memory
--     id       key of `owner`, which keeps the device and an anchor alive in Lua

local ffi = require 'ffi'
local base = require 'attn.ffi'
local C, check, fail = base.C, base.check, base.fail
local ceil, max = math.ceil, math.max

local M = {}

ffi.cdef [[
typedef struct attn_lua_storage {
    void *data;
    attn_device *device; /* NULL: the memory is not ours to release */
    double bytes;
    int32_t refs, live;
    double id;
} attn_lua_storage;
void *malloc(size_t bytes);
void free(void *pointer);
]]

-- Lua's collector does not see the bytes behind a tensor. So every allocation steps it in
-- proportion: by the time as much was allocated as may pile up (half of what is alive, at least
-- 64 MiB), it has gone round once.
local FREELY = 64 * 2 ^ 20
local live = 0 -- bytes of buffers that are not released
local owner = {} -- storage id -> {device, anchor}
local last_id = 0

-- Bytes of live tensor memory.
function M.memory()
    return live
end

-- A whole collection: everything out of reach is released. Returns the bytes that stay.
function M.collect()
    collectgarbage()
    collectgarbage() -- what the first round's finalizers held
    return live
end

local function step(bytes)
    local round = max(FREELY, live / 2)
    if bytes >= round then
        collectgarbage()
    else
        collectgarbage('step', ceil(collectgarbage 'count' * bytes / round))
    end
end

local box = ffi.new 'void *[1]'

-- Memory of the device; a failure is tried again after a whole collection.
function M.buffer(device, bytes)
    step(bytes)
    local status = C.attn_buffer_new(device.handle, bytes, box)
    if status == C.ATTN_MEMORY then
        M.collect()
        status = C.attn_buffer_new(device.handle, bytes, box)
    end
    check(status)
    live = live + bytes
    return box[0]
end

-- data was made by buffer, or is not ours: then bytes is 0. anchor is kept alive as long.
function M.new(data, device, bytes, anchor)
    local storage = ffi.cast('attn_lua_storage *', ffi.C.malloc(ffi.sizeof 'attn_lua_storage'))
    if storage == nil then
        fail('MEMORY', '', 'out of memory for a tensor')
    end
    last_id = last_id + 1
    storage.data, storage.bytes, storage.refs, storage.live = data, bytes, 0, 1
    storage.id = last_id
    storage.device = bytes > 0 and C.attn_device_retain(device.handle) or nil
    owner[last_id] = {device = device, anchor = anchor}
    return storage
end

-- Finalizers end here: nothing below may raise.
local function release(storage)
    if storage.live == 0 then
        return
    end
    storage.live = 0
    owner[storage.id] = nil
    if storage.device ~= nil then
        C.attn_buffer_release(storage.device, storage.data)
        C.attn_device_release(storage.device)
        live = live - storage.bytes
    end
end
M.release = release

-- One view less.
function M.drop(storage)
    storage.refs = storage.refs - 1
    if storage.refs == 0 then
        release(storage)
        ffi.C.free(storage)
    end
end

-- The device object and the anchor of a live storage.
function M.owner(storage)
    return owner[storage.id]
end

return M
