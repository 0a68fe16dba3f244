"""gpu_bytes.py: bytes that attention moves on an NVIDIA GPU, counted by the chip, beside the
formulas of docs/io.md; and the memory that it takes.

    python3 tests/bench/gpu_bytes.py [--library PATH] [--device cuda:0]
        [--only launches|table|memory]

Who calls it: by hand, where there is ncu of Nsight Compute. It prints

    launches   of attn forward and backward: bytes from L2 to SMs and back, and of device memory,
               beside the formulas of what is asked for and what is compulsory
    table      FlashAttention-1's: N 1024, D 64, 16 heads, batch 64, forward and backward: device
               memory and time of PyTorch's MATH backend and of attn
    memory     peak of device memory over N, as in its table of memory: D 64, 8 heads, batch 16

ncu runs this file again with --child, once for each set of counters, so that no launch is repeated
for device memory: all tensors together are more than four times the second level of caches, and
what stays there from the launch before is as in any run.
"""
import argparse
import csv
import os
import subprocess
import sys

import torch
import torch.nn.functional as F
from gpu_attn import Attn, Gradient, Library
from gpu_bench import time_of
from torch.nn.attention import SDPBackend, sdpa_kernel

BATCH_INVARIANT = 4 # backward in two passes apart
DRAM = ["dram__bytes_read.sum", "dram__bytes_write.sum"]
SM = ["l1tex__m_xbar2l1tex_read_bytes.sum", "l1tex__m_l1tex2xbar_write_bytes.sum"]

# name: B, H, N, D, type, flags of backward
LAUNCHES = {"D 64, fused": (64, 16, 1024, 64, torch.float16, 0),
            "D 64, apart": (64, 16, 1024, 64, torch.float16, BATCH_INVARIANT),
            "D 128, fused": (8, 16, 4096, 128, torch.bfloat16, 0)}
# name: 16 bits throughout, or f32 between; dropout
MATH = {"MATH, f32 inside": (False, 0.0), "MATH, f16": (True, 0.0),
        "MATH, f16, dropout": (True, 0.1)}
FA1 = (64, 16, 1024, 64, torch.float16)

# Rows of a block and of a step in backward, lib/target_sm.c: fused, and apart.
FUSED = {64: (128, 128), 128: (128, 64)}
APART = 64


# -- Formulas: docs/io.md, bytes of all heads ------------------------------------------------------

