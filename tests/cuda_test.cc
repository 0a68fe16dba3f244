// cuda_test.cc: the CUDA driver and the paths of device memory, against a look-alike of NVIDIA's
// library (fake_cuda.c) whose memory the host cannot touch. It is built here by cc.
#include <dlfcn.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "gpu_params.h"
#include "stage.h"
}

namespace {

// As fake_cuda.c has it.
struct fake_launch {
    char kernel[48];
    unsigned grid, block, shared;
    void *stream;
    unsigned char params[4096];
    int count;
};

struct fake {
    std::string path;
    const char *(*log)();
    void (*clear)();
    const fake_launch *(*last)();
    void (*fail)(const char *, int);
    int (*depth)();
    int (*retained)();
    int (*live)();
    void (*spills)(int, int, int);
};

// A folder of this process.
std::string scratch() {
    static std::string path;
    if (path.empty()) {
        const char *const given = std::getenv("TEST_TMPDIR");
        path = std::string(given ? given : "/tmp") + "/attn_cuda_XXXXXX";
        REQUIRE(mkdtemp(&path[0]) != nullptr);
    }
    return path;
}

// Built once, before the library looks for a driver.
const fake &cuda() {
    static fake f;
    if (f.path.empty()) {
        f.path = scratch() + "/libfake_cuda.so";
        const std::string cc =
            "cc -std=c11 -O1 -shared -fPIC tests/fake_cuda.c -lpthread -o " + f.path;
        REQUIRE(std::system(cc.c_str()) == 0);
        setenv("ATTN_CUDA", f.path.c_str(), 1);
        setenv("ATTN_NVRTC", f.path.c_str(), 1);
        setenv("ATTN_CACHE", scratch().c_str(), 1);
        void *const library = dlopen(f.path.c_str(), RTLD_NOW);
        REQUIRE(library != nullptr);
        const auto find = [&](auto &to, const char *name) {
            to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(dlsym(library, name));
            REQUIRE(to != nullptr);
        };
        find(f.log, "fake_log");
        find(f.clear, "fake_clear");
        find(f.last, "fake_last");
        find(f.fail, "fake_fail");
        find(f.depth, "fake_depth");
        find(f.retained, "fake_retained");
        find(f.live, "fake_live");
        find(f.spills, "fake_spills");
    }
    return f;
}

struct device {
    attn_device *d = nullptr;
    explicit device(const char *name) {
        cuda();
        INFO(attn_error());
        REQUIRE(attn_device_open(name, nullptr, &d) == ATTN_OK);
    }
    ~device() { attn_device_release(d); }
    device(const device &) = delete;
};

// Its shape and strides, on a device or in host memory; all bytes 0x5a at first.
struct array {
    attn_device *d;
    std::vector<int64_t> shape, strides;
    std::vector<char> host;
    void *memory = nullptr;
    attn_tensor t{};
    // first: elements before the one with index 0; all: of memory
    array(attn_device *on, int type, std::vector<int64_t> n, std::vector<int64_t> st, int64_t first,
          int64_t all)
        : d(on), shape(n), strides(st) {
        const int bytes = attn__type_bytes(type);
        if (d) {
            REQUIRE(attn_buffer_new(d, uint64_t(all * bytes), &memory) == ATTN_OK);
        } else {
            host.assign(size_t(all * bytes), 0x5a);
        }
        t.data = d ? memory : host.data();
        t.device = {d ? 2 : 1, 0};
        t.ndim = int32_t(shape.size());
        t.dtype = {uint8_t(type & 255), uint8_t(type >> 8), 1};
        t.shape = shape.data();
        t.strides = strides.data();
        t.byte_offset = uint64_t(first * bytes);
    }
    ~array() { attn_buffer_release(d, memory); }
    array(const array &) = delete;
    // Every byte of memory.
    std::vector<char> all(attn_device *device, int64_t bytes) {
        std::vector<char> out(static_cast<size_t>(bytes));
        const attn_dtype u8 = {1, 8, 1};
        const attn_tensor there = {t.data, {2, 0}, 1, u8, &bytes, nullptr, 0};
        const attn_tensor here = {out.data(), {1, 0}, 1, u8, &bytes, nullptr, 0};
        REQUIRE(attn_tensor_copy(device, &here, &there, nullptr) == ATTN_OK);
        return out;
    }
};

struct layout {
    const char *name;
    std::vector<int64_t> shape, strides;
    int64_t first, all;
};

const std::vector<layout> &layouts() {
    static const std::vector<layout> list = {
        {"compact", {2, 3, 5, 7}, {105, 35, 7, 1}, 0, 210},
        {"rows apart", {2, 3, 5, 7}, {300, 90, 12, 1}, 3, 700},
        {"heads interleaved", {2, 3, 5, 7}, {105, 7, 21, 1}, 0, 210},
        {"one of three", {2, 3, 5, 7}, {315, 7, 63, 1}, 21, 651},
        {"backwards", {2, 3, 5, 7}, {-105, -35, -7, 1}, 203, 210},
        {"turned", {7, 5, 3, 2}, {1, 7, 35, 105}, 0, 210},
        {"steps in the last axis", {4, 3}, {40, 5}, 1, 200},
        {"no axes", {}, {}, 2, 5},
        {"long rows, many", {130, 100}, {128, 1}, 0, 130 * 128},
    };
    return list;
}

std::string run_hidden(const std::string &environment, const char *test) {
    char self[512];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    REQUIRE(n > 0);
    self[n] = 0;
    const std::string out = scratch() + "/out";
    std::system((environment + " '" + self + "' '" + test + "' > " + out + " 2>&1").c_str());
    std::string text;
    if (FILE *const f = std::fopen(out.c_str(), "r")) {
        char line[400];
        while (std::fgets(line, sizeof line, f)) {
            text += line;
        }
        std::fclose(f);
    }
    return text;
}

} // namespace

