"""device_check.py: what a real device alone shows: graphs, streams, threads, memory, faults.

    python3 tests/device_check.py [--library build/libattn.so] [--device cuda:0] [--suite PROGRAM]

Who calls it: tests/device_run.sh. Each check is a function; the last line counts them. --suite is
the conformance program, which a fresh process runs after each fault.
"""
import argparse
import ctypes
import os
import subprocess
import sys
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench"))
import torch  # noqa: E402
from gpu_attn import FORWARD, Attn, Gradient, Library, describe, pointer, u64  # noqa: E402

MEMORY, DRIVER, DETERMINISTIC = -10, -13, 2
options = None


def inputs(B=2, H=4, S=777, D=64, seed=0):
    torch.manual_seed(seed)
    return [torch.randn(B, S, H, D, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
            for _ in range(3)]


def mask(causal):
    return "k <= q" if causal else None


def fresh(call):
    """The results of a run, and NaN where they stood."""
    places = call.results() + ([call.lse] if isinstance(call, Attn) else [])
    torch.cuda.synchronize()
    out = [x.clone() for x in places]
    for x in places:
        x.fill_(float("nan"))
    torch.cuda.synchronize()
    return out


def result(call):
    call()
    return fresh(call)


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b))


# -- Graphs ---------------------------------------------------------------------------------------

class Graph:
    """A run captured by the driver's own calls, which can put another capture in its place."""

    def __init__(self, call):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.whole, self.stream = pointer(), torch.cuda.Stream()
        self.ask("cuGraphInstantiateWithFlags", ctypes.byref(self.whole), self.capture(call),
                 u64(0))

    def ask(self, name, *arguments):
        code = getattr(self.driver, name)(*arguments)
        assert code == 0, "%s answers %d" % (name, code)

    def capture(self, call):
        graph, stream = pointer(), pointer(self.stream.cuda_stream)
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            self.ask("cuStreamBeginCapture_v2", stream, 2)  # relaxed
            call()
            self.ask("cuStreamEndCapture", stream, ctypes.byref(graph))
        return graph

    def update(self, call):
        info = (u64 * 8)()
        self.ask("cuGraphExecUpdate_v2", self.whole, self.capture(call), ctypes.byref(info))

    def replay(self):
        torch.cuda.synchronize()
        self.ask("cuGraphLaunch", self.whole, pointer(self.stream.cuda_stream))
        torch.cuda.synchronize()


def check_graph(library):
    """A run is captured, and replays with other data in the same memory."""
    q, k, v = inputs()
    for causal in (False, True):
        call = Attn(library, q, k, v, mask(causal))
        want = result(call)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        fresh(call)
        graph.replay()
        assert same(fresh(call), want), "a replay has other bits"
        q.mul_(0.5)
        graph.replay()
        got = fresh(call)
        assert same(result(call), got), "a replay did not see new data"
        assert not same(got, want)


def check_graph_of_memory(library):
    """Lengths and the seed stand in memory: a replay takes what is there then."""
    q, k, v = inputs()
    used = torch.tensor([777, 500], dtype=torch.int32, device="cuda")
    seed = torch.tensor([7], dtype=torch.int64, device="cuda")
    call = Attn(library, q, k, v, "k <= q", dropout=0.2, seed_at=seed.data_ptr(), k_used=used)
    seen = [result(call)]
    graph = Graph(call)
    for lengths, number in (((777, 500), 7), ((13, 777), 7), ((0, 300), 7), ((13, 777), 2**40)):
        used.copy_(torch.tensor(lengths, dtype=torch.int32))
        seed.fill_(number)
        fresh(call)
        graph.replay()
        got = fresh(call)
        assert same(got, result(call)), "a replay with lengths %s has other bits" % (lengths,)
        seen.append(got)
    assert same(seen[0], seen[1])
    assert not any(torch.equal(seen[i][0], seen[j][0]) for i in range(1, 5) for j in range(1, i))


