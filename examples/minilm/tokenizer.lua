-- tokenizer.lua: BERT's uncased WordPiece tokenizer, as far as the encoder example needs it.
--
-- Who calls it: encoder.lua. text -> lower case without accents -> words and punctuation -> the
-- longest vocabulary pieces from the left ("afford" "##able"); a word that cannot be cut is [UNK].
-- Lower case and accents: Latin, Greek and Cyrillic letters up to U+04FF; other scripts stay as is.
-- Source: Devlin et al. 2018 (1810.04805), section 3, and Wu et al. 2016 (1609.08144), section 4.1.

local byte, sub, char = string.byte, string.sub, string.char

-- The letters U+00C0 to U+017F without case and accent; '.' marks one that has its case alone.
local LATIN = 'aaaaaa.ceeeeiiii.nooooo..uuuuy..aaaaaa.ceeeeiiii.nooooo..uuuuy.y'
  .. 'aaaaaaccccccccdd..eeeeeeeeeegggggggghh..iiiiiiiii...jjkk.llllll.'
  .. '...nnnnnn...oooooo..rrrrrrsssssssstttt..uuuuuuuuuuuuwwyyyzzzzzz.'
-- Those that have no plain letter: code point -> lower-case code point.
local CASE = {[0xC6] = 0xE6, [0xD0] = 0xF0, [0xD8] = 0xF8, [0xDE] = 0xFE, [0x110] = 0x111,
  [0x126] = 0x127, [0x132] = 0x133, [0x13F] = 0x140, [0x141] = 0x142, [0x14A] = 0x14B,
  [0x152] = 0x153, [0x166] = 0x167}

local function utf8(code)
  if code < 0x80 then return char(code) end
  if code < 0x800 then return char(0xC0 + math.floor(code / 64), 0x80 + code % 64) end
  if code < 0x10000 then
    return char(0xE0 + math.floor(code / 4096), 0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
  end
  return char(0xF0 + math.floor(code / 262144), 0x80 + math.floor(code / 4096) % 64,
    0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
end

-- Iterates over code points; a damaged byte counts as U+FFFD.
local function codes(text)
  local at = 1
  return function()
    local b = byte(text, at)
    if not b then return nil end
    local n = b < 0x80 and 0 or b >= 0xF0 and 3 or b >= 0xE0 and 2 or b >= 0xC2 and 1 or -1
    local code = n == 0 and b or n == 1 and b % 32 or n == 2 and b % 16 or b % 8
    for j = 1, n do
      local c = byte(text, at + j)
      if not c or c < 0x80 or c >= 0xC0 then n = -1 break end
      code = code * 64 + c % 64
    end
    at = at + math.max(n, 0) + 1
    return n < 0 and 0xFFFD or code
  end
end

local function within(code, ...)
  for i = 1, select('#', ...), 2 do
    local lo, hi = select(i, ...)
    if code >= lo and code <= hi then return true end
  end
  return false
end

local function is_punctuation(c)
  return within(c, 33, 47, 58, 64, 91, 96, 123, 126, 0xA1, 0xA1, 0xA7, 0xA7, 0xAB, 0xAB,
    0xB6, 0xB7, 0xBB, 0xBB, 0xBF, 0xBF, 0x2010, 0x2027, 0x2030, 0x2043, 0x2045, 0x2051,
    0x2053, 0x205E, 0x3001, 0x3003, 0x3008, 0x3011, 0x3014, 0x301F, 0xFF01, 0xFF03,
    0xFF05, 0xFF0A, 0xFF0C, 0xFF0F,
    0xFF1A, 0xFF1B, 0xFF1F, 0xFF20)
end

local function is_ideograph(c)
  return within(c, 0x3400, 0x4DBF, 0x4E00, 0x9FFF, 0xF900, 0xFAFF, 0x20000, 0x2CEAF,
    0x2F800, 0x2FA1F)
end

local function is_space(c)
  return within(c, 9, 10, 13, 13, 32, 32, 0xA0, 0xA0, 0x1680, 0x1680, 0x2000, 0x200A,
    0x202F, 0x202F, 0x205F, 0x205F, 0x3000, 0x3000)
end

local function fold(c)
  if c >= 65 and c <= 90 then return c + 32 end
  if c >= 0xC0 and c <= 0x17F then
    local base = byte(LATIN, c - 0xBF)
    return base and base ~= 46 and base or CASE[c] or c
  end
  if within(c, 0x391, 0x3A9, 0x410, 0x42F) then return c + 32 end
  if within(c, 0x400, 0x40F) then return c + 80 end
  return c
end

-- Words of a text: folded, split at spaces, punctuation and ideographs standing alone.
local function words(text)
  local list, word = {}, {}
  local function close()
    if #word > 0 then list[#list + 1] = table.concat(word) end
    word = {}
  end
  for c in codes(text) do
    if is_space(c) then
      close()
    elseif is_punctuation(c) or is_ideograph(c) then
      close()
      list[#list + 1] = utf8(c)
    elseif not within(c, 0, 31, 127, 159, 0x300, 0x36F, 0xFFFD, 0xFFFD, 0x200B, 0x200F) then
      word[#word + 1] = utf8(fold(c))
    end
  end
  close()
  return list
end

local Tokenizer = {}
Tokenizer.__index = Tokenizer

function Tokenizer.open(path)
  local file = assert(io.open(path))
  local self, n = setmetatable({id = {}}, Tokenizer), 0
  for line in file:lines() do
    self.id[(line:gsub('\r$', ''))] = n
    n = n + 1
  end
  file:close()
  return self
end

-- The numbers of one word's pieces, or [UNK].
function Tokenizer:pieces(word)
  local out, from = {}, 1
  while from <= #word do
    local to, id = #word, nil
    while to >= from do
      id = self.id[(from > 1 and '##' or '') .. sub(word, from, to)]
      if id then break end
      to = to - 1
    end
    if not id then return {self.id['[UNK]']} end
    out[#out + 1] = id
    from = to + 1
  end
  return out
end

-- text -> {[CLS], pieces..., [SEP]}, numbers of the vocabulary.
function Tokenizer:encode(text)
  local out = {self.id['[CLS]']}
  for _, word in ipairs(words(text)) do
    for _, id in ipairs(self:pieces(word)) do out[#out + 1] = id end
  end
  out[#out + 1] = self.id['[SEP]']
  return out
end

return Tokenizer