TEST_CASE("which devices there are", "[.list]") {
    attn_device_info list[64];
    const int n = attn__cuda.list(list, 64);
    for (int i = 0; i < n; i++) {
        std::printf("%s|%s|%s\n", list[i].name, list[i].arch, list[i].missing);
    }
    attn__chip *chip;
    CHECK(attn__cuda.open("cuda:0", &chip) == ATTN_DEVICE);
    std::printf("open: %s\n", attn_error());
}

TEST_CASE("without a usable driver there is one entry that says why") {
    const auto one = [](const std::string &environment, const char *sentence) {
        const std::string text = run_hidden(environment, "which devices there are");
        INFO(text);
        CHECK(text.find("cuda:0||") != std::string::npos);
        CHECK(text.find(sentence) != std::string::npos);
        CHECK(text.find("cuda:1") == std::string::npos);
        CHECK(text.find("open: device cuda:0 cannot be opened: ") != std::string::npos);
    };
    const std::string path = "ATTN_CUDA=" + cuda().path;
    one("ATTN_CUDA=/nowhere/libcuda.so.1", "install it, or name its library in ATTN_CUDA");
    one("ATTN_CUDA=libm.so.6", "too old: libm.so.6 has no cuInit; CUDA 11.4 or newer is wanted");
    one(path + " FAKE_CUDA_INIT=100", "driver answers 100, CUDA_ERROR_NO_DEVICE");
    one(path + " FAKE_CUDA_VERSION=11020", "it is for CUDA 11.2 and 11.4 is wanted");
    one(path + " FAKE_CUDA_DEVICES=0", "it has no device");
    const char *const empty = "/usr/local/cuda/lib64/"
                              "st"
                              "ubs/libcuda.so"; // links, runs nothing
    if (access(empty, R_OK) == 0) {
        one(std::string("ATTN_CUDA=") + empty, "answers 34");
    } else {
        std::printf("skipped: no %s\n", empty);
    }
}

TEST_CASE("a chip without kernels is listed and cannot be opened") {
    cuda();
    attn_device_info list[8];
    REQUIRE(attn__cuda.list(list, 8) == 3);
    CHECK(std::string(list[0].name) == "cuda:0");
    CHECK(std::string(list[0].arch) == "Fake 0 (9.0)");
    CHECK(std::string(list[0].missing).empty());
    CHECK(list[0].kind == 2);
    CHECK(std::string(list[1].missing).find("7.5") != std::string::npos);
    attn_device *d;
    CHECK(attn_device_open("cuda:1", nullptr, &d) == ATTN_DEVICE);
    CHECK(std::string(attn_error()).find("7.5") != std::string::npos);
    CHECK(attn_device_open("cuda:1:compute_80", nullptr, &d) == ATTN_DEVICE);
    CHECK(attn_device_open("cuda:0:gfx942", nullptr, &d) == ATTN_DEVICE);
    CHECK(attn_device_open("cuda:0:sm_80", nullptr, &d) == ATTN_DEVICE); // another chip's code
    CHECK(attn_device_open("cuda:0:a_long_name_of_a_chip", nullptr, &d) == ATTN_DEVICE);
    CHECK(attn_device_open("cuda", nullptr, &d) == ATTN_DEVICE);
    CHECK(std::string(attn_error()).find("device \"cuda\" (is cuda:0 meant?); here are auto") !=
          std::string::npos);
    CHECK(attn_device_open("cuda:7", nullptr, &d) == ATTN_DEVICE);
    CHECK(attn_device_open("cuda:-1", nullptr, &d) == ATTN_DEVICE);
    CHECK(attn_device_open("cuda:0x", nullptr, &d) == ATTN_DEVICE);
    CHECK(cuda().retained() == 0);
}

