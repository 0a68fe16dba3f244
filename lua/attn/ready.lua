-- ready.lua: the ready-made variants of lib/variants.c, with their tensors.
--
-- Who calls it: variants.lua, once; attn.lua exports them: attn.causal, attn.alibi(16), ...

local ffi = require 'ffi'
local base = require 'attn.ffi'
local tensor = require 'attn.tensor'
local symbol = require 'attn.symbol'
local C, check, fail = base.C, base.check, base.fail

return function(M)
    local box, new, from_table = M.box, M.new, M.from_table

    local function ready(name, numbers, values, axes)
        local array = ffi.new('double[?]', #numbers + 1, numbers)
        check(C.attn_variant_ready(name, array, #numbers, box))
        return new(values or {}, axes)
    end

    -- A constructor that takes the named numbers.
    local function of_numbers(name, ...)
        local wanted = {...}
        return function(...)
            local given = {...}
            for i, what in ipairs(wanted) do
                if type(given[i]) ~= 'number' then
                    fail('INVALID', what, ('attn.%s(%s): %s is %s, a number is wanted'):format(name,
                        table.concat(wanted, ', '), what, symbol.describe(given[i])))
                end
            end
            return ready(name, given)
        end
    end

    -- A tensor argument, or a nested table of one.
    local function tensor_of(name, what, x, dtype)
        if type(x) == 'table' then
            x = tensor.tensor(x, {dtype = dtype, device = 'cpu'}, what)
            from_table[x] = {}
            return x
        elseif not tensor.is(x) then
            fail('INVALID', what, ('attn.%s: %s is %s, a tensor is wanted'):format(name, what,
                symbol.describe(x)))
        end
        return x
    end

    local function want_rank(name, what, t, rank)
        if #t.shape ~= rank then
            fail('SHAPE', what, ('attn.%s: %s has %d axes, %d are wanted'):format(name, what,
                #t.shape, rank))
        end
    end

    local R = {
        window = of_numbers('window', 'l', 'r'),
        softcap = of_numbers('softcap', 'c'),
        prefix = of_numbers('prefix', 'n'),
        dilated = of_numbers('dilated', 'n'),
        first_keys = of_numbers('first_keys', 'n', 'l'),
    }
    R.causal = ready('causal', {})

    -- H (the slopes of its paper for so many heads) or slopes[H].
    function R.alibi(x)
        if type(x) == 'number' then
            return ready('alibi', {x})
        end
        local slopes = tensor_of('alibi', 'slopes', x, 'f32')
        want_rank('alibi', 'slopes', slopes, 1)
        return ready('alibi', {}, {slopes = slopes}, {slopes = {'nh'}})
    end

    -- ids[B][NK], i32: queries see the keys of their own document.
    function R.document(x)
        local ids = tensor_of('document', 'ids', x, 'i32')
        want_rank('document', 'ids', ids, 2)
        return ready('document', {}, {ids = ids}, {ids = {'batch', 'nk'}})
    end

    -- table[H][2r+1]: s + table[h][clamp(k - q, -r, r) + r].
    function R.relative(x)
        local t = tensor_of('relative', 'table', x, 'f32')
        want_rank('relative', 'table', t, 2)
        local n = t.shape[2]
        if n % 2 == 0 then
            fail('SHAPE', 'table', ('attn.relative: the table has %d columns, an odd number 2r+1 '
                .. 'is wanted'):format(n))
        end
        return ready('relative', {(n - 1) / 2}, {table = t}, {table = {'nh', false}})
    end

    -- A tensor added to the scores, where -inf masks: [B][H][NQ][NK], or without B, or without B
    -- and H. Where an extent is 1, that axis broadcasts.
    function R.bias(x)
        local t = tensor_of('bias', 'bias', x, 'f32')
        local shape, axes, has = t.shape, {}, {0, 0, 0, 0}
        local n = #shape
        if n < 2 or n > 4 then
            fail('SHAPE', 'bias', ('attn.bias: bias has %d axes, 2 to 4 are wanted'):format(n))
        end
        for i = 1, n do
            local axis = 4 - n + i
            has[axis] = shape[i] == 1 and 0 or 1
            axes[i] = has[axis] == 1 and ({'batch', 'nh', 'nq', 'nk'})[axis]
        end
        local values = {bias = t}
        local variant = ready('bias', has, values, {bias = axes})
        if n == 4 then
            return variant
        end
        -- The first axes have index 0: without them it is the variant of a tensor of n axes.
        local text = variant.text:gsub('bias%[4%]', ('bias[%d]'):format(n))
            :gsub('bias' .. ('%[0%]'):rep(4 - n), 'bias')
        check(C.attn_variant_parse(text, box))
        return new(values, {bias = axes})
    end
    return R
end
