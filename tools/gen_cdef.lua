-- gen_cdef.lua: writes lua/attn/cdef.lua, the part of lib/attn.h that LuaJIT's ffi.cdef reads.
--
--     luajit tools/gen_cdef.lua            writes lua/attn/cdef.lua
--     luajit tools/gen_cdef.lua --check    says whether the committed file is what would be written
--
-- Run from the repository's root; $CC names the preprocessor (default cc). What `cc -E` prints is
-- cut to the lines that stand in attn.h itself (LuaJIT knows size_t and int32_t by nature), freed
-- of attributes and set anew, one declaration a line, so that every compiler gives the same bytes.

local HEADER, OUTPUT = 'lib/attn.h', 'lua/attn/cdef.lua'

local function read(path)
    local file = assert(io.open(path, 'rb'))
    local text = file:read '*a'
    file:close()
    return text
end

-- The preprocessed lines that belong to the header, by the line markers of `cc -E`.
local function own_lines()
    local pipe = assert(io.popen((os.getenv 'CC' or 'cc') .. ' -E -xc ' .. HEADER))
    local own, lines = false, {}
    for line in pipe:lines() do
        local file = line:match '^#%s*%d+%s+"(.-)"' or line:match '^#line%s+%d+%s+"(.-)"'
        if file then
            own = file == HEADER
        elseif own and not line:find '^#' then
            lines[#lines + 1] = line
        end
    end
    pipe:close()
    assert(#lines > 0, 'the preprocessor printed nothing of ' .. HEADER)
    return table.concat(lines, ' ')
end

local function tidy(text)
    text = text:gsub('__attribute__%s*%b()', ' '):gsub('%s+', ' ')
    text = text:gsub('%s*([%[%]%(%),;{}])%s*', '%1'):gsub('%s*=%s*', ' = ')
    text = text:gsub('%*%s+', '*'):gsub('([%w_])%(', '%1('):gsub(',', ', ')
    return text
end

-- One declaration a line; members of structs and enums one a line below it, indented.
local function set(text)
    local out, depth, line = {}, 0, ''
    local function flush()
        local indent = ('    '):rep(depth)
        while #indent + #line > 100 do
            local head = line:sub(1, 100 - #indent):match '^(.*,) '
            out[#out + 1] = indent .. head
            line = '    ' .. line:sub(#head + 2)
        end
        if line ~= '' then
            out[#out + 1] = indent .. line
            line = ''
        end
    end
    for token in tidy(text):gmatch '[^{};,]*[{};,]' do
        local word, mark = token:match '^%s*(.-)%s*([{};,])$'
        if mark == '{' then
            line = line .. word .. ' {'
            flush()
            depth = depth + 1
        elseif mark == '}' then
            line = line .. word
            flush()
            depth = depth - 1
            line = '} '
        elseif mark == ';' then
            line = line .. word .. ';'
            flush()
        else
            line = line .. word .. ','
            local enumerator = depth > 0 and out[#out]:find '^%s*[%w_]+ = .*,$'
            local first = depth > 0 and out[#out]:find 'enum [%w_]+ {$'
            if enumerator or first then
                flush()
            else
                line = line .. ' '
            end
        end
    end
    return table.concat(out, '\n')
end

local function version(header)
    local function part(name)
        return assert(header:match('#define ATTN_VERSION_' .. name .. '%s+(%d+)'))
    end
    return ("%s.%s.%s"):format(part 'MAJOR', part 'MINOR', part 'PATCH')
end

local function structs(cdef)
    local names = {}
    for name in cdef:gmatch 'struct (attn_[%w_]+) {' do
        names[#names + 1] = ("    '%s',\n"):format(name)
    end
    return table.concat(names)
end

local function generate()
    local cdef = set(own_lines())
    return table.concat {
        '-- Generated from lib/attn.h by tools/gen_cdef.lua; do not edit.\n',
        ("local M = {version = '%s'}\n\n"):format(version(read(HEADER))),
        '-- Structs whose size is compared with the library\'s.\n',
        'M.structs = {\n', structs(cdef), '}\n\n',
        'M.text = [[\n', cdef, '\n]]\n\n',
        'return M\n',
    }
end

local text = generate()
if arg[1] == '--check' then
    if read(OUTPUT) ~= text then
        io.stderr:write(OUTPUT, ' differs from ', HEADER, ': run luajit tools/gen_cdef.lua\n')
        os.exit(1)
    end
else
    local file = assert(io.open(OUTPUT, 'wb'))
    file:write(text)
    file:close()
end