TEST_CASE("a newer chip takes PTX, an older one where its name says so") {
    for (const std::string name : {"cuda:2", "cuda:0:compute_80", "cuda:0"}) {
        device on(name.c_str());
        attn_device_info info = {};
        info.size = sizeof info;
        REQUIRE(attn_device_query(on.d, &info) == ATTN_OK);
        CHECK(info.name == name);
        array x(on.d, ATTN_F16, {1, 1, 40, 64}, {2560, 2560, 64, 1}, 0, 2560);
        x.t.device.device_id = info.index;
        attn_call call = {};
        call.size = sizeof call;
        call.q = call.k = call.v = call.o = &x.t;
        attn_plan *plan;
        cuda().clear();
        setenv("ATTN_CACHE", "none", 1);
        const int status = attn_plan_new(on.d, ATTN_FORWARD, &call, nullptr, &plan);
        setenv("ATTN_CACHE", scratch().c_str(), 1);
        INFO(attn_error());
        REQUIRE(status == ATTN_OK);
        attn_plan_info about = {};
        about.size = sizeof about;
        REQUIRE(attn_plan_query(plan, &about) == ATTN_OK);
        const bool ptx = name != "cuda:0";
        CHECK(std::string(about.kernel).find(ptx ? "compute_80 " : "sm_90a ") == 0);
        CHECK((std::string(cuda().log()).find("nvrtcGetPTX") != std::string::npos) == ptx);
        attn_plan_release(plan);
    }
}

TEST_CASE("every call leaves the contexts as it found them") {
    const int live = cuda().live();
    {
        device on("cuda:0");
        CHECK(cuda().retained() == 1);
        void *at, *stream;
        REQUIRE(attn_buffer_new(on.d, 100, &at) == ATTN_OK);
        CHECK(cuda().depth() == 0);
        attn_device_info info = {};
        info.size = sizeof info;
        REQUIRE(attn_device_query(on.d, &info) == ATTN_OK);
        CHECK(info.used == 100);
        REQUIRE(attn_stream_new(on.d, &stream) == ATTN_OK);
        CHECK(stream != nullptr);
        cuda().clear();
        REQUIRE(attn_stream_sync(on.d, stream) == ATTN_OK);
        char line[64];
        std::snprintf(line, sizeof line, "push\ncuStreamSynchronize %p\npop\n", stream);
        CHECK(std::string(cuda().log()) == line);
        attn_stream_release(on.d, stream);
        attn_buffer_release(on.d, at);
        REQUIRE(attn_device_query(on.d, &info) == ATTN_OK);
        CHECK(info.used == 0);
        // A failure's sentence has the driver's name for it, and pops, too.
        cuda().fail("cuMemAlloc", 2);
        CHECK(attn_buffer_new(on.d, 5, &at) == ATTN_MEMORY);
        CHECK(at == nullptr);
        cuda().fail("cuStreamCreate", 700);
        CHECK(attn_stream_new(on.d, &stream) == ATTN_DRIVER);
        CHECK(std::string(attn_error()).find("CUDA_ERROR_ILLEGAL_ADDRESS") != std::string::npos);
        CHECK(cuda().depth() == 0);
    }
    CHECK(cuda().retained() == 0);
    CHECK(cuda().live() == live);
}

// A context of a program's own, current from here on.
struct Own {
    void *context = nullptr;
    template <typename F> static F *entry(const char *name) {
        return reinterpret_cast<F *>(dlsym(dlopen(cuda().path.c_str(), RTLD_NOW), name));
    }
    explicit Own(int on) {
        REQUIRE(entry<int(void **, unsigned, int)>("cuCtxCreate_v2")(&context, 0, on) == 0);
    }
    ~Own() { entry<int(void *)>("cuCtxDestroy_v2")(context); }
    Own(const Own &) = delete;
    static void *current() {
        void *now = nullptr;
        REQUIRE(entry<int(void **)>("cuCtxGetCurrent")(&now) == 0);
        return now;
    }
};

// A plan, a run and copies, on the stream.
static void use(const device &on, void *stream) {
    array x(on.d, ATTN_F16, {1, 1, 40, 64}, {2560, 2560, 64, 1}, 0, 2560);
    array y(on.d, ATTN_F16, {1, 1, 40, 64}, {2560, 2560, 64, 1}, 0, 2560);
    attn_device_info info = {};
    info.size = sizeof info;
    REQUIRE(attn_device_query(on.d, &info) == ATTN_OK);
    x.t.device.device_id = y.t.device.device_id = info.index;
    attn_call call = {};
    call.size = sizeof call;
    call.q = call.k = call.v = &x.t;
    call.o = &y.t;
    attn_plan *plan;
    REQUIRE(attn_plan_new(on.d, ATTN_FORWARD, &call, nullptr, &plan) == ATTN_OK);
    const int status = attn_run(plan, &call, nullptr, stream);
    INFO(attn_error());
    CHECK(status == ATTN_OK);
    CHECK(attn_tensor_copy(on.d, &x.t, &y.t, stream) == ATTN_OK);
    CHECK(attn_stream_sync(on.d, stream) == ATTN_OK);
    CHECK(attn_buffer_use(on.d, x.memory, stream) == ATTN_OK);
    attn_plan_release(plan);
}

