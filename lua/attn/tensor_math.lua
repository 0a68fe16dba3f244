-- tensor_math.lua: what computes on whole tensors: + - * /, fill, add_, sum, max_error.
--
-- Who calls it: tensor.lua, once, to add its methods. Shapes broadcast as in numpy: aligned at the
-- last axis, an extent of 1 fits any. The work is done in Lua on compact f32, or f64 where an
-- operand is f64 or i32, and rounded once to the result's type:
--
--     operand --expand (stride 0)--> view --copy and convert--> work --loop--> work --> result
--
-- An operand that is compact and of the work's type already is used where it is.

local ffi = require 'ffi'
local base = require 'attn.ffi'
local dtypes = require 'attn.dtype'
local C, check, fail = base.C, base.check, base.fail
local max, abs = math.max, math.abs

return function(M)
    local types, dtype_of, shape_of = M.types, M.dtype_of, M.shape_of
    local methods, meta = M.methods, M.meta

    -- Copies `from` into `to`, of equal shapes: by the device whose memory is not the host's, if
    -- there is one; by way of the host between two such.
    local function copy(to, from)
        local device, other = M.device_of(to), M.device_of(from)
        if not device.is_host and not other.is_host and device ~= other then
            local between = M.empty(shape_of(from), {dtype = from.dtype, device = 'cpu'})
            copy(to, copy(between, from))
            between:free()
            return to
        elseif device.is_host then
            device = other
        end
        check(C.attn_tensor_copy(device.handle, M.c(to), M.c(from), nil))
        return to
    end
    M.copy_into = copy

    -- t, or its elements in host memory, compact, in a tensor of their own.
    function M.on_host(t)
        if M.is_host(M.alive(t)) then
            return t
        end
        return copy(M.empty(shape_of(t), {dtype = t.dtype, device = 'cpu'}), t)
    end

    -- The shape that two shapes broadcast to, or nil.
    local function joint(a, b)
        local shape = {}
        local rank = max(#a, #b)
        for axis = 1, rank do
            local x, y = a[axis - rank + #a] or 1, b[axis - rank + #b] or 1
            if x ~= y and x ~= 1 and y ~= 1 then
                return nil
            end
            shape[axis] = x == 1 and y or x
        end
        return shape
    end

    local function same(a, b)
        if #a ~= #b then
            return false
        end
        for axis = 1, #a do
            if a[axis] ~= b[axis] then
                return false
            end
        end
        return true
    end

    -- A view of t in a shape that it broadcasts to.
    local function expand(t, shape)
        local own, steps, strides = shape_of(t), M.strides_of(t), {}
        local skip = #shape - #own
        for axis = 1, #shape do
            local extent = own[axis - skip]
            strides[axis] = extent == shape[axis] and steps[axis - skip] or 0
        end
        return M.view(t, 0, shape, strides)
    end

    local function check_fits(t, shape)
        local whole = joint(shape_of(t), shape)
        if not whole or not same(whole, shape) then
            fail('SHAPE', 'tensor', ('a tensor of shape {%s} does not fit into {%s}')
                :format(table.concat(shape_of(t), ', '), table.concat(shape, ', ')))
        end
    end

    -- to := from, broadcast.
    function M.assign(to, from)
        local shape = shape_of(M.alive(to))
        check_fits(from, shape)
        return copy(to, expand(from, shape))
    end

    local function scalar(x, dtype)
        local t = M.empty({}, {dtype = dtype.name, device = 'cpu'})
        M.methods.set(t, M.number_of(x))
        return t
    end

    -- Every element := x, rounded to the tensor's type.
    function methods.fill(t, x)
        x = dtypes.check_number(dtype_of(M.alive(t)), M.number_of(x), 'the value', 'value')
        local from = scalar(x, types.f64)
        M.assign(t, from)
        from:free()
        return t
    end

    -- -- Work ------------------------------------------------------------------------------------

    -- The pointer to t's elements in `shape`, compact, of the work's type, in host memory; and what
    -- keeps it alive.
    local function work(t, shape, dtype)
        if not (dtype_of(t) == dtype and same(shape_of(t), shape) and M.is_compact(t)
            and M.is_host(t)) then
            local temporary = M.empty(shape, {dtype = dtype.name, device = 'cpu'})
            t = copy(temporary, expand(t, shape))
        end
        return ffi.cast(dtype.pointer, t.head.data), t
    end

    local function wide(dtype)
        return dtype == types.f64 or dtype == types.i32
    end

    -- step is 1, or 0 for an operand that is one number.
    local loops = {
        add = function(to, n, a, sa, b, sb)
            for i = 0, n - 1 do
                to[i] = a[i * sa] + b[i * sb]
            end
        end,
        sub = function(to, n, a, sa, b, sb)
            for i = 0, n - 1 do
                to[i] = a[i * sa] - b[i * sb]
            end
        end,
        mul = function(to, n, a, sa, b, sb)
            for i = 0, n - 1 do
                to[i] = a[i * sa] * b[i * sb]
            end
        end,
        div = function(to, n, a, sa, b, sb)
            for i = 0, n - 1 do
                to[i] = a[i * sa] / b[i * sb]
            end
        end,
    }

    -- The type of a op b: the wider float; f32 for two floats of one width, and for quotients and
    -- fractions of integers; i32 for integers.
    local function result_type(op, a, b)
        local x = M.is(a) and dtype_of(a)
        local y = M.is(b) and dtype_of(b)
        local fraction = not (x and y) and not M.whole(x and b or a)
        x, y = x or y, y or x
        if x.float or y.float then
            if x == y or not y.float then
                return x
            elseif not x.float then
                return y
            end
            return x.bits > y.bits and x or y.bits > x.bits and y or types.f32
        end
        return (op == 'div' or fraction) and types.f32 or types.i32
    end

    local function operand(x)
        if type(x) ~= 'number' and not M.is(x) then
            fail('INVALID', 'operand', ('a tensor goes with a number or a tensor, not with a %s')
                :format(type(x)))
        end
        return M.is(x) and shape_of(M.alive(x)) or {}
    end

    local function check_device(a, b)
        if M.device_of(a).name ~= M.device_of(b).name then
            fail('DEVICE', 'operand', ('one tensor is on %s and the other on %s: use :to first')
                :format(M.device_of(a).name, M.device_of(b).name))
        end
    end

    local function binary(op, a, b, to)
        local shape_a, shape_b = operand(a), operand(b)
        local shape = joint(shape_a, shape_b)
        if not shape then
            fail('SHAPE', 'operand', ('shapes {%s} and {%s} do not broadcast')
                :format(table.concat(shape_a, ', '), table.concat(shape_b, ', ')))
        end
        if M.is(a) and M.is(b) then
            check_device(a, b)
        end
        local dtype = to and dtype_of(to) or result_type(op, a, b)
        local is_wide = wide(dtype) or M.is(a) and wide(dtype_of(a))
            or M.is(b) and wide(dtype_of(b))
        local work_type = is_wide and types.f64 or types.f32
        local device = M.device_of(M.is(a) and a or b)
        local function side(x)
            if M.is(x) then
                local pointer, keep = work(x, shape, work_type)
                return pointer, 1, keep
            end
            return ffi.new('double[1]', x), 0
        end
        local pa, sa, keep_a = side(a)
        local pb, sb, keep_b = side(b)
        local out = M.empty(shape, {dtype = work_type.name,
            device = device.is_host and device or 'cpu'})
        loops[op](ffi.cast(work_type.pointer, out.head.data), M.count_of(shape), pa, sa, pb, sb)
        if keep_a and keep_a ~= a then
            keep_a:free()
        end
        if keep_b and keep_b ~= b then
            keep_b:free()
        end
        if not to and dtype == work_type and device.is_host then
            return out
        end
        to = copy(to or M.empty(shape, {dtype = dtype.name, device = device}), out)
        out:free()
        return to
    end

    function meta.__add(a, b) return binary('add', a, b) end
    function meta.__sub(a, b) return binary('sub', a, b) end
    function meta.__mul(a, b) return binary('mul', a, b) end
    function meta.__div(a, b) return binary('div', a, b) end
    function meta.__unm(a) return binary('mul', a, -1) end

    -- t := t + alpha * x, in place; alpha is 1 if left out, x a number or a tensor that broadcasts.
    function methods.add_(t, x, alpha)
        local shape = shape_of(M.alive(t))
        operand(x)
        if M.is(x) then
            check_fits(x, shape)
        end
        alpha = M.number_of(alpha or 1)
        if M.is(x) and alpha ~= 1 then
            local scaled = binary('mul', x, alpha, M.empty(shape_of(x),
                {dtype = wide(dtype_of(x)) and 'f64' or 'f32', device = M.device_of(x)}))
            binary('add', t, scaled, t)
            scaled:free()
        else
            binary('add', t, M.is(x) and x or alpha * x, t)
        end
        return t
    end

    -- -- Reductions ------------------------------------------------------------------------------

    local function reduce(t, loop, other)
        local shape = shape_of(M.alive(t))
        local is_wide = wide(dtype_of(t)) or other and wide(dtype_of(other))
        local dtype = is_wide and types.f64 or types.f32
        local p, keep = work(t, shape, dtype)
        local p2, keep2
        if other then
            p2, keep2 = work(other, shape, dtype)
        end
        local a, b, c = loop(p, M.count_of(shape), p2)
        if keep ~= t then
            keep:free()
        end
        if keep2 and keep2 ~= other then
            keep2:free()
        end
        return a, b, c
    end

    -- The sum of all elements, in double.
    function methods.sum(t)
        return (reduce(t, function(p, n)
            local sum = 0
            for i = 0, n - 1 do
                sum = sum + p[i]
            end
            return sum
        end))
    end

    -- The largest |t - other|: 0 where both are NaN or the same infinity, infinity where one alone
    -- is. other: a number or a tensor of t's shape.
    function methods.max_error(t, other)
        operand(other)
        if not M.is(other) then
            other = expand(scalar(other, types.f64), shape_of(M.alive(t)))
        elseif not same(shape_of(M.alive(t)), shape_of(other)) then
            fail('SHAPE', 'other', ('other has shape {%s}, not {%s}')
                :format(table.concat(shape_of(other), ', '), table.concat(shape_of(t), ', ')))
        end
        return (reduce(t, function(p, n, p2)
            local worst = 0
            for i = 0, n - 1 do
                local x, y = p[i], p2[i]
                if x ~= y and (x == x or y == y) then
                    local d = abs(x - y)
                    worst = d == d and max(worst, d) or math.huge
                end
            end
            return worst
        end, other))
    end

    -- The least and the largest number, and how many NaN there are; nil, nil without a number.
    function M.extremes(t)
        return reduce(t, function(p, n)
            local least, largest, nans = math.huge, -math.huge, 0
            for i = 0, n - 1 do
                local x = p[i]
                if x ~= x then
                    nans = nans + 1
                else
                    least = x < least and x or least
                    largest = x > largest and x or largest
                end
            end
            if nans == n then
                return nil, nil, nans
            end
            return least, largest, nans
        end)
    end
end
