"""gpu_bench.py: attn on a GPU beside PyTorch's flash attention, forward.

    python3 tests/bench/gpu_bench.py [--library build/libattn.so] [--device cuda:0] [--quick]
                                     [--json FILE] [--rounds N]

Who calls it: tests/device_run.sh. bf16, 16,384 tokens a batch, hidden size 2048: B = 16384 / S,
H = 2048 / D. Times are of CUDA events: the median of 15 launches after 4, a pause before each, the
order turned round every second round, then the median of the rounds. Causal work counts as half.
Before a case is timed its results are compared with PyTorch's.
"""
import argparse
import ctypes
import json
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

TOKENS, HIDDEN, BF16, F32 = 16384, 2048, (4, 16), (2, 32)
FORWARD = 1
u8, u16, u32, i32 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_int32
u64, i64, f64, pointer = ctypes.c_uint64, ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


class Tensor(ctypes.Structure):
    _fields_ = [("data", pointer), ("device", i32 * 2), ("ndim", i32), ("code", u8), ("bits", u8),
                ("lanes", u16), ("shape", ctypes.POINTER(i64)), ("strides", ctypes.POINTER(i64)),
                ("byte_offset", u64)]


class Call(ctypes.Structure):
    _fields_ = [("size", u32), ("flags", u32), ("scale", f64), ("dropout", f64), ("seed", u64),
                ("seed_at", pointer), ("offset", u32), ("alignment", u32)]
    _fields_ += [(name, i64) for name in "b0 h0 i0 k0 batch nh hk nq nk".split()]
    _fields_ += [(name, pointer) for name in
                 "q k v sink q_offsets k_offsets q_used k_used q_scale k_scale v_scale "
                 "blocks".split()]
    _fields_ += [("q_longest", i64), ("k_longest", i64)]
    _fields_ += [(name, pointer) for name in
                 "o lse dout dlse dq dk dv dsink captures".split()]
    _fields_ += [("n_captures", i64)]


class Info(ctypes.Structure):
    _fields_ = [("size", u32), ("block", u32), ("workspace", u64), ("flops", f64), ("bytes", f64),
                ("blocks", i64), ("part", i64), ("full", i64), ("kernel", ctypes.c_char * 64)]


class Library:
    def __init__(self, path, device):
        self.c = ctypes.CDLL(path)
        self.c.attn_error.restype = ctypes.c_char_p
        self.c.attn_sizeof.restype = ctypes.c_size_t
        for name, struct in (("attn_tensor", Tensor), ("attn_call", Call),
                             ("attn_plan_info", Info)):
            assert self.c.attn_sizeof(name.encode()) == ctypes.sizeof(struct), name
        self.device = pointer()
        self.check(self.c.attn_device_open(device.encode(), None, ctypes.byref(self.device)))

    def check(self, status):
        if status < 0:
            raise RuntimeError(self.c.attn_error().decode())

    def variant(self, text):
        variant = pointer()
        self.check(self.c.attn_variant_parse(text.encode(), ctypes.byref(variant)))
        return variant


def describe(x, dtype, keep):
    """What attn takes of a torch tensor; `keep` holds the arrays that it points to."""
    n = x.dim()
    shape, strides = (i64 * n)(*x.shape), (i64 * n)(*x.stride())
    t = Tensor(x.data_ptr(), (i32 * 2)(0, 0), n, dtype[0], dtype[1], 1, shape, strides, 0)
    keep += [x, shape, strides, t]
    return ctypes.cast(ctypes.pointer(t), pointer)


class Attn:
    """A plan and a run of it on PyTorch's memory and stream."""

    def __init__(self, library, q, k, v, causal):
        self.library, self.keep = library, []
        self.out = torch.full_like(q, float("nan"))
        self.lse = torch.full(q.shape[:3], float("nan"), device="cuda")
        call = self.call = Call(size=ctypes.sizeof(Call))
        for name, x in (("q", q), ("k", k), ("v", v), ("o", self.out)):
            setattr(call, name, describe(x, BF16, self.keep))
        call.lse = describe(self.lse, F32, self.keep)
        self.plan, info = pointer(), Info(size=ctypes.sizeof(Info))
        variant = library.variant("k <= q") if causal else None
        begin = time.time()
        library.check(library.c.attn_plan_new(library.device, FORWARD, ctypes.byref(call), variant,
                                              ctypes.byref(self.plan)))
        self.seconds = time.time() - begin
        library.check(library.c.attn_plan_query(self.plan, ctypes.byref(info)))
        self.kernel = info.kernel.decode()
        self.workspace = torch.empty(max(1, info.workspace), dtype=torch.uint8, device="cuda")

    def __call__(self):
        stream = torch.cuda.current_stream().cuda_stream
        self.library.check(self.library.c.attn_run(
            self.plan, ctypes.byref(self.call), pointer(self.workspace.data_ptr()),
            pointer(stream)))


def flash(q, k, v, causal):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), torch.no_grad():
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def median(values):
    return sorted(values)[len(values) // 2]


def time_of(fn, launches=15, warm=4):
    """Milliseconds of a launch."""
    for _ in range(warm):
        fn()
    torch.cuda.synchronize()
    times = []
    for _ in range(launches):
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        fn()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return median(times)


def relative(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def run_case(library, S, D, causal, rounds):
    B, H = TOKENS // S, HIDDEN // D
    q, k, v = (torch.randn(B, S, H, D, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
               for _ in range(3))
    attn = Attn(library, q, k, v, causal)
    attn()
    torch.cuda.synchronize()
    error = relative(attn.out, flash(q, k, v, causal))
    flops = 4.0 * B * H * S * S * D * (0.5 if causal else 1)
    contestants = [("attn", attn), ("flash", lambda: flash(q, k, v, causal))]
    rates = {"attn": [], "flash": []}
    for n in range(rounds):
        for name, fn in contestants if n % 2 == 0 else contestants[::-1]:
            torch.cuda.synchronize()
            time.sleep(0.25)  # every contestant begins with the same power budget
            rates[name].append(flops / time_of(fn) / 1e9)
    a, f = median(rates["attn"]), median(rates["flash"])
    return {"S": S, "D": D, "causal": causal, "attn": a, "flash": f, "ratio": a / f,
            "error": error, "compile_s": attn.seconds, "kernel": attn.kernel, "rounds": rates}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", default="build/libattn.so")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="S = 4096 alone")
    o = parser.parse_args()
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")
    library = Library(os.path.abspath(o.library), o.device)
    print(torch.cuda.get_device_name(0), "torch", torch.__version__, "TFLOP/s, forward, bf16")
    print("%-6s %6s %4s %8s %8s %6s %9s  %s" % ("mask", "S", "D", "attn", "flash", "ratio",
                                               "error", "kernel"))
    results, failed = [], 0
    for S in (4096,) if o.quick else (1024, 4096, 16384):
        for D in (64, 128, 256):
            for causal in (False, True):
                try:
                    r = run_case(library, S, D, causal, o.rounds)
                except RuntimeError as why:
                    print("FAILED S=%d D=%d causal=%s: %s" % (S, D, causal, why), flush=True)
                    failed += 1
                    continue
                results.append(r)
                wrong = not r["error"] < 1e-2
                failed += wrong
                print("%-6s %6d %4d %8.1f %8.1f %6.2f %9.2e  %s%s" % (
                    "causal" if causal else "full", S, D, r["attn"], r["flash"], r["ratio"],
                    r["error"], r["kernel"], "  WRONG" if wrong else ""), flush=True)
    if o.json:
        with open(o.json, "w") as file:
            json.dump(results, file, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
