-- encoder_test.lua: the sentence encoder against transformers. tests/data/make_encoder_fixture.py
-- wrote the expected values. MODEL names the folder with model.safetensors and vocab.txt.

local here = arg[0]:match '^(.*/)' or './'
package.path = ('%s?.lua;%s../../lua/?.lua;%s../../examples/?.lua;'):format(here, here, here)
    .. package.path
local folder = os.getenv 'MODEL'
if not folder then
    print 'skipped: no model (MODEL names no folder)'
    os.exit(0)
end

local test = require 'tap'
local attn = require 'attn'
local Encoder = require 'minilm.encoder'
local data = here .. '../data/'

local sentences = {}
for line in io.lines(data .. 'sentences.txt') do
    sentences[#sentences + 1] = line
end
local encoder = Encoder.open(folder)
local wanted = attn.load(data .. 'sentences_embeddings.npy'):totable()

test('tokens are those of transformers', function(t)
    local n = 0
    for line in io.lines(data .. 'sentences_ids.txt') do
        n = n + 1
        t.equal(table.concat(encoder.tokens:encode(sentences[n]), ' '), line, sentences[n])
    end
    t.equal(n, #sentences)
end)

for _, device in ipairs {'cpu', 'ref'} do
    test('embeddings are those of transformers on ' .. device, function(t)
        local given = encoder:encode(sentences, {device = device})
        t.equal(#given, #wanted)
        for i = 1, #wanted do
            t.near(Encoder.cosine(given[i], wanted[i]), 1, 1e-5, sentences[i])
        end
    end)
end

test('a sentence does not see the others', function(t)
    local all, one = encoder:encode(sentences), encoder:encode {sentences[5]}
    t.near(Encoder.cosine(all[5], one[1]), 1, 1e-6)
end)

test('a variant that hides nothing changes nothing, and one that hides does', function(t)
    local wide = encoder:encode(sentences, {variant = attn.window(600, 600)})
    local narrow = encoder:encode(sentences, {variant = attn.window(1, 1)})
    for i = 1, #wanted do
        t.near(Encoder.cosine(wide[i], wanted[i]), 1, 1e-5)
        t.ok(Encoder.cosine(narrow[i], wanted[i]) < 0.99)
    end
end)

test.done()