def formulas(name, kernel):
    """A list of (launch, bytes to the SMs, from them, compulsory). A transfer between L2 and an SM
    has 32 bytes; what backward stores of a row 16 bytes at a time, or 8, counts twice."""
    B, H, N, D, _, flags = LAUNCHES[name]
    R = N * D * 2
    M = int(kernel.split("x")[0].split()[-1])

    def passing(M):
        return -(-N // M) * 2 * R
    lines = [("attn_fwd", R + passing(M), R + 4 * N, 4 * R + 4 * N)]
    before = 2 * R + 4 * N
    if flags & BATCH_INVARIANT:
        n = -(-N // APART)
        lines += [("attn_bwd_rows", before, 16 * N, before + 8 * N),
                  ("attn_bwd of queries", 2 * R + passing(APART) + 8 * N, 2 * R, 5 * R + 8 * N),
                  ("attn_bwd of keys", 2 * R + passing(APART) + n * 8 * N, 4 * R, 6 * R + 8 * N)]
    else:
        M, m = FUSED[D]
        n, X = -(-N // M), -(-N // m) * m * D * 4
        lines += [("attn_bwd_rows", before, 16 * N + X, before + 8 * N + X),
                  ("attn_bwd", 2 * R + passing(M) + n * 8 * N, 4 * R + n * X,
                   6 * R + 8 * N + 2 * X),
                  ("attn_bwd_dq", X, 2 * R, X + R)]
    return [(line[0], *(B * H * x for x in line[1:])) for line in lines]


# -- What is run ----------------------------------------------------------------------------------

def inputs(B, H, N, D, dtype):
    return [torch.randn(B, H, N, D, device="cuda", dtype=dtype) for _ in range(4)]


def make_attn(library, shape, flags=0, **members):
    q, k, v, dout = inputs(*shape)
    forward = Attn(library, q, k, v, **members)
    forward()
    backward = Gradient(forward, q, k, v, dout, flags=flags, **members)
    return lambda: (forward(), backward()), forward.kernel


def make_math(shape, reduced, dropout):
    q, k, v, dout = inputs(*shape)
    leaves = [x.requires_grad_() for x in (q, k, v)]

    def run():
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(reduced)
        with sdpa_kernel(SDPBackend.MATH):
            out = F.scaled_dot_product_attention(*leaves, dropout_p=dropout)
        torch.autograd.grad(out, leaves, dout)
    return run


def child(library, which):
    """Under ncu: each case once, behind a launch of a kernel that marks it."""
    cases = [lambda s=s: make_attn(library, s[:5], s[5])[0] for s in LAUNCHES.values()]
    if which == "dram":
        cases += [lambda m=m: make_math(FA1, *m) for m in MATH.values()]
    for make in cases:
        run = make()
        for _ in range(2):
            run()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        torch.cuda._sleep(1)
        run()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        del run
        torch.cuda.empty_cache()


def count(o, which, metrics):
    """Of each case, in order, a list of (kernel, {metric: number})."""
    command = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
               "--cache-control", "none", "--profile-from-start", "off", "--metrics",
               ",".join(metrics), sys.executable, os.path.abspath(__file__), "--child", which,
               "--library", o.library, "--device", o.device]
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    lines = [line for line in text.splitlines() if line.startswith('"')]
    if len(lines) < 3:
        raise RuntimeError("ncu counted nothing: " + text[-600:])
    rows = list(csv.DictReader(lines))
    cases = []
    for row in rows[1:]:
        if "spin" in row["Kernel Name"]:
            cases.append([])
            continue
        cases[-1].append((row["Kernel Name"].split("(")[0], {
            m: float(row[m].replace(",", "")) for m in metrics}))
    return cases


# -- Tables ---------------------------------------------------------------------------------------

def print_launches(o, library, dram):
    sm = count(o, "sm", SM)
    print("| launch | to SMs, MB | formula | from SMs | formula | both | device memory | "
          "compulsory | |\n|---|---|---|---|---|---|---|---|---|")
    for i, (name, case) in enumerate(LAUNCHES.items()):
        kernel = make_attn(library, case[:5], case[5])[1]
        lines = formulas(name, kernel)
        assert len(lines) == len(sm[i]) == len(dram[i]), (lines, sm[i], dram[i])
        whole = [0, 0]
        print("| *%s*: %s |" % (name, kernel))
        for (launch, to, back, least), (_, s), (_, d) in zip(lines, sm[i], dram[i]):
            got, memory = [s[m] for m in SM], sum(d.values())
            whole = [whole[0] + memory, whole[1] + least]
            print("| %s | %.1f | %.1f | %.1f | %.1f | %.3f | %.1f | %.1f | %.3f |" % (
                launch, got[0] / 1e6, to / 1e6, got[1] / 1e6, back / 1e6,
                sum(got) / (to + back), memory / 1e6, least / 1e6, memory / least))
        print("| all | | | | | | %.1f | %.1f | %.3f |" % (
            whole[0] / 1e6, whole[1] / 1e6, whole[0] / whole[1]))


def print_table(library, dram):
    runs = {"attn": (dram[0], lambda: make_attn(library, FA1)[0])}
    for counted, (name, how) in zip(dram[len(LAUNCHES):], MATH.items()):
        runs[name] = (counted, lambda how=how: make_math(FA1, *how))
    print("| forward and backward | launches | device memory, GB: read | written | both | ms |\n"
          "|---|---|---|---|---|---|")
    for name, (counted, make) in runs.items():
        read, written = (sum(c[m] for _, c in counted) / 1e9 for m in DRAM)
        print("| %s | %d | %.2f | %.2f | %.2f | %.3f |" % (
            name, len(counted), read, written, read + written, time_of(make())))
        torch.cuda.empty_cache()


def peak_of(make):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    run = make()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 2**20


def print_memory(library):
    print("| MiB at N | attn | MATH, f16 |\n|---|---|---|")
    for n in range(7, 17):
        shape = (16, 8, 2**n, 64, torch.float16)
        attn = peak_of(lambda: make_attn(library, shape)[0])
        math = peak_of(lambda: make_math(shape, True, 0.0)) if n <= 13 else 0
        print("| %d | %.0f | %s |" % (2**n, attn, "%.0f" % math if math else ""), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--library", default="build/libattn.so")
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--only", choices=["launches", "table", "memory"])
    p.add_argument("--child", choices=["dram", "sm"])
    o = p.parse_args()
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")
    o.library = os.path.abspath(o.library)
    library = Library(o.library, o.device)
    if o.child:
        return child(library, o.child)
    dram = count(o, "dram", DRAM) if o.only != "memory" else None
    if o.only in (None, "launches"):
        print_launches(o, library, dram)
    if o.only in (None, "table"):
        print_table(library, dram)
    if o.only in (None, "memory"):
        print_memory(library)


if __name__ == "__main__":
    main()
