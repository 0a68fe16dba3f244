-- tensor_test.lua: tensors: making, indexing, arithmetic, views, memory, errors.

local here = arg[0]:match '^(.*/)' or './'
package.path = here .. '?.lua;' .. here .. '../../lua/?.lua;' .. package.path
local test = require 'tap'
local ffi = require 'ffi'
local base = require 'attn.ffi'
local T = require 'attn.tensor'
local devices = require 'attn.device'
local cpu = devices.open 'cpu' -- before "auto", which must find the same

local ALL = {
    'f64', 'f32', 'f16', 'bf16', 'i32', 'u8', 'bool', 'e4m3fn', 'e4m3fnuz', 'e5m2', 'e5m2fnuz',
}

-- -- Making and reading ---------------------------------------------------------------------------

test('nested tables become tensors and come back', function(t)
    local x = T.tensor {{1, 2, 3}, {4, 5, 6}}
    t.same(x.shape, {2, 3})
    t.equal(x.dtype, 'f32')
    t.equal(x.device, 'cpu')
    t.equal(#x, 2)
    t.equal(#x[0], 3)
    t.equal(x[1][2], 6)
    t.same(x:totable(), {{1, 2, 3}, {4, 5, 6}})
    local b = T.tensor {true, false}
    t.equal(b.dtype, 'bool')
    t.equal(b[0], true)
    t.equal(b[1], false)
    t.equal(T.tensor({{}}).shape[2], 0)
    t.ok(T.is(x) and not T.is(1) and not T.is {} and not T.is(ffi.new 'int[1]'))
end)

test('every type holds small numbers', function(t)
    for _, dtype in ipairs(ALL) do
        local x = T.tensor({0, 1, 0, 1}, {dtype = dtype})
        t.equal(x.dtype, dtype)
        t.equal(x:sum(), 2, dtype)
        x[2] = 1
        t.equal(x:sum(), 3, dtype)
        x:fill(0)
        t.equal(x:sum(), 0, dtype)
        t.equal(type(x[0]), dtype == 'bool' and 'boolean' or 'number')
    end
end)

test('values are rounded once to the type', function(t)
    local values = {1 / 3, -1000.25, 300, 1e30}
    local function list(dtype)
        return T.tensor(values, {dtype = dtype == 'f64' and dtype or nil}):to(dtype):totable()
    end
    t.same(list 'f64', values)
    t.same(list 'bf16', {0.333984375, -1000, 300, 0x1.94p99})
    t.same(list 'f16', {0.333251953125, -1000, 300, math.huge})
    t.same(list 'i32', {0, -1000, 300, 2147483647})
    t.same(list 'u8', {0, 0, 255, 255})
    t.same(list 'e4m3fn', {0.34375, -448, 288, 448})
end)

test('getters return Lua numbers', function(t)
    local x = T.zeros({2, 3}, {dtype = 'i32'})
    for _, v in ipairs {x.shape[1], x.strides[1], #x, x[0][0], x:get(1, 2), x.bytes, x:sum()} do
        t.equal(type(v), 'number')
    end
    t.equal(x.bytes, 24)
end)

test('elements and rows are assigned', function(t)
    local x = T.zeros {2, 2, 2}
    x[0] = 5
    x[1][0] = T.tensor {1, 2}
    x[1][1][1] = 7
    x:set(1, 1, 0, 8)
    t.same(x:totable(), {{{5, 5}, {5, 5}}, {{1, 2}, {8, 7}}})
    t.equal(x:get(1, 1, 0), 8)
    x[0] = T.tensor {{1}, {2}} -- broadcast
    t.same(x[0]:totable(), {{1, 1}, {2, 2}})
    local b = T.zeros({2}, {dtype = 'bool'})
    b[1] = true
    t.same(b:totable(), {false, true})
end)

test('a tensor without axes is one number', function(t)
    local x = T.zeros {}
    x:set(2.5)
    t.equal(x:get(), 2.5)
    t.equal(x:totable(), 2.5)
    t.equal((x + 1):get(), 3.5)
    t.fails(function() return #x end, 'no length')
    t.fails(function() return x[0] end, 't:get()')
end)

test('random numbers depend on the seed and the tensor alone', function(t)
    local a, b = T.randn(2, {50, 41}, {seed = 3})
    local c = T.randn(1, {50, 41}, {seed = 3})
    t.equal(a:max_error(c), 0)
    t.ok(a:max_error(b) > 1)
    t.equal(a:max_error(T.randn(1, {2050}, {seed = 3}):view {50, 41}), 0, 'the shape matters')
    local second = T.randn(1, {50, 41}, {seed = 3 + 2 ^ 32})
    t.equal(b:max_error(second), 0, 'the documented key of the second')
    local half = T.randn(1, {50, 41}, {seed = 3, dtype = 'bf16'})
    t.equal(half:max_error(a:to 'bf16'), 0, 'bf16')
    local u = T.randn(1, {4000}, {distribution = 'uniform'})
    local least, largest = T.extremes(u)
    t.ok(least >= 0 and largest < 1 and largest > 0.99 and least < 0.01)
    t.near(u:sum() / 4000, 0.5, 0.02)
end)

test('memory of others is wrapped and kept', function(t)
    local p = ffi.new('float[6]', {1, 2, 3, 4, 5, 6})
    local x = T.wrap(p, 'f32', {2, 3})
    x[0][0] = 10
    t.equal(p[0], 10)
    t.same(T.wrap(p, 'f32', {3, 2}, {1, 3}):totable(), {{10, 4}, {2, 5}, {3, 6}})
    local anchor = setmetatable({}, {__mode = 'k'})
    local key = {}
    anchor[key] = true
    local y = T.wrap(p + 1, 'f32', {2}, nil, key)
    key = nil -- luacheck: ignore
    T.collect()
    t.ok(next(anchor), 'the anchor of a live tensor')
    t.equal(y[1], 3)
    y = nil -- luacheck: ignore
    T.collect()
    t.ok(not next(anchor), 'no anchor of a dead tensor')
end)

-- -- Arithmetic -----------------------------------------------------------------------------------

test('arithmetic broadcasts as numpy does', function(t)
    local x = T.tensor {{1, 2, 3}, {4, 5, 6}}
    local row, column = T.tensor {10, 20, 30}, T.tensor {{1}, {2}}
    t.same((x + row):totable(), {{11, 22, 33}, {14, 25, 36}})
    t.same((row - x):totable(), {{9, 18, 27}, {6, 15, 24}})
    t.same((x * column):totable(), {{1, 2, 3}, {8, 10, 12}})
    t.same((column * row):totable(), {{10, 20, 30}, {20, 40, 60}})
    t.same((x / 2):totable(), {{0.5, 1, 1.5}, {2, 2.5, 3}})
    t.same((6 / T.tensor {1, 2, 3}):totable(), {6, 3, 2})
    t.same((1 - x)[1]:totable(), {-3, -4, -5})
    t.same((-x)[0]:totable(), {-1, -2, -3})
    t.same((x:transpose(0, 1) + column:view {2}).shape, {3, 2})
    t.equal((T.zeros {0, 3} + row).shape[1], 0)
    t.fails(function() return x + T.zeros {2} end, 'do not broadcast')
end)

test('types of results', function(t)
    local function dtype(a, b)
        return (T.zeros({1}, {dtype = a}) + T.zeros({1}, {dtype = b})).dtype
    end
    t.equal(dtype('f32', 'f64'), 'f64')
    t.equal(dtype('bf16', 'f16'), 'f32')
    t.equal(dtype('bf16', 'f32'), 'f32')
    t.equal(dtype('bf16', 'i32'), 'bf16')
    t.equal(dtype('u8', 'bool'), 'i32')
    local i = T.tensor({7}, {dtype = 'i32'})
    t.equal((i + 1).dtype, 'i32')
    t.equal((i + 0.5).dtype, 'f32')
    t.equal((i / 2)[0], 3.5)
    t.equal((i * 2 ^ 28)[0], 1879048192)
    t.equal((T.zeros({1}, {dtype = 'bf16'}) + 1 / 3).dtype, 'bf16')
end)

test('whole numbers past 2^24 and doubles keep their digits', function(t)
    local i = T.tensor({16777217}, {dtype = 'i32'})
    t.equal((i + 0)[0], 16777217)
    t.equal(i:sum(), 16777217)
    local d = T.tensor({1 + 2 ^ -40}, {dtype = 'f64'})
    t.equal((d * 1)[0], 1 + 2 ^ -40)
    t.equal(d:max_error(1), 2 ^ -40)
end)

test('add_ works in place and keeps the type', function(t)
    local x = T.tensor({1, 2}, {dtype = 'bf16'})
    local same = x:add_(T.tensor {1, 10}, -0.5)
    t.ok(rawequal(same, x))
    t.same(x:totable(), {0.5, -3})
    x:add_(1)
    t.same(x:totable(), {1.5, -2})
    t.same(T.zeros {2, 2}:add_(x):totable(), {{1.5, -2}, {1.5, -2}})
    local y = T.tensor {{1, 2}, {3, 4}}
    y:transpose(0, 1):add_(T.tensor {{0, 10}, {0, 0}})
    t.same(y:totable(), {{1, 2}, {13, 4}})
    t.fails(function() T.zeros {2}:add_(T.zeros {2, 2}) end, 'does not fit into')
end)

test('max_error matches NaN and infinities by position', function(t)
    local inf, nan = math.huge, 0 / 0
    local x = T.tensor {1, inf, nan, -inf}
    t.equal(x:max_error(x), 0)
    t.equal(x:max_error(T.tensor {1.5, inf, nan, -inf}), 0.5)
    t.equal(x:max_error(T.tensor {1, -inf, nan, -inf}), inf)
    t.equal(x:max_error(T.tensor {1, inf, 0, -inf}), inf)
    t.equal(x:max_error(T.tensor {nan, inf, nan, -inf}), inf)
    t.equal(T.tensor {{1, 2}, {3, 5}}:max_error(2), 3)
    t.fails(function() return x:max_error(T.zeros {2, 2}) end, 'other has shape {2, 2}, not {4}')
end)

-- -- Views ----------------------------------------------------------------------------------------

test('views share their elements', function(t)
    local x = T.tensor {{1, 2, 3}, {4, 5, 6}}
    local y = x:transpose(0, 1)
    y[2][0] = 30
    t.equal(x[0][2], 30)
    t.same(y.shape, {3, 2})
    t.same(y.strides, {1, 3})
    x:view {6}[0] = 10
    t.equal(x[0][0], 10)
    t.fails(function() return y:view {6} end, 'use :copy first')
    t.same(y:copy():view {6}:totable(), {10, 4, 2, 5, 30, 6})
    t.fails(function() return x:view {5} end, '{5} has another number of elements than {2, 3}')
    t.fails(function() return x:transpose(0, 2) end, 'axis 2: the tensor has axes 0 to 1')
end)

test('a view keeps its storage, and freeing it is an error for all', function(t)
    local row
    do
        row = T.tensor {{1, 2}, {3, 4}}[1]
    end
    T.collect()
    t.same(row:totable(), {3, 4})
    local x = T.zeros {2, 2}
    local part = x[1]
    x:free()
    x:free()
    for _, use in ipairs {
        function() return part[0] end, function() part[0] = 1 end, function() return part:sum() end,
        function() return x + 1 end, function() return 1 - x end, function() return #x end,
        function() return x.shape end, function() x:fill(0) end, function() return x:to 'f64' end,
        function() x:save 'x.npy' end, function() return T.zeros {2, 2} + x end,
        function() T.zeros {2, 2}:add_(x) end, function() return x:max_error(x) end,
        function() return x:view {4} end, function() T.c(x) end, function() return x:totable() end,
    } do
        t.fails(use, 'the tensor was freed')
    end
    t.equal(tostring(x), 'tensor (freed)')
end)

test(':to converts type and device', function(t)
    local x = T.tensor {{1.25, 300}}
    t.same(x:to 'u8':totable(), {{1, 255}})
    t.equal(x:to('cpu'):max_error(x), 0)
    local ref = devices.of 'ref'
    t.equal(x:to(ref).device, 'ref')
    t.fails(function() return x + x:to(ref) end, 'one tensor is on cpu and the other on ref')
    t.fails(function() return x:to 'nowhere' end, 'nowhere')
    t.fails(function() return x:to() end, 'a dtype or a device')
end)

-- -- Printing -------------------------------------------------------------------------------------

test('tostring summarises', function(t)
    t.equal(tostring(T.tensor {{1, 2}, {3, 0 / 0}}),
        'f32 {2, 2} on cpu, 1 to 3, 1 NaN\n{{1, 2},\n {3, nan}}')
    local long = T.zeros {10}
    long[9] = -1
    t.equal(tostring(long), 'f32 {10} on cpu, -1 to 0, 0 NaN\n{0, 0, 0, ..., 0, 0, -1}')
    t.equal(tostring(T.zeros {0, 3}), 'f32 {0, 3} on cpu')
    t.equal(tostring(T.tensor {0 / 0}), 'f32 {1} on cpu, 1 NaN\n{nan}')
    t.ok(#tostring(T.zeros {100, 100, 100}) < 1500)
end)

-- -- Memory ---------------------------------------------------------------------------------------

test('temporaries do not pile up', function(t)
    T.collect()
    local before, most = T.memory(), 0
    for _ = 1, 20000 do -- each a 64th of what may pile up, as 20,000 of 256 MiB are of 16 GiB
        T.empty {2 ^ 18}
        most = math.max(most, T.memory() - before)
    end
    t.ok(most >= 2 ^ 20 and most <= 192 * 2 ^ 20, ('%d MiB alive at once'):format(most / 2 ^ 20))
    T.collect()
    t.equal(T.memory(), before)
end)

test('large temporaries go one by one', function(t)
    T.collect()
    local before, most = T.memory(), 0
    for _ = 1, 200 do
        T.empty {2 ^ 26} -- 256 MiB, never touched
        most = math.max(most, T.memory() - before)
    end
    t.ok(most <= 2 ^ 30, ('%d MiB alive at once'):format(most / 2 ^ 20))
    T.collect()
    t.equal(T.memory(), before)
end)

test('free gives memory back at once, and the device agrees', function(t)
    T.collect()
    local function used()
        local info = ffi.new 'attn_device_info'
        info.size = ffi.sizeof(info)
        base.check(base.C.attn_device_query(devices.of 'cpu'.handle, info))
        return tonumber(info.used)
    end
    local memory, device = T.memory(), used()
    local x = T.empty {1000}
    t.equal(T.memory(), memory + 4000)
    t.ok(used() >= device + 4000)
    x:free()
    t.equal(T.memory(), memory)
    t.equal(used(), device)
end)

test('what does not fit is an error MEMORY', function(t)
    local why = t.fails(function() return T.empty {2 ^ 24, 2 ^ 24} end, 'out of memory')
    t.equal(why.code, 'MEMORY')
    t.fails(function() return T.empty {2 ^ 26, 2 ^ 26} end, 'too large')
end)

-- -- Errors ---------------------------------------------------------------------------------------

test('errors are objects that name the argument and the line', function(t)
    local x = T.zeros {2, 3}
    local line = debug.getinfo(1, 'l').currentline + 1
    local why = t.fails(function() return x[2] end, 'index 2 of axis 0: 0 to 1 is allowed')
    t.equal(why.code, 'INVALID')
    t.equal(why.arg, 'index')
    t.equal(why.message, 'index 2 of axis 0: 0 to 1 is allowed')
    t.ok(tostring(why):find('tensor_test.lua:' .. line .. ': index', 1, true), tostring(why))
    t.ok(base.is_error(why))
    why = t.fails(function() base.check(base.C.attn_random(nil, T.c(x), 1, 0, nil)) end,
        'device is NULL')
    t.equal(why.code, 'INVALID')
    t.equal(why.arg, 'device')
end)

test('wrong indices', function(t)
    local x = T.zeros {2, 3}
    t.fails(function() return x[-1] end, 'index -1 of axis 0')
    t.fails(function() return x[0.5] end, 'index 0.5 of axis 0')
    t.fails(function() return x[0 / 0] end, 'index nan of axis 0')
    t.fails(function() return x[1][3] end, 'index 3 of axis 0: 0 to 2 is allowed')
    t.fails(function() return x:get(1) end, '1 indices are given for 2 axes')
    t.fails(function() return x:get(1, 3) end, 'index 3 of axis 1')
    t.fails(function() x:set(1, 1) end, '1 indices are given for 2 axes')
    t.fails(function() x[0][0] = 'a' end, 'a number is wanted')
    t.fails(function() x[2] = 1 end, 'index 2 of axis 0')
    t.fails(function() x[0] = T.zeros {2} end, 'does not fit into {3}')
    t.fails(function() return T.zeros {0}[0] end, 'the axis is empty')
    t.fails(function() return x.foo end, "no field or method 'foo'")
    t.fails(function() x.foo = 1 end, 'only elements and rows')
    t.fails(function() return x[{}] end, 'not by a table')
end)

test('numbers that an integer type does not hold are refused', function(t)
    local function refused(dtype, x, text)
        local function invalid(f, name)
            t.equal(t.fails(f, name .. ' is ' .. text).code, 'INVALID')
        end
        local one = T.zeros({2}, {dtype = dtype})
        invalid(function() T.tensor({{0, x}}, {dtype = dtype}) end, 't[1][2]')
        invalid(function() one:set(0, x) end, 'the value')
        invalid(function() one[1] = x end, 'the value')
        invalid(function() one:fill(x) end, 'the value')
        t.equal(one:sum(), 0)
    end
    refused('i32', 1.5, '1.5: i32 holds whole numbers from -2147483648 to 2147483647')
    refused('i32', 2 ^ 31, '2147483648: i32')
    refused('i32', -2 ^ 31 - 1, '-2147483649: i32')
    refused('i32', math.huge, 'inf: i32')
    refused('i32', -(0 / 0), 'nan: i32')
    refused('u8', 256, '256: u8 holds whole numbers from 0 to 255')
    refused('u8', -1, '-1: u8')
    refused('bool', 2, '2: bool holds whole numbers from 0 to 1')
    local i = T.tensor({-2 ^ 31, 2 ^ 31 - 1}, {dtype = 'i32'})
    t.same(i:totable(), {-2 ^ 31, 2 ^ 31 - 1})
    t.same(T.tensor({0, 255}, {dtype = 'u8'}):totable(), {0, 255})
    t.same(T.tensor({1.5, 1e30}):to('i32'):totable(), {2, 2 ^ 31 - 1}) -- :to rounds
end)

test('options that no one knows are refused', function(t)
    local function refused(name, nearest, f)
        local e = t.fails(f, ("opt has no '%s': did you mean '%s'?"):format(name, nearest))
        t.equal(e.code, 'INVALID')
        t.equal(e.arg, name)
    end
    refused('dtyp', 'dtype', function() T.tensor({1}, {dtyp = 'i32'}) end)
    refused('devise', 'device', function() T.zeros({1}, {devise = 'ref'}) end)
    refused('seed', 'dtype', function() T.empty({1}, {seed = 1}) end)
    refused('sead', 'seed', function() T.randn(1, {1}, {sead = 1}) end)
    refused('thread', 'threads', function() devices.open('cpu', {thread = 1}) end)
    t.fails(function() T.zeros({1}, 'f16') end, "opt is the string 'f16': a table of options")
    t.fails(function() devices.open('cpu', 4) end, 'opt is a number: a table of options')
    t.fails(function() devices.open('cpu', {threads = 1.5}) end, 'threads is 1.5: a whole number')
    t.fails(function() devices.open('cpu', {threads = '2'}) end, "threads is the string '2'")
    t.fails(function() devices.open('cpu', {threads = -1}) end, 'options.threads is -1')
    t.equal(devices.open('cpu', {threads = 2}).threads, 2)
    t.fails(function() devices.open 'cpu\0' end, 'device has a NUL at byte 4')
end)

test('wrong arguments', function(t)
    t.fails(function() return T.tensor {{1, 2}, {3}} end, 't[2] has 1, not 2 elements')
    t.fails(function() return T.tensor {{1}, {2, 3}} end, 't[2] has 2, not 1 elements')
    t.fails(function() return T.tensor {{1, 2}, 3} end, 't[2] has no, not 2 elements')
    t.fails(function() return T.tensor {1, 'a'} end, "t[2] is the string 'a'")
    t.fails(function() return T.tensor(5) end, 'a nested table')
    t.fails(function() return T.tensor() end, 't is nil: a nested table')
    t.fails(function() return T.zeros(3) end, 'shape is a number')
    t.fails(function() return T.zeros {2, -1} end, 'extent 2 of the shape is -1')
    t.fails(function() return T.zeros {1.5} end, 'extent 1 of the shape is 1.5')
    t.fails(function() return T.zeros {1, 1, 1, 1, 1, 1, 1, 1, 1} end, 'at most 8')
    t.fails(function() return T.zeros({1}, {dtype = 'int'}) end, 'dtype is int')
    t.fails(function() return T.zeros({1}, {device = 'toaster'}) end, 'toaster')
    t.fails(function() return T.randn {2, 3} end, 'the number of tensors is wanted')
    t.fails(function() return T.randn(1, {2}, {seed = -1}) end, 'seed is -1')
    t.fails(function() return T.randn(1, {2}, {distribution = 'cauchy'}) end, 'cauchy')
    t.fails(function() return T.randn(1, {2}, {dtype = 'i32'}) end, 'floating-point')
    t.fails(function() return T.wrap(5, 'f32', {1}) end, 'ptr is a number')
    local one = ffi.new 'float[1]'
    t.fails(function() return T.wrap(one, 'f32', {1}, {1, 1}) end, 'strides has 2')
    t.fails(function() return T.wrap(one, 'f32', {1}, 1) end, 'strides has type number')
    t.fails(function() return T.wrap(one, 'f32', {1}, {0.5}) end, 'stride 1 is 0.5')
    t.fails(function() return T.wrap(ffi.cast('float *', nil), 'f32', {1}) end, 'ptr is NULL')
    t.fails(function() return T.wrap(one, 'float', {1}) end, 'dtype is float')
    t.fails(function() return T.zeros {1} + 'a' end, 'not with a string')
    t.fails(function() return {} * T.zeros {1} end, 'not with a table')
    t.fails(function() return T.c(1) end, 'a tensor is wanted')
end)

test('devices are listed, and what is missing says why', function(t)
    local list = devices.list()
    t.ok(#list >= 2)
    for _, d in ipairs(list) do
        t.equal(type(d.name), 'string')
        t.equal(type(d.threads), 'number')
        if d.missing ~= '' then
            t.fails(function() return devices.open(d.name) end, d.missing)
        end
    end
    t.equal(devices.open 'cpu', devices.open 'cpu')
    t.equal(T.device_of(T.zeros {1}), devices.open 'auto')
    t.ok(devices.open 'auto' == cpu or devices.open 'auto'.name ~= 'cpu')
    t.equal(devices.open('cpu', {threads = 2}).threads, 2)
end)

test.done()
