#!/usr/bin/env python3
"""cpu_peer.py: attention on the CPU, this library beside PyTorch's scaled_dot_product_attention.

    cpu_peer.py LIBATTN PEAK [--threads N] [--tries N] [--length N] [--only WORD]
                [--type TYPE] [--cpu-time] [--flex]

LIBATTN is libattn.so, PEAK the program of cpu_peak.c. Both libraries take turns within one process,
on the same tensors; a figure is the median of the tries, of the wall's clock or, on a shared machine,
of the CPU time of one thread (--cpu-time). The peer is scaled_dot_product_attention or, of forward
alone, FlexAttention compiled (--flex --only S). GFLOP/s count the visible pairs: 4 D for a
pair forward, 10 D backward. The peaks are measured anew before and after each case, whose share is
that of their mean. Before anything is timed the outputs are compared.
"""
import argparse
import ctypes as C
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F

FORWARD, BACKWARD = 1, 2
clock = time.perf_counter


class Tensor(C.Structure):
    _fields_ = [("data", C.c_void_p), ("device_type", C.c_int32), ("device_id", C.c_int32),
                ("ndim", C.c_int32), ("code", C.c_uint8), ("bits", C.c_uint8),
                ("lanes", C.c_uint16), ("shape", C.POINTER(C.c_int64)),
                ("strides", C.POINTER(C.c_int64)), ("byte_offset", C.c_uint64)]


P = C.POINTER(Tensor)


class Call(C.Structure):
    _fields_ = ([("size", C.c_uint32), ("flags", C.c_uint32), ("scale", C.c_double),
                 ("dropout", C.c_double), ("seed", C.c_uint64), ("seed_at", C.c_void_p),
                 ("offset", C.c_uint32), ("reserved", C.c_uint32)]
                + [(n, C.c_int64) for n in "b0 h0 i0 k0 batch nh hk nq nk".split()]
                + [(n, P) for n in ("q k v sink q_offsets k_offsets q_used k_used q_scale k_scale "
                                    "v_scale").split()]
                + [("blocks", C.c_void_p), ("q_longest", C.c_int64), ("k_longest", C.c_int64)]
                + [(n, P) for n in "o lse dout dlse dq dk dv dsink".split()]
                + [("captures", C.c_void_p), ("n_captures", C.c_int64)])


class DeviceOptions(C.Structure):
    _fields_ = [("size", C.c_uint32), ("threads", C.c_int32)]


class PlanInfo(C.Structure):
    _fields_ = [("size", C.c_uint32), ("reserved", C.c_uint32), ("workspace", C.c_uint64),
                ("flops", C.c_double), ("bytes", C.c_double), ("blocks", C.c_int64),
                ("part", C.c_int64), ("full", C.c_int64), ("kernel", C.c_char * 64)]


