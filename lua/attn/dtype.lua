-- dtype.lua: element types, by name ("bf16") and by the number in attn_type.
--
-- Who calls it: tensor.lua and the files beside it.

local ffi = require 'ffi'
local base = require 'attn.ffi'
local C, fail = base.C, base.fail
local floor = math.floor

local M = {}

-- float: it has fractions; pointer: Lua reads it directly.
local types = {}
local ranges = {i32 = {-2 ^ 31, 2 ^ 31 - 1}, u8 = {0, 255}, bool = {0, 1}}
for name, pointer in pairs {
    f64 = 'double *', f32 = 'float *', f16 = false, bf16 = false, i32 = 'int32_t *',
    u8 = 'uint8_t *', bool = 'uint8_t *', e4m3fn = false, e4m3fnuz = false, e5m2 = false,
    e5m2fnuz = false,
} do
    local number = tonumber(C['ATTN_' .. name:upper()])
    local dtype = {
        name = name,
        code = number % 256,
        bits = floor(number / 256),
        bytes = floor(number / 2048),
        float = not ranges[name],
        range = ranges[name],
        pointer = pointer and ffi.typeof(pointer),
    }
    types[name], types[number] = dtype, dtype
end
M.types = types

-- Refuses a number that an integer type does not hold; `name` is what the user calls it.
function M.check_number(dtype, x, name, arg)
    local range = dtype.range
    if range and not (floor(x) == x and x >= range[1] and x <= range[2]) then
        fail('INVALID', arg, ('%s is %.14g: %s holds whole numbers from %.0f to %.0f'):format(name,
            x, dtype.name, range[1], range[2]))
    end
    return x
end

-- The type of that name.
function M.named(name)
    local dtype = type(name) == 'string' and types[name]
    if not dtype then
        fail('DTYPE', 'dtype', ('dtype is %s: it is one of f64 f32 f16 bf16 i32 u8 bool e4m3fn '
            .. 'e4m3fnuz e5m2 e5m2fnuz'):format(tostring(name)))
    end
    return dtype
end

return M
