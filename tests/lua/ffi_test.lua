-- ffi_test.lua: finding and checking the library, error objects and whom they blame.

local here = arg[0]:match '^(.*/)' or './'
package.path = here .. '?.lua;' .. here .. '../../lua/?.lua;' .. package.path
local test = require 'tap'
local ffi = require 'ffi'
local base = require 'attn.ffi'
local cdef = require 'attn.cdef'

-- What a script prints, errors included, in a process of its own.
local function run(script, environment, program)
    local name = os.tmpname()
    local file = assert(io.open(name, 'w'))
    file:write(('package.path = %q\n'):format(package.path), script)
    file:close()
    local command = "%s '%s' '%s' 2>&1"
    local pipe = io.popen(command:format(environment or '', program or test.interpreter, name))
    local text = pipe:read '*a'
    pipe:close()
    os.remove(name)
    return text
end

local function has(t, text, part)
    t.ok(text:find(part, 1, true), ('%q in %q'):format(part, text))
end

test('the library is of the version and the sizes of cdef.lua', function(t)
    t.equal(base.version, cdef.version)
    t.ok(#cdef.structs >= 12)
    for _, name in ipairs(cdef.structs) do
        t.equal(tonumber(base.C.attn_sizeof(name)), ffi.sizeof(name), name)
    end
    t.equal(tonumber(base.C.attn_sizeof 'attn_nothing'), 0)
end)

test('another version is refused in a sentence', function(t)
    local script = "require 'attn.cdef'.version = '%s' print(pcall(require, 'attn.ffi'))"
    has(t, run(script:format '0.9.0'), 'these Lua files are for 0.9.0')
    has(t, run(script:format '1.1.0'), 'these Lua files are for 1.1.0')
    has(t, run(script:format(cdef.version:gsub('%d+$', '77'))), 'true')
end)

test('a struct of another size is refused in a sentence', function(t)
    for _, member in ipairs {'double dropout[2];', ''} do -- more bytes, and fewer
        local text = run(([[
            local cdef = require 'attn.cdef'
            cdef.text = cdef.text:gsub('double dropout;', '%s')
            print(pcall(require, 'attn.ffi'))
        ]]):format(member))
        has(t, text, 'has another attn_call (')
        has(t, text, 'library and Lua files do not fit')
    end
end)

test('ATTN_LIBRARY is believed, and what it names must load', function(t)
    has(t, run("print(pcall(require, 'attn.ffi'))", "ATTN_LIBRARY=/nowhere/libattn.so"),
        '/nowhere/libattn.so does not load')
    has(t, run("print(pcall(require, 'attn.ffi'))", "ATTN_LIBRARY=libm.so.6"),
        'attn: libm.so.6 is no libattn')
    local path = os.getenv 'ATTN_LIBRARY'
    if path then
        t.equal(base.path, path)
    end
end)

test('no library at all is a sentence that says what to do', function(t)
    local text = run([[
        package.path = package.path:gsub('[^;]*%.%./%.%./lua/%?%.lua;', '')
        package.loaded['attn.cdef'] = {version = '0', structs = {}, text = ''}
        package.cpath = ''
        local f = assert(loadfile(']] .. here .. [[../../lua/attn/ffi.lua', 't'))
        local load = require 'ffi'.load
        require 'ffi'.load = function(name) error(name .. ' is not here') end
        io.open = function() return nil end
        print(pcall(f))
    ]], 'ATTN_LIBRARY=')
    has(t, text, 'no libattn.so found: build it (see README.md) or name it in ATTN_LIBRARY')
end)

test('plain Lua gets one sentence', function(t)
    local pipe = io.popen 'command -v lua5.1'
    local lua = pipe:read '*l'
    pipe:close()
    local text = lua and run("print(pcall(require, 'attn.ffi'))", '', lua)
        or run "package.preload.ffi = function() error 'none' end print(pcall(require, 'attn.ffi'))"
    has(t, text, 'attn needs LuaJIT, and this is Lua 5.1: run the script with luajit')
end)

test('an uncaught error prints as a sentence with the caller\'s line', function(t)
    local text = run "local T = require 'attn.tensor'\nlocal x = T.zeros {2}\nprint(x[2])\n"
    t.ok(text:find(':4: index 2 of axis 0: 0 to 1 is allowed\n', 1, true), text)
end)

test('errors are objects', function(t)
    local why = t.fails(function() base.check(base.C.attn_device_open('toaster', nil, nil)) end,
        'device is NULL; a place for the handle is wanted')
    t.ok(base.is_error(why))
    t.equal(getmetatable(why), base.Error)
    for _, member in ipairs {'code', 'message', 'arg', 'where'} do
        t.equal(type(why[member]), 'string', member)
    end
    t.equal(tostring(why), why.where .. ' ' .. why.message)
    t.ok(not base.is_error {} and not base.is_error 'text')
    t.equal(base.check(0), 0)
    t.equal(base.check(17), 17)
end)

test('blame goes to the line that called attn, or to a level', function(t)
    local function line() return debug.getinfo(2, 'l').currentline end
    local function outer(level) base.fail('INVALID', 'x', 'no', level) end
    local at
    local function middle(level)
        at = line() outer(level)
        return at
    end
    t.ok(tostring(t.fails(function() middle(2) end, 'no')):find(':' .. at .. ': no', 1, true))
    local inner = debug.getinfo(outer, 'S').linedefined
    t.ok(tostring(t.fails(function() middle(1) end, 'no')):find(':' .. inner .. ': no', 1, true))
    t.ok(tostring(t.fails(function() middle() end, 'no')):find(':' .. inner .. ': no', 1, true))
    local function check(level)
        base.check(base.C.attn_graph_new(nil), level)
        return level
    end
    inner = debug.getinfo(check, 'S').linedefined + 1
    local why = t.fails(function() check(1) end, 'graph is NULL')
    t.ok(tostring(why):find(':' .. inner .. ':', 1, true))
end)

test.done()