class Attn:
    def __init__(self, path, threads):
        self.lib = C.CDLL(path)
        self.lib.attn_error.restype = C.c_char_p
        self.lib.attn_sizeof.restype = C.c_size_t
        for name, made in (("attn_call", Call), ("attn_plan_info", PlanInfo)):
            assert self.lib.attn_sizeof(name.encode()) == C.sizeof(made), name
        self.device = C.c_void_p()
        options = DeviceOptions(C.sizeof(DeviceOptions), threads)
        self.check(self.lib.attn_device_open(b"cpu", C.byref(options), C.byref(self.device)))

    def check(self, status):
        if status < 0:
            raise RuntimeError(self.lib.attn_error().decode())

    def plan(self, direction, tensors, text):
        """A function that runs the call once, and what the plan says of it."""
        call, keep = Call(size=C.sizeof(Call)), [tensors]
        for name, x in tensors.items():
            shape = (C.c_int64 * x.dim())(*x.shape)
            code = {torch.float32: (2, 32), torch.bfloat16: (4, 16)}[x.dtype]
            keep.append(shape)
            keep.append(Tensor(x.data_ptr(), 1, 0, x.dim(), *code, 1, shape, None, 0))
            setattr(call, name, C.pointer(keep[-1]))
        variant, plan = C.c_void_p(), C.c_void_p()
        self.check(self.lib.attn_variant_parse(text.encode(), C.byref(variant)))
        self.check(self.lib.attn_plan_new(self.device, direction, C.byref(call), variant,
                                          C.byref(plan)))
        info = PlanInfo(size=C.sizeof(PlanInfo))
        self.check(self.lib.attn_plan_query(plan, C.byref(info)))
        space = torch.empty(info.workspace + 64, dtype=torch.uint8)
        at = C.c_void_p((space.data_ptr() + 63) // 64 * 64)
        keep += [space, variant]
        return lambda: self.check(keep and self.lib.attn_run(plan, C.byref(call), at, None)), info


def timed(functions, tries):
    """Medians of the functions' times, which take turns."""
    times = [[] for _ in functions]
    for _ in range(tries):
        for spent, f in zip(times, functions):
            start = clock()
            f()
            spent.append(clock() - start)
    return [statistics.median(t) for t in times]


def make(B, H, HK, NQ, NK, D, dtype):
    torch.manual_seed(1)
    heads = {"q": (H, NQ), "k": (HK, NK), "v": (HK, NK), "o": (H, NQ), "dout": (H, NQ),
             "dq": (H, NQ), "dk": (HK, NK), "dv": (HK, NK)}
    t = {n: torch.randn(B, h, rows, D, dtype=dtype) for n, (h, rows) in heads.items()}
    t["lse"] = torch.empty(B, H, NQ)
    return t


def peaks_now(options):
    lines = subprocess.run([options.peak, "0" if options.cpu_time else str(options.threads)],
                           check=True, capture_output=True, text=True).stdout.split("\n")
    return {x.split()[0]: float(x.split()[1]) for x in lines if x}


def timed_beside_peaks(options, functions):
    before = peaks_now(options)
    times = timed(functions, options.tries)
    after = peaks_now(options)
    return times, {n: (before[n] + after[n]) / 2 for n in before}


def flex_of(inputs, causal):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    N, mask = inputs[0].shape[2], None
    if causal:
        mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, N, N, device="cpu")
    flex = torch.compile(flex_attention)
    return lambda: flex(*inputs, block_mask=mask)


def case(attn, options, name, shape, dtype, causal, text=None, grad=True):
    B, H, HK, NQ, NK, D = shape
    t = make(*shape, dtype)
    text = text or ("k <= q" if causal else "true")
    inputs = {n: t[n] for n in ("q", "k", "v", "o", "lse")}
    forward, info = attn.plan(FORWARD, inputs, text)
    peer_in = [t[n].clone().requires_grad_(grad) for n in "qkv"]

    def peer():
        return F.scaled_dot_product_attention(*peer_in, is_causal=causal, enable_gqa=H != HK)

    if options.flex:
        peer, grad = flex_of([t[n] for n in "qkv"], causal), False
    functions = [forward, lambda: peer().detach()]
    forward()
    if text in ("true", "k <= q"):
        off = (peer().detach().float() - t["o"].float()).abs().max().item()
        assert off < (2e-5 if dtype == torch.float32 else 4e-2), off
    (ours, theirs), peaks = timed_beside_peaks(options, functions)
    report(peaks, name, "forward", dtype, info.flops, ours, theirs, info)
    if not grad:
        return ours
    backward, info_b = attn.plan(BACKWARD, t, text)

    def both():
        forward()
        backward()

    def peer_both():
        for x in peer_in:
            x.grad = None
        peer().backward(t["dout"])

    both()
    peer_both()
    for n, x in zip(("dq", "dk", "dv"), peer_in):
        off = (x.grad.float() - t[n].float()).abs().max().item()
        assert off < (1e-4 if dtype == torch.float32 else 0.3), (n, off)
    (ours, theirs), peaks = timed_beside_peaks(options, [both, peer_both])
    report(peaks, name, "both", dtype, info.flops + info_b.flops, ours, theirs, info_b)
    return ours


