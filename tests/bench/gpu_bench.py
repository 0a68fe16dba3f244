"""gpu_bench.py: attn on a GPU beside PyTorch's attention: speed, and results compared.

    python3 tests/bench/gpu_bench.py [--library [NAME=]PATH[@DEVICE]]... [--peer NAME]...
        [--variant NAME]... [--type bf16] [--backward] [--S N...] [--D N...] [--quick] [--json FILE]

    attn         any number of libraries, each on a device of its own name: "a=one.so@cuda:0"
    peers        flash, cudnn, efficient: backends of scaled_dot_product_attention;
                 flex: FlexAttention, compiled. Those that cannot do a case leave it out
    variants     VARIANTS below; the default is full and causal

Who calls it: tests/device_run.sh. 16,384 tokens a batch, hidden size 2048: B = 16384 / S,
H = 2048 / D. Times are of CUDA events: the median of 15 launches after 4, a pause before each
contestant, the order turned round every second round, then the median of the rounds. FLOPs are of
the visible pairs. Before a case is timed its results are compared with the first peer's. The last
lines are the geometric mean and the least of the ratios.
"""
import argparse
import json
import math
import os
import sys
import time

import torch
import torch.nn.functional as F
from gpu_attn import Attn, Gradient, Library
from torch.nn.attention import SDPBackend, sdpa_kernel

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
ALLOWED = {"bf16": 1e-2, "f16": 2e-3, "f32": 1e-4} # relative, of the norm; f32 peers differ most
WINDOW, CAP = 1024, 30.0


# -- Variants: what attn composes, which pairs are visible, what FlexAttention is told -------------

def seen_all(S):
    return S * S


def seen_causal(S):
    return S * S / 2


def seen_window(S):
    n = min(WINDOW, S)
    return n * (n + 1) / 2 + (S - n) * n


def mask_causal(b, h, q, k):
    return k <= q


def mask_window(b, h, q, k):
    return (k <= q) & (q - k < WINDOW)


def score_cap(s, b, h, q, k):
    return CAP * torch.tanh(s / CAP)


def score_alibi(H):
    slopes = torch.exp2(-8.0 * torch.arange(1, H + 1, device="cuda") / H)

    def score(s, b, h, q, k):
        return s - slopes[h] * (q - k)
    return score


# name: parts for H heads, visible pairs of S, (mask, score of H) of FlexAttention
VARIANTS = {
    "full": (lambda H: [], seen_all, (None, None)),
    "causal": (lambda H: [("causal",)], seen_causal, (mask_causal, None)),
    "alibi": (lambda H: [("causal",), ("alibi", H)], seen_causal, (mask_causal, score_alibi)),
    "window": (lambda H: [("window", WINDOW - 1, 0)], seen_window, (mask_window, None)),
    "softcap": (lambda H: [("causal",), ("softcap", CAP)], seen_causal,
                (mask_causal, lambda H: score_cap)),
}
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION}


# -- Contestants: each has results() and is called ------------------------------------------------

class Peer:
    def __init__(self, x, forward, backward):
        q, k, v, self.dout = x
        leaves = [t.detach().requires_grad_(backward) for t in (q, k, v)]
        self.forward = lambda: forward(*leaves)
        self.leaves = leaves if backward else None
        with torch.set_grad_enabled(backward):
            self.out = self.forward()
        self.got = [self.out]
        self()

    def __call__(self):
        if self.leaves:
            self.got = torch.autograd.grad(self.out, self.leaves, self.dout, retain_graph=True)
        else:
            with torch.no_grad():
                self.got = [self.forward()]

    def results(self):
        return self.got


def peer_sdpa(backend, causal):
    def run(q, k, v):
        with sdpa_kernel(BACKENDS[backend]):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return run


def peer_flex(variant, S, H):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    mask, score = VARIANTS[variant][2]
    blocks = create_block_mask(mask, None, None, S, S, device="cuda") if mask else None
    mod = score(H) if score else None
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q, k, v, score_mod=mod, block_mask=blocks)


def make_peer(name, x, o, variant, S, H):
    if name == "flex":
        return Peer(x, peer_flex(variant, S, H), o.backward)
    if variant not in ("full", "causal"):
        raise NotImplementedError("no such mask")
    return Peer(x, peer_sdpa(name, variant == "causal"), o.backward)


def make_attn(library, x, o, variant, H):
    q, k, v, dout = x
    parts = VARIANTS[variant][0](H)
    attn = Attn(library, q, k, v, parts)
    attn()
    torch.cuda.synchronize()
    return Gradient(attn, q, k, v, dout, parts) if o.backward else attn


# -- Timing ---------------------------------------------------------------------------------------

def median(values):
    return sorted(values)[len(values) // 2]


def time_of(fn, launches=15, warm=4):
    """Milliseconds of a launch on the device; the host is ahead, so its time does not count."""
    for _ in range(warm):
        fn()
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000)
    events = []
    for _ in range(launches):
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        fn()
        end.record()
        events.append((begin, end))
    torch.cuda.synchronize()
    return median([begin.elapsed_time(end) for begin, end in events])


def relative(a, b):
    return max(((x.double() - y.double()).norm() / y.double().norm()).item()
               for x, y in zip(a, b))


