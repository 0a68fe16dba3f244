-- gen_docs.lua: writes docs/ops.md and docs/errors.md from the tables in lib/expr.h and lib/attn.h.
--
--     luajit tools/gen_docs.lua            writes both files
--     luajit tools/gen_docs.lua --check    says whether the committed files are up to date
--
-- Run from the repository's root. A table is a macro of rows X(...); a row's fields are words,
-- numbers and strings.

local function read(path)
    local file = io.open(path, 'rb')
    local text = file and file:read '*a'
    if file then file:close() end
    return text
end

-- The fields of one row: (add, "+", 2, NN_N, 0.5, "sum") -> {'add', '+', '2', 'NN_N', '0.5', 'sum'}
local function fields(row)
    local list, at = {}, 1
    while at <= #row do
        local field, after = row:match('^%s*"([^"]*)"%s*,?()', at)
        if not field then field, after = row:match('^%s*([^,]*),?()', at) end
        list[#list + 1], at = field, after
    end
    return list
end

-- All rows of the macro `name` in the text of a header.
local function rows(text, name)
    local body = text:match('#define ' .. name .. '%(X%)%s*\\\n(.-[^\\])\n')
    assert(body, 'no table ' .. name)
    local list = {}
    for row in body:gmatch 'X(%b())' do list[#list + 1] = fields(row:sub(2, -2)) end
    assert(#list > 0, 'no rows in ' .. name)
    return list
end

local RULES = {
    N_N = 'N → N', F_F = 'f32 → f32', I_I = 'i32 → i32', B_B = 'bool → bool',
    NN_N = 'N, N → N', FF_F = 'f32, f32 → f32', II_I = 'i32, i32 → i32',
    BB_B = 'bool, bool → bool', NN_B = 'N, N → bool', EE_B = 'T, T → bool',
    BTT_T = 'bool, T, T → T', I_F = 'i32 → f32',
    F_I = 'f32 → i32',
}

-- How an operation is written, with x, y (and a condition c).
local function written(text, arguments)
    if text == '?:' then return 'c ? x : y' end
    local names = arguments == 1 and 'x' or 'x, y'
    if text:find '^%a' then return text .. '(' .. names .. ')' end
    return arguments == 1 and text .. 'x' or 'x ' .. text .. ' y'
end

local function ops(header)
    local out = {[[
# Operations

Written by tools/gen_docs.lua from the table ATTN_OPS in lib/expr.h. [variants.md](variants.md) has
the grammar of the language.

Values are f32, i32 and bool. N stands for one type of f32 and i32, T for any one type. Where an i32
meets an f32, or stands where f32 is wanted, it is promoted (rounded to nearest even). `x > y` and
`x >= y` are `y < x` and `y <= x`. An i32 operation never overflows: a plan whose ranges cannot
exclude it is refused. The error is the largest distance from the exact value on every device, in
units in the last place of f32; 0.5 is correct rounding. No error stands where a result is exact.

| name | written | types | error | value |
|---|---|---|---|---|
]]}
    for _, row in ipairs(rows(header, 'ATTN_OPS')) do
        local name, text, n, rule, ulp, sentence = unpack(row)
        local form = written(text, tonumber(n)):gsub('|', '\\|')
        out[#out + 1] = ('| %s | `%s` | %s | %s | %s |\n'):format(name, form,
            assert(RULES[rule], 'no type rule ' .. rule), ulp == '0' and '' or ulp, sentence)
    end
    out[#out + 1] = [[

A load `table[x][y]` takes one i32 for each index (an f32 is passed through `int`); outside the
tensor it is 0 (false), and no memory is touched. Beside these there are constants and parameters.

# Leaves

| name | type | value |
|---|---|---|
]]
    for _, row in ipairs(rows(header, 'ATTN_LEAVES')) do
        out[#out + 1] = ('| `%s` | %s | %s |\n'):format(row[1], row[2]:lower(), row[3])
    end
    return table.concat(out)
end

local FAULTS = [[

## When a device fails

Tried by `tests/fault_test.cc` on a look-alike of a driver, which knows nothing of another
process's faults; no memory and the illegal access by `tests/device_check.py` on an H200, too.

- **No memory.** The call that wanted it (`attn_buffer_new`, `attn_buffer_new_on`, `attn_plan_new`
  as it loads code, `attn_run` as it launches) returns ATTN_MEMORY. Nothing is changed, and every
  later call does as before.
- **A kernel made an illegal access.** `attn_run` only launches it and returns 0. Then every call
  that reaches the device returns ATTN_DRIVER with the driver's name of the error, until the process
  ends: `attn_run`, `attn_plan_new` where code must be loaded, `attn_tensor_copy`, `attn_random`,
  `attn_merge`, `attn_dropout`, `attn_buffer_new`, `attn_buffer_use`, `attn_stream_new`,
  `attn_stream_sync`.
- **The device was lost.** The same calls return ATTN_DRIVER, `attn_device_open` ATTN_DEVICE.

`attn_plan_query` and everything that ends in `_release` work on, and so do other devices: `cpu` in
this process, the same chip in a new one if its driver has it again. An emulated chip has no such
state: the run that fails returns ATTN_DRIVER, later ones do as before.
]]

local function errors(header)
    local out = {[[
# Errors

Written by tools/gen_docs.lua from the table ATTN_STATUSES in lib/attn.h.

A function that can fail returns a status: 0, or one of the negative numbers below.
`attn_error()` is the thread's last failure as a sentence (the argument, what was given, what is
allowed), `attn_error_arg()` the argument's name. In Lua a failure is an error object
`{code, message, arg}` whose code is the name without `ATTN_`.

| status | number | meaning |
|---|---|---|
]]}
    for _, row in ipairs(rows(header, 'ATTN_STATUSES')) do
        out[#out + 1] = ('| ATTN_%s | %s | %s |\n'):format(row[1], row[2], row[3])
    end
    out[#out + 1] = FAULTS
    return table.concat(out)
end

local wanted = {
    ['docs/ops.md'] = ops(assert(read 'lib/expr.h')),
    ['docs/errors.md'] = errors(assert(read 'lib/attn.h')),
}
local stale = false
for path, text in pairs(wanted) do
    if arg[1] == '--check' then
        if read(path) ~= text then
            stale = true
            io.stderr:write(path, ' is not what tools/gen_docs.lua writes; run it\n')
        end
    else
        local file = assert(io.open(path, 'wb'))
        assert(file:write(text))
        assert(file:close())
    end
end
os.exit(stale and 1 or 0)
