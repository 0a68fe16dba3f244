-- model.lua: a two-layer transformer over characters: forward, backward and Adam. Everything but
-- attention is plain loops over host memory.
--
-- Who calls it: characters.lua. T = B * N rows, one per character; a matrix is an array, by rows.
--
--     x = embed[character]
--     twice:   q k v = norm(x) Wqkv      o = attention(q, k, v)      x = x + o Wo
--              x = x + relu(norm(x) W1) W2
--     loss = -log softmax(norm(x) Wout)[next character], mean over rows
--
-- norm divides a row by its root mean square. There are no position embeddings: where a character
-- stands, the variant alone tells.

local ffi = require 'ffi'
local attn = require 'attn'

local M = {}

local function numbers(n) return ffi.new('double[?]', n) end
local function floats(n) return ffi.new('float[?]', n) end

-- -- Products of matrices: x is T x n, w is n x m, y is T x m -------------------------------------

-- y = x w
local function multiply(y, x, w, T, n, m)
    ffi.fill(y, ffi.sizeof 'double' * T * m)
    for t = 0, T - 1 do
        local row = y + t * m
        for i = 0, n - 1 do
            local a, from = x[t * n + i], w + i * m
            for j = 0, m - 1 do row[j] = row[j] + a * from[j] end
        end
    end
end

-- dx = dy w', dw = x' dy
local function multiply_back(dx, dw, dy, x, w, T, n, m)
    ffi.fill(dw, ffi.sizeof 'double' * n * m)
    for t = 0, T - 1 do
        local row = dy + t * m
        for i = 0, n - 1 do
            local a, from, to, sum = x[t * n + i], w + i * m, dw + i * m, 0
            for j = 0, m - 1 do
                sum = sum + row[j] * from[j]
                to[j] = to[j] + a * row[j]
            end
            dx[t * n + i] = sum
        end
    end
end

-- -- norm -----------------------------------------------------------------------------------------

-- y = x / r, r the root mean square of each row
local function norm(y, r, x, T, d)
    for t = 0, T - 1 do
        local sum = 0
        for i = t * d, t * d + d - 1 do sum = sum + x[i] * x[i] end
        r[t] = math.sqrt(sum / d + 1e-5)
        for i = t * d, t * d + d - 1 do y[i] = x[i] / r[t] end
    end
end

-- dx += (dy - y (y . dy) / d) / r
local function norm_back(dx, dy, y, r, T, d)
    for t = 0, T - 1 do
        local dot = 0
        for i = t * d, t * d + d - 1 do dot = dot + y[i] * dy[i] end
        for i = t * d, t * d + d - 1 do dx[i] = dx[i] + (dy[i] - y[i] * dot / d) / r[t] end
    end
end

-- -- attention ------------------------------------------------------------------------------------

-- A tensor [B][H][N][D] over columns `first`.. of host rows that have `width` numbers.
local function heads(m, array, width, first)
    local D = m.d / m.H
    return attn.wrap(array + first, 'f32', {m.B, m.H, m.N, D}, {m.N * width, D, width, 1}, array)
end

local function convert(to, from, n)
    for i = 0, n - 1 do to[i] = from[i] end
end

-- Device memory to the host tensor `to`.
local function fetch(to, from)
    to:fill(0)
    to:add_(from:to 'cpu')
end

local function attention(m, l)
    convert(l.qkv_f, l.qkv, m.T * 3 * m.d)
    local q, k, v = l.q:to(m.device), l.k:to(m.device), l.v:to(m.device)
    local o, call = attn.attention(q, k, v, {variant = m.variant})
    fetch(l.o_host, o)
    convert(l.o, l.o_f, m.T * m.d)
    l.call = call
end

local function attention_back(m, l)
    convert(l.o_f, l.dout, m.T * m.d)
    local g = l.call:backward(l.o_host:to(m.device))
    fetch(l.q, g.q)
    fetch(l.k, g.k)
    fetch(l.v, g.v)
    convert(l.dqkv, l.qkv_f, m.T * 3 * m.d)
end

-- -- Forward and backward -------------------------------------------------------------------------

local function forward_layer(m, l, x)
    local T, d = m.T, m.d
    norm(l.y, l.r, x, T, d)
    multiply(l.qkv, l.y, l.wqkv.x, T, d, 3 * d)
    attention(m, l)
    multiply(l.out, l.o, l.wo.x, T, d, d)
    for i = 0, T * d - 1 do x[i] = x[i] + l.out[i] end
    norm(l.y2, l.r2, x, T, d)
    multiply(l.hidden, l.y2, l.w1.x, T, d, 4 * d)
    for i = 0, T * 4 * d - 1 do l.hidden[i] = math.max(l.hidden[i], 0) end
    multiply(l.out, l.hidden, l.w2.x, T, 4 * d, d)
    for i = 0, T * d - 1 do x[i] = x[i] + l.out[i] end
end

