/* host_call.h: tensors in host memory and a whole attention call made of them.

   Who includes it: the tests of plans, of the oracle, of bytes and of bundles. A test changes one
   member of a call that works. */
#ifndef ATTN_HOST_CALL_H
#define ATTN_HOST_CALL_H

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "attn_int.h"
}

namespace host {

/* A number in [-1, 1), a multiple of 2^-10, so that it is exact in f16 too. */
inline double noise(uint64_t n) {
    uint64_t z = n * 0x9e3779b97f4a7c15u + 0x1234567;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return static_cast<double>((z ^ z >> 31) % 2048) / 1024 - 1;
}

struct Tensor {
    std::vector<int64_t> shape, strides;
    std::vector<double> storage; /* doubles for their alignment */
    attn_tensor t{};

    Tensor(int type, std::vector<int64_t> extents) : shape(std::move(extents)) {
        int64_t n = 1;
        strides.resize(shape.size());
        for (size_t i = shape.size(); i-- > 0;) {
            strides[i] = n;
            n *= shape[i];
        }
        const int64_t bytes = n * attn__type_bytes(type);
        storage.assign(static_cast<size_t>(bytes + 7) / 8 + (n == 0), 0.0);
        t.data = storage.data();
        t.ndim = static_cast<int32_t>(shape.size());
        t.dtype = {static_cast<uint8_t>(type & 255), static_cast<uint8_t>(type >> 8), 1};
        t.shape = shape.data();
        t.strides = strides.data();
    }
    Tensor(const Tensor &) = delete;

    int type() const { return attn__type_of(&t); }
    int64_t count() const {
        int64_t n = 1;
        for (const int64_t extent : shape) {
            n *= extent;
        }
        return n;
    }
    /* Element n in row-major order. */
    char *at(int64_t n) const {
        int64_t offset = 0;
        for (size_t i = shape.size(); i-- > 0;) {
            offset += n % shape[i] * strides[i];
            n /= shape[i];
        }
        return static_cast<char *>(t.data) + offset * attn__type_bytes(type());
    }
    double get(int64_t n) const { return attn__get(at(n), type()); }
    void set(int64_t n, double x) { attn__set(at(n), type(), x); }
    Tensor &fill(uint64_t seed) {
        for (int64_t n = 0; n < count(); n++) {
            set(n, noise(seed * 1000003 + static_cast<uint64_t>(n)));
        }
        return *this;
    }
    Tensor &fill_all(double x) {
        for (int64_t n = 0; n < count(); n++) {
            set(n, x);
        }
        return *this;
    }
};
using Owned = std::unique_ptr<Tensor>;

inline Owned make(int type, std::vector<int64_t> shape) {
    return Owned(new Tensor(type, std::move(shape)));
}

/* Sizes and types; all but q, k, v, o and lse appear in the call when they are made. */
struct Call {
    int64_t B = 2, H = 4, HK = 2, NQ = 5, NK = 7, D = 8, DV = 6;
    int type = ATTN_F32, real = ATTN_F32; /* of q k v; of results */
    int lse_type = ATTN_F32;
    Owned q, k, v, o, lse, dout, dlse, dq, dk, dv, sink, dsink, slopes, dslopes;
    std::vector<attn_capture> captures;
    attn_call c{};

    /* [B][H][n][d], or [B * n][h][d] where packed. */
    Owned rows(int t, int64_t h, int64_t n, int64_t d, bool packed) const {
        return packed ? make(t, {B * n, h, d}) : make(t, {B, h, n, d});
    }
    void fill(bool q_packed = false, bool k_packed = false) {
        q = rows(type, H, NQ, D, q_packed);
        k = rows(type, HK, NK, D, k_packed);
        v = rows(type, HK, NK, DV, k_packed);
        o = rows(real, H, NQ, DV, q_packed);
        lse = q_packed ? make(lse_type, {H, B * NQ}) : make(lse_type, {B, H, NQ});
        dlse = q_packed ? make(lse_type, {H, B * NQ}) : make(lse_type, {B, H, NQ});
        dout = rows(real, H, NQ, DV, q_packed);
        dq = rows(real, H, NQ, D, q_packed);
        dk = rows(real, HK, NK, D, k_packed);
        dv = rows(real, HK, NK, DV, k_packed);
        q->fill(1);
        k->fill(2);
        v->fill(3);
        dout->fill(4);
        dlse->fill(5);
        c.size = sizeof c;
        c.q = &q->t;
        c.k = &k->t;
        c.v = &v->t;
        c.o = &o->t;
        c.lse = &lse->t;
        c.dout = &dout->t;
        c.dq = &dq->t;
        c.dk = &dk->t;
        c.dv = &dv->t;
    }
    void add_sink() {
        sink = make(ATTN_F32, {H});
        dsink = make(ATTN_F32, {H});
        sink->fill(6);
        c.sink = &sink->t;
        c.dsink = &dsink->t;
    }
    /* A tensor that the variant reads by `name`, and its gradient. */
    void capture(const char *name, const Tensor *value, const Tensor *grad) {
        captures.push_back({name, value ? &value->t : nullptr, grad ? &grad->t : nullptr, 0});
        c.captures = captures.data();
        c.n_captures = static_cast<int64_t>(captures.size());
    }
};

/* A call in f64 throughout. */
struct Exact : Call {
    Exact() { type = real = lse_type = ATTN_F64; }
};
/* So small that differences of every element are quick. */
struct Small : Exact {
    Small() {
        D = 3;
        DV = 2;
        NQ = 3;
        NK = 4;
    }
};

struct Device {
    attn_device *d = nullptr;
    int status;
    explicit Device(const char *name) : status(attn_device_open(name, nullptr, &d)) {}
    ~Device() { attn_device_release(d); }
    Device(const Device &) = delete;
};

struct Variant {
    attn_variant *v = nullptr;
    int status;
    explicit Variant(const char *text) : status(attn_variant_parse(text, &v)) {}
    ~Variant() { attn_variant_release(v); }
    Variant(const Variant &) = delete;
};

/* Plans and runs; the status of whichever fails, else ATTN_OK. */
inline int run(attn_device *device, int direction, const attn_call &c,
               const attn_variant *variant) {
    attn_plan *plan = nullptr;
    int status = attn_plan_new(device, direction, &c, variant, &plan);
    attn_plan_info info{};
    info.size = sizeof info;
    if (status == ATTN_OK) {
        status = attn_plan_query(plan, &info);
    }
    if (status == ATTN_OK) {
        void *workspace = nullptr;
        status = attn_buffer_new(device, info.workspace, &workspace);
        if (status == ATTN_OK) {
            status = attn_run(plan, &c, workspace, nullptr);
        }
        attn_buffer_release(device, workspace);
    }
    attn_plan_release(plan);
    return status;
}

} // namespace host

#endif
