-- tensor_make.lua: where tensors come from and what they turn into: nested tables, random numbers,
-- files, views, copies.
--
-- Who calls it: tensor.lua, once, to add its constructors and methods.

local ffi = require 'ffi'
local base = require 'attn.ffi'
local words = require 'attn.words'
local dtypes = require 'attn.dtype'
local devices = require 'attn.device'
local C, check, fail = base.C, base.check, base.fail

return function(M)
    local types, shape_of, strides_of = M.types, M.shape_of, M.strides_of
    local methods = M.methods

    local function braces(shape)
        return '{' .. table.concat(shape, ', ') .. '}'
    end

    -- -- Constructors ----------------------------------------------------------------------------

    function M.zeros(shape, opt)
        return M.empty(shape, opt):fill(0)
    end

    -- The shape of a nested table, by its first elements.
    local function nested_shape(x)
        local shape = {}
        while type(x) == 'table' do
            shape[#shape + 1] = #x
            x = x[1]
        end
        return shape, type(x)
    end

    -- to: {name = the argument, dtype, shape, values, n = how many are there}; place: indices.
    local function flatten(to, x, axis, place)
        local name, extent = to.name .. place, to.shape[axis]
        if not extent then
            if type(x) ~= 'number' and type(x) ~= 'boolean' then
                fail('INVALID', to.name, ('%s is %s: a number is wanted'):format(name,
                    words.describe(x)))
            end
            to.values[to.n] = dtypes.check_number(to.dtype, M.number_of(x), name, to.name)
            to.n = to.n + 1
            return
        end
        if type(x) ~= 'table' or #x ~= extent then
            fail('SHAPE', to.name, ('%s has %s, not %d elements: rows must be of one length')
                :format(name, type(x) == 'table' and #x or 'no', extent))
        end
        for i = 1, #x do
            flatten(to, x[i], axis + 1, ('%s[%d]'):format(place, i))
        end
    end

    -- From nested tables of numbers (f32 unless opt.dtype says otherwise) or booleans (bool). name:
    -- what the user calls t, if that is not t.
    function M.tensor(t, opt, name)
        name = name or 't'
        if type(t) ~= 'table' then
            fail('INVALID', name, ('%s is %s: a nested table of numbers is wanted'):format(name,
                words.describe(t)))
        end
        opt = words.check_options(opt, M.OPTIONS)
        local shape, kind = nested_shape(t)
        local values = ffi.new('double[?]', math.max(M.count_of(shape), 1))
        local dtype = dtypes.named(opt.dtype or kind == 'boolean' and 'bool' or 'f32')
        flatten({name = name, dtype = dtype, shape = shape, values = values, n = 0}, t, 1, '')
        local to = M.empty(shape, {dtype = dtype.name, device = opt.device})
        return M.copy_into(to, M.wrap(values, 'f64', shape))
    end

    -- n tensors of one shape from the documented generator (docs/random.md). opt: seed (0), dtype,
    -- device, distribution ('normal' or 'uniform'). The j-th, from 0, has the key seed + j * 2^32.
    function M.randn(n, shape, opt)
        opt = words.check_options(opt, {'dtype', 'device', 'seed', 'distribution'})
        if not M.whole(n) or n < 1 then
            fail('INVALID', 'n', ('n is %s: the number of tensors is wanted, then their shape')
                :format(tostring(n)))
        end
        local seed = opt.seed or 0
        if not M.whole(seed) or seed < 0 or seed > 2 ^ 53 then
            fail('INVALID', 'seed', ('seed is %s: a whole number from 0 to 2^53 is wanted')
                :format(tostring(seed)))
        end
        local kinds = {normal = C.ATTN_NORMAL, uniform = C.ATTN_UNIFORM}
        local kind = kinds[opt.distribution or 'normal']
        if not kind then
            fail('INVALID', 'distribution', ("distribution is %s: 'normal' or 'uniform' is wanted")
                :format(tostring(opt.distribution)))
        end
        local list = {}
        for j = 1, n do
            local t = M.empty(shape, {dtype = opt.dtype, device = opt.device})
            local key = ffi.cast('uint64_t', seed) + ffi.cast('uint64_t', j - 1) * 2ULL ^ 32
            check(C.attn_random(M.device_of(t).handle, M.c(t), kind, key, nil))
            list[j] = t
        end
        return unpack(list)
    end

    -- -- Files -----------------------------------------------------------------------------------

    local name_box = ffi.new 'const char *[1]'

    -- A path that ends with `suffix`, if one is given.
    local function check_path(path, suffix)
        if type(path) ~= 'string' or suffix and path:sub(-#suffix) ~= suffix then
            fail('INVALID', 'path', ('path is %s: %s is wanted'):format(words.describe(path),
                suffix and ("a name that ends with '%s'"):format(suffix) or 'a string'))
        end
        words.check_text('INVALID', 'path', path)
    end

    -- The i-th tensor's name; the tensor, or nil and why attn cannot hold it: sentence and code.
    local function from_file(file, i)
        local head = ffi.new 'attn_tensor'
        local status = C.attn_file_tensor(file, i, name_box, head)
        local name = ffi.string(name_box[0])
        if status < 0 then
            return name, nil, ffi.string(C.attn_error()), 'DTYPE'
        elseif head.ndim > M.MAX_RANK then
            return name, nil, ('tensor %s has %d axes; at most %d are allowed')
                :format(name, head.ndim, M.MAX_RANK), 'SHAPE'
        end
        local shape, strides = {}, head.strides ~= nil and {} or nil
        for axis = 1, head.ndim do
            shape[axis] = tonumber(head.shape[axis - 1])
            if strides then
                strides[axis] = tonumber(head.strides[axis - 1])
            end
        end
        local dtype = types[head.dtype.code + head.dtype.bits * 256]
        return name, M.wrap(head.data, dtype.name, shape, strides, file)
    end

    -- .npy: the tensor. .safetensors: a table name -> tensor, and a table name -> sentence of those
    -- whose type or rank attn does not have; to read such a name in the first is an error. The file
    -- stays mapped while a tensor lives; changing an element changes memory, never the file.
    function M.load(path)
        check_path(path)
        local box = ffi.new 'attn_file *[1]'
        check(C.attn_file_open(path, box))
        local file = ffi.gc(box[0], C.attn_file_release)
        local left_out, codes = {}, {}
        local tensors = setmetatable({}, {__index = function(_, name)
            if left_out[name] then
                fail(codes[name], name, ('%s: %s'):format(path, left_out[name]))
            end
        end})
        for i = 0, tonumber(C.attn_file_count(file)) - 1 do
            local name, t, why, code = from_file(file, i)
            if name == '' then -- an .npy file
                return t or fail(code, 'path', why)
            end
            tensors[name], left_out[name], codes[name] = t, why, code
        end
        return tensors, left_out
    end

    -- t:save 'x.npy'
    function methods.save(t, path)
        check_path(path, '.npy')
        t = M.is(t) and M.on_host(t) or t
        check(C.attn_file_save_npy(path, M.c(t)))
    end

    -- tensors: a table name -> tensor; written in the order of their names.
    function M.save(path, tensors)
        check_path(path, '.safetensors')
        if type(tensors) ~= 'table' then
            fail('INVALID', 'tensors', ('tensors is %s: a table name -> tensor is wanted')
                :format(M.is(tensors) and 'a tensor' or words.describe(tensors)))
        end
        local names, near = {}, {}
        for name, t in pairs(tensors) do
            if type(name) ~= 'string' then
                fail('INVALID', 'tensors', ('a name in tensors is %s: a string is wanted')
                    :format(words.describe(name)))
            elseif not M.is(t) then
                fail('INVALID', 'tensors', ('tensors[%s] is %s: a tensor is wanted')
                    :format(name, words.describe(t)))
            end
            words.check_text('INVALID', 'tensors', name, 'a name')
            names[#names + 1], near[name] = name, M.on_host(t)
        end
        table.sort(names)
        local c_names = ffi.new('const char *[?]', #names + 1)
        local c_tensors = ffi.new('const attn_tensor *[?]', #names + 1)
        for i, name in ipairs(names) do
            c_names[i - 1], c_tensors[i - 1] = name, M.c(near[name])
        end
        check(C.attn_file_save_safetensors(path, #names, c_names, c_tensors))
    end

    -- -- Views and copies ------------------------------------------------------------------------

    -- The same elements in another shape; the tensor must be compact.
    function methods.view(t, shape)
        M.alive(t)
        local old = shape_of(t)
        if M.count_of(shape) ~= M.count_of(old) then
            fail('SHAPE', 'shape', ('%s has another number of elements than %s')
                :format(braces(shape), braces(old)))
        elseif not M.is_compact(t) then
            fail('LAYOUT', 'tensor', 'only a compact tensor has other shapes: use :copy first')
        end
        return M.view(t, 0, shape)
    end

    -- A view with axes a and b, counted from 0, exchanged.
    function methods.transpose(t, a, b)
        local shape, strides = shape_of(M.alive(t)), strides_of(t)
        for _, axis in ipairs {a or -1, b or -1} do
            if not M.whole(axis) or axis < 0 or axis >= #shape then
                fail('SHAPE', 'axis', ('axis %s: the tensor has axes 0 to %d')
                    :format(tostring(axis), #shape - 1))
            end
        end
        shape[a + 1], shape[b + 1] = shape[b + 1], shape[a + 1]
        strides[a + 1], strides[b + 1] = strides[b + 1], strides[a + 1]
        return M.view(t, 0, shape, strides)
    end

    local function converted(t, dtype, device)
        local to = M.empty(shape_of(M.alive(t)), {dtype = dtype, device = device})
        return M.copy_into(to, t)
    end

    -- A compact copy.
    function methods.copy(t)
        return converted(t, t.dtype, M.device_of(t))
    end

    -- A compact copy of another type or on another device: t:to 'bf16', t:to(device).
    function methods.to(t, x)
        if type(x) == 'string' and types[x] then
            return converted(t, x, M.device_of(t))
        elseif x == nil then
            fail('INVALID', 'to', 'to wants a dtype or a device')
        end
        return converted(t, t.dtype, devices.of(x))
    end

    -- Nested tables, from 1; a number for a tensor without axes.
    function methods.totable(t)
        if #shape_of(M.alive(t)) == 0 then
            return t:get()
        end
        t = M.on_host(t)
        local list = {}
        for i = 1, #t do
            local part = M.element(t, i - 1)
            list[i] = M.is(part) and part:totable() or part
        end
        return list
    end
end
