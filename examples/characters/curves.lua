-- curves.lua: lines over their numbers 1, 2, ..., as a picture in SVG.
--
-- Who calls it: characters.lua.

local M = {}

local WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 640, 360, 56, 16, 16, 44
local COLOURS = {'#0072b2', '#d55e00', '#009e73', '#cc79a7'}

-- The mean of each number and the `most` before it: steps differ by their text.
local function smooth(y, most)
    local z = {}
    for i = 1, #y do
        local sum, first = 0, math.max(1, i - most)
        for j = first, i do sum = sum + y[j] end
        z[i] = sum / (i - first + 1)
    end
    return z
end

local function bounds(lines)
    local low, high, n = math.huge, -math.huge, 0
    for _, line in ipairs(lines) do
        for _, y in ipairs(line.y) do low, high = math.min(low, y), math.max(high, y) end
        n = math.max(n, #line.y)
    end
    return math.floor(low * 2) / 2, math.ceil(high * 2) / 2, n
end

function M.write(path, lines, x_name, y_name)
    local out, smoothed = {}, {}
    for i, line in ipairs(lines) do smoothed[i] = {name = line.name, y = smooth(line.y, 10)} end
    local low, high, n = bounds(smoothed)
    local function x_of(i) return LEFT + (i - 1) / math.max(1, n - 1) * (WIDTH - LEFT - RIGHT) end
    local function y_of(y) return TOP + (high - y) / (high - low) * (HEIGHT - TOP - BOTTOM) end
    local function put(format, ...) out[#out + 1] = format:format(...) end
    put('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" '
        .. 'font-family="sans-serif" font-size="13">', WIDTH, HEIGHT, WIDTH, HEIGHT)
    put('<rect width="%d" height="%d" fill="white"/>', WIDTH, HEIGHT)
    for y = low, high, 0.5 do
        put('<path d="M%d %.1fH%d" stroke="#ddd"/>', LEFT, y_of(y), WIDTH - RIGHT)
        put('<text x="%d" y="%.1f" text-anchor="end">%.1f</text>', LEFT - 6, y_of(y) + 4, y)
    end
    for i = 0, 4 do
        local at = math.floor(1 + i / 4 * (n - 1) + 0.5)
        put('<text x="%.1f" y="%d" text-anchor="middle">%d</text>', x_of(at),
            HEIGHT - BOTTOM + 18, at)
    end
    put('<text x="%d" y="%d" text-anchor="middle">%s</text>', (LEFT + WIDTH - RIGHT) / 2,
        HEIGHT - 8, x_name)
    put('<text x="14" y="%d" transform="rotate(-90 14 %d)" text-anchor="middle">%s</text>',
        (TOP + HEIGHT - BOTTOM) / 2, (TOP + HEIGHT - BOTTOM) / 2, y_name)
    for i, line in ipairs(smoothed) do
        local points = {}
        for j, y in ipairs(line.y) do points[j] = ('%.1f,%.1f'):format(x_of(j), y_of(y)) end
        put('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>',
            table.concat(points, ' '), COLOURS[i])
        put('<text x="%d" y="%d" text-anchor="end" fill="%s">%s, at last %.2f</text>',
            WIDTH - RIGHT - 8, TOP + 18 * i, COLOURS[i], line.name, line.y[#line.y])
    end
    put('</svg>\n')
    local file = assert(io.open(path, 'w'))
    file:write(table.concat(out, '\n'))
    file:close()
end

return M