TEST_CASE("a program's own context of the device is taken, and stays its own") {
    cuda();
    const Own own(0);
    {
        const device on("cuda:0");
        CHECK(cuda().retained() == 0);
        void *stream = nullptr;
        REQUIRE(Own::entry<int(void **, unsigned)>("cuStreamCreate")(&stream, 1) == 0);
        use(on, stream);
        const Own other(2); // now this one is current
        use(on, stream);
        CHECK(Own::current() == other.context);
        CHECK(cuda().depth() == 2);
    }
    CHECK(Own::current() == own.context); // and is there
    CHECK(cuda().retained() == 0);
    const device primary("cuda:2"); // the current one is another device's
    use(primary, nullptr);
    CHECK(Own::current() == own.context);
}

TEST_CASE("the primary context is retained, current or not, whatever is current later") {
    cuda();
    const device on("cuda:0");
    void *stream;
    REQUIRE(attn_stream_new(on.d, &stream) == ATTN_OK);
    {
        const Own own(0);
        use(on, stream);
        CHECK(Own::current() == own.context);
        const device adopted("cuda:0"); // own's, beside the primary one
        CHECK(cuda().retained() == 1);
        use(adopted, nullptr);
    }
    attn_stream_release(on.d, stream);
    void *before;
    REQUIRE(Own::entry<int(void *)>("cuCtxPushCurrent_v2")(reinterpret_cast<void *>(0x1000)) == 0);
    {
        const device again("cuda:0");
        CHECK(cuda().retained() == 2);
        use(again, nullptr);
    }
    CHECK(cuda().retained() == 1);
    REQUIRE(Own::entry<int(void **)>("cuCtxPopCurrent_v2")(&before) == 0);
    CHECK(before == reinterpret_cast<void *>(0x1000));
    CHECK(cuda().depth() == 0);
}

TEST_CASE("copies keep every layout's elements and touch nothing between them") {
    device on("cuda:0"), host("cpu");
    for (const layout &a : layouts()) {
        for (const layout &b : layouts()) {
            if (a.shape != b.shape) {
                continue;
            }
            for (const int type : {int(ATTN_BF16), int(ATTN_F32)}) {
                INFO(a.name << " to " << b.name << " type " << type);
                // The same on the host and on the device: random -> far -> far of another type.
                array from(nullptr, ATTN_F32, a.shape, a.strides, a.first, a.all);
                array want(nullptr, type, b.shape, b.strides, b.first, b.all);
                array far(on.d, ATTN_F32, a.shape, a.strides, a.first, a.all);
                array got(on.d, type, b.shape, b.strides, b.first, b.all);
                const int64_t bytes = b.all * attn__type_bytes(type);
                const std::vector<char> before = got.all(on.d, bytes);
                REQUIRE(attn_random(host.d, &from.t, ATTN_NORMAL, 3, nullptr) == ATTN_OK);
                REQUIRE(attn_tensor_copy(host.d, &want.t, &from.t, nullptr) == ATTN_OK);
                REQUIRE(attn_tensor_copy(on.d, &far.t, &from.t, nullptr) == ATTN_OK);
                REQUIRE(attn_tensor_copy(on.d, &got.t, &far.t, nullptr) == ATTN_OK);
                std::vector<char> after = got.all(on.d, bytes);
                // What the host's copy left alone must be as before here.
                array mark(nullptr, type, b.shape, b.strides, b.first, b.all);
                std::memset(mark.host.data(), 0, mark.host.size());
                array ones(nullptr, type, b.shape, b.strides, b.first, b.all);
                std::memset(ones.host.data(), 0xff, ones.host.size());
                REQUIRE(attn_tensor_copy(host.d, &mark.t, &ones.t, nullptr) == ATTN_OK);
                bool same = true;
                for (size_t i = 0; i < after.size(); i++) {
                    same &= after[i] == (mark.host[i] ? want.host[i] : before[i]);
                }
                CHECK(same);
            }
        }
    }
    CHECK(cuda().depth() == 0);
}

