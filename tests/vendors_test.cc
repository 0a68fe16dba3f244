// vendors_test.cc: a machine with an NVIDIA and an AMD GPU: both drivers in one process, by their
// look-alikes, whose chips the emulator is.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include "fake_gpu_test.h"

#include <cmath>
#include <string>

using fake::Call;
using fake::cuda;
using fake::Device;
using fake::hip;

namespace {

const attn_device_info *find(const attn_device_info *list, int n, const std::string &name) {
    for (int i = 0; i < n; i++) {
        if (list[i].name == name) {
            return &list[i];
        }
    }
    return nullptr;
}

double distance(const std::vector<float> &a, const std::vector<float> &b) {
    double most = 0;
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); i++) {
        const double off = std::abs(double{a[i]} - double{b[i]});
        most = off >= most || std::isnan(off) ? off : most;
    }
    return most;
}

} // namespace

TEST_CASE("one is here", "[.one]") {
    attn_device_info list[32];
    for (attn_device_info &one : list) {
        one.size = sizeof one;
    }
    const int n = attn_device_list(list, 32);
    const std::string here = getenv("HERE"), other = here == "hip:0" ? "cuda:0" : "hip:0";
    REQUIRE(find(list, n, here));
    REQUIRE(find(list, n, other));
    CHECK(std::string(find(list, n, here)->missing).empty());
    CHECK(std::string(find(list, n, other)->missing).find("/nowhere/driver.so") !=
          std::string::npos);
    attn_device *d = nullptr;
    CHECK(attn_device_open(other.c_str(), nullptr, &d) == ATTN_DEVICE);
    REQUIRE(attn_device_open(here.c_str(), nullptr, &d) == ATTN_OK);
    attn_device_release(d);
}

