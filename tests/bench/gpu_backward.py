"""gpu_backward.py: what backward costs on a GPU beside its plain form.

    python3 tests/bench/gpu_backward.py [--library PATH] [--device cuda:0] [--S 4096] [--D 128]

Who calls it: by hand; tests/bench/gpu_bench.py has the tables against peers. bf16, 16,384 tokens,
hidden size 2048. It prints

    deterministic   30 runs with other work on the device: how many have the bits of the first, and
                    the time against that of a plain plan
    slope           causal with ALiBi: what the gradient of captured slopes adds
    blocks          explicit lists of 128 x 128 blocks of a density: milliseconds forward and
                    backward, and those for each visible block
"""
import argparse
import ctypes
import os

import torch
from gpu_attn import Attn, Capture, Gradient, Library, describe, i64, pointer, u32
from gpu_bench import time_of

DETERMINISTIC = 2
ALIBI = "f32 slope[1]; k <= q ? s - slope[h] * abs(q - k) : -inf"


class Blocks(ctypes.Structure):
    _fields_ = [("size", u32), ("reserved", u32), ("bm", i64), ("bn", i64), ("counts", pointer),
                ("indices", pointer)]


def inputs(o):
    B, H = 16384 // o.S, 2048 // o.D
    return [torch.randn(B, o.S, H, o.D, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
            for _ in range(4)], H


def both(library, x, parts=None, captures=None, **members):
    q, k, v, dout = x
    made = Attn(library, q, k, v, parts, captures, **members)
    made()
    return made, Gradient(made, q, k, v, dout, parts, captures, **members)


def deterministic(library, o):
    x, _ = inputs(o)
    _, plain = both(library, x, ["k <= q"])
    _, det = both(library, x, ["k <= q"], flags=DETERMINISTIC)
    det()
    torch.cuda.synchronize()
    first = [t.clone() for t in det.results()]
    other, a = torch.cuda.Stream(), torch.randn(2048, 2048, device="cuda")
    same = 0
    for _ in range(30):
        with torch.cuda.stream(other):
            for _ in range(20):
                a @ a
        det()
        torch.cuda.synchronize()
        same += all(torch.equal(s, t) for s, t in zip(first, det.results()))
    p, d = time_of(plain), time_of(det)
    print("deterministic: %d of 30 runs have the first one's bits; %.3f ms, plain %.3f ms (%s): %.2f "
          "of its speed" % (same, d, p, plain.kernel, p / d))


class Captured(Gradient):
    """Which wants the gradient of its captures, too."""

    def bind(self, captures):
        super().bind(captures)
        held = ctypes.cast(self.call.captures, ctypes.POINTER(Capture))
        self.got = [torch.zeros_like(x) for x in captures.values()]
        for i, x in enumerate(self.got):
            held[i].grad = describe(x, self.keep)


def slope(library, o):
    x, H = inputs(o)
    slopes = {"slope": torch.exp2(-8.0 * torch.arange(1, H + 1, device="cuda") / H).float()}
    made, plain = both(library, x, ALIBI, slopes)
    captured = Captured(made, *x, ALIBI, slopes)
    p, c = time_of(plain), time_of(captured)
    print("slope: without its gradient %.3f ms (%s), with it %.3f ms (%s): %+.1f %%" % (
        p, plain.kernel, c, captured.kernel, 100 * (c / p - 1)))


def blocks(library, o):
    n = o.S // 128
    for density in (0.05, 0.1, 0.25, 0.5, 0.75, 1.0):
        x, _ = inputs(o)
        each = max(1, round(density * n))
        counts = torch.full((1, 1, n), each, device="cuda", dtype=torch.int32)
        rows = [torch.randperm(n, device="cuda")[:each].sort().values for _ in range(n)]
        indices = torch.stack(rows).to(torch.int32).reshape(1, 1, n, each).contiguous()
        keep = []
        b = Blocks(ctypes.sizeof(Blocks), 0, 128, 128, describe(counts, keep),
                   describe(indices, keep))
        keep.append(b)
        forward, backward = both(library, x, blocks=ctypes.cast(ctypes.pointer(b), pointer))
        f, d = time_of(forward), time_of(backward)
        print("blocks: density %.3f, forward %.3f ms, backward %.3f ms; over the density %.3f, %.3f"
              % (each / n, f, d, f * n / each, d * n / each), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--library", default="build/libattn.so")
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--S", type=int, default=4096)
    p.add_argument("--D", type=int, default=128)
    o = p.parse_args()
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")
    library = Library(os.path.abspath(o.library), o.device)
    deterministic(library, o)
    slope(library, o)
    blocks(library, o)


if __name__ == "__main__":
    main()
