// alias_test.cc: where tensors begin and what they share: promised alignment, results over inputs.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "host_call.h"

#include <cstring>

namespace {

using namespace host;

// A call in which every tensor that may meet another is there.
struct Every : Call {
    Owned scale = make(ATTN_F32, {1}), used;
    Every() {
        fill();
        add_sink();
        slopes = make(ATTN_F32, {H});
        dslopes = make(ATTN_F32, {H});
        capture("slopes", slopes.get(), dslopes.get());
        used = make(ATTN_I32, {B});
        used->fill_all(3);
        scale->fill_all(1);
        c.dlse = &dlse->t;
        c.q_scale = c.k_scale = c.v_scale = &scale->t;
        c.q_used = c.k_used = &used->t;
    }
};

} // namespace

TEST_CASE("what is written begins nowhere else") {
    const Device device("cpu");
    const Variant variant("s + slopes[h] * k");
    const struct {
        int direction;
        const char *arg;
        Owned Call::*written, Call::*other;
    } rows[] = {
        {ATTN_FORWARD, "o", &Call::o, &Call::q},
        {ATTN_FORWARD, "o", &Call::o, &Call::v},
        {ATTN_FORWARD, "o", &Call::o, &Call::slopes},
        {ATTN_FORWARD, "o", &Call::lse, &Call::o},
        {ATTN_FORWARD, "lse", &Call::lse, &Call::sink},
        {ATTN_BACKWARD, "dq", &Call::dq, &Call::q},
        {ATTN_BACKWARD, "dq", &Call::dq, &Call::o},
        {ATTN_BACKWARD, "dq", &Call::dq, &Call::dout},
        {ATTN_BACKWARD, "dq", &Call::dk, &Call::dq},
        {ATTN_BACKWARD, "dk", &Call::dv, &Call::dk},
        {ATTN_BACKWARD, "dv", &Call::dv, &Call::lse},
        {ATTN_BACKWARD, "dk", &Call::dk, &Call::dlse},
        {ATTN_BACKWARD, "dsink", &Call::dsink, &Call::sink},
        {ATTN_BACKWARD, "captures.slopes.grad", &Call::dslopes, &Call::slopes},
        {ATTN_BACKWARD, "dsink", &Call::dslopes, &Call::dsink},
    };
    for (const auto &row : rows) {
        Every e;
        REQUIRE(run(device.d, row.direction, e.c, variant.v) == ATTN_OK);
        (e.*row.written)->t.data = (e.*row.other)->t.data;
        CAPTURE(row.direction, row.arg);
        REQUIRE(run(device.d, row.direction, e.c, variant.v) == ATTN_LAYOUT);
        CAPTURE(attn_error());
        REQUIRE(std::string(attn_error_arg()) == row.arg);
    }
    // Inputs may be one another: k and v, for instance.
    Every e;
    e.DV = e.D;
    e.fill();
    e.c.v = &e.k->t;
    e.c.dlse = &e.dlse->t;
    REQUIRE(run(device.d, ATTN_FORWARD, e.c, variant.v) == ATTN_OK);
    // Forward looks at none of backward's tensors.
    e.dq->t.data = e.q->t.data;
    e.dslopes->t.data = e.slopes->t.data;
    REQUIRE(run(device.d, ATTN_FORWARD, e.c, variant.v) == ATTN_OK);
}

TEST_CASE("alignment: 16 bytes are promised, or what the call says") {
    const Device device("cpu");
    for (const int type : {ATTN_F32, ATTN_BF16}) {
        const unsigned bytes = type == ATTN_F32 ? 4 : 2;
        Call call;
        call.type = call.real = type;
        call.fill();
        const Owned o = make(type, {2, 4, 5, 16}); // more memory than needed
        for (const unsigned offset : {0u, 1u, bytes, 8u, 16u, 48u}) {
            call.o->t.data = o->t.data;
            call.o->t.byte_offset = offset;
            for (const unsigned promise : {0u, 1u, bytes, 8u, 16u}) {
                const unsigned wanted = promise == 0 ? 16 : promise < bytes ? bytes : promise;
                const uintptr_t at = reinterpret_cast<uintptr_t>(o->t.data) + offset;
                call.c.alignment = promise;
                CAPTURE(type, offset, promise);
                const int status = run(device.d, ATTN_FORWARD, call.c, nullptr);
                REQUIRE(status == (at % wanted ? ATTN_LAYOUT : ATTN_OK));
                if (status && at % bytes == 0) {
                    REQUIRE(std::string(attn_error_arg()) == "o");
                    const std::string text = std::to_string(wanted) + " bytes";
                    REQUIRE(std::strstr(attn_error(), text.c_str()) != nullptr);
                }
            }
        }
    }
    // Others are no part of the promise.
    Every e;
    const Owned sink = make(ATTN_F32, {8});
    e.sink->t.data = sink->t.data;
    e.sink->t.byte_offset = 4;
    const Variant variant("s + slopes[h] * k");
    REQUIRE(run(device.d, ATTN_FORWARD, e.c, variant.v) == ATTN_OK);
}

