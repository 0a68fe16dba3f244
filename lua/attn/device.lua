-- device.lua: what computes: the list of devices and handles on them.
--
-- Who calls it: attn.lua (attn.device, attn.devices), tensor.lua and attention.lua for a `device`
-- option, which is a name, a device or nothing ("auto").

local ffi = require 'ffi'
local base = require 'attn.ffi'
local words = require 'attn.words'
local C, check, fail = base.C, base.check, base.fail
local abs, floor = math.abs, math.floor

local M = {}

-- name arch missing: strings; kind index threads memory: numbers; emulated, is_host (its memory is
-- the host's): booleans. handle: once it is open, attn_device*; number: its own in this program;
-- buffers: how many it has (storage.lua).
local Device = {}
Device.__index = Device
function Device:__tostring()
    return self.name
end

local last_number = 0

local function describe(info)
    last_number = last_number + 1
    return setmetatable({
        number = last_number,
        buffers = 0,
        name = ffi.string(info.name),
        arch = ffi.string(info.arch),
        missing = ffi.string(info.missing),
        kind = tonumber(info.kind),
        index = tonumber(info.index),
        is_host = info.kind == 1,
        threads = tonumber(info.threads),
        memory = tonumber(info.memory),
        emulated = info.emulated ~= 0,
    }, Device)
end

-- Every device this library knows, the missing ones included: `missing` says what is not there.
function M.list()
    local count = check(C.attn_device_list(nil, 0))
    local infos = ffi.new('attn_device_info[?]', math.max(count, 1))
    for i = 0, count - 1 do
        infos[i].size = ffi.sizeof 'attn_device_info'
    end
    count = math.min(count, check(C.attn_device_list(infos, count)))
    local list = {}
    for i = 1, count do
        list[i] = describe(infos[i - 1])
    end
    return list
end

local function open(name, threads)
    local options = ffi.new 'attn_device_options'
    options.size = ffi.sizeof(options)
    options.threads = threads or 0
    local box = ffi.new 'attn_device *[1]'
    check(C.attn_device_open(name, options, box))
    local handle = ffi.gc(box[0], C.attn_device_release)
    local info = ffi.new 'attn_device_info'
    info.size = ffi.sizeof(info)
    check(C.attn_device_query(handle, info))
    local device = describe(info)
    device.handle = handle
    return device
end

local opened = {} -- by name, "auto" too; with options a device is always new

-- opt.threads: threads of a CPU's pool; the cores this process may use if it is left out.
function M.open(name, opt)
    if type(name) ~= 'string' then
        fail('INVALID', 'device', ("device is %s: a name such as 'cpu', or a device, is wanted")
            :format(words.describe(name)))
    end
    words.check_text('INVALID', 'device', name)
    local threads = words.check_options(opt, {'threads'}).threads
    if type(threads) == 'number' and floor(threads) == threads and abs(threads) < 2 ^ 31 then
        return open(name, threads)
    elseif threads ~= nil then
        fail('INVALID', 'threads', ('threads is %s: a whole number is wanted')
            :format(type(threads) == 'number' and threads or words.describe(threads)))
    end
    if not opened[name] then
        local device = open(name)
        opened[device.name] = opened[device.name] or device
        opened[name] = opened[device.name]
    end
    return opened[name]
end

local function check_path(path)
    if type(path) ~= 'string' then
        fail('INVALID', 'path', ('path is %s: the name of a bundle is wanted')
            :format(words.describe(path)))
    end
    words.check_text('INVALID', 'path', path)
end

-- Of a device 'make:CHIP', on which calls compute nothing: what they had compiled so far, as a file
-- for machines without the chip's compiler.
function Device:write_bundle(path)
    check_path(path)
    check(C.attn_bundle_write(M.of(self).handle, path))
end

-- From now on kernels are taken from that file where it has them.
function M.open_bundle(path)
    check_path(path)
    check(C.attn_bundle_open(path))
end

function M.is(x)
    return getmetatable(x) == Device
end

-- The open device that a `device` option means.
function M.of(x)
    if M.is(x) then
        if not x.handle then
            x.handle = M.open(x.name).handle
        end
        return x
    end
    return M.open(x == nil and 'auto' or x)
end

return M
