"""gpu_variants.py: what variants cost on a GPU: the speed of their visited blocks beside causal's.

    python3 tests/bench/gpu_variants.py [--library [NAME=]PATH[@DEVICE]]... [--flex] [--groups]
        [--backward] [--variant NAME...] [--S N...] [--D N] [--rounds N] [--pause SECONDS] [--json FILE]

Who calls it: whoever changes scores, masks or block classes. 16,384 tokens a batch, H D = 2048, bf16;
clock and pauses are gpu_bench.py's. A block is 128 queries by 128 keys; those of which some pair is
visible are counted on the host, whatever a kernel's own tile. A line:

    variant S  blocks   of each library: TFLOP/s of visible pairs, and (of visited blocks, over the
                        same library's causal); FlexAttention's TFLOP/s of visible pairs; error

    --flex       FlexAttention, compiled; results are compared with its (else with the first
                 library's)
    --backward   backward alone, 10 D FLOPs a pair, of forward 4
    --groups     packed groups instead: time of H query heads on HK key heads over that of HK heads
                 with as many queries in all
"""
import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from gpu_attn import Attn, Gradient
from gpu_bench import VARIANTS, WINDOW, Peer, median, open_libraries, relative, time_of

BLOCK, SHORTEST, LONGEST = 128, 200, 2000
NAMES = ["causal", "alibi", "softcap", "window", "document"]


# -- Cases: inputs, what attn composes, what FlexAttention is told --------------------------------