TEST_CASE("merge: in place into one of the states, over nothing else") {
    const Device device("cpu");
    const std::vector<int64_t> shape = {2, 3, 4, 5}, rows = {2, 3, 4};
    const Owned a = make(ATTN_F32, shape), b = make(ATTN_F32, shape), o = make(ATTN_F32, shape);
    const Owned la = make(ATTN_F32, rows), lb = make(ATTN_F32, rows), lo = make(ATTN_F32, rows);
    const Owned sink = make(ATTN_F32, {3});
    a->fill(1);
    b->fill(2);
    la->fill(3);
    lb->fill(4);
    const attn_tensor *const os[] = {&a->t, &b->t}, *const ls[] = {&la->t, &lb->t};
    auto merge = [&](const attn_tensor &to, const attn_tensor &lse) {
        return attn_merge(device.d, 2, os, ls, &sink->t, &to, &lse, nullptr);
    };
    REQUIRE(merge(o->t, lo->t) == ATTN_OK);
    const struct {
        const Owned &o, &lse;
        const char *arg;
    } refused[] = {{la, lo, "o_out"}, {o, b, "lse_out"}, {o, sink, "lse_out"}, {o, o, "lse_out"}};
    for (const auto &row : refused) {
        attn_tensor to = o->t, lse = lo->t;
        to.data = row.o->t.data;
        lse.data = row.lse->t.data;
        CAPTURE(row.arg);
        REQUIRE(merge(to, lse) == ATTN_LAYOUT);
        REQUIRE(std::string(attn_error_arg()) == row.arg);
    }
    const Owned wide = make(ATTN_F32, {2, 3, 4, 8});
    attn_tensor other = wide->t; // the same place with other strides
    other.data = a->t.data;
    other.shape = o->shape.data();
    REQUIRE(merge(other, lo->t) == ATTN_LAYOUT);
    REQUIRE(std::string(attn_error_arg()) == "o_out");
    REQUIRE(merge(b->t, la->t) == ATTN_OK);
    REQUIRE(std::memcmp(b->t.data, o->t.data, 120 * sizeof(float)) == 0);
    REQUIRE(std::memcmp(la->t.data, lo->t.data, 24 * sizeof(float)) == 0);
}

TEST_CASE("copy: apart, or onto itself") {
    const Device device("cpu");
    const Owned x = make(ATTN_F32, {8, 4});
    x->fill(1);
    auto rows = [&](int64_t first, int64_t step, std::vector<int64_t> &st,
                    std::vector<int64_t> &n) {
        attn_tensor t = x->t;
        n = {4, 4};
        st = {4 * step, 1};
        t.shape = n.data();
        t.strides = st.data();
        t.byte_offset = static_cast<uint64_t>(first) * 16;
        return t;
    };
    std::vector<int64_t> s[2], n[2];
    const struct {
        int64_t to, to_step, from, from_step;
        int status;
    } cases[] = {{4, 1, 0, 1, ATTN_OK},     {0, 1, 4, 1, ATTN_OK},     {0, 1, 0, 1, ATTN_OK},
                 {1, 1, 0, 1, ATTN_LAYOUT}, {0, 1, 3, 1, ATTN_LAYOUT}, {3, -1, 0, 1, ATTN_LAYOUT},
                 {0, 1, 7, -1, ATTN_OK},    {3, -1, 7, -1, ATTN_OK},   {4, -1, 4, 1, ATTN_LAYOUT}};
    for (const auto &c : cases) {
        const attn_tensor to = rows(c.to, c.to_step, s[0], n[0]);
        const attn_tensor from = rows(c.from, c.from_step, s[1], n[1]);
        CAPTURE(c.to, c.to_step, c.from, c.from_step);
        REQUIRE(attn_tensor_copy(device.d, &to, &from, nullptr) == c.status);
        if (c.status) {
            REQUIRE(std::string(attn_error_arg()) == "to");
        }
    }
    attn_tensor other = x->t; // the same memory as another type
    other.dtype = {0, 32, 1};
    REQUIRE(attn_tensor_copy(device.d, &x->t, &other, nullptr) == ATTN_LAYOUT);
}
