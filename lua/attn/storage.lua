-- storage.lua: the memory behind tensors: counted, accounted, released once.
--
-- Who calls it: tensor.lua. A storage is a table; tensors are cdata and hold its number:
--
--     list[id] = {id, data, device, bytes, refs, anchor}
--
--     data     what goes back to the device, where there is one
--     device   nil after release: whoever still holds a view gets an error, not freed memory
--     bytes    its size; 0: the memory is not ours to release
--     refs     views that are not yet collected; at 0 the storage itself goes
--     anchor   what must live as long as the memory
--
-- A device's memory goes from one tensor to the next in the order of streams (attn_buffer_new_on).

local ffi = require 'ffi'
local base = require 'attn.ffi'
local C, check = base.C, base.check
local ceil, max = math.ceil, math.max

local M = {}

-- Lua's collector does not see the bytes behind a tensor. So every allocation steps it in
-- proportion: by the time as much was allocated as may pile up (half of what is alive, at least
-- 64 MiB), it has gone round once.
local FREELY = 64 * 2 ^ 20
local live = 0 -- bytes of buffers that are not released
local list, last_id = {}, 0
local with_buffers = setmetatable({}, {__mode = 'k'}) -- devices that had some

-- A device is retained while it has buffers: at the end of the state its own finalizer may come
-- before theirs.
local function count(device, more)
    local before = device.buffers
    device.buffers = before + more
    if before == 0 then
        C.attn_device_retain(device.handle)
    elseif before + more == 0 then
        C.attn_device_release(device.handle)
    end
end

-- Finalizers end here: nothing below may raise.
local function release(storage)
    local device = storage.device
    if device then
        storage.device, storage.anchor = nil, nil
        if storage.bytes > 0 then
            C.attn_buffer_retire(device.handle, storage.data)
            count(device, -1)
            live = live - storage.bytes
        end
    end
end

function M.release(id)
    release(list[id])
end

-- Storages with one view less. LuaJIT compiles nothing inside a finalizer, and calls to C are slow
-- there: so finalizers put them here, and whoever wants memory next, or asks how much there is,
-- does the rest.
local dropped, n_dropped = {}, 0

-- One view less.
function M.drop(id)
    n_dropped = n_dropped + 1
    dropped[n_dropped] = id
end

local function settle()
    while n_dropped > 0 do
        local storage = list[dropped[n_dropped]]
        n_dropped = n_dropped - 1
        storage.refs = storage.refs - 1
        if storage.refs == 0 then
            release(storage)
            list[storage.id] = nil
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

local function collect()
    collectgarbage()
    settle()
    collectgarbage() -- what the first round's finalizers held
    settle()
end

-- A whole collection: everything out of reach is released, and what devices keep for other tensors
-- goes back to their drivers. Returns the bytes that stay.
function M.collect()
    collect()
    for device in pairs(with_buffers) do
        C.attn_buffer_trim(device.handle)
    end
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

-- For work on `stream`. A failure is tried again after a whole collection.
local function buffer(device, bytes, stream)
    owed = owed + bytes
    if owed >= SMALL then
        step()
    end
    if n_dropped > 0 then
        settle()
    end
    local status = C.attn_buffer_new_on(device.handle, bytes, stream, box)
    if status == C.ATTN_MEMORY then
        collect()
        status = C.attn_buffer_new_on(device.handle, bytes, stream, box)
    end
    if status < 0 then
        check(status)
    end
    live = live + bytes
    with_buffers[device] = true
    count(device, 1)
    return box[0]
end

-- A storage of `bytes` on a device, for work on `stream` (nil: NULL); without bytes of `data`, if
-- there is any, which is not ours. Returns its number, counted for one view, and where the memory
-- is.
function M.new(device, bytes, stream, data, anchor)
    if bytes > 0 then
        data = buffer(device, bytes, stream)
    end
    last_id = last_id + 1
    list[last_id] = {id = last_id, data = data, device = device, bytes = bytes, refs = 1,
        anchor = anchor}
    return last_id, data
end

-- One view more.
function M.hold(id)
    local storage = list[id]
    storage.refs = storage.refs + 1
end

-- Work that was put on `stream` uses it: its memory is nobody else's before that has ended.
function M.use(id, stream)
    local storage = list[id]
    if storage.device and storage.bytes > 0 then
        check(C.attn_buffer_use(storage.device.handle, storage.data, stream))
    end
end

-- The device object; nil if the storage was released.
function M.device_of(id)
    return list[id].device
end

function M.data_of(id)
    return list[id].data
end

return M