TEST_CASE("a driver that is missing hides nothing of the other's") {
    char self[512] = "";
    cuda();
    REQUIRE(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    const std::string run = std::string(" '") + self + "' 'one is here' > /dev/null";
    const std::string folder = "FAKE_FOLDER=" + hip().folder + " ";
    CHECK(std::system((folder + "HERE=hip:0 ATTN_CUDA=/nowhere/driver.so" + run).c_str()) == 0);
    CHECK(std::system((folder + "HERE=cuda:0 ATTN_HIP=/nowhere/driver.so" + run).c_str()) == 0);
}

TEST_CASE("both vendors' devices are listed and run by turns") {
    cuda();
    attn_device_info list[32];
    for (attn_device_info &one : list) {
        one.size = sizeof one;
    }
    const int n = attn_device_list(list, 32);
    for (const char *const name : {"cuda:0", "cuda:2", "hip:0", "hip:1"}) {
        INFO(name);
        REQUIRE(find(list, n, name));
        CHECK(std::string(find(list, n, name)->missing).empty());
    }
    const Device nvidia("cuda:0"), amd("hip:0"), host("cpu");
    Call there(nvidia, ATTN_BF16), here(amd, ATTN_BF16), want(host, ATTN_BF16);
    want.run(nullptr);
    for (int turn = 0; turn < 3; turn++) {
        const int cuda_runs = cuda().last()->count, hip_runs = hip().last()->count;
        there.run(nullptr);
        CHECK(cuda().last()->count > cuda_runs);
        CHECK(hip().last()->count == hip_runs);
        const int noted = cuda().last()->count;
        here.run(nullptr);
        CHECK(hip().last()->count > hip_runs);
        CHECK(cuda().last()->count == noted);
    }
    CHECK(distance(here.o.read(), want.o.read()) < 0.02);
    CHECK(distance(there.o.read(), want.o.read()) < 0.02);
    CHECK(distance(there.lse.read(), want.lse.read()) < 0.01);
}

TEST_CASE("NVIDIA's chips load by tensor maps where the driver has them") {
    cuda();
    const Device nvidia("cuda:0"), host("cpu");
    Call there(nvidia, ATTN_F16), want(host, ATTN_F16);
    want.run(nullptr);
    for (const bool has : {true, false}) {
        cuda().clear();
        if (!has) {
            cuda().fail("cuTensorMapEncodeTiled", 801); // of q
        }
        there.run(nullptr);
        attn_params params;
        std::memcpy(&params, cuda().last()->params, sizeof params);
        const unsigned all = ATTN_P_MAP_Q | ATTN_P_MAP_K | ATTN_P_MAP_V;
        CHECK((params.flags & all) == (has ? all : all & ~ATTN_P_MAP_Q));
        CHECK(distance(there.o.read(), want.o.read()) < 0.01);
        REQUIRE(attn_random(nvidia.d, &there.o.t, ATTN_NORMAL, 5, nullptr) == ATTN_OK);
    }
}

TEST_CASE("a tensor of one vendor's device is refused by the other's, by name") {
    cuda();
    const Device nvidia("cuda:0"), amd("hip:0");
    Call there(nvidia, ATTN_BF16), here(amd, ATTN_BF16);
    const struct {
        Call *own, *other;
        int32_t kind; // of the other's memory, as DLPack has it
        const char *words;
    } rows[] = {{&there, &here, 10, "device 10:0; cuda:0 is 2:0"},
                {&here, &there, 2, "device 2:0; hip:0 is 10:0"}};
    for (const auto &row : rows) {
        attn_call mixed = row.own->c;
        attn_tensor k = row.other->k.t;
        attn_plan *plan = nullptr;
        k.device = {row.kind, 0};
        mixed.k = &k;
        CHECK(attn_plan_new(row.own->d, ATTN_FORWARD, &mixed, row.own->variant, &plan) ==
              ATTN_DEVICE);
        INFO(attn_error());
        CHECK(std::string(attn_error_arg()) == "k");
        CHECK(std::string(attn_error()).find(row.words) != std::string::npos);
        CHECK(attn_run(row.own->plan, &mixed, row.own->workspace, nullptr) == ATTN_DEVICE);
        CHECK(attn_tensor_copy(row.own->d, &k, &row.own->k.t, nullptr) == ATTN_DEVICE);
    }
}

TEST_CASE("what breaks one vendor's device leaves the other's alone") {
    cuda();
    const Device nvidia("cuda:0"), amd("hip:0");
    Call there(nvidia, ATTN_BF16), here(amd, ATTN_BF16);
    cuda().stop(fake::ILLEGAL_ADDRESS);
    CHECK(attn_run(there.plan, &there.c, there.workspace, nullptr) == ATTN_DRIVER);
    CHECK(std::string(attn_error()).find("CUDA_ERROR_ILLEGAL_ADDRESS") != std::string::npos);
    here.run(nullptr);
    CHECK(attn_stream_sync(amd.d, nullptr) == ATTN_OK);
    cuda().stop(0);
    hip().stop(fake::NO_DEVICE);
    CHECK(attn_run(here.plan, &here.c, here.workspace, nullptr) == ATTN_DRIVER);
    CHECK(std::string(attn_error()).find("hipError_NO_DEVICE") != std::string::npos);
    there.run(nullptr);
    hip().stop(0);
}

TEST_CASE("the example on pointers and a stream of CUDA's own is right") {
    cuda();
    const std::string made = hip().folder + "/example.so"; // it calls this program's library
    REQUIRE(std::system(("cc -std=c11 -O1 -shared -fPIC -Ilib -Dmain=example "
                         "examples/cuda_pointers.c -o " +
                         made)
                            .c_str()) == 0);
    void *const example = dlopen(made.c_str(), RTLD_NOW);
    INFO((example ? "" : dlerror()));
    REQUIRE(example);
    const int runs = cuda().last()->count, live = cuda().live();
    CHECK(reinterpret_cast<int (*)()>(dlsym(example, "example"))() == 0);
    CHECK(cuda().last()->count > runs);
    CHECK(cuda().live() == live);
}
