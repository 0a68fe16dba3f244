-- argument.lua: what a variant function is called with, and its run-time parameters.
--
-- Who calls it: trace.lua passes leaf 's' ... leaf 'k' and x; attn.lua exports param; load.lua
-- asks is_name.

local ffi = require 'ffi'
local base = require 'attn.ffi'
local symbol = require 'attn.symbol'
local C = base.C
local refuse, describe = symbol.refuse, symbol.describe

local M = {}

local box = ffi.new 'attn_graph *[1]'

-- May a parameter or a tensor be called so? The library knows; 40 letters leave room for a number
-- where two parts of a composition clash.
function M.is_name(name)
    if #name > 40 or name:find '%z' then
        return false
    end
    base.check(C.attn_graph_new(box))
    local good = C.attn_graph_param(box[0], name, C.ATTN_F32) >= 0
    C.attn_graph_release(box[0])
    return good
end

-- A number that is brought by every run and never compiled in. p.value changes it; p.name is fixed.
function M.param(name, value)
    if type(name) ~= 'string' or not M.is_name(name) then
        refuse(("a parameter's name is an identifier and no word of the language, not %s")
            :format(describe(name)), 'INVALID', 'name')
    elseif type(value) ~= 'number' then
        refuse(('parameter %s: the value is %s, a number is wanted'):format(name, describe(value)),
            'INVALID', 'value')
    end
    if symbol.current() then
        return symbol.wrap(symbol.param_node(name, value))
    end
    local p = symbol.param_t(value)
    ffi.copy(p.label, name)
    return p
end

-- s b h q k i nq nk nh hk batch
function M.leaf(name)
    local T = symbol.current()
    return symbol.node_t(symbol.check(C.attn_graph_leaf(T.graph, name)), T.generation)
end

local fields = {i = true, nq = true, nk = true, nh = true, hk = true, batch = true}

-- The sixth argument.
M.x = setmetatable({}, {
    __index = function(_, key)
        if not fields[key] then
            refuse(('x.%s: x has i nq nk nh hk batch'):format(tostring(key)))
        end
        return M.leaf(key)
    end,
    __newindex = function(_, key)
        refuse(('x.%s = ...: the arguments of a variant are fixed'):format(tostring(key)))
    end,
})

return M
