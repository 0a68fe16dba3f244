"""device_check.py: what only a real device shows: graphs, streams, contexts, memory.

    python3 tests/device_check.py [--library build/libattn.so] [--device cuda:0]

Who calls it: tests/device_run.sh. Each check is a function; the last line counts them.
"""
import argparse
import ctypes
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench"))
import gpu_bench as gb  # noqa: E402
import torch  # noqa: E402

U8, I32 = (1, 8), (0, 32)


def inputs(B=2, H=4, S=777, D=64, seed=0):
    torch.manual_seed(seed)
    return [torch.randn(B, S, H, D, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
            for _ in range(3)]


def fresh(call):
    """The results of a run, and NaN where they stood."""
    torch.cuda.synchronize()
    out = call.out.clone(), call.lse.clone()
    call.out.fill_(float("nan"))
    call.lse.fill_(float("nan"))
    torch.cuda.synchronize()
    return out


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b))


def check_graph(library):
    """A run is captured, and replays with other data in the same memory."""
    q, k, v = inputs()
    for causal in (False, True):
        call = gb.Attn(library, q, k, v, causal)
        call()
        want = fresh(call)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        fresh(call)
        graph.replay()
        assert same(fresh(call), want), "a replay has other bits"
        q.mul_(0.5)
        graph.replay()
        got = fresh(call)
        call()
        assert same(fresh(call), got), "a replay did not see new data"
        assert not same(got, want)


def check_streams(library):
    """Two plans' runs on two streams at once, each with its own workspace."""
    calls = [gb.Attn(library, *inputs(S=s, seed=s), True) for s in (512, 1500)]
    want = []
    for call in calls:
        call()
        want.append(fresh(call))
    streams = [torch.cuda.Stream() for _ in calls]
    for _ in range(20):
        for call, stream in zip(calls, streams):
            with torch.cuda.stream(stream):
                call()
    for call, right in zip(calls, want):
        assert same(fresh(call), right)


def check_order(library):
    """A run comes after what its stream was given, and before what comes later."""
    q, k, v = inputs(S=2048)
    call = gb.Attn(library, q, k, v, False)
    stream = torch.cuda.Stream()
    call()
    want = fresh(call)
    kept = q.clone()
    q.zero_()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        q.copy_(kept)
        call()
        q.zero_()
    assert same(fresh(call), want)


def check_returns(library):
    """A run returns before the device has done it."""
    q, k, v = inputs(S=1024)
    call = gb.Attn(library, q, k, v, False)
    call()
    torch.cuda.synchronize()
    torch.cuda._sleep(500_000_000)
    call()
    assert not torch.cuda.current_stream().query(), "the run waited for its stream"
    torch.cuda.synchronize()


def check_context(library):
    """The caller's context stays current; memory of attn is memory of PyTorch's context."""
    driver = ctypes.CDLL("libcuda.so.1")
    before, after, at = gb.pointer(), gb.pointer(), gb.pointer()
    driver.cuCtxGetCurrent(ctypes.byref(before))
    library.check(library.c.attn_buffer_new(library.device, gb.u64(1 << 20), ctypes.byref(at)))
    library.c.attn_buffer_release(library.device, at)
    driver.cuCtxGetCurrent(ctypes.byref(after))
    assert before.value and before.value == after.value


def check_memory(library):
    """What is too large is refused with a sentence, and nothing is lost."""
    at = gb.pointer()
    status = library.c.attn_buffer_new(library.device, gb.u64(1 << 45), ctypes.byref(at))
    assert status == -10 and not at.value, status
    assert b"out of memory" in library.c.attn_error(), library.c.attn_error()
    for _ in range(50):
        library.check(library.c.attn_buffer_new(library.device, gb.u64(1 << 33),
                                                ctypes.byref(at)))
        library.c.attn_buffer_release(library.device, at)


def check_copy(library):
    """Strided copies with conversion against PyTorch's."""
    for shape, axes in (((3, 5, 7, 64), (0, 2, 1, 3)), ((33, 65), (1, 0)),
                        ((2, 3, 4, 5), (3, 2, 1, 0))):
        x = torch.randn(shape, device="cuda")
        y = torch.full(shape, -1.0, device="cuda", dtype=torch.bfloat16).permute(axes)
        y = torch.empty_like(y, memory_format=torch.preserve_format)
        keep = []
        library.check(library.c.attn_tensor_copy(
            library.device, gb.describe(y, gb.BF16, keep),
            gb.describe(x.permute(axes), gb.F32, keep), None))
        assert torch.equal(y, x.permute(axes).bfloat16())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", default="build/libattn.so")
    parser.add_argument("--device", default="cuda:0")
    o = parser.parse_args()
    torch.zeros(1, device="cuda")
    library = gb.Library(os.path.abspath(o.library), o.device)
    library.c.attn_buffer_release.restype = None
    passed, failed = 0, 0
    for name, check in sorted(globals().items()):
        if name.startswith("check_"):
            try:
                check(library)
                passed += 1
                print("ok", name, flush=True)
            except Exception as why:  # a check that fails ends itself alone
                failed += 1
                print("not ok", name, type(why).__name__, why, flush=True)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
