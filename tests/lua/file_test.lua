-- file_test.lua: .npy and .safetensors: files that others wrote, round trips, damage, finalizers.

local here = arg[0]:match '^(.*/)' or './'
package.path = here .. '?.lua;' .. here .. '../../lua/?.lua;' .. package.path
local test = require 'tap'
local T = require 'attn.tensor'

local data = here .. 'data/'
local names = {}

-- A name for a file that is removed at the end.
local function scratch(suffix)
    local name = os.tmpname()
    names[#names + 1] = name
    names[#names + 1] = name .. suffix
    return name .. suffix
end

local function bytes_of(path)
    local file = assert(io.open(path, 'rb'))
    local bytes = file:read '*a'
    file:close()
    return bytes
end

local function write(path, bytes)
    local file = assert(io.open(path, 'wb'))
    file:write(bytes)
    file:close()
    return path
end

-- What data/make.py put into its files.
local function expected(offset)
    local x = T.zeros({2, 3, 4}, {dtype = 'f64'})
    for i = 0, 1 do
        for j = 0, 2 do
            for k = 0, 3 do
                x:set(i, j, k, 12 * i + 4 * j + k - 8 + (offset or 0))
            end
        end
    end
    return x
end

-- -- Files that others wrote ----------------------------------------------------------------------

test('.npy files of numpy', function(t)
    local x = expected()
    for name, dtype in pairs {
        f8 = 'f64', f4 = 'f32', f2 = 'f16', i4 = 'i32', fortran = 'f32', version2 = 'f32',
        version3 = 'f32',
    } do
        local y = T.load(data .. name .. '.npy')
        t.same(y.shape, {2, 3, 4}, name)
        t.equal(y.dtype, dtype, name)
        t.equal(y:max_error(x), 0, name)
    end
    t.equal(T.load(data .. 'u1.npy'):max_error(expected(8)), 0)
    t.same(T.load(data .. 'fortran.npy').strides, {1, 2, 6})
    t.equal(T.load(data .. 'b1.npy'):sum(), 15)
    t.equal(T.load(data .. 'scalar.npy'):get(), 3.5)
    t.same(T.load(data .. 'empty.npy').shape, {0, 3})
end)

test('.npy files that attn does not read', function(t)
    local why = t.fails(function() T.load(data .. 'i8.npy') end, 'the tensor has type <i8')
    t.equal(why.code, 'DTYPE')
    why = t.fails(function() T.load(data .. 'big.npy') end, 'big-endian (>f4)')
    t.equal(why.code, 'DTYPE')
    t.fails(function() T.load(data .. 'record.npy') end, 'holds records')
end)

test('.safetensors files of safetensors', function(t)
    local all, left_out = T.load(data .. 'all.safetensors')
    local x = expected()
    for _, dtype in ipairs {'f64', 'f32', 'f16', 'bf16', 'i32', 'e4m3fn', 'e5m2'} do
        t.equal(all[dtype].dtype, dtype)
        t.equal(all[dtype]:max_error(x:to(dtype)), 0, dtype)
    end
    t.equal(all.u8:max_error(expected(8)), 0)
    t.equal(all.bool:sum(), 15)
    t.same(all.empty.shape, {0, 3})
    t.same(all['ä "quoted" \\ \n']:totable(), {1, 2})
    t.equal(rawget(all, 'i64'), nil)
    local e = t.fails(function() return all.i64 end, 'all.safetensors: tensor i64 has type I64')
    t.equal(e.code, 'DTYPE')
    t.equal(e.arg, 'i64')
    t.equal(all.nowhere, nil)
    t.ok(left_out.i64:find('type I64', 1, true))
    t.equal(next(left_out, 'i64'), nil)
end)

-- -- Round trips ----------------------------------------------------------------------------------

test('.npy round trips, from any strides', function(t)
    local path = scratch '.npy'
    for _, dtype in ipairs {'f64', 'f32', 'f16', 'i32', 'u8', 'bool'} do
        local x = expected():to(dtype)
        x:save(path)
        local y = T.load(path)
        t.equal(y.dtype, dtype)
        t.equal(y:max_error(x), 0, dtype)
        x:transpose(0, 2):save(path)
        t.equal(T.load(path):transpose(0, 2):max_error(x), 0, dtype)
        x[1][2]:save(path)
        t.equal(T.load(path):max_error(x[1][2]), 0, dtype)
    end
    for _, shape in ipairs {{}, {0}, {1}, {3, 0}, {1, 1, 1, 1, 1, 1, 1, 1}} do
        T.zeros(shape):save(path)
        t.same(T.load(path).shape, shape)
    end
    local _, header = bytes_of(path):find '\n'
    t.equal(header % 64, 0, 'the place of the data')
    t.fails(function() expected():to 'bf16':save(path) end, 'which .npy files cannot hold')
    t.fails(function() expected():save 'x.txt' end, "ends with '.npy'")
end)

test('the bytes of a saved .npy are those of numpy', function(t)
    local path = scratch '.npy'
    for name, dtype in pairs {f8 = 'f64', f4 = 'f32', f2 = 'f16', i4 = 'i32'} do
        expected():to(dtype):save(path)
        t.ok(bytes_of(path) == bytes_of(data .. name .. '.npy'), name)
    end
    T.zeros {0, 3}:save(path)
    t.ok(bytes_of(path) == bytes_of(data .. 'empty.npy'))
end)

test('.safetensors round trips', function(t)
    local path = scratch '.safetensors'
    local all = T.load(data .. 'all.safetensors')
    all.turned = all.f32:transpose(0, 2)
    all['"\\/\b\f\n\r\t\1é漢😀'] = T.tensor {1}
    T.save(path, all)
    local again, left_out = T.load(path)
    t.equal(next(left_out), nil)
    for name, x in pairs(all) do
        t.equal(again[name]:max_error(x), 0, name)
        t.equal(again[name].dtype, x.dtype, name)
        t.same(again[name].shape, x.shape, name)
    end
    for name in pairs(again) do
        t.ok(all[name], name)
    end
    T.save(path, {})
    t.equal(next((T.load(path))), nil)
    t.fails(function() T.save(path, {[''] = T.zeros {1}}) end, 'name 0 is ""')
    t.fails(function() T.save(path, {__metadata__ = T.zeros {1}}) end, '__metadata__')
    t.fails(function() T.save(path, {['\255'] = T.zeros {1}}) end, 'UTF-8')
    t.fails(function() T.save(path, {a = 1}) end, 'a tensor is wanted')
    t.fails(function() T.save('x.npy', {}) end, "ends with '.safetensors'")
end)

test('a saved .safetensors has every tensor at a multiple of its element', function(t)
    local path = scratch '.safetensors'
    T.save(path, {
        a = T.zeros({3}, {dtype = 'u8'}), b = T.zeros({3}, {dtype = 'bf16'}), c = T.zeros {3},
        d = T.zeros({3}, {dtype = 'f64'}),
    })
    local bytes = bytes_of(path)
    local first = bytes:find('}}', 1, true)
    t.equal((bytes:byte(1) + 256 * bytes:byte(2) + 8) % 64, 0, 'the place of the data')
    t.ok(first and bytes:sub(9):find(
        '^{"d":.*"data_offsets":%[0,24%]},"c":.*%[24,36%]},"b":.*%[36,42%]},"a"'))
end)

test('a loaded tensor may be changed, and its file stays', function(t)
    local path = scratch '.npy'
    expected():save(path)
    local before = bytes_of(path)
    local x = T.load(path)
    x:add_(1)
    t.equal(x:max_error(expected(1)), 0)
    t.ok(bytes_of(path) == before)
    x:save(path) -- over the file that x is mapped from
    t.equal(T.load(path):max_error(x), 0)
end)

test('what cannot be saved under a name is refused', function(t)
    local x = expected()
    local path = scratch '.safetensors'
    local function refused(arg_, text, ...)
        local given = {...}
        local e = t.fails(function() T.save(unpack(given)) end, text)
        t.equal(e.code, 'INVALID')
        t.equal(e.arg, arg_)
    end
    refused('tensors', 'a name in tensors is a number: a string is wanted', path, {x})
    refused('tensors', 'tensors[a] is a number: a tensor is wanted', path, {a = 5})
    refused('tensors', 'tensors is a tensor: a table', path, x)
    refused('tensors', 'tensors is nil: a table', path)
    refused('tensors', 'a name has a NUL at byte 2', path, {['a\0b'] = x})
    refused('path', 'path has a NUL at byte 2', 'x\0.safetensors', {x = x})
    refused('path', "path is the string 'x.npy': a name that ends with '.safetensors'", 'x.npy', {})
    t.equal(io.open(path), nil)
    local e = t.fails(function() x:save 'a\0.npy' end, 'path has a NUL at byte 2')
    t.equal(e.code, 'INVALID')
    t.fails(function() T.load(data .. 'f4.npy\0') end, 'path has a NUL')
end)

test('a failed save leaves the old file and nothing else', function(t)
    local why = t.fails(function() expected():save '/nowhere/x.npy' end, 'x.npy cannot be written')
    t.equal(why.code, 'IO')
    local path = scratch '.npy'
    local folder = path .. '.d.npy'
    os.execute(("mkdir '%s'"):format(folder))
    t.fails(function() expected():save(folder) end, 'cannot be written')
    local pipe = io.popen(("ls '%s'*"):format(path))
    local list = pipe:read '*a'
    pipe:close()
    os.execute(("rmdir '%s'"):format(folder))
    t.ok(not list:find '%.tmp', list)
end)

-- -- Damage ---------------------------------------------------------------------------------------

test('no file, a folder, an empty file', function(t)
    local path = scratch '.npy'
    t.equal(t.fails(function() T.load '/nowhere/x.npy' end, 'cannot be opened').code, 'IO')
    t.equal(t.fails(function() T.load(data) end, 'is not a regular file').code, 'IO')
    t.equal(t.fails(function() T.load(write(path, '')) end, 'is empty').code, 'PARSE')
    t.fails(function() T.load(5) end, 'path is a number')
end)

test('every .npy cut short, and every one with more, is refused', function(t)
    local path = scratch '.npy'
    local whole = bytes_of(data .. 'f4.npy')
    for n = 0, #whole - 1 do
        local text = n == 0 and 'is empty' or n < 6 and 'shorter than 8 bytes'
            or n < 10 and 'does not begin with' or n < 128 and 'header is longer than the file'
            or 'its shape and type need 96'
        t.equal(t.fails(function() T.load(write(path, whole:sub(1, n))) end, text).code, 'PARSE')
    end
    t.fails(function() T.load(write(path, whole .. '\0')) end, 'has 97 bytes of data')
end)

test('every .safetensors cut short, and every one with more, is refused', function(t)
    local path = scratch '.safetensors'
    local whole = bytes_of(data .. 'all.safetensors')
    local header = whole:byte(1) + 256 * whole:byte(2)
    for n = 0, #whole - 1, 7 do
        local text = n == 0 and 'is empty' or n < 8 and 'shorter than 8 bytes'
            or n < 8 + header and 'bytes is longer than the file' or ': tensor '
        t.equal(t.fails(function() T.load(write(path, whole:sub(1, n))) end, text).code, 'PARSE')
    end
    t.fails(function() T.load(write(path, whole .. '\0')) end, 'bytes that belong to no tensor')
end)

-- An .npy file with this header text.
local function npy(header, n)
    return '\147NUMPY\1\0' .. string.char(#header % 256, math.floor(#header / 256)) .. header
        .. ('\0'):rep(n or 0)
end

test('hostile .npy headers', function(t)
    local path = scratch '.npy'
    local function refused(header, n, why)
        local e = t.fails(function() T.load(write(path, npy(header, n))) end,
            why or 'no sound .npy file')
        t.equal(e.code, 'PARSE')
    end
    local good = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }"
    t.same(T.load(write(path, npy(good:format '2, 3', 24))).shape, {2, 3})
    t.same(T.load(write(path, npy(good:format '2L,', 8))).shape, {2}) -- of Python 2
    t.same(T.load(write(path, npy('{"shape":(),"descr":"<f4","fortran_order":True}', 4))).shape, {})
    refused(good:format '4294967296, 4294967296, 4294967296', 0, 'more than 2^63')
    refused(good:format '9223372036854775807, 2', 0, 'more than 2^63')
    refused(good:format '99999999999999999999', 0)
    refused(good:format '-1', 0)
    refused(good:format '2', 8) -- (2) is no tuple
    refused(good:format '2 3', 24)
    refused(good:format ',', 4)
    refused(good:format(('1,'):rep(17)), 4)
    refused(good:format '0', 4)
    refused('', 0)
    refused('{}', 0)
    refused("{'descr': '<f4', 'fortran_order': False}", 4)
    refused("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4)
    refused("{'descr': '<f4', 'fortran_order': Maybe, 'shape': ()}", 4)
    refused("{'descr': '<f4', 'fortran_order': False, 'shape': (), 'x': 1}", 4)
    refused("{'descr': 'f4', 'fortran_order': False, 'shape': ()}", 4)
    refused("{'descr': '<f4\\n', 'fortran_order': False, 'shape': ()}", 4)
    refused(good:format '1,' .. ' x', 4)
    local e = t.fails(function()
        T.load(write(path, (npy(good:format '1,', 4):gsub('^(.....Y)\1', '%1\4'))))
    end, 'version 4.0')
    t.equal(e.code, 'PARSE')
end)

local function safetensors(header, n, length)
    length = length or #header
    local bytes = {}
    for i = 1, 8 do
        bytes[i] = string.char(length % 256)
        length = math.floor(length / 256)
    end
    return table.concat(bytes) .. header .. ('\0'):rep(n or 0)
end

test('hostile .safetensors headers', function(t)
    local path = scratch '.safetensors'
    local function refused(header, n, why, length)
        local e = t.fails(function() T.load(write(path, safetensors(header, n, length))) end,
            why or 'no sound .safetensors file')
        t.equal(e.code, 'PARSE')
    end
    local function one(shape, from, to, dtype)
        return ('{"a":{"dtype":"%s","shape":[%s],"data_offsets":[%s,%s]}}')
            :format(dtype or 'F32', shape, from, to)
    end
    t.same(T.load(write(path, safetensors(one('2, 3', 0, 24), 24))).a.shape, {2, 3})
    local text = ' {"a" : {"shape":[ ],"data_offsets":[0, 4],"dtype":"F32"} }  '
    t.same(T.load(write(path, safetensors(text:sub(2), 4))).a.shape, {})
    refused(text, 4, 'begin with {')
    refused(one('2', 0, 8), 8, 'longer than the file', 2 ^ 20)
    refused(one('2', 0, 8), 8, 'longer than the 100,000,000', 2 ^ 52)
    refused(one('4294967296,4294967296', 0, 0), 0, 'do not fit')
    refused(one('99999999999999999999', 0, 0), 0)
    refused(one('-1', 0, 4), 4)
    refused(one('1e0', 0, 4), 4)
    refused(one('01', 0, 4), 4)
    refused(one('1,', 0, 4), 4)
    refused(one('1', 4, 0), 4, 'bytes 4 to 0 of 4')
    refused(one('2', 0, 8), 4, 'bytes 0 to 8 of 4')
    refused(one('1', '18446744073709551612', '18446744073709551615'), 4)
    refused(one('1', 0, 8), 8, 'do not fit')
    for dtype, bytes in pairs {I64 = 8, U64 = 8, U32 = 4, I16 = 2, U16 = 2, I8 = 1, C64 = 8,
        F8_E8M0 = 1, F6_E2M3 = 3, F6_E3M2 = 3, F4 = 1} do
        local _, left_out = T.load(write(path, safetensors(one('1', 0, bytes, dtype), bytes)))
        t.ok(left_out.a:find('type ' .. dtype, 1, true), dtype)
    end
    refused(one('1', 0, 4, 'F99'), 4, "tensor 'a' has type 'F99', which the format does not know")
    refused(one('1', 0, 4, ''), 4, "has type ''")
    refused(one('1', 0, 4, 'I64'), 4, 'do not fit')
    refused(one('1', 4, 8), 8, 'after a gap')
    refused(one('1', 0, 4), 8, 'belong to no tensor')
    refused(one(('1,'):rep(16) .. '1', 0, 4), 4)
    local both = '{"%s":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
        .. '"%s":{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}}'
    t.ok(T.load(write(path, safetensors(both:format('a', 'b', 4, 8), 8))).b)
    refused(both:format('a', 'b', 0, 4), 4, 'overlap')
    refused(both:format('a', 'b', 2, 6), 6, 'overlap')
    refused(both:format('a', 'a', 4, 8), 8, "two tensors 'a'")
    refused(both:format('a', '\\u0061', 4, 8), 8, "two tensors 'a'")
    refused('{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4)
    refused('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}}', 4)
    refused('{"a":{"dtype":"F32","shape":[1]}}', 4)
    refused('{"a":[1]}', 0)
    refused('{"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4)
    refused('[]', 0)
    refused('{"a"', 0)
    refused('{', 0)
    refused('{}x', 0)
    refused(('['):rep(100000), 0)
    refused('{"a":' .. ('['):rep(100000), 0)
    refused('{"__metadata__":{"a":' .. ('{"a":'):rep(100000), 0)
    refused('{"__metadata__":{"a":1}}', 0)
    refused('{"__metadata__":{},"__metadata__":{}}', 0)
    for _, name in ipairs {
        '\\u0000', '\\ud800', '\\udc00', '\\ud800\\u0041', '\\u12', '\\x', '\\', '\255', '\192\128',
        '\237\160\128', '\244\144\128\128', '\224\128\128', '\226\130', '\1', 'a\0b',
    } do
        refused(both:format(name, 'b', 4, 8), 8)
    end
    local header = both:format('\\ud83d\\ude00', '\\u00e9\\/', 4, 8)
    local ok = T.load(write(path, safetensors(header, 8)))
    t.ok(ok['😀'] and ok['é/'])
end)

test('more axes than attn holds', function(t)
    local nine = ('1,'):rep(9)
    local path = scratch '.npy'
    write(path, npy(("{'descr': '<f4', 'fortran_order': False, 'shape': (%s)}"):format(nine), 4))
    t.equal(t.fails(function() T.load(path) end, 'has 9 axes').code, 'SHAPE')
    path = scratch '.safetensors'
    write(path, safetensors(('{"a":{"dtype":"F32","shape":[%s],"data_offsets":[0,4]},'
        .. '"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}'):format(nine:sub(1, -2)), 8))
    local all, left_out = T.load(path)
    t.equal(all.b[0], 0)
    t.equal(t.fails(function() return all.a end, '.safetensors: tensor a has 9 axes').code, 'SHAPE')
    t.ok(left_out.a:find('9 axes', 1, true))
end)

test('tensors that are not aligned in their file are copied', function(t)
    local path = scratch '.safetensors'
    local header = '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
        .. '"b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}}'
    write(path, safetensors(header) .. '\7\0\0\128\63\0\0\0\64')
    local all = T.load(path)
    t.equal(all.a[0], 7)
    t.same(all.b:totable(), {1, 2})
end)

-- -- Life -----------------------------------------------------------------------------------------

test('a tensor keeps its file, and a view its tensor', function(t)
    local row
    do
        local all = T.load(data .. 'all.safetensors')
        row = all.f32[1]
        all.f64:free() -- its own life, not its neighbours'
    end
    T.collect()
    t.same(row[2]:totable(), {12, 13, 14, 15})
end)

test('thousands of files open and close', function(t)
    local x
    for _ = 1, 3000 do
        x = T.load(data .. 'f4.npy')
    end
    T.collect()
    local maps = io.open '/proc/self/maps'
    local n = 0
    for line in maps:lines() do
        n = n + (line:find('f4.npy', 1, true) and 1 or 0)
    end
    maps:close()
    t.equal(x:max_error(expected()), 0)
    t.ok(n <= 2, n .. ' maps')
end)

test('os.exit with live tensors, files and devices', function(t)
    local script = scratch '.lua'
    write(script, ([[
        package.path = %q
        local T = require 'attn.tensor'
        kept = {T.load(%q), T.randn(2, {100, 100}), T.zeros {5}[2]}
        for _ = 1, 100 do T.zeros {1000} end
        if arg[1] then os.exit(tonumber(arg[1])) end
    ]]):format(package.path, data .. 'all.safetensors'))
    for _, code in ipairs {'0', '3', ''} do
        -- What os.exit leaves behind is no leak to report.
        local status = os.execute(("ASAN_OPTIONS=detect_leaks=0 '%s' '%s' %s")
            :format(test.interpreter, script, code))
        t.equal(status, code == '3' and 3 * 256 or 0, 'os.exit ' .. code)
    end
end)

for _, name in ipairs(names) do
    os.remove(name)
end
test.done()
