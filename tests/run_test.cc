// run_test.cc: what a run on a chip does not do (allocate, wait, load, compile), and what follows
// from it: it can be captured, and given again with other lengths, keys and contents of memory.
// Against the look-alikes of both vendors' drivers, whose chips are the emulator.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include "count_malloc.h"
#include "fake_gpu_test.h"

#include <sys/stat.h>

#include <functional>
#include <string>

using fake::Device;
using fake::Tensor;

namespace {

constexpr int HEADS = 4, DIMS = 24;

// A driver's look-alike, and a device of it that is open.
struct Chip {
    const fake::Library &fake;
    Device on;
    explicit Chip(const std::string &name)
        : fake(name == "hip:0" ? fake::hip() : fake::cuda()), on(name.c_str()) {}
};
const auto chips = {"hip:0", "cuda:0"};

// Forward and backward with all that lies in memory: lengths, a dropout key, slopes that have a
// gradient, a sink; a number for the variant.
struct Training {
    attn_device *d;
    Tensor q, k, v, o, lse, dout, dq, dk, dv, slopes, dslopes, sink, dsink, used, seed;
    attn_capture captures[2] = {};
    attn_call c{};
    attn_variant *variant = nullptr;
    Training(const Device &on, int64_t batch, int64_t nq, int64_t nk)
        : d(on.d), q(on, ATTN_BF16, {batch, HEADS, nq, DIMS}, 1),
          k(on, ATTN_BF16, {batch, 2, nk, DIMS}, 2), v(on, ATTN_BF16, {batch, 2, nk, DIMS}, 3),
          o(on, ATTN_BF16, {batch, HEADS, nq, DIMS}), lse(on, ATTN_F32, {batch, HEADS, nq}),
          dout(on, ATTN_BF16, {batch, HEADS, nq, DIMS}, 4),
          dq(on, ATTN_BF16, {batch, HEADS, nq, DIMS}), dk(on, ATTN_BF16, {batch, 2, nk, DIMS}),
          dv(on, ATTN_BF16, {batch, 2, nk, DIMS}), slopes(on, ATTN_F32, {HEADS}, 5),
          dslopes(on, ATTN_F32, {HEADS}), sink(on, ATTN_F32, {HEADS}, 6),
          dsink(on, ATTN_F32, {HEADS}), used(on, ATTN_I32, {batch}), seed(on, ATTN_I32, {2}) {
        c.size = sizeof c;
        c.q = &q.t, c.k = &k.t, c.v = &v.t, c.o = &o.t, c.lse = &lse.t;
        c.dout = &dout.t, c.dq = &dq.t, c.dk = &dk.t, c.dv = &dv.t;
        c.sink = &sink.t, c.dsink = &dsink.t, c.k_used = &used.t;
        c.dropout = 0.25;
        c.seed_at = static_cast<const uint64_t *>(seed.t.data);
        captures[0] = {"slopes", &slopes.t, &dslopes.t, 0};
        captures[1] = {"c", nullptr, nullptr, 0.5};
        c.captures = captures, c.n_captures = 2;
        REQUIRE(attn_variant_parse("f32 slopes[1]; f32 c; "
                                   "k <= q ? c * s - slopes[h] * (q - k) : -inf",
                                   &variant) == ATTN_OK);
        set(used, std::vector<int32_t>(size_t(batch), int32_t(nk)));
        set(seed, {7, 0});
    }
    ~Training() { attn_variant_release(variant); }
    Training(const Training &) = delete;
    void set(Tensor &to, std::vector<int32_t> numbers) {
        attn_tensor from = to.t;
        from.data = numbers.data();
        from.device = {1, 0};
        REQUIRE(attn_tensor_copy(d, &to.t, &from, nullptr) == ATTN_OK);
    }
    std::vector<std::vector<float>> results(int direction) {
        if (direction == ATTN_FORWARD) {
            return {o.read(), lse.read()};
        }
        return {dq.read(), dk.read(), dv.read(), dslopes.read(), dsink.read()};
    }
};

struct Plan {
    attn_device *d;
    attn_plan *p = nullptr;
    void *workspace = nullptr;
    std::string kernel;
    Plan(const Training &t, int direction) : d(t.d) {
        attn_plan_info info = {};
        info.size = sizeof info;
        const int status = attn_plan_new(d, direction, &t.c, t.variant, &p);
        INFO(attn_error());
        REQUIRE(status == ATTN_OK);
        REQUIRE(attn_plan_query(p, &info) == ATTN_OK);
        REQUIRE(attn_buffer_new(d, info.workspace, &workspace) == ATTN_OK);
        kernel = info.kernel;
    }
    ~Plan() {
        attn_buffer_release(d, workspace);
        attn_plan_release(p);
    }
    Plan(const Plan &) = delete;
    void run(const Training &t, void *stream) const {
        const int status = attn_run(p, &t.c, workspace, stream);
        INFO(attn_error());
        REQUIRE(status == ATTN_OK);
    }
};

struct Stream {
    attn_device *d;
    void *s = nullptr;
    explicit Stream(const Device &on) : d(on.d) { REQUIRE(attn_stream_new(d, &s) == ATTN_OK); }
    ~Stream() { attn_stream_release(d, s); }
    Stream(const Stream &) = delete;
};

// Forward's, which backward reads, on the stream NULL.
void prepare(const Training &t, int direction) {
    if (direction == ATTN_BACKWARD) {
        const Plan forward(t, ATTN_FORWARD);
        forward.run(t, nullptr);
        REQUIRE(attn_stream_sync(t.d, nullptr) == ATTN_OK);
    }
}

} // namespace

