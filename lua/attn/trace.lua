-- trace.lua: turns an ordinary Lua function into an expression graph.
--
-- Who calls it: variants.lua, for attn.variant(f) and for plain functions in lists.
--
-- A comparison must answer true or false at once, so the function is run once per combination of
-- answers it can meet, each in a fresh coroutine. `plan` holds the answers of a path; after a path
-- its last true becomes false and what follows is found anew, as in counting:
--
--     plan        if k > q then return false end        leaves
--     {}          k > q ?  true                          k > q        -> false
--     {false}     k > q ?  false; h == 0 ? true          .. h == 0    -> s
--     {false, false}       ...    h == 0 ? false         .. otherwise -> s + 1
--
-- The leaves are joined by select along this tree. All paths are then run once more: a function
-- that gives something else is not pure, and is refused.

local ffi = require 'ffi'
local base = require 'attn.ffi'
local symbol = require 'attn.symbol'
local argument = require 'attn.argument'
require 'attn.load' -- tensors take symbols as indices
local guard = require 'attn.guard'
local C, fail = base.C, base.fail
local create, resume, status = coroutine.create, coroutine.resume, coroutine.status
local min = math.min
local refuse, blame, apply, lift, ops = symbol.refuse, symbol.blame, symbol.apply, symbol.lift,
    symbol.ops

local M = {}
local MAX_PATHS = 64

-- -- One path -----------------------------------------------------------------------------------

-- What to say beside an error of Lua itself, by a pattern of its message.
local hints = {
    {"^.*'for' %w+ ?%w* must be a number", "a loop's bounds cannot depend on a symbol"},
    {"bad argument #%d+ to '[%w?]+' %(number expected, got cdata%)",
        'a function takes no symbol here: call math.* by that name (or attn.exp, attn.floor ...), '
        .. 'not a copy in a table; %s formats a symbol'},
    {"%(table expected, got cdata%)", 'a symbol is a number, not a table'},
    {"in table for 'concat'", 'a symbol is a number, not a string'},
    {"cannot convert 'struct", 'a symbol was given to a function that takes plain numbers'},
    {"__i?pairs' metamethod", 'a symbol is a number, not a table'},
    {'assertion failed', 'both outcomes of a condition are run: return false to mask'},
    {'attempt to .* nil value', 'a table without the field, or indexed by a symbol, gives nil'},
    {'attempt to compare', 'a symbol is compared to numbers and symbols alone'},
    {'stack overflow', 'a recursion cannot depend on a symbol'},
}

-- Raises Lua's own error with its place, a hint and the path. What is no text stands in `cause`.
local function translate(T, e)
    if type(e) ~= 'string' then
        local what = type(e) == 'table' and type(e.message) == 'string' and e.message
            or ('the variant raises %s'):format(symbol.describe(e))
        blame(base.is_error(e) and e.where ~= '' and e.where or T.place, what, e)
    end
    local place, message = e:match '^(.-:%d+:) (.*)$'
    message = message or e
    for _, hint in ipairs(hints) do
        if message:find(hint[1]) then
            message = ('%s (%s)'):format(message, hint[2])
            break
        end
    end
    blame(place or T.place, message)
end

-- The node of the function's result.
local function leaf(T, n, value)
    local kind, what = type(value), nil
    if kind == 'nil' then
        what = 'nothing'
    elseif n > 1 then
        what = n .. ' values'
    elseif not (kind == 'number' or kind == 'boolean' or symbol.is(value)) then
        what = symbol.describe(value)
    end
    if what then
        local path = symbol.path()
        T.depth = 0
        blame(T.place, ('the variant returns %s%s: a number or a condition is wanted')
            :format(what, path == '' and '' or ' where ' .. path))
    end
    return lift(value)
end

local function finish(T, co, ok, ...)
    if T.err then
        error(T.err, 0)
    elseif not ok then
        translate(T, (...))
    elseif status(co) ~= 'dead' then
        blame(T.place, 'the variant yields out of its function')
    end
    return leaf(T, select('#', ...), (...))
end