TEST_CASE("parts are a tensor's elements in row-major order, each once") {
    const std::vector<std::vector<int64_t>> shapes = {{},        {1},       {7},
                                                      {2, 3, 5}, {4, 1, 6}, {1, 9, 1}};
    for (const auto &n : shapes) {
        for (const int64_t most : {1, 2, 4, 5, 6, 14, 30, 100}) {
            const int rank = static_cast<int>(n.size());
            int64_t whole = 1, expected = 0;
            attn__part part;
            for (const int64_t x : n) {
                whole *= x;
            }
            REQUIRE(attn__part_first(&part, rank, n.data(), most) == 1);
            do {
                int64_t first = 0, count = 1;
                for (int i = 0; i < rank; i++) {
                    first = first * n[size_t(i)] + part.at[i];
                    count *= part.n[i];
                }
                CHECK(first == expected);
                CHECK(part.first == expected);
                CHECK(count <= most);
                expected += count;
            } while (attn__part_next(&part));
            CHECK(expected == whole);
        }
    }
    const int64_t none[] = {3, 0, 2};
    attn__part part;
    CHECK(attn__part_first(&part, 3, none, 10) == 0);
}

TEST_CASE("what is larger than a part is whole") {
    device on("cuda:0"), host("cpu");
    const int64_t n = 8500000;
    array want(nullptr, ATTN_BF16, {n}, {1}, 0, n), got(on.d, ATTN_BF16, {n}, {1}, 0, n);
    array wide(on.d, ATTN_F32, {n}, {1}, 0, n), back(nullptr, ATTN_BF16, {n}, {1}, 0, n);
    REQUIRE(attn_random(host.d, &want.t, ATTN_NORMAL, 2, nullptr) == ATTN_OK);
    REQUIRE(attn_random(on.d, &got.t, ATTN_NORMAL, 2, nullptr) == ATTN_OK);
    REQUIRE(attn_tensor_copy(on.d, &wide.t, &got.t, nullptr) == ATTN_OK);
    REQUIRE(attn_tensor_copy(on.d, &back.t, &wide.t, nullptr) == ATTN_OK);
    CHECK(back.host == want.host);
}

TEST_CASE("a broadcast and windows that overlap can be read") {
    device on("cuda:0"), host("cpu");
    array base(nullptr, ATTN_F32, {20}, {1}, 0, 20), far(on.d, ATTN_F32, {20}, {1}, 0, 20);
    REQUIRE(attn_random(host.d, &base.t, ATTN_NORMAL, 5, nullptr) == ATTN_OK);
    REQUIRE(attn_tensor_copy(on.d, &far.t, &base.t, nullptr) == ATTN_OK);
    const std::vector<std::vector<int64_t>> strides = {{0, 1}, {2, 1}, {1, 0}, {1, 2}};
    for (const auto &st : strides) {
        array want(nullptr, ATTN_F32, {4, 5}, {5, 1}, 0, 20),
            got(on.d, ATTN_F32, {4, 5}, {5, 1}, 0, 20);
        std::vector<int64_t> n = {4, 5}, step = st;
        attn_tensor a = base.t, b = far.t;
        a.ndim = b.ndim = 2;
        a.shape = b.shape = n.data();
        a.strides = b.strides = step.data();
        REQUIRE(attn_tensor_copy(host.d, &want.t, &a, nullptr) == ATTN_OK);
        REQUIRE(attn_tensor_copy(on.d, &got.t, &b, nullptr) == ATTN_OK);
        CHECK(got.all(on.d, 80) == want.host);
    }
}

TEST_CASE("what may not be copied is refused") {
    device on("cuda:0"), host("cpu");
    array far(on.d, ATTN_F32, {20}, {1}, 0, 20), near(nullptr, ATTN_F32, {20}, {1}, 0, 20);
    attn_tensor other = far.t;
    other.device = {2, 1};
    CHECK(attn_tensor_copy(on.d, &near.t, &other, nullptr) == ATTN_DEVICE);
    CHECK(attn_tensor_copy(host.d, &near.t, &far.t, nullptr) == ATTN_DEVICE);
    attn_tensor shifted = far.t;
    std::vector<int64_t> n = {10};
    shifted.shape = n.data();
    attn_tensor first = shifted;
    shifted.byte_offset = 4;
    CHECK(attn_tensor_copy(on.d, &shifted, &first, nullptr) == ATTN_LAYOUT);
    CHECK(attn_tensor_copy(on.d, &first, &first, nullptr) == ATTN_OK);
    CHECK(attn_random(on.d, &near.t, ATTN_NORMAL, 1, nullptr) == ATTN_DEVICE);
}

TEST_CASE("copies use the stream that is given and wait where the host is a side") {
    device on("cuda:0");
    array far(on.d, ATTN_F32, {64}, {1}, 0, 64), also(on.d, ATTN_F32, {64}, {1}, 0, 64);
    array near(nullptr, ATTN_F32, {64}, {1}, 0, 64);
    void *const stream = reinterpret_cast<void *>(uintptr_t(0x77));
    cuda().clear();
    REQUIRE(attn_tensor_copy(on.d, &far.t, &near.t, stream) == ATTN_OK);
    CHECK(std::string(cuda().log()) ==
          "push\ncuMemcpyHtoD 256 stream 0x77\ncuStreamSynchronize 0x77\npop\n");
    cuda().clear();
    REQUIRE(attn_tensor_copy(on.d, &also.t, &far.t, stream) == ATTN_OK);
    CHECK(std::string(cuda().log()) == "push\ncuMemcpyDtoD 256 stream 0x77\npop\n");
}

