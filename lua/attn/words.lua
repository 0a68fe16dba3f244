-- words.lua: words for errors: what the user gave and what he may have meant.
--
-- Who calls it: whoever judges an argument, a name or an option.

local base = require 'attn.ffi'
local fail = base.fail
local min, type = math.min, type

local M = {}

-- What the user calls a value.
function M.describe(x)
    if type(x) == 'string' then
        return ("the string '%s'"):format(x)
    elseif type(x) == 'cdata' then
        return ('the cdata %s'):format(tostring(x))
    end
    return type(x) == 'nil' and 'nil' or 'a ' .. type(x)
end

-- Refuses a text that C would cut; what: the argument, unless it is called so.
function M.check_text(code, arg, text, what)
    local at = text:find('\0', 1, true)
    if at then
        fail(code, arg, ('%s has a NUL at byte %d'):format(what or arg, at))
    end
end

-- How many letters to insert, remove or change to get from a to b.
local function distance(a, b)
    local row = {}
    for j = 0, #b do
        row[j] = j
    end
    for i = 1, #a do
        local diagonal = row[0]
        row[0] = i
        for j = 1, #b do
            local change = diagonal + (a:byte(i) == b:byte(j) and 0 or 1)
            diagonal = row[j]
            row[j] = min(row[j] + 1, row[j - 1] + 1, change)
        end
    end
    return row[#b]
end

local sets = setmetatable({}, {__mode = 'k'}) -- list of names -> set of them

local function set_of(known)
    local set = sets[known]
    if not set then
        set = {}
        for _, name in ipairs(known) do
            set[name] = true
        end
        sets[known] = set
    end
    return set
end

local NONE = {}

-- Refuses keys of t that `known` (a list of names, which stays as it is) lacks.
function M.check_names(what, t, known)
    local set = set_of(known)
    for key in pairs(t) do
        if not set[key] then
            local nearest, least = known[1], math.huge
            for _, name in ipairs(known) do
                local d = distance(tostring(key), name)
                if d < least then
                    nearest, least = name, d
                end
            end
            fail('INVALID', tostring(key), ("%s has no '%s': did you mean '%s'? There are %s")
                :format(what, tostring(key), nearest, table.concat(known, ' ')))
        end
    end
end

-- opt, an optional table of options with such names.
function M.check_options(opt, known)
    if opt == nil then
        return NONE
    elseif type(opt) ~= 'table' then
        fail('INVALID', 'opt', ('opt is %s: a table of options is wanted')
            :format(M.describe(opt)))
    end
    M.check_names('opt', opt, known)
    return opt
end

return M