def random_ids(B, S):
    """i32 [B][S]: documents of SHORTEST to LONGEST tokens, numbered from 0."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.zeros(B, S, dtype=torch.int32)
    for b in range(B):
        at = n = 0
        while at < S:
            long = int(torch.randint(SHORTEST, LONGEST, (1,), generator=generator))
            ids[b, at:at + long] = n
            at, n = at + long, n + 1
    return ids


def visited(name, S, ids):
    """Blocks of one head, of all batch entries."""
    n, B = S // BLOCK, ids.shape[0]
    i = torch.arange(n)
    seen = (i[:, None] >= i[None, :]).expand(B, n, n)
    if name == "window":
        seen = seen & (i[:, None] * BLOCK - (i[None, :] * BLOCK + BLOCK - 1) < WINDOW)
    if name == "document":
        low, high = (ids.view(B, n, BLOCK).amin(2), ids.view(B, n, BLOCK).amax(2))
        seen = seen & (low[:, :, None] <= high[:, None, :]) & (high[:, :, None] >= low[:, None, :])
    return int(seen.sum())


def visible(name, S, ids):
    """Pairs of one head, of all batch entries."""
    if name != "document":
        return VARIANTS[name][1](S) * ids.shape[0]
    counts = [torch.bincount(row) for row in ids]
    return sum(float((c.double() ** 2).sum()) / 2 for c in counts)


class Case:
    def __init__(self, o, name, S):
        self.name, self.S, self.D, self.H, self.B = name, S, o.D, o.hidden // o.D, o.tokens // S
        ids = random_ids(self.B, S)
        self.blocks, self.pairs = visited(name, S, ids), visible(name, S, ids)
        self.ids = ids.cuda()
        document = name == "document"
        self.parts = [("causal",), ("document",)] if document else VARIANTS[name][0](self.H)
        self.captures = {"ids": self.ids} if document else None
        self.backward = o.backward

    def inputs(self):
        return [torch.randn(self.B, self.S, self.H, self.D, device="cuda", dtype=torch.bfloat16)
                .transpose(1, 2) for _ in range(4)]

    def attn(self, library, x):
        made = Attn(library, *x[:3], self.parts, self.captures)
        if self.backward:
            made()
            made = Gradient(made, *x, self.parts, self.captures)
        return made

    def flex(self, x):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        ids = self.ids

        def mask_document(b, h, q, k):
            return (k <= q) & (ids[b, q] == ids[b, k])
        document = self.name == "document"
        mask, score = (mask_document, None) if document else VARIANTS[self.name][2]
        blocks = create_block_mask(mask, self.B if document else None, None, self.S, self.S,
                                   device="cuda")
        mod = score(self.H) if score else None
        torch.compiler.reset()  # a function is compiled for few variants only
        compiled = torch.compile(flex_attention, dynamic=False)
        return Peer(x, lambda q, k, v: compiled(q, k, v, score_mod=mod, block_mask=blocks),
                    self.backward)


def compile_all(libraries, cases):
    """Plans of all cases side by side; later ones are found in the cache."""
    def one(job):
        library, case = job
        q = torch.zeros(case.B, case.S, case.H, case.D, device="cuda", dtype=torch.bfloat16)
        case.attn(library, [q.transpose(1, 2)] * 4)
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(one, [(a, c) for a in libraries.values() for c in cases]))


# -- Timing ---------------------------------------------------------------------------------------

def rounds_of(o, made):
    """Median milliseconds of each; the order is turned round every second time."""
    times = {name: [] for name in made}
    for n in range(o.rounds):
        for name in list(made) if n % 2 == 0 else list(made)[::-1]:
            torch.cuda.synchronize()
            time.sleep(o.pause)
            times[name].append(time_of(made[name]))
    return {name: median(t) for name, t in times.items()}


def run_case(o, libraries, case, base):
    x = case.inputs()
    made = {name: case.attn(library, x) for name, library in libraries.items()}
    for attn in made.values():
        attn()
    if o.flex:
        made["flex"] = case.flex(x)
    torch.cuda.synchronize()
    first = made["flex" if o.flex else next(iter(libraries))].results()
    error = max(relative(made[name].results(), first) for name in libraries)
    ms = rounds_of(o, made)
    flops = (10 if o.backward else 4) * case.D * case.H
    rate = {name: case.pairs * flops / t / 1e9 for name, t in ms.items()}
    speed = {name: case.blocks / ms[name] for name in libraries}
    if case.name == "causal":
        base.update({(name, case.S): speed[name] for name in libraries})
    share = {name: speed[name] / base[name, case.S] if (name, case.S) in base else 0
             for name in libraries}
    cells = ["%-8s %5d %6d" % (case.name, case.S, case.blocks)]
    cells += ["%s %6.1f (%.3f)" % (name, rate[name], share[name]) for name in libraries]
    cells += ["flex %6.1f" % rate["flex"]] if o.flex else []
    cells += ["%.1e" % error, made[next(iter(libraries))].kernel]
    print("  ".join(cells) + ("" if error < 1e-2 else "  WRONG"), flush=True)
    return {"variant": case.name, "S": case.S, "blocks": case.blocks, "ms": ms, "rate": rate,
            "share": share, "error": error, "kernel": {n: made[n].kernel for n in libraries}}


def run_groups(o, libraries):
    B, NK, D = 8, 16384, o.D

    def random(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
    for H, HK in ((32, 4), (32, 1)):
        for NQ in (1, 4, 16, 64):
            k, v = random(B, NK, HK, D), random(B, NK, HK, D)
            for name, library in libraries.items():
                made = {"packed": Attn(library, random(B, NQ, H, D), k, v),
                        "plain": Attn(library, random(B, NQ * H // HK, HK, D), k, v)}
                ms = rounds_of(o, made)
                print("%s H %d HK %d NQ %2d: %.4f ms, %.3f of %d queries a key head; %s" % (
                    name, H, HK, NQ, ms["packed"], ms["packed"] / ms["plain"], NQ * H // HK,
                    made["packed"].kernel), flush=True)


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--library", action="append", help="[NAME=]PATH[@DEVICE]")
    p.add_argument("--flex", action="store_true")
    p.add_argument("--groups", action="store_true")
    p.add_argument("--backward", action="store_true")
    p.add_argument("--variant", nargs="+", choices=NAMES, default=NAMES)
    p.add_argument("--S", type=int, nargs="+", default=[4096, 16384])
    p.add_argument("--D", type=int, default=128)
    p.add_argument("--tokens", type=int, default=16384)
    p.add_argument("--hidden", type=int, default=2048)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--pause", type=float, default=0.08)
    p.add_argument("--json")
    return p.parse_args()


def main():
    o = arguments()
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")
    libraries = open_libraries(o.library)
    if o.groups:
        run_groups(o, libraries)
        return 0
    names = ["causal"] + [name for name in o.variant if name != "causal"]
    cases = [Case(o, name, S) for S in o.S for name in names]
    compile_all(libraries, cases)
    base = {}
    results = [run_case(o, libraries, case, base) for case in cases]
    if o.json:
        with open(o.json, "w") as file:
            json.dump(results, file, indent=1)
    return 0 if all(r["error"] < 1e-2 for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