TEST_CASE("memory is set to 0 in the order of the stream that is given") {
    cuda();
    const Own own(0);
    device on("cuda:0");
    array far(on.d, ATTN_F32, {64}, {1}, 0, 64);
    const std::vector<char> before = far.all(on.d, 256), zeros(256, 0);
    void *stream = nullptr; // stream NULL, which these copies use, does not wait for it
    REQUIRE(Own::entry<int(void **, unsigned)>("cuStreamCreate")(&stream, 1) == 0);
    REQUIRE(on.d->driver->zero(on.d->chip, far.memory, 256, stream) == ATTN_OK);
    CHECK(bool(far.all(on.d, 256) == before));
    REQUIRE(attn_stream_sync(on.d, stream) == ATTN_OK);
    CHECK(bool(far.all(on.d, 256) == zeros));
    attn_stream_release(on.d, stream);
}

TEST_CASE("random numbers, merges and masks have the host's bits") {
    device on("cuda:0"), host("cpu");
    for (const layout &a : layouts()) {
        INFO(a.name);
        array want(nullptr, ATTN_F16, a.shape, a.strides, a.first, a.all);
        array got(on.d, ATTN_F16, a.shape, a.strides, a.first, a.all);
        array back(nullptr, ATTN_F16, a.shape, a.strides, a.first, a.all);
        REQUIRE(attn_random(host.d, &want.t, ATTN_UNIFORM, 9, nullptr) == ATTN_OK);
        REQUIRE(attn_random(on.d, &got.t, ATTN_UNIFORM, 9, nullptr) == ATTN_OK);
        REQUIRE(attn_tensor_copy(on.d, &back.t, &got.t, nullptr) == ATTN_OK);
        CHECK(back.host == want.host);
    }
    const std::vector<int64_t> o_n = {2, 3, 5, 8}, l_n = {2, 3, 5}, o_st = {120, 8, 24, 1},
                               l_st = {15, 5, 1};
    std::vector<char> merged[2];
    for (int far = 0; far < 2; far++) {
        attn_device *const d = far ? on.d : host.d, *const at = far ? on.d : nullptr;
        array o0(at, ATTN_F32, o_n, o_st, 0, 240), o1(at, ATTN_F32, o_n, o_st, 0, 240);
        array l0(at, ATTN_F32, l_n, l_st, 0, 30), l1(at, ATTN_F32, l_n, l_st, 0, 30);
        array sink(at, ATTN_F32, {3}, {1}, 0, 3);
        int seed = 1;
        for (array *x : {&o0, &o1, &l0, &l1, &sink}) {
            REQUIRE(attn_random(d, &x->t, ATTN_NORMAL, uint64_t(seed++), nullptr) == ATTN_OK);
        }
        const attn_tensor *const o[] = {&o0.t, &o1.t}, *const l[] = {&l0.t, &l1.t};
        INFO(attn_error());
        REQUIRE(attn_merge(d, 2, o, l, &sink.t, &o0.t, &l0.t, nullptr) == ATTN_OK);
        merged[far] = far ? o0.all(d, 960) : o0.host;
        const std::vector<char> lse = far ? l0.all(d, 120) : l0.host;
        merged[far].insert(merged[far].end(), lse.begin(), lse.end());
    }
    CHECK(merged[0] == merged[1]);
    attn_call call = {};
    call.size = sizeof call;
    call.dropout = 0.3;
    array mask(nullptr, ATTN_U8, {2, 3, 4, 70}, {840, 280, 70, 1}, 0, 1680);
    array far(on.d, ATTN_U8, {2, 3, 4, 70}, {840, 280, 70, 1}, 0, 1680);
    array seed(on.d, ATTN_U8, {8}, {1}, 0, 8), number(nullptr, ATTN_U8, {8}, {1}, 0, 8);
    call.seed = 0x5a5a5a5a5a5a5a5aull;
    REQUIRE(attn_dropout(host.d, &call, &mask.t, nullptr) == ATTN_OK);
    REQUIRE(attn_tensor_copy(on.d, &seed.t, &number.t, nullptr) == ATTN_OK);
    call.seed_at = static_cast<const uint64_t *>(seed.memory);
    REQUIRE(attn_dropout(on.d, &call, &far.t, nullptr) == ATTN_OK);
    CHECK(far.all(on.d, 1680) == mask.host);
}