def run_case(o, libraries, variant, S, D):
    B, H = o.tokens // S, o.hidden // D
    x = [torch.randn(B, S, H, D, device="cuda", dtype=DTYPES[o.type]).transpose(1, 2)
         for _ in range(4)]
    made, why = {}, []
    for name, library in libraries.items():
        made[name] = make_attn(library, x, o, variant, H)
        made[name]()
    for name in o.peer:
        try:
            made[name] = make_peer(name, x, o, variant, S, H)
        except Exception as no:  # whatever a peer raises where it cannot do a case
            why.append("%s: %s" % (name, str(no).split("\n")[0]))
    torch.cuda.synchronize()
    peers = [name for name in o.peer if name in made]
    errors = {name: relative(made[name].results(), made[peers[0]].results()) if peers else None
              for name in libraries}
    pairs = VARIANTS[variant][1](S) * B * H
    flops = pairs * D * (10 if o.backward else 4)
    rates = {name: [] for name in made}
    for n in range(o.rounds):
        for name in list(made) if n % 2 == 0 else list(made)[::-1]:
            torch.cuda.synchronize()
            time.sleep(o.pause)  # every contestant begins with the same power budget
            rates[name].append(flops / time_of(made[name]) / 1e9)
    return {"variant": variant, "S": S, "D": D, "type": o.type, "backward": o.backward,
            "rate": {name: median(rates[name]) for name in made}, "error": errors,
            "seconds": {name: made[name].seconds for name in libraries},
            "kernel": {name: made[name].kernel for name in libraries}, "left_out": why,
            "rounds": rates}


# -- Tables ---------------------------------------------------------------------------------------

def line_of(r, libraries, o):
    cells = ["%-8s %6d %4d" % (r["variant"], r["S"], r["D"])]
    cells += ["%7.1f" % r["rate"][n] if n in r["rate"] else "      -"
              for n in list(libraries) + o.peer]
    cells += ["%5.2f" % (r["rate"][a] / r["rate"][p]) if p in r["rate"] else "    -"
              for a in libraries for p in o.peer]
    error = [e for e in r["error"].values() if e is not None]
    wrong = any(not e < ALLOWED[o.type] for e in error)
    cells += ["%.1e" % max(error) if error else "-", next(iter(r["kernel"].values()))]
    return "  ".join(cells) + ("  WRONG" if wrong else ""), wrong


def print_means(results, libraries, o):
    for a in libraries:
        for p in o.peer:
            ratios = [r["rate"][a] / r["rate"][p] for r in results if p in r["rate"]]
            if ratios:
                mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
                print("%s / %s: geometric mean %.3f, least %.3f, of %d" % (
                    a, p, mean, min(ratios), len(ratios)))


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--library", action="append", help="[NAME=]PATH[@DEVICE]")
    p.add_argument("--peer", action="append", choices=[*BACKENDS, "flex", "none"])
    p.add_argument("--variant", nargs="+", choices=VARIANTS, default=["full", "causal"])
    p.add_argument("--type", choices=DTYPES, default="bf16")
    p.add_argument("--backward", action="store_true")
    p.add_argument("--S", type=int, nargs="+", default=[1024, 4096, 16384])
    p.add_argument("--D", type=int, nargs="+", default=[64, 128, 256])
    p.add_argument("--quick", action="store_true", help="S = 4096 alone")
    p.add_argument("--tokens", type=int, default=16384)
    p.add_argument("--hidden", type=int, default=2048)
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("--pause", type=float, default=0.25)
    p.add_argument("--json")
    o = p.parse_args()
    o.peer = [] if o.peer == ["none"] else o.peer or ["flash"]
    o.S = [4096] if o.quick else o.S
    return o


def open_libraries(given):
    libraries = {}
    for text in given or ["build/libattn.so"]:
        name, _, path = text.rpartition("=")
        path, _, device = path.partition("@")
        libraries[name or "attn"] = Library(os.path.abspath(path), device or "cuda:0")
    return libraries


def main():
    o = arguments()
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")
    libraries = open_libraries(o.library)
    print(torch.cuda.get_device_name(0), "torch", torch.__version__, "TFLOP/s,",
          "backward," if o.backward else "forward,", o.type)
    print("  ".join(["%-8s %6s %4s" % ("variant", "S", "D")]
                    + ["%7s" % n for n in list(libraries) + o.peer]
                    + ["%s/%s" % (a, p) for a in libraries for p in o.peer] + ["error", "kernel"]))
    results, failed, left_out = [], 0, set()
    for S in o.S:
        for D in o.D:
            for variant in o.variant:
                try:
                    r = run_case(o, libraries, variant, S, D)
                except RuntimeError as why:
                    print("FAILED %s S=%d D=%d: %s" % (variant, S, D, why), flush=True)
                    failed += 1
                    continue
                line, wrong = line_of(r, libraries, o)
                results.append(r)
                left_out.update(r["left_out"])
                failed += wrong
                print(line, flush=True)
    for why in sorted(left_out):
        print("left out:", why)
    print_means(results, libraries, o)
    if o.json:
        with open(o.json, "w") as file:
            json.dump(results, file, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
