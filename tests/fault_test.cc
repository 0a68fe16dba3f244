// fault_test.cc: what calls return when a device has no memory, when a kernel has read what it may
// not, and when the device is lost, as docs/errors.md says; against the drivers' look-alikes.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include "fake_gpu_test.h"

#include <sys/wait.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

using fake::Call;
using fake::Device;
using fake::hip;

namespace {

struct Named {
    const char *name;
    std::function<int()> call;
};

// Every call of docs/errors.md that reaches the device; each leaves things as they were.
std::vector<Named> calls(const Device &on, Call &x, Call &other) {
    const auto plan = [&on, &other] { // of code that is not loaded yet
        attn_plan *p = nullptr;
        const int status = attn_plan_new(on.d, ATTN_FORWARD, &other.c, nullptr, &p);
        attn_plan_release(p);
        return status;
    };
    return {
        {"attn_run", [&x] { return attn_run(x.plan, &x.c, x.workspace, nullptr); }},
        {"attn_plan_new", plan},
        {"attn_tensor_copy", [&on, &x] { return attn_tensor_copy(on.d, &x.o.t, &x.q.t, nullptr); }},
        {"attn_random", [&on, &x] { return attn_random(on.d, &x.lse.t, ATTN_NORMAL, 1, nullptr); }},
        {"attn_merge",
         [&on, &x] {
             const attn_tensor *const o[] = {&x.o.t}, *const lse[] = {&x.lse.t};
             return attn_merge(on.d, 1, o, lse, nullptr, &x.o.t, &x.lse.t, nullptr);
         }},
        {"attn_dropout",
         [&on, &x] {
             attn_call c = {};
             c.size = sizeof c;
             c.dropout = 0.5;
             int64_t shape[] = {1, 1, 4, 8};
             attn_tensor keep = x.q.t;
             keep.dtype = {1, 8, 1};
             keep.shape = shape;
             return attn_dropout(on.d, &c, &keep, nullptr);
         }},
        {"attn_buffer_new",
         [&on] {
             void *p = nullptr;
             const int status = attn_buffer_new(on.d, 4096, &p);
             attn_buffer_release(on.d, p);
             return status;
         }},
        {"attn_buffer_use",
         [&on, &x] {
             return attn_buffer_use(on.d, x.q.t.data, reinterpret_cast<void *>(uintptr_t{0x77}));
         }},
        {"attn_stream_new",
         [&on] {
             void *stream = nullptr;
             const int status = attn_stream_new(on.d, &stream);
             attn_stream_release(on.d, stream);
             return status;
         }},
        {"attn_stream_sync", [&on] { return attn_stream_sync(on.d, nullptr); }},
    };
}

// A call for which nothing is planned.
void change(Call &x) {
    x.c.captures = nullptr, x.c.n_captures = 0;
}

bool all_answer(const std::vector<Named> &list, int status, const std::string &word) {
    bool all = true;
    for (const Named &one : list) {
        const int got = one.call();
        const std::string why = got < 0 ? attn_error() : "";
        INFO(one.name << ": " << why);
        CHECK(got == status);
        CHECK(why.find(word) != std::string::npos);
        all &= got == status;
    }
    return all;
}

// How a new process ends that does that test.
int in_new_process(const std::string &environment, const char *test) {
    char self[512];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    REQUIRE(n > 0);
    self[n] = 0;
    const std::string command = environment + " '" + self + "' '" + test + "' > /dev/null";
    return std::system(command.c_str());
}

} // namespace

TEST_CASE("two calls", "[.calls]") {
    for (const char *const name : {"hip:0", "hip:1"}) {
        Device on(name), host("cpu");
        Call got(on, ATTN_F16), want(host, ATTN_F16);
        got.run(nullptr);
        want.run(nullptr);
        const std::vector<float> a = got.o.read(), b = want.o.read();
        for (size_t i = 0; i < a.size(); i++) {
            REQUIRE(std::abs(a[i] - b[i]) < 0.02f);
        }
    }
}

TEST_CASE("after an illegal access or the loss of a device every call says so") {
    const struct {
        int code;
        const char *word;
    } faults[] = {{fake::ILLEGAL_ADDRESS, "ILLEGAL_ADDRESS"}, {fake::NO_DEVICE, "NO_DEVICE"}};
    for (const auto &fault : faults) {
        INFO(fault.word);
        Device on("hip:1"), host("cpu");
        Call x(on, ATTN_F16), other(on, ATTN_F16), near(host, ATTN_F16);
        change(other);
        const auto list = calls(on, x, other);
        hip().stop(fault.code);
        all_answer(list, ATTN_DRIVER, fault.word);
        all_answer(list, ATTN_DRIVER, fault.word); // and goes on to
        attn_plan_info info = {};
        info.size = sizeof info;
        CHECK(attn_plan_query(x.plan, &info) == ATTN_OK); // what is known needs no device
        near.run(nullptr);                                // nor do others
        attn_device *again = nullptr; // a lost device cannot be opened again
        const int opened = attn_device_open("hip:1", nullptr, &again);
        CHECK(opened == (fault.code == fake::NO_DEVICE ? ATTN_DEVICE : ATTN_OK));
        attn_device_release(again);
        CHECK(in_new_process("", "two calls") == 0); // the driver has it again
        attn_buffer_release(on.d, x.workspace); // nothing ends the process
        x.workspace = nullptr;
        hip().stop(0);
        all_answer(list, ATTN_OK, "");
    }
}