def check_graph_of_pointers(library):
    """Other tensors: a capture of them takes the place of the first in the instantiated graph."""
    for direction in (0, 1):
        one, two = [], []
        for made, seed in ((one, 1), (two, 2)):
            q, k, v = inputs(seed=seed)
            call = Attn(library, q, k, v, "k <= q")
            want = result(call)
            if direction:
                call()
                call = Gradient(call, q, k, v, torch.randn_like(q), "k <= q")
                want = result(call)
            made += [call, want]
        graph = Graph(one[0])
        graph.replay()
        assert same(fresh(one[0]), one[1])
        graph.update(two[0])
        graph.replay()
        assert same(fresh(two[0]), two[1])
        assert all(x.isnan().all() for x in fresh(one[0])), "the first tensors were written again"


# -- Streams and threads --------------------------------------------------------------------------

def two_calls(library):
    calls = [Attn(library, *inputs(S=s, seed=s), "k <= q") for s in (512, 1500)]
    return calls, [result(call) for call in calls]


def check_streams(library):
    """Two plans' runs on two streams at once, each with its own workspace."""
    calls, want = two_calls(library)
    streams = [torch.cuda.Stream() for _ in calls]
    for _ in range(20):
        for call, stream in zip(calls, streams):
            with torch.cuda.stream(stream):
                call()
    for call, right in zip(calls, want):
        assert same(fresh(call), right)


def same_plan(call, *tensors):
    """A call by the same plan, with results and a workspace of its own."""
    c, own = call.library.c, Attn(call.library, *tensors)
    c.attn_plan_release(own.plan)
    c.attn_plan_retain.restype = pointer
    own.plan = pointer(c.attn_plan_retain(call.plan))
    return own


def check_threads(library):
    """Two threads at once, each with its stream, plans made and runs launched; and one plan that
    both run, each into results and a workspace of its own."""
    _, want = two_calls(library)
    q, k, v = inputs(S=300)
    shared, failed = Attn(library, q, k, v), []
    right = result(shared)

    def work(which, s):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                own = same_plan(shared, q, k, v)
                for n in range(10):
                    call = Attn(library, *inputs_of[s], "k <= q")
                    torch.cuda.current_stream().synchronize()
                    call()
                    own()
                    torch.cuda.current_stream().synchronize()
                    if not (same([call.out, call.lse], want[which]) and
                            same([own.out, own.lse], right)):
                        failed.append("thread %d, turn %d" % (which, n))
        except Exception as why:  # a thread's end must not be overlooked
            failed.append(str(why))

    inputs_of = {s: inputs(S=s, seed=s) for s in (512, 1500)}
    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=x) for x in ((0, 512), (1, 1500))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed, failed


