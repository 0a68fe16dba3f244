-- encoder.lua: a BERT sentence encoder (all-MiniLM-L6-v2): attn's attention, the rest plain Lua.
--
-- Who calls it: examples/sentence_encoder.lua and tests/lua/encoder_test.lua.
--
--   sentences -> tokens -> embeddings [T][384]
--   6 times:  q k v = x W + b;  o = attention(q, k, v);  x = norm(x + o W + b)
--             x = norm(x + gelu(x W + b) W + b)                         -> mean over tokens
--
-- All sentences go through at once, packed: T is the sum of their lengths, and q_offsets tells attn
-- where each begins. Weights are read where the file is mapped; activations are doubles.
-- Source: Devlin et al. 2018 (1810.04805); Reimers and Gurevych 2019 (1908.10084), mean pooling.

local ffi = require 'ffi'
local attn = require 'attn'
local tensor = require 'attn.tensor'
local Tokenizer = require 'minilm.tokenizer'

local HEADS, LAYERS, EPSILON = 12, 6, 1e-12

-- The error function to 1.5e-7: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
local function erf(x)
  local t = 1 / (1 + 0.3275911 * math.abs(x))
  local poly = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t
    + 0.254829592) * t
  local y = 1 - poly * math.exp(-x * x)
  return x < 0 and -y or y
end

-- y[T][M] = x[T][N] w[M][N]^T + bias[M], four rows at a time; x and y are double, w and bias float.
local function linear(x, T, N, w, bias, M)
  local y = ffi.new('double[?]', T * M)
  for t = 0, T - 1, 4 do
    local last = T - 1 - t -- rows past the end repeat the last one
    local x0, x1 = x + t * N, x + (t + math.min(1, last)) * N
    local x2, x3 = x + (t + math.min(2, last)) * N, x + (t + math.min(3, last)) * N
    for m = 0, M - 1 do
      local row, a, b, c, d = w + m * N, 0, 0, 0, 0
      for n = 0, N - 1 do
        local f = row[n]
        a, b, c, d = a + f * x0[n], b + f * x1[n], c + f * x2[n], d + f * x3[n]
      end
      local at, e = t * M + m, bias[m]
      y[at] = a + e
      if last > 0 then y[at + M] = b + e end
      if last > 1 then y[at + 2 * M] = c + e end
      if last > 2 then y[at + 3 * M] = d + e end
    end
  end
  return y
end

-- In place: every row of x[T][N] (plus y, if given) to mean 0 and variance 1, scaled and shifted.
local function norm(x, y, T, N, gain, shift)
  for t = 0, T - 1 do
    local row, other, mean, square = x + t * N, y and y + t * N, 0, 0
    for n = 0, N - 1 do
      if other then row[n] = row[n] + other[n] end
      mean = mean + row[n] / N
    end
    for n = 0, N - 1 do square = square + (row[n] - mean) ^ 2 / N end
    local r = 1 / math.sqrt(square + EPSILON)
    for n = 0, N - 1 do row[n] = (row[n] - mean) * r * gain[n] + shift[n] end
  end
end

local Encoder = {}
Encoder.__index = Encoder

-- folder has model.safetensors and vocab.txt.
function Encoder.open(folder)
  local self = setmetatable({}, Encoder)
  self.tokens = Tokenizer.open(folder .. '/vocab.txt')
  self.file = attn.load(folder .. '/model.safetensors')
  return self
end

-- A weight as a float pointer; its shape beside it.
function Encoder:weight(name)
  local t = self.file[name] or error('the model has no tensor ' .. name)
  return ffi.cast('const float *', tensor.c(t).data), t.shape
end

