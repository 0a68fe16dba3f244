-- device_memory_test.lua: tensors in memory that Lua cannot reach, on a look-alike of NVIDIA's
-- driver (tests/fake_cuda.c, built here by cc), where touching it ends the process.

local here = arg[0]:match '^(.*/)' or './'
package.path = here .. '?.lua;' .. here .. '../../lua/?.lua;' .. package.path
local test = require 'tap'
local ffi = require 'ffi'

ffi.cdef [[
int setenv(const char *name, const char *value, int overwrite);
int fake_live(void);
const char *fake_log(void);
void fake_clear(void);
void fake_room(size_t bytes);
]]
local path = os.tmpname()
local cc = 'env -u LD_PRELOAD cc -std=c11 -O1 -shared -fPIC %s../fake_cuda.c -lpthread -o %s'
local status = os.execute(cc:format(here, path))
assert(status == 0, 'cc does not build tests/fake_cuda.c')
ffi.C.setenv('ATTN_CUDA', path, 1)
ffi.C.setenv('ATTN_NVRTC', path, 1)
ffi.C.setenv('ATTN_CACHE', 'none', 1)

local attn = require 'attn'
local T = require 'attn.tensor'
local name = 'cuda:0'

test('the device has its own memory', function(t)
    local x = attn.zeros({2, 3}, {device = name})
    t.equal(x.device, name)
    t.ok(not attn.device(name).is_host)
    t.ok(attn.device 'cpu'.is_host)
end)

test('elements, rows and assignments', function(t)
    for _, dtype in ipairs {'f32', 'f64', 'bf16', 'i32', 'u8', 'bool'} do
        local x = attn.zeros({2, 3}, {device = name, dtype = dtype})
        local one, none = 1, 0
        if dtype == 'bool' then
            one, none = true, false
        end
        x[1][2] = one
        x:set(0, 1, one)
        t.equal(x[1][2], one, dtype)
        t.equal(x:get(0, 1), one, dtype)
        t.equal(x[0][0], none, dtype)
    end
    local x = attn.tensor({{1, 2}, {3, 4}}, {device = name})
    x[0] = x[1]
    t.same(x:totable(), {{3, 4}, {3, 4}})
    x[1] = 7
    t.same(x:transpose(0, 1):totable(), {{3, 7}, {4, 7}})
end)

test('arithmetic stays on the device', function(t)
    local x = attn.tensor({{1, 2}, {3, 4}}, {device = name})
    local y = (x * 2 + x[0] - 1) / 2
    t.equal(y.device, name)
    t.same(y:totable(), {{1, 2.5}, {3, 4.5}})
    t.equal(y:sum(), 11)
    t.equal(x:max_error(x + 0.5), 0.5)
    t.equal(x:max_error(1), 3)
    x:add_(x, -1)
    t.same(x:totable(), {{0, 0}, {0, 0}})
    local h = attn.tensor({1, 2, 3}, {device = name, dtype = 'bf16'})
    t.same((h * h):totable(), {1, 4, 9})
    t.same((-h):totable(), {-1, -2, -3})
end)

test('to another device and back', function(t)
    local x = attn.randn(1, {5, 6, 7}, {seed = 3})
    local far = attn.randn(1, {5, 6, 7}, {seed = 3, device = name})
    t.equal(far:to('cpu'):max_error(x), 0)
    t.equal(x:to(name).device, name)
    t.equal(x:to(name):to('bf16'):to('cpu'):max_error(x:to('bf16')), 0)
    t.equal(far:copy():transpose(0, 2):to('cpu'):max_error(x:transpose(0, 2)), 0)
    t.fails(function() return far + x end, 'use :to first')
end)

test('text and files', function(t)
    local x = attn.tensor({{1, 2}, {3, 4}}, {device = name})
    t.equal(tostring(x), 'f32 {2, 2} on cuda:0, 1 to 4, 0 NaN\n{{1, 2},\n {3, 4}}')
    local file = os.tmpname()
    x:save(file .. '.npy')
    t.same(attn.load(file .. '.npy'):totable(), {{1, 2}, {3, 4}})
    attn.save(file .. '.safetensors', {a = x, b = x[1]})
    local back = attn.load(file .. '.safetensors')
    t.same(back.b:totable(), {3, 4})
    os.remove(file)
    os.remove(file .. '.npy')
    os.remove(file .. '.safetensors')
end)

test('a picture reads what lies there', function(t)
    local ids = attn.tensor({{0, 0, 1, 1}}, {device = name, dtype = 'i32'})
    local near = attn.tensor({{0, 0, 1, 1}}, {dtype = 'i32'})
    local opt = {nq = 4, nk = 4}
    t.equal(attn.picture(attn.document(ids), opt), attn.picture(attn.document(near), opt))
end)

test('memory is counted and given back', function(t)
    T.collect()
    local before = T.memory()
    local x = attn.zeros({1000}, {device = name})
    t.equal(T.memory() - before, 4000)
    x:free()
    t.equal(T.memory(), before)
    t.fails(function() return x[0] end, 'freed')
end)

local fake = ffi.load(path)

local function allocations()
    local _, n = ffi.string(fake.fake_log()):gsub('cuMemAlloc', '')
    return n
end

test('garbage is memory for others, and the driver is asked for little', function(t)
    attn.collect()
    local live = fake.fake_live()
    local x = attn.zeros({50000}, {device = name})
    fake.fake_clear()
    for _ = 1, 50 do
        attn.zeros({50000}, {device = name}):free()
    end
    t.equal(allocations(), 1)
    for _ = 1, 2000 do -- the collector frees them
        x = x * 1
    end
    t.ok(allocations() < 1000, allocations())
    x:free()
    attn.collect()
    t.equal(fake.fake_live(), live)
end)

test('memory that work on a stream may use is nobody else\'s meanwhile', function(t)
    local C, device = require 'attn.ffi'.C, attn.device(name)
    local box = ffi.new 'void *[1]'
    t.equal(C.attn_stream_new(device.handle, box), 0)
    local stream = box[0]
    local shape = {1, 1, 16, 32}
    local q, k, v = attn.randn(3, shape, {device = name, dtype = 'bf16'})
    local o, call = attn.attention(q, k, v, {stream = stream}) -- it waits there
    local used = {}
    for _, x in ipairs {q, k, v, o} do
        used[tostring(x.head.data)] = true
        x:free()
    end
    call:free()
    local others = {}
    local function shared()
        local n = 0
        for _ = 1, 6 do
            local x = attn.empty(shape, {device = name, dtype = 'bf16'})
            n = n + (used[tostring(x.head.data)] and 1 or 0)
            others[#others + 1] = x
        end
        return n
    end
    t.equal(shared(), 0)
    t.equal(C.attn_stream_sync(device.handle, stream), 0)
    t.equal(shared(), 4)
    C.attn_stream_release(device.handle, stream)
end)

test('before memory is out, what is kept and what is garbage is given back', function(t)
    attn.collect()
    fake.fake_room(200e6)
    local last
    for i = 1, 40 do
        last = attn.empty({1e6 + 1e5 * i}, {device = name}) -- 4 to 20 MB, each of its own size
    end
    t.ok(last)
    t.fails(function() attn.empty({1e8}, {device = name}) end, 'out of memory: device cuda:0')
    t.equal(#last, 5e6)
    fake.fake_room(0)
end)

os.remove(path)
test.done()