def check_devices(library):
    """Two devices at once, a thread each, forward and backward; then one thread in turns. The
    caller's device stays the current one."""
    if torch.cuda.device_count() < 2:
        print("skipped: one device alone")
        return
    libraries = [library, Library(os.path.abspath(options.library), "cuda:1")]
    want, failed = [None, None], []

    def calls_of(which):
        q, k, v = [x.to("cuda:%d" % which) for x in of_first]
        made = Attn(libraries[which], q, k, v, "k <= q")
        made()
        return [made, Gradient(made, q, k, v, torch.ones_like(q), "k <= q", flags=DETERMINISTIC)]

    def results(calls):
        calls[0]()  # its results, which backward reads, became NaN when they were looked at
        return [x.cpu() for call in reversed(calls) for x in result(call)]

    def work(which):
        try:
            with torch.cuda.device(which):
                calls = calls_of(which)
                want[which] = results(calls)
                for n in range(20):
                    if not same(results(calls), want[which]):
                        failed.append("device %d, turn %d" % (which, n))
        except Exception as why:  # a thread's end must not be overlooked
            failed.append(str(why))

    of_first = inputs(S=1024)
    threads = [threading.Thread(target=work, args=(which,)) for which in (0, 1)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed, failed
    assert same(want[0], want[1]), "two devices differ"
    for which in (0, 1, 0, 1):
        with torch.cuda.device(which):
            assert same(results(calls_of(which)), want[0])
            assert torch.cuda.current_device() == which
    print("# two devices: the same bits")


def check_order(library):
    """A run comes after what its stream was given, and before what comes later."""
    q, k, v = inputs(S=2048)
    call = Attn(library, q, k, v)
    stream = torch.cuda.Stream()
    want = result(call)
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
    call = Attn(library, q, k, v)
    call()
    torch.cuda.synchronize()
    torch.cuda._sleep(500_000_000)
    call()
    assert not torch.cuda.current_stream().query(), "the run waited for its stream"
    torch.cuda.synchronize()


# -- Contexts and memory --------------------------------------------------------------------------

def check_context(library):
    """What the caller has current stays so, PyTorch's context or one of its own; a device opened
    in the caller's own context takes that context's streams."""
    driver, index = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    first, own, opened, stream, at = [pointer() for _ in range(5)]

    def ask(name, *arguments):
        code = getattr(driver, name)(*arguments)
        assert code == 0, "%s answers %d" % (name, code)

    def current():
        now = pointer()
        ask("cuCtxGetCurrent", ctypes.byref(now))
        return now.value

    def use(device, stream):
        where, c = current(), library.c
        library.check(c.attn_buffer_new(device, u64(1 << 20), ctypes.byref(at)))
        library.check(c.attn_buffer_use(device, at, stream))
        library.check(c.attn_stream_sync(device, stream))
        c.attn_buffer_release(device, at)
        assert where and current() == where, "another context is current"

    first.value = current()
    use(library.device, pointer(torch.cuda.Stream().cuda_stream))
    ask("cuCtxGetDevice", ctypes.byref(index))
    ask("cuCtxCreate_v2", ctypes.byref(own), 0, index)  # current from here on
    try:
        assert current() == own.value != first.value
        use(library.device, None)
        ask("cuStreamCreate", ctypes.byref(stream), 1)
        library.check(library.c.attn_device_open(options.device.encode(), None,
                                                 ctypes.byref(opened)))
        use(opened, stream)
        library.c.attn_device_release(opened)
        ask("cuStreamDestroy_v2", stream)
    finally:
        ask("cuCtxDestroy_v2", own)
    assert current() == first.value


def check_memory(library):
    """What is too large is refused with a sentence, and nothing is lost."""
    at = pointer()
    status = library.c.attn_buffer_new(library.device, u64(1 << 45), ctypes.byref(at))
    assert status == MEMORY and not at.value, status
    assert b"out of memory" in library.c.attn_error(), library.c.attn_error()
    for _ in range(50):
        library.check(library.c.attn_buffer_new(library.device, u64(1 << 33), ctypes.byref(at)))
        library.c.attn_buffer_release(library.device, at)


def check_memory_in_order(library):
    """A retired buffer goes to a new one only when the stream's work on it has ended, and all that
    was on the NULL stream when it was first asked for."""
    bytes_ = 1 << 24
    stream, other, first, second = torch.cuda.Stream(), torch.cuda.Stream(), pointer(), pointer()
    new = library.c.attn_buffer_new_on
    library.check(new(library.device, u64(bytes_), pointer(stream.cuda_stream),
                      ctypes.byref(first)))
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
    library.check(library.c.attn_buffer_use(library.device, first, pointer(stream.cuda_stream)))
    library.c.attn_buffer_retire(library.device, first)
    library.check(new(library.device, u64(bytes_), pointer(other.cuda_stream),
                      ctypes.byref(second)))
    assert second.value != first.value, "the memory was still used"
    library.c.attn_buffer_release(library.device, second)
    for _ in range(2):
        torch.cuda.synchronize()
        library.check(new(library.device, u64(bytes_), pointer(other.cuda_stream),
                          ctypes.byref(second)))
        if second.value != first.value:
            library.c.attn_buffer_release(library.device, second)
    assert second.value == first.value, "the memory was free"
    library.c.attn_buffer_retire(library.device, second)
    library.check(library.c.attn_buffer_trim(library.device))


def check_copy(library):
    """Strided copies with conversion against PyTorch's."""
    for shape, axes in (((3, 5, 7, 64), (0, 2, 1, 3)), ((33, 65), (1, 0)),
                        ((2, 3, 4, 5), (3, 2, 1, 0))):
        x = torch.randn(shape, device="cuda")
        y = torch.full(shape, -1.0, device="cuda", dtype=torch.bfloat16).permute(axes)
        y = torch.empty_like(y, memory_format=torch.preserve_format)
        keep = []
        library.check(library.c.attn_tensor_copy(
            library.device, describe(y, keep), describe(x.permute(axes), keep), None))
        assert torch.equal(y, x.permute(axes).bfloat16())


# -- Faults: each in a process of its own ---------------------------------------------------------

def fault_illegal(library):
    """q lies where no memory is: every call that reaches the device says so (docs/errors.md)."""
    q, k, v = inputs(S=256)
    call = Attn(library, q, k, v)
    result(call)
    c, device, at, keep = library.c, library.device, pointer(), []
    bad = describe(q, keep)
    keep[-1].data = 1 << 44
    call.call.q = bad
    new, plan, held, stream = pointer(), pointer(), pointer(), torch.cuda.Stream()
    library.check(c.attn_buffer_new_on(device, u64(64), pointer(stream.cuda_stream),
                                       ctypes.byref(held)))
    call()  # launches
    answers = {
        "attn_stream_sync": c.attn_stream_sync(device, None),
        "attn_run": c.attn_run(call.plan, ctypes.byref(call.call),
                               pointer(call.workspace.data_ptr()), None),
        "attn_buffer_new": c.attn_buffer_new(device, u64(64), ctypes.byref(at)),
        "attn_buffer_use": c.attn_buffer_use(device, held, pointer(stream.cuda_stream)),
        "attn_tensor_copy": c.attn_tensor_copy(device, describe(k, keep), describe(v, keep), None),
        "attn_random": c.attn_random(device, describe(k, keep), 1, u64(1), None),
        "attn_stream_new": c.attn_stream_new(device, ctypes.byref(new)),
        "attn_plan_new": c.attn_plan_new(device, FORWARD, ctypes.byref(call.call),
                                         library.variant("s + 0.125"), ctypes.byref(plan)),
    }
    wrong = {name: status for name, status in answers.items() if status != DRIVER}
    assert not wrong, wrong
    assert b"ILLEGAL_ADDRESS" in c.attn_error(), c.attn_error()
    assert c.attn_plan_query(call.plan, ctypes.byref(call.info)) == 0
    cpu = pointer()
    library.check(c.attn_device_open(b"cpu", None, ctypes.byref(cpu)))
    c.attn_plan_release(call.plan)
    call.plan = None


def fault_memory(library):
    """The device is full: the calls say so, and work again when it is not."""
    q, k, v = inputs(S=256)
    call = Attn(library, q, k, v)
    want, at, taken = result(call), pointer(), []
    size = 1 << 36
    while size >= 1 << 12:
        if library.c.attn_buffer_new(library.device, u64(size), ctypes.byref(at)) == 0:
            taken.append(at.value)
        else:
            size //= 2
    status = library.c.attn_buffer_new(library.device, u64(1 << 26), ctypes.byref(at))
    assert status == MEMORY, status
    assert same(result(call), want), "a run that needs no memory failed"
    for x in taken:
        library.c.attn_buffer_release(library.device, pointer(x))
    library.check(library.c.attn_buffer_new(library.device, u64(1 << 30), ctypes.byref(at)))
    library.c.attn_buffer_release(library.device, at)
    assert same(result(call), want)


def check_faults(library):
    """After each fault's process a fresh one passes a draw of the suite."""
    for name in ("illegal", "memory"):
        run = [sys.executable, __file__, "--library", options.library, "--device", options.device]
        done = subprocess.run(run + ["--fault", name], capture_output=True, text=True)
        assert "fault as documented" in done.stdout, (name, done.stdout, done.stderr[-600:])
        if options.suite:
            run = [options.suite, "--device", options.device, "--random", "1", "--vary", "8"]
            done = subprocess.run(run, capture_output=True, text=True)
            assert done.returncode == 0, (name, done.stdout[-600:])


def main():
    global options
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", default="build/libattn.so")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--suite")
    parser.add_argument("--fault")
    options = parser.parse_args()
    torch.zeros(1, device="cuda")
    library = Library(os.path.abspath(options.library), options.device)
    if options.fault:
        globals()["fault_" + options.fault](library)
        print("fault as documented", flush=True)
        os._exit(0)  # PyTorch's own end would ask the failed device
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