-- dx: the gradient of the layer's result, then of what it was given.
local function backward_layer(m, l, dx)
    local T, d = m.T, m.d
    multiply_back(l.dhidden, l.w2.g, dx, l.hidden, l.w2.x, T, 4 * d, d)
    for i = 0, T * 4 * d - 1 do
        if l.hidden[i] == 0 then l.dhidden[i] = 0 end
    end
    multiply_back(l.dy, l.w1.g, l.dhidden, l.y2, l.w1.x, T, d, 4 * d)
    norm_back(dx, l.dy, l.y2, l.r2, T, d)
    multiply_back(l.dout, l.wo.g, dx, l.o, l.wo.x, T, d, d)
    attention_back(m, l)
    multiply_back(l.dy, l.wqkv.g, l.dqkv, l.y, l.wqkv.x, T, d, 3 * d)
    norm_back(dx, l.dy, l.y, l.r, T, d)
end

-- The mean loss of the rows; m.p becomes its gradient by the products norm(x) Wout.
local function loss_of(m, after)
    local sum, V = 0, m.V
    for t = 0, m.T - 1 do
        local row, most, total = m.p + t * V, -math.huge, 0
        for j = 0, V - 1 do most = math.max(most, row[j]) end
        for j = 0, V - 1 do total = total + math.exp(row[j] - most) end
        sum = sum + math.log(total) + most - row[after[t]]
        for j = 0, V - 1 do row[j] = math.exp(row[j] - most) / total / m.T end
        row[after[t]] = row[after[t]] - 1 / m.T
    end
    return sum / m.T
end

-- The loss of T characters, each with the one after it; gradients of all weights.
local function run(m, characters, after)
    local T, d, V = m.T, m.d, m.V
    for t = 0, T - 1 do
        for i = 0, d - 1 do m.x[t * d + i] = m.embed.x[characters[t] * d + i] end
    end
    for _, l in ipairs(m.layer) do forward_layer(m, l, m.x) end
    norm(m.y, m.r, m.x, T, d)
    multiply(m.p, m.y, m.wout.x, T, d, V)
    local loss = loss_of(m, after)
    multiply_back(m.dy, m.wout.g, m.p, m.y, m.wout.x, T, d, V)
    ffi.fill(m.dx, ffi.sizeof 'double' * T * d)
    norm_back(m.dx, m.dy, m.y, m.r, T, d)
    for i = #m.layer, 1, -1 do backward_layer(m, m.layer[i], m.dx) end
    ffi.fill(m.embed.g, ffi.sizeof 'double' * V * d)
    for t = 0, T - 1 do
        for i = 0, d - 1 do
            local at = characters[t] * d + i
            m.embed.g[at] = m.embed.g[at] + m.dx[t * d + i]
        end
    end
    return loss
end

-- -- Adam -----------------------------------------------------------------------------------------

local function update(w, step, rate)
    local c1, c2 = 1 - 0.9 ^ step, 1 - 0.99 ^ step
    for i = 0, w.n - 1 do
        w.m[i] = 0.9 * w.m[i] + 0.1 * w.g[i]
        w.v[i] = 0.99 * w.v[i] + 0.01 * w.g[i] * w.g[i]
        w.x[i] = w.x[i] - rate * (w.m[i] / c1) / (math.sqrt(w.v[i] / c2) + 1e-8)
    end
end

-- -- A model --------------------------------------------------------------------------------------

-- n x columns weights, normal with the variance 1 / n.
local function weights(m, n, columns)
    m.weights[#m.weights + 1] = {n = n * columns, x = numbers(n * columns),
        g = numbers(n * columns), m = numbers(n * columns), v = numbers(n * columns)}
    local w = m.weights[#m.weights]
    local from = attn.randn(1, {n * columns}, {seed = #m.weights, device = 'cpu'}):totable()
    for i = 1, #from do w.x[i - 1] = from[i] / math.sqrt(n) end
    return w
end

local function layer(m)
    local T, d = m.T, m.d
    local l = {wqkv = weights(m, d, 3 * d), wo = weights(m, d, d), w1 = weights(m, d, 4 * d),
        w2 = weights(m, 4 * d, d), qkv_f = floats(T * 3 * d), o_f = floats(T * d)}
    for name, n in pairs {y = d, y2 = d, r = 1, r2 = 1, qkv = 3 * d, dqkv = 3 * d, o = d, out = d,
        dout = d, dy = d, hidden = 4 * d, dhidden = 4 * d} do
        l[name] = numbers(T * n)
    end
    l.q, l.k, l.v = heads(m, l.qkv_f, 3 * d, 0), heads(m, l.qkv_f, 3 * d, d),
        heads(m, l.qkv_f, 3 * d, 2 * d)
    l.o_host = heads(m, l.o_f, d, 0)
    return l
end

-- shape: V characters, B sequences of N, H heads, d columns. m:step(characters, after) takes a step
-- against the gradient and returns the loss before it.
function M.new(shape, variant, device)
    local m = {variant = variant, device = device, weights = {}, layer = {}, steps = 0}
    for name, x in pairs(shape) do m[name] = x end
    m.T = m.B * m.N
    m.embed = weights(m, m.V, m.d)
    m.layer = {layer(m), layer(m)}
    m.wout = weights(m, m.d, m.V)
    for name, n in pairs {x = m.d, y = m.d, dx = m.d, dy = m.d, r = 1, p = m.V} do
        m[name] = numbers(m.T * n)
    end
    function m:step(characters, after, rate)
        local loss = run(self, characters, after)
        self.steps = self.steps + 1
        for _, w in ipairs(self.weights) do update(w, self.steps, rate) end
        return loss
    end
    return m
end

return M