TEST_CASE("a run allocates nothing, waits for nothing and loads nothing, the first one either") {
    const Chip chip(GENERATE(from_range(chips)));
    const Device &on = chip.on;
    const struct {
        int direction;
        int64_t nq, nk;
        const char *launches;
    } rows[] = {{ATTN_FORWARD, 40, 52, "attn_fwd"},
                {ATTN_FORWARD, 1, 3000, "attn_combine"},
                {ATTN_BACKWARD, 40, 52, "attn_bwd"}};
    for (const auto &row : rows) {
        Training t(on, 2, row.nq, row.nk);
        prepare(t, row.direction);
        const Plan plan(t, row.direction);
        const Stream stream(on);
        int status = -1;
        const auto run = [&] { status = attn_run(plan.p, &t.c, plan.workspace, stream.s); };
        const int before = chip.fake.last()->count;
        chip.fake.clear();
        CHECK(allocations_of(run) == 0);
        CHECK(status == ATTN_OK);
        CHECK(chip.fake.last()->count > before);
        CHECK(std::string(chip.fake.last()->kernel).find(row.launches) == 0);
        const std::string log = chip.fake.log();
        for (const char *const word :
             {"Synchronize", "Query", "Malloc", "Alloc", "Free", "HtoD", "DtoH", "Module", "rtc"}) {
            INFO(word << " in\n" << log);
            for (size_t at = log.find(word); at != std::string::npos; at = log.find(word, at + 1)) {
                CHECK(log.compare(at, 12, "ModuleLaunch") == 0);
            }
        }
    }
}

TEST_CASE("a captured run is given again with other lengths, another key and other numbers") {
    const Chip chip(GENERATE(from_range(chips)));
    const Device &on = chip.on;
    for (const int direction : {ATTN_FORWARD, ATTN_BACKWARD}) {
        Training t(on, 2, 40, 52);
        prepare(t, direction);
        const Plan plan(t, direction);
        const Stream stream(on);
        REQUIRE(chip.fake.capture(stream.s) == 0);
        plan.run(t, stream.s);
        REQUIRE(chip.fake.capture(nullptr) == 0);
        std::vector<std::vector<float>> last = t.results(direction);
        const std::function<void()> changes[] = {
            [&] { t.set(t.used, {17, 45}); }, [&] { t.set(t.seed, {7, 99}); },
            [&] { t.set(t.used, {52, 0}); },
            [&] { REQUIRE(attn_random(t.d, &t.q.t, ATTN_NORMAL, 9, nullptr) == ATTN_OK); }};
        for (const auto &change : changes) {
            change();
            prepare(t, direction);
            REQUIRE(chip.fake.replay(stream.s) == 0);
            REQUIRE(attn_stream_sync(t.d, stream.s) == ATTN_OK);
            const auto got = t.results(direction);
            plan.run(t, stream.s);
            REQUIRE(attn_stream_sync(t.d, stream.s) == ATTN_OK);
            CHECK(got == t.results(direction));
            CHECK(got[0] != last[0]); // each change shows
            last = got;
        }
    }
}