TEST_CASE("a run hands over addresses, and reads what the host must know") {
    device on("cuda:0");
    const std::vector<int64_t> n = {2, 1, 16, 32}, st = {512, 512, 32, 1};
    array q(on.d, ATTN_BF16, n, st, 0, 1024), k(on.d, ATTN_BF16, n, st, 0, 1024);
    array v(on.d, ATTN_BF16, n, st, 0, 1024), o(on.d, ATTN_BF16, n, st, 0, 1024);
    array used(on.d, ATTN_I32, {2}, {1}, 0, 2), wide(on.d, ATTN_I32, {}, {}, 0, 1);
    array table(on.d, ATTN_I32, {4}, {1}, 0, 4);
    const auto put = [&](array &to, std::vector<int32_t> numbers) {
        attn_tensor from = to.t;
        from.data = numbers.data();
        from.device = {1, 0};
        from.strides = nullptr;
        REQUIRE(attn_tensor_copy(on.d, &to.t, &from, nullptr) == ATTN_OK);
    };
    attn_variant *variant;
    attn_plan *plan;
    REQUIRE(
        attn_variant_parse("i32 wide in 0..99; i32 table[1] in 0..9; q - k < wide + table[k % 4]",
                           &variant) == ATTN_OK);
    const attn_capture captures[] = {{"wide", &wide.t, nullptr, 0},
                                     {"table", &table.t, nullptr, 0}};
    attn_call call = {};
    call.size = sizeof call;
    call.q = &q.t;
    call.k = &k.t;
    call.v = &v.t;
    call.o = &o.t;
    call.k_used = &used.t;
    call.captures = captures;
    call.n_captures = 2;
    const int planned = attn_plan_new(on.d, ATTN_FORWARD, &call, variant, &plan);
    INFO(attn_error());
    REQUIRE(planned == ATTN_OK);
    void *const stream = reinterpret_cast<void *>(uintptr_t(0x99));
    put(used, {16, 7});
    put(table, {0, 1, 2, 9});
    put(wide, {5});
    const int before = cuda().last()->count;
    cuda().clear();
    REQUIRE(attn_run(plan, &call, nullptr, stream) == ATTN_OK);
    CHECK(cuda().last()->count == before + 1);
    const std::string log = cuda().log(); // a parameter in memory is waited for
    CHECK(log.find("cuCtxSynchronize") < log.find("cuMemcpyDtoH 4 "));
    CHECK(log.find("cuMemcpyDtoH 4 ") < log.find("cuLaunchKernel"));
    CHECK(std::string(cuda().last()->kernel) == "attn_fwd");
    CHECK(cuda().last()->stream == stream);
    CHECK(std::memcmp(cuda().last()->params + offsetof(attn_params, q), &q.memory,
                      sizeof q.memory) == 0);

    put(used, {16, 17});
    setenv("ATTN_CHECK", "1", 1);
    CHECK(attn_run(plan, &call, nullptr, stream) == ATTN_INVALID);
    CHECK(std::string(attn_error_arg()) == "k_used");
    put(used, {16, 7});
    put(table, {0, 1, 2, 10});
    CHECK(attn_run(plan, &call, nullptr, stream) == ATTN_INVALID);
    CHECK(std::string(attn_error_arg()) == "captures.table");
    put(table, {0, 1, 2, 9});
    CHECK(attn_run(plan, &call, nullptr, stream) == ATTN_OK);
    unsetenv("ATTN_CHECK");
    attn_plan_release(plan);
    attn_variant_release(variant);
    CHECK(cuda().depth() == 0);
}

// The tile of a plan whose kernels, from the largest tile on, spill so many bytes.
// memory: where tensors lie, the same or the host.
static std::string tile_on(const device &on, attn_device *memory, int rows, int d, int a, int b,
                           int c) {
    const std::vector<int64_t> n = {1, 1, rows, d}, st = {rows * d, rows * d, d, 1};
    array q(memory, ATTN_BF16, n, st, 0, rows * d), o(memory, ATTN_BF16, n, st, 0, rows * d);
    attn_call call = {};
    call.size = sizeof call;
    call.q = call.k = call.v = &q.t;
    call.o = &o.t;
    attn_plan *plan;
    attn_plan_info info = {};
    info.size = sizeof info;
    cuda().spills(a, b, c);
    REQUIRE(attn_plan_new(on.d, ATTN_FORWARD, &call, nullptr, &plan) == ATTN_OK);
    REQUIRE(attn_plan_query(plan, &info) == ATTN_OK);
    const std::string kernel = info.kernel;
    attn_plan_release(plan);
    const size_t at = kernel.find("bf16 ") + 5;
    return kernel.substr(at, kernel.find(" of") - at);
}
static std::string tile_of(int d, int a, int b, int c) {
    const device on("cuda:0");
    return tile_on(on, on.d, 200, d, a, b, c);
}

