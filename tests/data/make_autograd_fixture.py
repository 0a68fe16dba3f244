"""Writes what PyTorch's autograd makes of the named variants: tests/data/autograd.safetensors.

    pip install torch safetensors
    python tests/data/make_autograd_fixture.py

tests/lua/autograd_test.lua has the same cases by name and compares. Here each is written as
ordinary tensor operations on whole matrices of scores, in f64; the loss is sum(o dout) +
sum(lse dlse). Of a row that sees nothing o is 0 and lse -inf, and has no part in the loss.
"""
import math
import os

import torch
from safetensors.torch import save_file

B, H, HK, NQ, NK, D, DV = 2, 4, 2, 11, 19, 8, 6
torch.manual_seed(7)


def randn(*shape):
    return torch.randn(*shape).double() # of f32 values


given = {"q": randn(B, H, NQ, D), "k": randn(B, HK, NK, D), "v": randn(B, HK, NK, DV),
         "dout": randn(B, H, NQ, DV), "dlse": randn(B, H, NQ), "sink": randn(H),
         "slope": torch.rand(H).double(), "cap": 1 + torch.rand(H).double(),
         "table": randn(H, 15), "bias": randn(H, NQ, NK), "gain": randn(B, NK),
         "ids": torch.randint(0, 3, (B, NK)), "of_keys": randn(B, 1, 1, NK),
         "of_rows": randn(H, NQ, 1)}
i = torch.arange(NQ).view(NQ, 1)
k = torch.arange(NK).view(1, NK)
q = i + NK - NQ
causal = k <= q
slopes = torch.tensor([2.0 ** (-8 * (h + 1) / H) for h in range(H)], dtype=torch.float64)


def heads(x):
    return x.view(-1, 1, 1)


def philox(key, counter):
    """Philox4x32-7 (Salmon et al., SC 2011)."""
    c, (k0, k1) = list(counter), key
    for _ in range(7):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k0, b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k1, a & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def weights_of(p, seed):
    """Dropout's factors [B][H][NQ][NK], docs/random.md."""
    threshold = math.floor(65536 * p + 0.5)
    w = torch.zeros(B, H, NQ, NK, dtype=torch.float64)
    for b in range(B):
        for h in range(H):
            for row in range(NQ):
                for key in range(NK):
                    draw = philox((seed & 0xFFFFFFFF, seed >> 32),
                                  (b * H + h, row, 4 * (key // 32) + key % 8 // 2, 0))
                    word = draw[key % 32 // 8]
                    half = word >> 16 if key % 2 else word & 0xFFFF
                    w[b, h, row, key] = 65536 / (65536 - threshold) if half >= threshold else 0
    return w


# name: score of (s, tensors), mask, whose gradients besides q's, k's, v's, scale, dropout's seed
CASES = {
    "full": (lambda s, t: s, None, "", None, None),
    "scale": (lambda s, t: s, causal, "", -0.7, None),
    "causal": (lambda s, t: s, causal, "", None, None),
    "window": (lambda s, t: s, (q - k >= -2) & (q - k <= 4), "", None, None),
    "prefix": (lambda s, t: s, (k < 12) | causal, "", None, None),
    "first_keys": (lambda s, t: s, causal & ((k < 2) | (q - k <= 4)), "", None, None),
    "dilated": (lambda s, t: s, (q - k) % 3 == 0, "", None, None),
    "any": (lambda s, t: s, (k < 5) | ((q - k >= 0) & (q - k <= 3)), "", None, None),
    "empty": (lambda s, t: s, k > q, "", None, None),
    "empty_sink": (lambda s, t: s, k > q, "sink", None, None),
    "document": (lambda s, t: s, (given["ids"][:, NK - NQ:, None] == given["ids"][:, None, :])
                 .unsqueeze(1), "", None, None),
    "alibi": (lambda s, t: s - heads(slopes) * (q - k).abs(), causal, "", None, None),
    "slope": (lambda s, t: s - heads(t["slope"]) * (q - k).abs(), causal, "slope", None, None),
    "softcap": (lambda s, t: 1.5 * torch.tanh(s / 1.5), causal, "", None, None),
    "cap": (lambda s, t: heads(t["cap"]) * torch.tanh(s / heads(t["cap"])), None, "cap", None,
            None),
    "relative": (lambda s, t: s + t["table"][:, (k - q).clamp(-7, 7) + 7], None, "table", None,
                 None),
    "bias": (lambda s, t: s + t["bias"], None, "bias", None, None),
    "of_keys": (lambda s, t: s + t["of_keys"], causal, "of_keys", None, None),
    "of_rows": (lambda s, t: s * 1.5 + t["of_rows"], None, "of_rows", 0.5, None),
    "gain": (lambda s, t: s * t["gain"][:, None, None, :], causal, "gain", None, None),
    "sink": (lambda s, t: s, causal, "sink", None, None),
    "dropout": (lambda s, t: s, causal, "", None, 5 + (3 << 32)),
    "all": (lambda s, t: 2 * torch.tanh((s + t["bias"]) / 2) - heads(t["slope"]) * (q - k).abs(),
            (q - k >= 0) & (q - k <= 9), "bias slope sink", None, 11),
}


def attention(score, mask, t, scale, weights):
    group = H // HK
    keys, values = (t[x].repeat_interleave(group, 1) for x in "kv")
    s = score((scale or 1 / math.sqrt(D)) * t["q"] @ keys.transpose(-1, -2), t)
    seen = torch.ones_like(s, dtype=torch.bool) if mask is None else mask.expand_as(s)
    s = s.masked_fill(~seen, -math.inf)
    some = seen.any(-1)
    if "sink" in t:
        s = torch.cat([s, heads(t["sink"]).expand(B, H, NQ, 1)], -1)
        some = torch.ones_like(some)
    s = torch.where(some[..., None], s, torch.zeros_like(s)) # no NaN in what nobody asks for
    lse = torch.logsumexp(s, -1)
    p = torch.exp(s - lse[..., None])[..., :NK] * some[..., None]
    return (p if weights is None else p * weights) @ values, lse, some


def main():
    found = {name: x.float() if x.is_floating_point() else x.int() for name, x in given.items()}
    for name, (score, mask, names, scale, seed) in CASES.items():
        wanted = ["q", "k", "v"] + names.split()
        t = {x: given[x].clone().requires_grad_() for x in wanted}
        o, lse, some = attention(score, mask, t, scale,
                                 None if seed is None else weights_of(0.25, seed))
        loss = (o * given["dout"]).sum() + (lse * given["dlse"])[some].sum()
        grads = torch.autograd.grad(loss, [t[x] for x in wanted])
        found[name + ".o"] = o
        found[name + ".lse"] = lse.masked_fill(~some, -math.inf)
        for x, g in zip(wanted, grads):
            found["%s.d%s" % (name, x)] = g
    out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "autograd.safetensors")
    save_file({name: (x.detach().float() if x.is_floating_point() else x).contiguous()
               for name, x in found.items()}, out)
    print("torch", torch.__version__, len(CASES), "cases", os.path.getsize(out), "bytes")


if __name__ == "__main__":
    main()
