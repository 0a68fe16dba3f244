-- picture_test.lua: attn.picture in characters and as files, read back byte by byte.

local here = arg[0]:match '^(.*/)' or './'
package.path = here .. '?.lua;' .. here .. '../../lua/?.lua;' .. package.path
local test = require 'tap'
local attn = require 'attn'
local image = require 'attn.image'
local sample = require('attn.picture').sample

local folder = os.getenv 'TEST_TMPDIR' or os.getenv 'TMPDIR' or '/tmp'
local function temporary(ending)
    return ('%s/attn-picture-%d%s'):format(folder, os.time(), ending)
end

local function read(path)
    local file = assert(io.open(path, 'rb'))
    local bytes = file:read '*a'
    file:close()
    os.remove(path)
    return bytes
end

test('characters', function(t)
    t.equal(attn.picture(attn.causal, {nq = 3, nk = 4}), '##..\n###.\n####\n')
    t.equal(attn.picture(attn.causal, {nq = 3, nk = 4, top_left = true}), '#...\n##..\n###.\n')
    t.equal(attn.picture(attn.window(1, 0), {nq = 4}), '#...\n##..\n.##.\n..##\n')
    t.equal(attn.picture({attn.causal, attn.dilated(2)}, {nk = 3}), '#..\n.#.\n#.#\n')
    t.equal(#attn.picture(attn.causal), 32 * 33)
end)
test('a part, a head, a batch entry', function(t)
    local function f(_, b, h, q, k) return q - k == b + 2 * h end
    t.equal(attn.picture(f, {nq = 4, b = 1, h = 0, nh = 2, batch = 2}), '....\n#...\n.#..\n..#.\n')
    t.equal(attn.picture(f, {nq = 4, b = 0, h = 1, nh = 2, batch = 2}), '....\n....\n#...\n.#..\n')
    t.equal(attn.picture(f, {nq = 4, b = 1}), '....\n#...\n.#..\n..#.\n')
    t.equal(attn.picture(f, {nq = 4, h = 1}), '....\n....\n#...\n.#..\n')
    t.fails(function() attn.picture(f, {nq = 4, h = 1, nh = 1}) end, 'window.h is 1; 0 to 0')
    local part = {nq = 8, i = 3, k = 2, rows = 2, columns = 4}
    t.equal(attn.picture(attn.causal, part), '##..\n###.\n')
end)
test('what the variant reads', function(t)
    local seen = attn.tensor {true, false, true}
    local function f(_, _, _, _, k) return seen[k] == true end
    t.equal(attn.picture(f, {nq = 1, nk = 3}), '#.#\n')
    local n = attn.param('n', 2)
    t.equal(attn.picture(function(_, _, _, _, k) return k < n end, {nq = 1, nk = 3}), '##.\n')
end)
test('scores', function(t)
    local scores = sample({attn.causal, 's - 2 * k'}, {nq = 2}, attn.tensor {{1, 2}, {3, 4}})
    t.same(scores:totable(), {{1, -math.huge}, {3, 2}})
end)

-- The grid of colours a picture of it shows: p[r][c], from the scores.
local mix = {attn.causal, 's - (q - k)'}
local GREY, LOW, HIGH = '#f2f2f2', '#2b2d7c', '#fbd24b'

test('SVG', function(t)
    local path = temporary '.svg'
    attn.picture(mix, {nq = 2, nk = 2, file = path})
    local text = read(path)
    t.ok(text:find '^<svg xmlns="http://www.w3.org/2000/svg" width="512" height="512"')
    t.ok(text:find '</svg>\n$')
    local squares = {}
    local rectangle = '<rect x="(%d+)" y="(%d+)" width="(%d+)" height="256" fill="(.-)"/>'
    for x, y, width, fill in text:gmatch(rectangle) do
        squares[#squares + 1] = table.concat({x, y, width, fill}, ' ')
    end
    t.same(squares, {'0 0 256 ' .. HIGH, '256 0 256 ' .. GREY, '0 256 256 ' .. LOW,
        '256 256 256 ' .. HIGH})
end)

local function number(bytes, at)
    local a, b, c, d = bytes:byte(at, at + 3)
    return ((a * 256 + b) * 256 + c) * 256 + d
end

-- Chunks by name, with their checksums checked.
local function chunks_of(t, png)
    t.equal(png:sub(1, 8), '\137PNG\r\n\26\n')
    local chunks, at = {}, 9
    while at <= #png do
        local n, name = number(png, at), png:sub(at + 4, at + 7)
        chunks[name] = png:sub(at + 8, at + 7 + n)
        t.equal(number(png, at + 8 + n), image.crc32(name .. chunks[name]) % 2 ^ 32, name)
        at = at + 12 + n
    end
    t.equal(at, #png + 1)
    return chunks
end

local function inflate_stored(t, zlib)
    local parts, at, last = {}, 3, 0
    t.equal((zlib:byte(1) * 256 + zlib:byte(2)) % 31, 0)
    while last == 0 do
        local length, inverse
        last = zlib:byte(at)
        length = zlib:byte(at + 1) + 256 * zlib:byte(at + 2)
        inverse = zlib:byte(at + 3) + 256 * zlib:byte(at + 4)
        t.equal(length + inverse, 65535)
        parts[#parts + 1] = zlib:sub(at + 5, at + 4 + length)
        at = at + 5 + length
    end
    local bytes = table.concat(parts)
    t.equal(number(zlib, at), image.adler32(bytes))
    t.equal(at + 3, #zlib)
    return bytes
end

test('PNG', function(t)
    local path = temporary '.png'
    attn.picture(mix, {nq = 4, nk = 2, i = 2, file = path})
    local tall = chunks_of(t, read(path))
    t.equal(tall.IHDR, '\0\0\2\0\0\0\2\0\8\2\0\0\0')
    attn.picture(attn.causal, {nq = 4, nk = 2, file = path})
    tall = chunks_of(t, read(path))
    t.equal(tall.IHDR, '\0\0\1\0\0\0\2\0\8\2\0\0\0')
    t.equal(#inflate_stored(t, tall.IDAT), 512 * (1 + 3 * 256))
    attn.picture(mix, {nq = 2, nk = 2, file = path})
    local chunks = chunks_of(t, read(path))
    t.equal(chunks.IEND, '')
    local pixels = inflate_stored(t, chunks.IDAT)
    local line = 1 + 3 * 512
    t.equal(#pixels, 512 * line)
    local function pixel(x, y)
        t.equal(pixels:byte(y * line + 1), 0, 'the filter')
        return ('#%02x%02x%02x'):format(pixels:byte(y * line + 2 + 3 * x, y * line + 4 + 3 * x))
    end
    for _, x in ipairs {0, 255} do
        for _, y in ipairs {0, 255} do
            t.equal(pixel(x, y), HIGH)
            t.equal(pixel(x + 256, y), GREY)
            t.equal(pixel(x, y + 256), LOW)
            t.equal(pixel(x + 256, y + 256), HIGH)
        end
    end
end)
test('checksums have their published values', function(t)
    t.equal(image.crc32 '123456789' % 2 ^ 32, 0xcbf43926)
    t.equal(image.adler32 'Wikipedia', 0x11e60398)
end)
test('errors', function(t)
    local function is(code, arg_, text, opt, variant)
        local e = t.fails(function() attn.picture(variant or attn.causal, opt) end, text)
        t.equal(e.code, code)
        t.equal(e.arg, arg_)
        t.ok(e.where:find 'picture_test')
    end
    is('INVALID', 'file', "a name that ends with .svg or .png", {file = 'x.jpg'})
    is('INVALID', 'file', "a name that ends with .svg or .png", {file = 3})
    is('IO', 'file', 'cannot be written: /nowhere', {file = '/nowhere/at/all/x.svg'})
    is('INVALID', 'top_left', 'top_left is a number, a boolean is wanted', {top_left = 1})
    is('INVALID', 'file', 'file has a NUL at byte 2', {file = 'x\0.svg'})
    is('INVALID', 'nq', 'a whole number is wanted', {nq = -1})
    is('INVALID', 'nq', 'a whole number is wanted', {nq = 1.5})
    is('INVALID', 'rows', 'at most 4096', {nq = 5000})
    is('INVALID', 'n', "attn.picture has no 'n'", {n = 3})
    is('INVALID', 'opt', 'opt is a number', 3)
    is('CAPTURE', 'captures.slopes', 'slopes', {}, 's + slopes[h]')
    is('VARIANT', 'variant', 'a variant is a function', {}, 7)
end)

test.done()
