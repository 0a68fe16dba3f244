-- picture.lua: a variant to look at: which keys each query sees, and with what score.
--
-- Who calls it: attn.lua; tests take M.sample, the scores themselves.

local ffi = require 'ffi'
local base = require 'attn.ffi'
local words = require 'attn.words'
local tensor = require 'attn.tensor'
local variants = require 'attn.variants'
local options = require 'attn.options'
local image = require 'attn.image'
local C, check, fail = base.C, base.check, base.fail
local floor, huge = math.floor, math.huge

local M = {}

local sizes = {'nq', 'nk', 'b', 'h', 'i', 'k', 'rows', 'columns', 'nh', 'hk', 'batch'}
local known = {'file', 'top_left', unpack(sizes)}
local MOST = 4096 -- rows or columns

-- {c = the library's window, and what keeps alive the memory it points to}
local function window_of(variant, opt)
    words.check_names('attn.picture', opt, known)
    local w = ffi.new 'attn_window'
    w.size = ffi.sizeof(w)
    if opt.top_left ~= nil and options.want('boolean', 'top_left', opt.top_left) then
        w.flags = C.ATTN_TOP_LEFT
    end
    for _, name in ipairs(sizes) do
        local x = opt[name] or 0
        if type(x) ~= 'number' or x ~= floor(x) or x < 0 or x >= 2 ^ 31 then
            fail('INVALID', name, ('%s is %s: a whole number is wanted'):format(name, tostring(x)))
        end
        w[name] = x
    end
    w.nk = opt.nk or opt.nq or 32
    w.nq = opt.nq or w.nk
    w.nh, w.batch = opt.nh or w.h + 1, opt.batch or w.b + 1
    w.rows = w.rows > 0 and w.rows or w.nq - w.i
    w.columns = w.columns > 0 and w.columns or w.nk - w.k
    if w.rows > MOST or w.columns > MOST then
        fail('INVALID', w.rows > MOST and 'rows' or 'columns', ('a picture has at most %d rows and '
            .. 'columns: give rows, columns and where they begin, i and k'):format(MOST))
    end
    local captures = variants.bind(variant)
    w.captures, w.n_captures = captures.array, captures.n
    return {c = w, captures = captures}
end

-- scores[rows][columns], -inf where masked, as a tensor; s: scaled scores, an f32 tensor of that
-- shape, zeros if left out.
function M.sample(variant, opt, s)
    variant = variants.of(variant)
    local window = window_of(variant, opt or {})
    local shape = {tonumber(window.c.rows), tonumber(window.c.columns)}
    local scores = tensor.empty(shape, {device = 'cpu'})
    s = tensor.is(s) and tensor.on_host(s) or s
    local from = s and ffi.cast('const float *', tensor.c(s).data) or nil
    check(C.attn_variant_sample(variant.handle, window.c, from,
        ffi.cast('float *', scores.head.data)))
    return scores
end

-- -- Colours ------------------------------------------------------------------------------------

local MASKED = '#f2f2f2'
local stops = {{0x2b, 0x2d, 0x7c}, {0xc2, 0x3b, 0x6e}, {0xfb, 0xd2, 0x4b}} -- low, middle, high

-- x from 0 to 1
local function colour(x)
    local at = x * (#stops - 1)
    local i = math.min(floor(at), #stops - 2)
    local from, to, part = stops[i + 1], stops[i + 2], at - i
    local rgb = {}
    for c = 1, 3 do
        rgb[c] = floor(from[c] + (to[c] - from[c]) * part + 0.5)
    end
    return ('#%02x%02x%02x'):format(rgb[1], rgb[2], rgb[3])
end

-- Masked cells are grey, visible ones go from the least to the largest score.
local function grid_of(scores)
    local rows, columns = scores.shape[1], scores.shape[2]
    local p, least, largest = ffi.cast('float *', scores.head.data), huge, -huge
    for j = 0, rows * columns - 1 do
        if p[j] > -huge and p[j] < huge then
            least, largest = math.min(least, p[j]), math.max(largest, p[j])
        end
    end
    local range = largest > least and largest - least or 1
    local grid = {rows = rows, columns = columns}
    for r = 1, rows do
        grid[r] = {}
        for c = 1, columns do
            local x = p[(r - 1) * columns + c - 1]
            grid[r][c] = x == -huge and MASKED or colour(x < huge and (x - least) / range or 1)
        end
    end
    return grid
end

-- -- attn.picture -------------------------------------------------------------------------------

-- The mask in characters, a line per query: '#' visible, '.' masked. opt: nq nk (32), b h (0), a
-- part by i k rows columns, totals nh hk batch, top_left; file: 'x.svg' or 'x.png', to which the
-- mask and the scores (of s = 0) are written in colours.
function M.picture(variant, opt)
    variant, opt = variants.of(variant), options.want('table', 'opt', opt or {})
    local window = window_of(variant, opt)
    local n = tonumber(check(C.attn_variant_picture(variant.handle, window.c, nil, 0)))
    local text = ffi.new('char[?]', n)
    check(C.attn_variant_picture(variant.handle, window.c, text, n))
    if opt.file then
        image.write(opt.file, grid_of(M.sample(variant, opt)))
    end
    return ffi.string(text)
end

return M