-- Runs f along T.plan and returns the node of its result.
local function run(T, f)
    T.depth, T.known, T.steps = 0, {}, 0
    local co = create(f)
    local leaf_of = argument.leaf
    return finish(T, co, resume(co, leaf_of 's', leaf_of 'b', leaf_of 'h', leaf_of 'q', leaf_of 'k',
        argument.x))
end

-- -- All paths ----------------------------------------------------------------------------------

local function copy(plan)
    local to = {}
    for i, step in ipairs(plan) do
        to[i] = {id = step.id, value = step.value}
    end
    return to
end

local function next_plan(plan)
    while #plan > 0 and not plan[#plan].value do
        plan[#plan] = nil
    end
    if #plan > 0 then
        plan[#plan].value = false
    end
    return #plan > 0
end

local function explore(T, f)
    local leaves = {}
    repeat
        local id = run(T, f)
        if T.depth < #T.plan then
            blame(T.place, ('the function is not pure: decision %d, %s, did not come again')
                :format(T.depth + 1, symbol.text(T.plan[T.depth + 1].id)))
        end
        leaves[#leaves + 1] = {id = id, plan = copy(T.plan)}
        if #leaves > MAX_PATHS then
            T.depth = 0
            blame(T.place, ('more than %d paths: attn.where(attn.lt(a, b), x, y) chooses without '
                .. 'a path of its own, and parts of a list add paths instead of multiplying them')
                :format(MAX_PATHS))
        end
    until not next_plan(T.plan)
    return leaves
end

local function repeat_all(T, f, leaves)
    for _, first in ipairs(leaves) do
        T.plan = copy(first.plan)
        local id = run(T, f)
        if id ~= first.id then
            blame(T.place, ('the function is not pure: it returned %s, then %s')
                :format(symbol.text(first.id), symbol.text(id)))
        end
    end
end

-- Everything the function computed must have gone somewhere: what was only tested for truth has
-- not.
local function check_used(T, f, leaves)
    for id in pairs(T.made) do
        local node = symbol.node(id)
        local computed = node.constant == 0 and (node.n_args > 0 or node.type == C.ATTN_BOOL)
        if computed and not T.used[id] then
            T.watch = min(T.watch or id, id)
        end
    end
    if T.watch then
        repeat_all(T, f, leaves)
    end
end

-- -- Joining ------------------------------------------------------------------------------------

-- leaves[first..last] share the decisions before `depth`.
local function join(leaves, first, last, depth)
    if first == last then
        return leaves[first].id
    end
    local middle = first -- the last leaf where the decision is true
    while leaves[middle + 1].plan[depth].value do
        middle = middle + 1
    end
    local yes = join(leaves, first, middle, depth + 1)
    local no = join(leaves, middle + 1, last, depth + 1)
    return yes == no and yes or apply(ops.select, leaves[first].plan[depth].id, yes, no)
end

local generation = 0

local function new_trace(f)
    local box = ffi.new 'attn_graph *[1]'
    base.check(C.attn_graph_new(box))
    local source = debug.getinfo(f, 'S')
    generation = generation + 1
    return {
        graph = ffi.gc(box[0], C.attn_graph_release),
        generation = generation,
        place = ('%s:%d:'):format(source.short_src, source.linedefined),
        globals = getfenv(f),
        plan = {}, depth = 0, known = {}, steps = 0,
        made = {}, used = {},
        symbols = {}, params = {}, captures = {}, partials = {}, taken = {},
    }
end

-- Returns the C graph, the node of the variant's result, and what it captures: a list of {name,
-- value} where value is a tensor, a parameter, or a parameter's number.
function M.trace(f)
    if symbol.current() then
        refuse 'a variant is made inside a variant function: make it before and compose them'
    elseif debug.getinfo(f, 'S').what == 'C' then
        fail('VARIANT', 'variant', 'a variant is a Lua function, not one written in C')
    end
    local T = new_trace(f)
    local undo
    T.names, undo = guard.install(f)
    symbol.open(T)
    local ok, root = pcall(function()
        local leaves = explore(T, f)
        repeat_all(T, f, leaves)
        check_used(T, f, leaves)
        T.steps = 0
        return join(leaves, 1, #leaves, 1)
    end)
    symbol.open(nil)
    undo()
    if not ok then
        error(root, 0)
    end
    return T.graph, root, T.captures
end

return M
