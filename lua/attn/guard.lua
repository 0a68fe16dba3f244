-- guard.lua: prepares Lua for a trace and puts everything back.
--
-- Who calls it: trace.lua, install before the first path and the returned undo after the last one,
-- whatever happened in between. Three things change meanwhile:
--
--     math.exp(q)             fields of math, bit, os and tonumber take symbols
--     local exp = math.exp    upvalues that hold such a function, of f and of the Lua functions it
--                             reaches by upvalues, hold the replacement
--     local t = {1, 2}; t[q]  plain tables in upvalues, and in globals that such a function names,
--                             have an __index that refuses symbols; without it t[q] would be nil,
--                             and `t[q] or 0` silently wrong
--
-- On its way it learns what the user calls his tensors.

local util = require 'jit.util'
local tensor = require 'attn.tensor'
local symbol = require 'attn.symbol'
local overload = require 'attn.overload'
local getinfo, getupvalue, setupvalue = debug.getinfo, debug.getupvalue, debug.setupvalue
local getmetatable, setmetatable, pairs, type = getmetatable, setmetatable, pairs, type

local M = {}

local here = getinfo(1, 'S').source:match '^(.*[/\\])guard%.lua$' or '@attn/'

local guarded = {}
function guarded.__index(_, key)
    if symbol.is(key) then
        symbol.refuse(('a plain table is indexed by the symbol %s: wrap it with attn.tensor')
            :format(tostring(key)))
    end
end

local walk_function

-- Fields of a record are looked through as upvalues are; a table with a sequence is data, where
-- rows may be tables.
local function walk_table(walk, t)
    if walk.seen[t] or walk.modules[t] or getmetatable(t) ~= nil then
        return
    end
    walk.seen[t] = true
    if #t == 0 or type(t[1]) == 'table' then
        for key, value in pairs(t) do
            if type(value) == 'table' then
                walk_table(walk, value)
            elseif type(value) == 'cdata' and tensor.is(value) and type(key) == 'string' then
                walk.names[value.storage] = walk.names[value.storage] or key
            end
        end
    end
    setmetatable(t, guarded)
    walk.tables[#walk.tables + 1] = t
end

local function walk_upvalue(walk, f, i, name, value)
    local kind = type(value)
    if kind == 'function' then
        local by = overload.replace[value]
        if by then
            setupvalue(f, i, by)
            walk.upvalues[#walk.upvalues + 1] = {f, i, value}
        else
            walk_function(walk, value)
        end
    elseif kind == 'table' then
        walk_table(walk, value)
    elseif kind == 'cdata' and tensor.is(value) then
        walk.names[value.storage] = walk.names[value.storage] or name
    end
end

-- The globals that f and the functions written in it may name: every string of their code is tried.
local function walk_globals(walk, env, code)
    local i = 1
    while true do
        local constant = util.funck(code, -i)
        local kind = type(constant)
        if kind == 'nil' then
            return
        elseif kind == 'proto' then
            walk_globals(walk, env, constant)
        elseif kind == 'string' then
            local value = rawget(env, constant)
            if type(value) == 'table' then
                walk_table(walk, value)
            elseif type(value) == 'function' then
                walk_function(walk, value)
            end
        end
        i = i + 1
    end
end

function walk_function(walk, f)
    local source = getinfo(f, 'S')
    if walk.seen[f] or source.what == 'C' or source.source:sub(1, #here) == here then
        return
    end
    walk.seen[f] = true
    walk_globals(walk, getfenv(f), f)
    local i = 1
    while true do
        local name, value = getupvalue(f, i)
        if not name then
            return
        end
        walk_upvalue(walk, f, i, name, value)
        i = i + 1
    end
end

-- Returns the names of tensors by storage id, and the function that undoes everything.
function M.install(f)
    local walk = {seen = {}, modules = {}, names = {}, upvalues = {}, tables = {}}
    local saved = {}
    local function undo()
        for i = #saved, 1, -1 do
            local save = saved[i]
            save.of[save.name] = save.value
        end
        for _, upvalue in pairs(walk.upvalues) do
            setupvalue(upvalue[1], upvalue[2], upvalue[3])
        end
        for _, t in pairs(walk.tables) do
            setmetatable(t, nil)
        end
    end
    for _, module in pairs(package.loaded) do
        walk.modules[module] = true
    end
    walk_function(walk, f)
    for _, patch in pairs(overload.patches) do
        for name, by in pairs(patch.by) do
            saved[#saved + 1] = {of = patch.of, name = name, value = patch.of[name]}
            patch.of[name] = by
        end
    end
    return walk.names, undo
end

return M