TEST_CASE("a run of other tensors is captured in the place of the first") {
    const Chip chip(GENERATE(from_range(chips)));
    const Device &on = chip.on;
    Training a(on, 2, 40, 52), b(on, 2, 40, 52);
    REQUIRE(attn_random(b.d, &b.v.t, ATTN_NORMAL, 77, nullptr) == ATTN_OK);
    const Plan plan(a, ATTN_FORWARD);
    const Stream stream(on);
    plan.run(b, stream.s);
    REQUIRE(attn_stream_sync(b.d, stream.s) == ATTN_OK);
    const auto want = b.results(ATTN_FORWARD);
    for (Training *const t : {&a, &b}) {
        REQUIRE(chip.fake.capture(stream.s) == 0);
        plan.run(*t, stream.s);
        REQUIRE(chip.fake.capture(nullptr) == 0);
    }
    REQUIRE(attn_random(b.d, &b.o.t, ATTN_NORMAL, 1, nullptr) == ATTN_OK);
    REQUIRE(attn_random(a.d, &a.o.t, ATTN_NORMAL, 1, nullptr) == ATTN_OK);
    const auto before = a.o.read();
    REQUIRE(chip.fake.replay(stream.s) == 0);
    REQUIRE(attn_stream_sync(b.d, stream.s) == ATTN_OK);
    CHECK(b.results(ATTN_FORWARD) == want);
    CHECK(a.o.read() == before);
}

TEST_CASE("what must wait says so where a stream is captured") {
    const Chip chip(GENERATE(from_range(chips)));
    const Device &on = chip.on;
    Training t(on, 2, 40, 52);
    const Plan plan(t, ATTN_FORWARD);
    const Stream stream(on);
    setenv("ATTN_CHECK", "1", 1);
    REQUIRE(chip.fake.capture(stream.s) == 0);
    const int status = attn_run(plan.p, &t.c, plan.workspace, stream.s);
    const std::string why = attn_error();
    REQUIRE(chip.fake.capture(nullptr) == 0);
    unsetenv("ATTN_CHECK");
    CHECK(status == ATTN_DRIVER);
    CHECK(why.find("the driver answers 900") != std::string::npos);
    plan.run(t, stream.s);
    CHECK(attn_stream_sync(t.d, stream.s) == ATTN_OK);
}

TEST_CASE("other sizes and other numbers compile nothing and load nothing") {
    const Chip chip("hip:0");
    const Device &on = chip.on;
    const std::string count = chip.fake.folder + "/compiles";
    const auto compiles = [&] {
        struct stat s = {};
        return stat(count.c_str(), &s) == 0 ? static_cast<int>(s.st_size) : 0;
    };
    setenv("FAKE_HIPRTC_COUNT", count.c_str(), 1);
    setenv("ATTN_CACHE", "none", 1);
    Training t(on, 2, 150, 200), longer(on, 1, 150, 1500); // keys are split
    const Plan forward(t, ATTN_FORWARD), split(longer, ATTN_FORWARD), backward(t, ATTN_BACKWARD);
    const auto tile = [](const Plan &p) { return p.kernel.substr(0, p.kernel.find(" pack")); };
    CHECK(split.kernel.find("splits 1") == std::string::npos);
    const int all = compiles();
    CHECK(all > 0);
    chip.fake.clear();
    for (const int64_t more : {1, 77, 200}) {
        Training other(on, 1 + more % 3, 150 + more, 200 + 3 * more);
        other.captures[1].number = static_cast<double>(more) / 100;
        const Plan one(other, ATTN_FORWARD), two(other, ATTN_BACKWARD);
        CHECK(tile(one) == tile(forward));
        one.run(other, nullptr);
        two.run(other, nullptr);
        REQUIRE(attn_stream_sync(on.d, nullptr) == ATTN_OK);
    }
    CHECK(compiles() == all);
    CHECK(std::string(chip.fake.log()).find("hipModuleLoadData") == std::string::npos);
    Training other(on, 2, 150, 200);
    attn_variant_release(other.variant);
    REQUIRE(attn_variant_parse("f32 slopes[1]; f32 c; s - c * slopes[h]", &other.variant) ==
            ATTN_OK);
    const Plan another(other, ATTN_FORWARD);
    CHECK(compiles() > all); // another text does
    unsetenv("FAKE_HIPRTC_COUNT");
    setenv("ATTN_CACHE", (chip.fake.folder + "/cache").c_str(), 1);
}