TEST_CASE("NVIDIA's errors are told by the same calls") {
    const fake::Library &cuda = fake::cuda();
    const Device on("cuda:0"), host("cpu");
    Call x(on, ATTN_F16), other(on, ATTN_F16), near(host, ATTN_F16);
    change(other);
    const auto list = calls(on, x, other);
    cuda.stop(fake::ILLEGAL_ADDRESS);
    all_answer(list, ATTN_DRIVER, "CUDA_ERROR_ILLEGAL_ADDRESS");
    near.run(nullptr);
    cuda.stop(0);
    all_answer(list, ATTN_OK, "");
    cuda.fail("cuLaunchKernel", fake::OUT_OF_MEMORY);
    CHECK(attn_run(x.plan, &x.c, x.workspace, nullptr) == ATTN_MEMORY);
    void *p = &p;
    cuda.room(4095);
    CHECK(attn_buffer_new(on.d, 4096, &p) == ATTN_MEMORY);
    CHECK(p == nullptr);
    cuda.room(0);
    all_answer(list, ATTN_OK, "");
}

TEST_CASE("a device that the driver lacks", "[.lost]") {
    hip();
    attn_device *device;
    CHECK(attn_device_open("hip:1", nullptr, &device) == ATTN_DEVICE);
    CHECK(std::string(attn_error()) == "there is no device hip:1; the driver has 1");
    const Device other("hip:0");
}

TEST_CASE("a new process has the devices that its driver has") {
    CHECK(in_new_process("FAKE_HIP_DEVICES=1", "a device that the driver lacks") == 0);
    CHECK(in_new_process("", "a device that the driver lacks") != 0);
}

TEST_CASE("a kernel that fails is told by the next call that waits") {
    static const auto fails = [](int, void *, const char *, unsigned, unsigned, unsigned,
                                 const void *) -> int { return fake::ILLEGAL_ADDRESS; };
    static fake::Emulator failing = fake::emulator;
    failing.launch = fails;
    Device on("hip:1");
    Call x(on, ATTN_F16);
    hip().emulate(&failing);
    CHECK(attn_run(x.plan, &x.c, x.workspace, nullptr) == ATTN_OK); // it is only launched
    CHECK(attn_stream_sync(on.d, nullptr) == ATTN_DRIVER);
    CHECK(std::string(attn_error()).find("ILLEGAL_ADDRESS") != std::string::npos);
    CHECK(attn_run(x.plan, &x.c, x.workspace, nullptr) == ATTN_DRIVER);
    hip().emulate(&fake::emulator);
    hip().stop(0);
    x.run(nullptr);
    CHECK(attn_stream_sync(on.d, nullptr) == ATTN_OK);
}

TEST_CASE("out of memory is the call's own") {
    Device on("hip:1");
    Call x(on, ATTN_F16), other(on, ATTN_F16);
    change(other);
    const auto list = calls(on, x, other);
    void *p = &p;
    hip().room(4095);
    CHECK(attn_buffer_new(on.d, 4096, &p) == ATTN_MEMORY);
    CHECK(p == nullptr);
    CHECK(attn_buffer_new_on(on.d, 4096, nullptr, &p) == ATTN_MEMORY);
    CHECK(std::string(attn_error()).find("are in use here") != std::string::npos);
    x.run(nullptr); // which allocates nothing
    hip().fail("hipModuleLaunchKernel", fake::OUT_OF_MEMORY);
    CHECK(attn_run(x.plan, &x.c, x.workspace, nullptr) == ATTN_MEMORY);
    hip().fail("hipModuleLoadData", fake::OUT_OF_MEMORY);
    attn_plan *plan = nullptr;
    attn_variant *variant;
    REQUIRE(attn_variant_parse("s + 0.125 * q", &variant) == ATTN_OK); // code that nothing has
    CHECK(attn_plan_new(on.d, ATTN_FORWARD, &other.c, variant, &plan) == ATTN_MEMORY);
    CHECK(plan == nullptr);
    attn_variant_release(variant);
    hip().room(0);
    all_answer(list, ATTN_OK, "");
}
