-- sentence_encoder.lua: a real model. Six layers of all-MiniLM-L6-v2 with attn doing the attention,
-- then the same sentences under other variants, one line changed each.
--
--   luajit examples/sentence_encoder.lua [MODEL_FOLDER]   (or MODEL=FOLDER; DEV names a device)
--
-- MODEL_FOLDER has model.safetensors and vocab.txt; without one it is build/model, which
-- examples/quickstart.sh fetches.

local here = arg[0]:match '^(.*)/' or '.'
package.path = ('%s/../lua/?.lua;%s/?.lua;%s'):format(here, here, package.path)
local attn = require 'attn'
local Encoder = require 'minilm.encoder'

local folder = arg[1] or os.getenv 'MODEL' or here .. '/../build/model'
if not io.open(folder .. '/vocab.txt') then
  print('skipped: no model in ' .. folder .. '; examples/quickstart.sh fetches one')
  os.exit(arg[1] and 1 or 0)
end
local sentences = {
  'A man is playing a guitar on the stage.',
  'Someone performs music with a stringed instrument.',
  'The children are playing football in the park.',
  'Kids kick a ball around outside.',
  'The stock market fell sharply on Monday.',
  'Share prices dropped at the start of the week.',
}
local encoder = Encoder.open(folder)
local device = os.getenv 'DEV' or 'cpu'

-- Similarities of all pairs, as rows of numbers.
local function similarities(variant)
  local e, rows = encoder:encode(sentences, {variant = variant, device = device}), {}
  for i = 1, #e do
    rows[i] = {}
    for j = 1, #e do rows[i][j] = Encoder.cosine(e[i], e[j]) end
  end
  return rows
end

local plain = similarities(nil)
print 'cosine similarity'
for i, sentence in ipairs(sentences) do
  local row = {}
  for j = 1, #sentences do row[j] = ('%6.3f'):format(plain[i][j]) end
  print(('%d %s  %s'):format(i, table.concat(row, ' '), sentence))
end

local trials = {
  {'window(4, 4)', attn.window(4, 4)},
  {'alibi(12)', attn.alibi(12)},
  {'first_keys(1, 3)', attn.first_keys(1, 3)},
  {'softcap(5)', attn.softcap(5)},
  {'causal', attn.causal},
}
print '\nhow far similarities move without retraining (mean and largest over pairs)'
for _, trial in ipairs(trials) do
  local moved, sum, most, n = similarities(trial[2]), 0, 0, 0
  for i = 1, #sentences do
    for j = 1, i - 1 do
      local d = math.abs(moved[i][j] - plain[i][j])
      sum, most, n = sum + d, math.max(most, d), n + 1
    end
  end
  print(('%-18s %.3f  %.3f'):format(trial[1], sum / n, most))
end