TEST_CASE("a kernel that would spill gets the next smaller tile") {
    CHECK(tile_of(128, 0, 0, 0) == "128x128");
    CHECK(tile_of(128, 16, 0, 0) == "128x64");
    CHECK(tile_of(128, 16, 8, 0) == "128x32");
    CHECK(tile_of(128, 16, 4, 8) == "128x64"); // all spill: the one that spills least
    CHECK(tile_of(128, 8, 8, 8) == "128x128");
    CHECK(tile_of(64, 8, 0, 0) == "192x64");
    CHECK(cuda().depth() == 0);
}

TEST_CASE("where the smaller tile cannot be made the kernel that spills stays") {
    const std::string large = tile_of(192, 0, 0, 0);
    cuda().fail("nvrtcCompileProgram", 5); // not of the first tile, which the cache has
    CHECK(tile_of(192, 16, 0, 0) == large);
    CHECK(tile_of(192, 16, 0, 0) != large);
    CHECK(cuda().depth() == 0);
}

TEST_CASE("without a compiler a bundle's kernel serves few rows, and stays where it spills") {
    const std::string path = scratch() + "/few.bundle";
    {
        const device make("make:sm_90a");
        REQUIRE(tile_on(make, nullptr, 200, 96, 0, 0, 0) == "128x128");
        REQUIRE(attn_bundle_write(make.d, path.c_str()) == ATTN_OK);
    }
    REQUIRE(attn_bundle_open(path.c_str()) == ATTN_OK);
    setenv("ATTN_NVCC", "/nowhere/nvcc", 1);
    const device on("cuda:0");
    CHECK(tile_of(96, 0, 0, 0) == "128x128");
    CHECK(tile_on(on, on.d, 20, 96, 0, 0, 0) == "128x128");
    CHECK(tile_of(96, 16, 0, 0) == "128x128");
    unsetenv("ATTN_NVCC");
    CHECK(tile_on(on, on.d, 20, 96, 0, 0, 0) == "64x128");
    CHECK(tile_of(96, 16, 0, 0) == "128x64");
}

TEST_CASE("modules, numbers, launches") {
    cuda();
    attn__chip *chip;
    attn__module *module;
    REQUIRE(attn__cuda.open("cuda:0", &chip) == ATTN_OK);
    CHECK(attn__cuda.target(chip)->units == 132);
    CHECK(std::string(attn__cuda.target(chip)->name) == "sm_90a");
    CHECK(attn__cuda.target(chip)->shared == 232448);
    REQUIRE(attn__cuda.load(chip, "code", 5, &module) == ATTN_OK);
    int32_t value = 0;
    REQUIRE(attn__cuda.number(chip, module, "NUMBER", &value) == ATTN_OK);
    CHECK(value == 49152);
    CHECK(attn__cuda.number(chip, module, "OTHER", &value) == ATTN_DRIVER);
    CHECK(std::string(attn_error()).find("OTHER") != std::string::npos);

    unsigned char params[1024];
    for (int i = 0; i < 1024; i++) {
        params[i] = static_cast<unsigned char>(i);
    }
    void *const stream = reinterpret_cast<void *>(uintptr_t(0x55));
    int spilled = -1;
    cuda().spills(24, 0, 0);
    REQUIRE(attn__cuda.prepare(chip, module, "one", 100000, &spilled) == ATTN_OK);
    CHECK(spilled == 24);
    cuda().fail("cuFuncGetAttribute", 700);
    CHECK(attn__cuda.prepare(chip, module, "one", 100000, &spilled) == ATTN_DRIVER);
    cuda().clear();
    REQUIRE(attn__cuda.launch(chip, module, "one", 70000, 128, 100000, params, sizeof params,
                              stream) == ATTN_OK);
    CHECK(std::string(cuda().log()) == "push\ncuLaunchKernel 70000 stream 0x55\npop\n");
    const fake_launch *const last = cuda().last();
    CHECK(last->grid == 70000);
    CHECK(last->block == 128);
    CHECK(last->shared == 100000);
    CHECK(last->stream == stream);
    CHECK(std::memcmp(last->params, params, sizeof params) == 0);
    // Not prepared: looked up and allowed at once.
    REQUIRE(attn__cuda.launch(chip, module, "two", 1, 64, 50000, params, 1024, nullptr) == ATTN_OK);
    CHECK(attn__cuda.launch(chip, module, "three", 1, 64, 0, params, 1024, nullptr) == ATTN_DRIVER);
    CHECK(attn__cuda.launch(chip, module, "two", 1, 64, 300000, params, 1024, nullptr) < 0);
    CHECK(attn__cuda.launch(chip, module, "two", int64_t(1) << 31, 64, 0, params, 1024, nullptr) ==
          ATTN_UNSUPPORTED);
    const int count = last->count;
    REQUIRE(attn__cuda.launch(chip, module, "two", 0, 64, 0, params, 1024, nullptr) == ATTN_OK);
    CHECK(last->count == count);
    attn__cuda.unload(chip, module);
    attn__cuda.close(chip);
    CHECK(cuda().depth() == 0);
    CHECK(cuda().retained() == 0);
}
