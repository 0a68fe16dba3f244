"""gpu_attn.py: attn on PyTorch's memory and streams, through its C functions.

Who imports it: gpu_bench.py, tests/device_check.py. An Attn is a plan of forward and a run of it, a
Gradient the same of backward; tensors are (B, H, S, D) views of any strides.
"""
import ctypes
import time

import torch

FORWARD, BACKWARD = 1, 2
F32, I32, U8 = (2, 32), (0, 32), (1, 8)
TYPES = {torch.bfloat16: (4, 16), torch.float16: (2, 16), torch.float32: F32, torch.int32: I32,
         torch.uint8: U8, torch.bool: (6, 8)}
u8, u16, u32, i32 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_int32
u64, i64, f64, pointer = ctypes.c_uint64, ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


class Tensor(ctypes.Structure):
    _fields_ = [("data", pointer), ("device", i32 * 2), ("ndim", i32), ("code", u8), ("bits", u8),
                ("lanes", u16), ("shape", ctypes.POINTER(i64)), ("strides", ctypes.POINTER(i64)),
                ("byte_offset", u64)]


class Capture(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", pointer), ("grad", pointer), ("number", f64)]


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
    """The library at `path` and a device of it."""

    def __init__(self, path, device):
        self.c = ctypes.CDLL(path)
        self.c.attn_error.restype = ctypes.c_char_p
        self.c.attn_sizeof.restype = ctypes.c_size_t
        self.c.attn_buffer_release.restype = self.c.attn_buffer_retire.restype = None
        self.c.attn_plan_release.restype = None
        for name, struct in (("attn_tensor", Tensor), ("attn_call", Call),
                             ("attn_capture", Capture), ("attn_plan_info", Info)):
            assert self.c.attn_sizeof(name.encode()) == ctypes.sizeof(struct), name
        self.device = pointer()
        self.check(self.c.attn_device_open(device.encode(), None, ctypes.byref(self.device)))

    def check(self, status):
        if status < 0:
            raise RuntimeError(self.c.attn_error().decode())

    def variant(self, parts):
        """Of a text, or composed of a list of texts and of ready-made (name, number, ...)."""
        if not parts:
            return None
        made = []
        for part in [parts] if isinstance(parts, str) else parts:
            one = pointer()
            if isinstance(part, str):
                status = self.c.attn_variant_parse(part.encode(), ctypes.byref(one))
            else:
                numbers = (f64 * max(1, len(part) - 1))(*part[1:])
                status = self.c.attn_variant_ready(part[0].encode(), numbers, len(part) - 1,
                                                   ctypes.byref(one))
            self.check(status)
            made.append(one)
        whole = pointer()
        self.check(self.c.attn_variant_compose((pointer * len(made))(*made), len(made),
                                               ctypes.byref(whole)))
        return whole


def describe(x, keep):
    """What attn takes of a torch tensor; `keep` holds the arrays that it points to."""
    n, (code, bits) = x.dim(), TYPES[x.dtype]
    shape, strides = (i64 * n)(*x.shape), (i64 * n)(*x.stride())
    t = Tensor(x.data_ptr(), (i32 * 2)(0, 0), n, code, bits, 1, shape, strides, 0)
    keep += [x, shape, strides, t]
    return ctypes.cast(ctypes.pointer(t), pointer)


class Planned:
    """A plan, its call and its workspace. captures: tensors or numbers by name; members: what else
    the call has, tensors or numbers."""

    plan = None

    def __init__(self, library, direction, tensors, parts=None, captures=None, **members):
        self.library, self.keep, self.plan = library, [], pointer()
        call = self.call = Call(size=ctypes.sizeof(Call))
        self.set(**tensors, **members)
        self.bind(captures or {})
        info = self.info = Info(size=ctypes.sizeof(Info))
        variant = library.variant(parts)
        begin = time.time()
        library.check(library.c.attn_plan_new(library.device, direction, ctypes.byref(call),
                                              variant, ctypes.byref(self.plan)))
        self.seconds = time.time() - begin
        library.check(library.c.attn_plan_query(self.plan, ctypes.byref(info)))
        self.kernel = info.kernel.decode()
        self.workspace = torch.empty(max(1, info.workspace), dtype=torch.uint8, device="cuda")

    def set(self, **members):
        """Tensors and numbers of the call, from the next run on."""
        for name, x in members.items():
            setattr(self.call, name,
                    describe(x, self.keep) if isinstance(x, torch.Tensor) else x)

    def bind(self, captures):
        held = (Capture * max(1, len(captures)))()
        for at, (name, x) in zip(held, captures.items()):
            at.name = name.encode()
            if isinstance(x, torch.Tensor):
                at.value = describe(x, self.keep)
            else:
                at.number = x
        self.keep.append(held)
        self.call.captures = ctypes.cast(held, pointer)
        self.call.n_captures = len(captures)

    def __call__(self):
        stream = torch.cuda.current_stream().cuda_stream
        self.library.check(self.library.c.attn_run(
            self.plan, ctypes.byref(self.call), pointer(self.workspace.data_ptr()),
            pointer(stream)))

    def __del__(self):
        if self.plan:
            self.library.c.attn_plan_release(self.plan)


def unwritten(like, dtype=None):
    return torch.full_like(like, float("nan"), dtype=dtype)


class Attn(Planned):
    def __init__(self, library, q, k, v, parts=None, captures=None, **members):
        self.out = unwritten(q)
        self.lse = torch.full(q.shape[:3], float("nan"), device="cuda")
        super().__init__(library, FORWARD, dict(q=q, k=k, v=v, o=self.out, lse=self.lse), parts,
                         captures, **members)

    def results(self):
        return [self.out]


class Gradient(Planned):
    """Its forward, `made`, has run."""

    def __init__(self, made, q, k, v, dout, parts=None, captures=None, **members):
        self.made = made
        self.d = [unwritten(x) for x in (q, k, v)]
        super().__init__(made.library, BACKWARD,
                         dict(q=q, k=k, v=v, o=made.out, lse=made.lse, dout=dout, dq=self.d[0],
                              dk=self.d[1], dv=self.d[2]), parts, captures, **members)

    def results(self):
        return self.d