def report(peaks, name, what, dtype, flops, ours, theirs, info):
    pairs = {b"avx512bf16": "pairs", b"amx": "tiles"} if dtype == torch.bfloat16 else {}
    peak = peaks[pairs.get(info.kernel.split()[0], "fma")]
    rate = 1e-9 * flops / ours
    share = f"{100 * rate / peak:4.0f} % of {peak:.0f}"
    read = f"{1e-9 * info.bytes / ours:6.1f} GB/s" if what == "decode" else ""
    print(f"| {name} | {str(dtype)[6:]} | {what} | {1e3 * ours:.2f} | {1e3 * theirs:.2f} | "
          f"{theirs / ours:.2f} | {rate:.0f} | {share} | {info.workspace / 2**20:.2f} | {read}",
          flush=True)


def decode(attn, options, dtype, shape):
    t = make(*shape, dtype)
    forward, info = attn.plan(FORWARD, {n: t[n] for n in ("q", "k", "v", "o", "lse")}, "true")
    heads = shape[1] != shape[2]

    def peer():
        with torch.no_grad():
            return F.scaled_dot_product_attention(t["q"], t["k"], t["v"], enable_gqa=heads)

    forward()
    assert (peer().float() - t["o"].float()).abs().max() < 2e-2
    (ours, theirs), peaks = timed_beside_peaks(options, [forward, peer])
    name = "decode B{} H{}/{} S{} D{}".format(shape[0], shape[1], shape[2], shape[4], shape[5])
    print(f"| {name} | {str(dtype)[6:]} | decode | {1e3 * ours:.2f} | {1e3 * theirs:.2f} | "
          f"{theirs / ours:.2f} | {1e-9 * info.bytes / ours:.1f} GB/s | "
          f"{100e-9 * info.bytes / ours / peaks['read']:.0f} % of {peaks['read']:.1f} | {info.workspace / 2**20:.2f} |",
          flush=True)


def window(attn, options):
    shape = (1, 1, 1, 32768, 32768, 64)
    t = make(*shape, torch.float32)
    inputs = {n: t[n] for n in ("q", "k", "v", "o", "lse")}
    runs = [attn.plan(FORWARD, inputs, text)[0]
            for text in ("k <= q", "k <= q && q - k < 256")]
    full, part = timed(runs, max(3, options.tries // 3))
    print(f"window 256 at S 32768: {1e3 * part:.2f} ms of {1e3 * full:.1f} ms causal, "
          f"{100 * part / full:.2f} %")


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("libattn")
    parse.add_argument("peak")
    parse.add_argument("--threads", type=int, default=2)
    parse.add_argument("--tries", type=int, default=9)
    parse.add_argument("--only", default="")
    parse.add_argument("--length", type=int, default=4096)
    parse.add_argument("--type", default="", help="float32 or bfloat16 alone")
    parse.add_argument("--cpu-time", action="store_true")
    parse.add_argument("--flex", action="store_true")
    options = parse.parse_args()
    if options.cpu_time:
        global clock
        clock = time.process_time
        options.threads = 1
    torch.set_num_threads(options.threads)
    attn = Attn(options.libattn, options.threads)
    print(f"torch {torch.__version__}, {options.threads} threads")
    print("| case | type | what | attn ms | torch ms | ratio | GFLOP/s | of peak | MiB |")
    for dtype in (torch.float32, torch.bfloat16):
        if options.type not in str(dtype):
            continue
        for D in (64, 128):
            for causal in (False, True):
                N = options.length
                name = f"B1 H16 S{N} D{D}" + (" causal" if causal else "")
                if options.only in name:
                    case(attn, options, name, (1, 16, 16, N, N, D), dtype, causal)
        if options.only in "decode":
            decode(attn, options, dtype, (8, 32, 8, 1, 8192, 128))
            decode(attn, options, dtype, (1, 1, 1, 1, 131072, 128))
    if options.only in "window":
        window(attn, options)


if __name__ == "__main__":
    main()
