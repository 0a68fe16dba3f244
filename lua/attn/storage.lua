-- storage.lua: the memory behind tensors: counted, accounted, released once.
--
-- Who calls it: tensor.lua. A storage is malloc'ed and counts the tensors (views) that share it:
--
--     data     what goes back to the device, where there is one
--     bytes    its size
--     refs     views that are not yet collected; at 0 the storage itself is freed
--     live     0 after release: whoever still holds a view gets an error, not freed memory
--     id       key of the tables that keep the device and an anchor alive in Lua

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

local storage_p, STORAGE_BYTES = ffi.typeof 'attn_lua_storage *', ffi.sizeof 'attn_lua_storage'

-- Lua's collector does not see the bytes behind a tensor. So every allocation steps it in
-- proportion: by the time as much was allocated as may pile up (half of what is alive, at least
-- 64 MiB), it has gone round once.
local FREELY = 64 * 2 ^ 20
local live = 0 -- bytes of buffers that are not released
-- By storage id; an anchor is what must live as long as the memory.
local device_of, anchor_of = {}, {} -- luacheck: ignore 241
local last_id = 0

-- Finalizers end here: nothing below may raise.
local function release(storage)
    if storage.live == 0 then
        return
    end
    storage.live = 0
    device_of[storage.id], anchor_of[storage.id] = nil, nil
    if storage.device ~= nil then
        C.attn_buffer_release(storage.device, storage.data)
        C.attn_device_release(storage.device)
        live = live - storage.bytes
    end
end
M.release = release

-- Storages with one view less. LuaJIT compiles nothing inside a finalizer, and calls to C are slow
-- there: so finalizers put them here, and whoever wants memory next, or asks how much there is,
-- does the rest.
local dropped, n_dropped = {}, 0

-- One view less.
function M.drop(storage)
    n_dropped = n_dropped + 1
    dropped[n_dropped] = storage
end

local function settle()
    while n_dropped > 0 do
        local storage = dropped[n_dropped]
        dropped[n_dropped], n_dropped = nil, n_dropped - 1
        storage.refs = storage.refs - 1
        if storage.refs == 0 then
            release(storage)
            ffi.C.free(storage)
        end
    end
end

-- At the end of the state userdata goes after cdata.
M.last = newproxy(true)
getmetatable(M.last).__gc = settle

-- Bytes of live tensor memory.
function M.memory()
    settle()
    return live
end

-- A whole collection: everything out of reach is released. Returns the bytes that stay.
function M.collect()
    collectgarbage()
    settle()
    collectgarbage() -- what the first round's finalizers held
    settle()
    return live
end

-- A step costs more than a small tensor, so small ones are added up.
local SMALL = 2 ^ 18
local owed = 0 -- bytes since the last step

local function step()
    local round = max(FREELY, live / 2)
    if owed >= round then
        collectgarbage()
    else
        collectgarbage('step', ceil(collectgarbage 'count' * owed / round))
    end
    owed = 0
end

local box = ffi.new 'void *[1]'

-- Memory of the device; a failure is tried again after a whole collection.
function M.buffer(device, bytes)
    owed = owed + bytes
    if owed >= SMALL then
        step()
    end
    if n_dropped > 0 then
        settle()
    end
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
    local storage = ffi.cast(storage_p, ffi.C.malloc(STORAGE_BYTES))
    if storage == nil then
        fail('MEMORY', '', 'out of memory for a tensor')
    end
    last_id = last_id + 1
    storage.data, storage.bytes, storage.refs, storage.live = data, bytes, 0, 1
    storage.id = last_id
    storage.device = bytes > 0 and C.attn_device_retain(device.handle) or nil
    device_of[last_id], anchor_of[last_id] = device, anchor
    return storage
end

-- The device object of a live storage.
function M.device_of(storage)
    return device_of[storage.id]
end

return M