-- Embeddings of packed token numbers: word + position + type 0, normalised.
function Encoder:embed(ids, offsets)
  local words, shape = self:weight 'embeddings.word_embeddings.weight'
  local places = self:weight 'embeddings.position_embeddings.weight'
  local kinds = self:weight 'embeddings.token_type_embeddings.weight'
  local N, T = shape[2], #ids
  local x = ffi.new('double[?]', T * N)
  for s = 1, #offsets - 1 do
    for t = offsets[s], offsets[s + 1] - 1 do
      local word, place, row = words + ids[t + 1] * N, places + (t - offsets[s]) * N, x + t * N
      for n = 0, N - 1 do row[n] = word[n] + place[n] + kinds[n] end
    end
  end
  local gain = self:weight 'embeddings.LayerNorm.weight'
  local shift = self:weight 'embeddings.LayerNorm.bias'
  norm(x, nil, T, N, gain, shift)
  return x, T, N
end

-- One projection of a layer: its weight and bias under one name.
function Encoder:project(name, x, T, N)
  local w, shape = self:weight(name .. '.weight')
  return linear(x, T, N, w, (self:weight(name .. '.bias')), shape[1]), shape[1]
end

-- x[T][N] double -> a packed tensor [T][HEADS][N/HEADS] of the device, f32.
local function heads(x, T, N, device)
  local f = ffi.new('float[?]', T * N)
  for i = 0, T * N - 1 do f[i] = x[i] end
  return attn.wrap(f, 'f32', {T, HEADS, N / HEADS}, nil, f):to(device)
end

function Encoder:layer(i, x, T, N, offsets, options)
  local base = ('encoder.layer.%d.'):format(i)
  local part = {}
  for _, name in ipairs {'query', 'key', 'value'} do
    local y = self:project(base .. 'attention.self.' .. name, x, T, N)
    part[name] = heads(y, T, N, options.device)
  end
  local o, call = attn.attention(part.query, part.key, part.value, {
    variant = options.variant, q_offsets = offsets, k_offsets = offsets})
  local host = o:to 'cpu'
  local from, y = ffi.cast('const float *', tensor.c(host).data), ffi.new('double[?]', T * N)
  for n = 0, T * N - 1 do y[n] = from[n] end
  call:free()
  local output = self:project(base .. 'attention.output.dense', y, T, N)
  local function gain(name) return (self:weight(base .. name)) end
  norm(x, output, T, N, gain 'attention.output.LayerNorm.weight',
    gain 'attention.output.LayerNorm.bias')
  local inner, M = self:project(base .. 'intermediate.dense', x, T, N)
  for n = 0, T * M - 1 do inner[n] = inner[n] * 0.5 * (1 + erf(inner[n] * math.sqrt(0.5))) end
  norm(x, self:project(base .. 'output.dense', inner, T, M), T, N,
    gain 'output.LayerNorm.weight', gain 'output.LayerNorm.bias')
end

-- A list of sentences -> a list of unit vectors (tables of 384 numbers). options: variant, device.
function Encoder:encode(sentences, options)
  options = {variant = options and options.variant, device = options and options.device or 'cpu'}
  local ids, offsets = {}, {0}
  for _, sentence in ipairs(sentences) do
    for _, id in ipairs(self.tokens:encode(sentence)) do ids[#ids + 1] = id end
    offsets[#offsets + 1] = #ids
  end
  local x, T, N = self:embed(ids, offsets)
  for i = 0, LAYERS - 1 do self:layer(i, x, T, N, offsets, options) end
  local out = {}
  for s = 1, #sentences do
    local mean, length = {}, 0
    for n = 1, N do
      local sum = 0
      for t = offsets[s], offsets[s + 1] - 1 do sum = sum + x[t * N + n - 1] end
      mean[n], length = sum, length + sum * sum
    end
    for n = 1, N do mean[n] = mean[n] / math.sqrt(length) end
    out[s] = mean
  end
  return out
end

-- The cosine of two unit vectors.
function Encoder.cosine(a, b)
  local sum = 0
  for n = 1, #a do sum = sum + a[n] * b[n] end
  return sum
end

return Encoder
