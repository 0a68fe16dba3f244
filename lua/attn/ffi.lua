-- ffi.lua: finds and loads the library, and turns its statuses into errors.
--
-- Who calls it: every other file of lua/attn. The library is looked for in this order:
--
--     $ATTN_LIBRARY                       a path; nothing else is tried when it is set
--     <root>/build/libattn.so             where these files stand in <root>/lua/attn: build tree
--     attn.libattn on package.cpath       LuaRocks
--     libattn.so.0                        the system's loader: Debian, a prefix with ldconfig
--
-- Its version and the size of every public struct must be those that cdef.lua was made from.

local jit_ok, ffi = pcall(require, 'ffi')
if not jit_ok then
    error(('attn needs LuaJIT, and this is %s: run the script with luajit'):format(_VERSION), 0)
end
local cdef = require 'attn.cdef'

local M = {}

-- -- Errors -------------------------------------------------------------------------------------

-- code: the status by name ("SHAPE"); message: one sentence; arg: the argument it is about, or "";
-- where: "file:line:" of the caller, or "".
local Error = {}
Error.__index = Error
function Error:__tostring()
    return (self.where == '' and '' or self.where .. ' ') .. self.message
end
M.Error = Error

local here = debug.getinfo(1, 'S').source:match '^(.*[/\\])ffi%.lua$' or '@attn/'
local front = here:gsub('[/\\]$', '') .. '.lua'

local function place(info)
    return ('%s:%d:'):format(info.short_src, info.currentline)
end

-- The place of the caller's stack level `level`; without one, of the innermost that is not attn's.
local function blame(level)
    if level then
        local info = debug.getinfo(level + 2, 'Sl')
        return info and info.currentline > 0 and place(info) or ''
    end
    level = 3
    while true do
        local info = debug.getinfo(level, 'Sl')
        if not info then
            return ''
        end
        local own = info.source:sub(1, #here) == here or info.source == front
        if info.currentline > 0 and not own then
            return place(info)
        end
        level = level + 1
    end
end

-- Raises the error object. level: as error's (1: who calls fail); nil: the line that called attn.
function M.fail(code, arg, message, level)
    error(setmetatable({
        code = code,
        arg = arg or '',
        message = message,
        where = blame(level),
    }, Error))
end

function M.is_error(x)
    return getmetatable(x) == Error
end

-- -- The library --------------------------------------------------------------------------------

local function readable(path)
    local file = io.open(path, 'rb')
    if file then
        file:close()
    end
    return file and path
end

local function load_path(path)
    local ok, library = pcall(ffi.load, path)
    if not ok then
        error(('attn: %s does not load: %s'):format(path, library), 0)
    end
    return library, path
end

local function find()
    local given = os.getenv 'ATTN_LIBRARY'
    if given and given ~= '' then
        return load_path(given)
    end
    local root = here:match '^@(.*)lua[/\\]attn[/\\]$'
    local path = root and readable(root .. 'build/libattn.so')
        or package.searchpath('attn.libattn', package.cpath)
    if path then
        return load_path(path)
    end
    local ok, library = pcall(ffi.load, 'attn.so.0')
    if not ok then
        error('attn: no libattn.so found: build it (see README.md) or name it in ATTN_LIBRARY', 0)
    end
    return library, 'libattn.so.0'
end

-- The same interface has the same major number, and before 1.0 the same minor one.
local function interface(version)
    local major, minor = version:match '^(%d+)%.(%d+)%.'
    return major == '0' and '0.' .. tostring(minor) or major
end

local function check_library(C, path)
    local has, version = pcall(function() return ffi.string(C.attn_version()) end)
    if not has then
        error(('attn: %s is no libattn'):format(path), 0)
    end
    if interface(version) ~= interface(cdef.version) then
        error(('attn: %s is version %s, these Lua files are for %s'):format(path, version,
            cdef.version), 0)
    end
    for _, name in ipairs(cdef.structs) do
        local theirs, ours = tonumber(C.attn_sizeof(name)), ffi.sizeof(name)
        if theirs ~= ours then
            error(('attn: %s has another %s (%d bytes, not %d): library and Lua files do not fit')
                :format(path, name, theirs, ours), 0)
        end
    end
    return version
end

ffi.cdef(cdef.text)
M.C, M.path = find()
M.version = check_library(M.C, M.path)

-- Passes on a status (a count, a node) that is no failure; else raises the library's sentence.
function M.check(status, level)
    if status < 0 then
        local C = M.C
        M.fail(ffi.string(C.attn_status_name(status)), ffi.string(C.attn_error_arg()),
            ffi.string(C.attn_error()), level and level + 1)
    end
    return status
end

return M
