-- image.lua: a grid of colours as a PNG or SVG file, in Lua alone.
--
-- Who calls it: picture.lua. A grid is {rows, columns, [r][c] = '#rrggbb'}, r and c from 1; each
-- cell becomes a square of `scale` pixels. The PNG's deflate stream has stored blocks only:
--
--     signature  IHDR  IDAT(zlib header, {last, length, ~length, bytes}..., adler32)  IEND
--     chunk = length, name, body, crc32(name body)

local bit = require 'bit'
local base = require 'attn.ffi'
local words = require 'attn.words'
local band, bxor, rshift, bnot = bit.band, bit.bxor, bit.rshift, bit.bnot
local char, concat, min = string.char, table.concat, math.min

local M = {}

-- -- PNG ----------------------------------------------------------------------------------------

local crc_table = {}
for n = 0, 255 do
    local c = n
    for _ = 1, 8 do
        c = bxor(rshift(c, 1), band(c, 1) ~= 0 and 0xedb88320 or 0)
    end
    crc_table[n] = c
end

-- The checksum of PNG chunks, as a signed 32-bit number.
function M.crc32(text)
    local c = -1
    for i = 1, #text do
        c = bxor(crc_table[band(bxor(c, text:byte(i)), 255)], rshift(c, 8))
    end
    return bnot(c)
end

-- The checksum of zlib streams, as a number from 0 to 2^32 - 1.
function M.adler32(text)
    local a, b = 1, 0
    for i = 1, #text do
        a = (a + text:byte(i)) % 65521
        b = (b + a) % 65521
    end
    return b * 65536 + a
end

-- 32 bits, the highest byte first.
local function big(x)
    x = x % 2 ^ 32
    return char(x / 2 ^ 24, x / 2 ^ 16 % 256, x / 2 ^ 8 % 256, x % 256)
end

-- 16 bits, the lower byte first.
local function little(x)
    return char(x % 256, (x - x % 256) / 256)
end

local function chunk(name, body)
    return big(#body) .. name .. body .. big(M.crc32(name .. body))
end

local function zlib(bytes)
    local parts = {'\120\1'}
    for at = 1, #bytes, 65535 do
        local n = min(65535, #bytes - at + 1)
        parts[#parts + 1] = char(at + n > #bytes and 1 or 0) .. little(n) .. little(65535 - n)
        parts[#parts + 1] = bytes:sub(at, at + n - 1)
    end
    parts[#parts + 1] = big(M.adler32(bytes))
    return concat(parts)
end

function M.png(grid, scale)
    local lines = {}
    for r = 1, grid.rows do
        local cells = {'\0'} -- no filter
        for c = 1, grid.columns do
            local rgb = grid[r][c]:gsub('^#', ''):gsub('..', function(hex)
                return char(tonumber(hex, 16))
            end)
            cells[c + 1] = rgb:rep(scale)
        end
        lines[r] = concat(cells):rep(scale)
    end
    local header = big(grid.columns * scale) .. big(grid.rows * scale) .. '\8\2\0\0\0'
    return '\137PNG\r\n\26\n' .. chunk('IHDR', header) .. chunk('IDAT', zlib(concat(lines)))
        .. chunk('IEND', '')
end

-- -- SVG ----------------------------------------------------------------------------------------

-- Cells of one colour side by side are one rectangle.
function M.svg(grid, scale)
    local width, height = grid.columns * scale, grid.rows * scale
    local parts = {('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" '
        .. 'shape-rendering="crispEdges">'):format(width, height)}
    for r = 1, grid.rows do
        local c = 1
        while c <= grid.columns do
            local first, colour = c, grid[r][c]
            repeat
                c = c + 1
            until grid[r][c] ~= colour
            parts[#parts + 1] = ('<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>'):format(
                (first - 1) * scale, (r - 1) * scale, (c - first) * scale, scale, colour)
        end
    end
    parts[#parts + 1] = '</svg>\n'
    return concat(parts, '\n')
end

-- Writes the grid to a file whose name ends with .png or .svg.
function M.write(path, grid)
    local kind = type(path) == 'string' and path:match '%.(%a+)$'
    if kind ~= 'png' and kind ~= 'svg' then
        base.fail('INVALID', 'file', ("file is %s: a name that ends with .svg or .png is wanted")
            :format(tostring(path)))
    end
    words.check_text('INVALID', 'file', path)
    local largest = math.max(grid.rows, grid.columns, 1)
    local bytes = M[kind](grid, math.max(1, math.floor(512 / largest)))
    local file, why = io.open(path, 'wb')
    if not file then
        base.fail('IO', 'file', ('file cannot be written: %s'):format(why))
    end
    local written = file:write(bytes)
    if not file:close() or not written then
        base.fail('IO', 'file', ('%s: the disk is full or was taken away'):format(path))
    end
end

return M
