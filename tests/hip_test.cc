// hip_test.cc: the path of AMD's chips, from the driver's table to results, against a look-alike of
// HIP's library (fake_hip.c) whose kernels the emulator runs. It is built here by cc.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include "fake_gpu_test.h"

extern "C" {
#include "gpu_native.h"
}

#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace {

using fake::Call;
using fake::Device;
using fake::Tensor;

double distance(const std::vector<float> &a, const std::vector<float> &b) {
    double most = 0;
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); i++) {
        const double d = std::abs(double{a[i]} - double{b[i]});
        most = d >= most || d != d ? d : most; // NaN counts
    }
    return most;
}

int (*set_device)(int);
int (*get_device)(int *);

void find_device_calls() {
    void *const library = dlopen(fake::hip().path.c_str(), RTLD_NOW);
    set_device = reinterpret_cast<int (*)(int)>(dlsym(library, "hipSetDevice"));
    get_device = reinterpret_cast<int (*)(int *)>(dlsym(library, "hipGetDevice"));
    REQUIRE(set_device);
    REQUIRE(get_device);
}

// What this program prints in a process of its own.
std::string run_apart(const std::string &environment, const char *test) {
    const std::string out = fake::hip().folder + "/out";
    char self[512] = "";
    REQUIRE(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    const std::string command =
        environment + " '" + self + "' '" + test + "' > " + out + " 2>&1";
    CHECK(std::system(command.c_str()) == 0);
    std::ostringstream text;
    text << std::ifstream(out).rdbuf();
    return text.str();
}

size_t size_of(const std::string &path) {
    struct stat s = {};
    return stat(path.c_str(), &s) == 0 ? static_cast<size_t>(s.st_size) : 0;
}

// A library of that name without a function, or with the look-alike's.
void make_library(const std::string &folder, const char *name, bool is_whole) {
    mkdir(folder.c_str(), 0700);
    const std::string at = folder + "/" + name;
    REQUIRE(std::system(is_whole ? ("cp " + fake::hip().path + " " + at).c_str()
                                 : ("echo | cc -shared -x c - -o " + at).c_str()) == 0);
}

} // namespace

TEST_CASE("which devices HIP has", "[.list]") {
    attn_device_info list[8];
    const int n = attn__hip.list(list, 8);
    for (int i = 0; i < n; i++) {
        std::printf("%s|%s|%s\n", list[i].name, list[i].arch, list[i].missing);
    }
}

TEST_CASE("a library that is too old is not an absent one, and hides no good one") {
    const std::string old = fake::hip().folder + "/old", mixed = fake::hip().folder + "/mixed";
    const auto one = [](const std::string &environment, const char *sentence) {
        const std::string text = run_apart(environment, "which devices HIP has");
        INFO(text);
        CHECK(text.find(sentence) != std::string::npos);
    };
    for (const char *const name : {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"}) {
        make_library(old, name, false);
        make_library(mixed, name, std::string(name) == "libamdhip64.so.6");
    }
    make_library(old, "libamdhip64.so", false);
    one("ATTN_HIP= LD_LIBRARY_PATH=" + old,
        "hip:0||the AMD driver is too old: libamdhip64.so.7 has no hipInit; ROCm 5 or newer");
    one("ATTN_HIP= LD_LIBRARY_PATH=" + mixed, "hip:0|Fake Instinct 0 (gfx942)|");
    one("ATTN_HIP=/nowhere/x.so", "hip:0||no AMD driver was found (/nowhere/x.so:");
    one("ATTN_HIP=/nowhere/x.so", "install it, or name its library in ATTN_HIP");
    one("FAKE_HIP_DEVICES=0", "it has no device");
}

TEST_CASE("a device file that is not there or that the user may not open is named") {
    char folder[] = "/tmp/attn-node-XXXXXX"; // a sentence has room for so much
    REQUIRE(mkdtemp(folder));
    const std::string node = folder + std::string("/node");
    attn__vendor vendor = {};
    vendor.maker = "AMD";
    vendor.node = node.c_str();
    vendor.permit = "add it to the group render";
    vendor.hides = "HIP_VISIBLE_DEVICES";
    vendor.error_name = [](int) { return "hipErrorNoDevice"; };
    vendor.error_text = [](int) { return "no device"; };
    const std::string said = "the AMD driver answers 100, hipErrorNoDevice";
    attn__native_unusable(&vendor, 100);
    CHECK(vendor.missing == said + "; there is no " + node +
                                ": load the kernel module, or share it with the container");
    std::ofstream(node) << "";
    attn__native_unusable(&vendor, 100);
    CHECK(vendor.missing == said + ", no device");
    attn__native_unusable(&vendor, 0);
    CHECK(vendor.missing == std::string("the AMD driver is here, but it has no device (is "
                                        "HIP_VISIBLE_DEVICES set?)"));
    REQUIRE(chmod(node.c_str(), 0) == 0);
    REQUIRE(chmod(folder, 0711) == 0);
    const pid_t child = fork();
    if (child == 0) {
        const bool is_other = getuid() != 0 || setuid(65534) == 0;
        attn__native_unusable(&vendor, 100);
        _exit(is_other && vendor.missing == said + "; this user may not open " + node +
                                                ": add it to the group render"
                  ? 0
                  : 1);
    }
    int status = 1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    unlink(node.c_str());
    rmdir(folder);
}

TEST_CASE("HIP's devices, and what a chip has is read") {
    fake::hip();
    attn_device_info list[8];
    REQUIRE(attn__hip.list(list, 8) == 3);
    CHECK(std::string(list[0].name) == "hip:0");
    CHECK(std::string(list[0].arch) == "Fake Instinct 0 (gfx942)");
    CHECK(std::string(list[1].arch) == "Fake Instinct 1 (gfx90a)");
    CHECK(list[0].kind == 10);
    CHECK(std::string(list[1].missing).empty());
    CHECK(std::string(list[2].missing).find("gfx1100") != std::string::npos);
    attn_device *d;
    CHECK(attn_device_open("hip:2", nullptr, &d) == ATTN_DEVICE);
    attn__chip *chip;
    const auto xcds = [&](const char *told, const char *name) {
        setenv("FAKE_HIP_XCCS", told, 1);
        REQUIRE(attn__hip.open(name, &chip) == ATTN_OK);
        const int n = attn__hip.target(chip)->xcds;
        attn__hip.close(chip);
        unsetenv("FAKE_HIP_XCCS");
        return n;
    };
    CHECK(xcds("2", "hip:0") == 2);
    CHECK(xcds("-1", "hip:0") == 8); // an older driver
    CHECK(xcds("8", "hip:1") == 1);
    REQUIRE(attn__hip.open("hip:1", &chip) == ATTN_OK);
    CHECK(attn__hip.target(chip)->units == 104);
    CHECK(std::string(attn__hip.target(chip)->name) == "gfx90a");
    attn__hip.close(chip);
}

TEST_CASE("a forward pass by HIP's calls has the host's result") {
    find_device_calls();
    Device host("cpu");
    const struct {
        const char *name;
        int type;
    } rows[] = {{"hip:0", ATTN_BF16}, {"hip:1", ATTN_F16}};
    for (const auto &row : rows) {
        INFO(row.name);
        Device on(row.name);
        void *stream, *other;
        REQUIRE(attn_stream_new(on.d, &stream) == ATTN_OK);
        REQUIRE(attn_stream_new(on.d, &other) == ATTN_OK);
        REQUIRE(set_device(2) == 0);
        Call want(host, row.type), got(on, row.type);
        want.run(nullptr);
        const int before = fake::hip().last()->count;
        fake::hip().clear();
        got.run(stream);
        const std::string log = fake::hip().log(); // launches, and nothing that waits
        CHECK(fake::hip().last()->count > before);
        CHECK(fake::hip().last()->stream == stream);
        for (const char *const word : {"Synchronize", "Malloc", "Free", "Memcpy", "ModuleLoad"}) {
            INFO(word);
            CHECK(log.find(word) == std::string::npos);
        }
        CHECK(log.find("hipModuleLaunchKernel") != std::string::npos);
        // A stream that was not waited for tells nothing of another one's work; its own end does.
        REQUIRE(attn_stream_sync(on.d, other) == ATTN_OK);
        const float unwritten = got.o.read(other)[0];
        CHECK(std::abs(double{unwritten} - double{want.o.read()[0]}) > 1);
        CHECK(distance(got.o.read(stream), want.o.read()) < 0.02);
        CHECK(distance(got.lse.read(), want.lse.read()) < 0.01);
        int device = -1;
        CHECK(get_device(&device) == 0);
        CHECK(device == 2);
        attn_stream_release(on.d, stream);
        attn_stream_release(on.d, other);
    }
}

TEST_CASE("a run's results are there for a copy on the stream NULL") {
    Device on("hip:0");
    Call call(on, ATTN_BF16);
    void *stream;
    REQUIRE(attn_stream_new(on.d, &stream) == ATTN_OK);
    call.run(stream);
    const std::vector<float> first = call.o.read(); // NULL waits for the others
    CHECK(std::abs(first[0]) < 10);
    call.run(stream);
    CHECK(call.o.read() == first);
    attn_stream_release(on.d, stream);
}

TEST_CASE("two threads on two streams of one chip, and a third on another chip") {
    Device first("hip:0"), second("hip:1");
    const Device *const on[] = {&first, &first, &second};
    Call alone(first, ATTN_F16), a(first, ATTN_F16), b(first, ATTN_F16), c(second, ATTN_F16);
    Call *const calls[] = {&a, &b, &c};
    void *streams[3];
    bool good[3] = {true, true, true};
    alone.run(nullptr);
    for (int i = 0; i < 3; i++) {
        REQUIRE(attn_stream_new(on[i]->d, &streams[i]) == ATTN_OK);
    }
    const auto work = [&](int i) { // Catch's macros are for one thread
        for (int n = 0; n < 20; n++) {
            attn_plan *plan = nullptr;
            Call &call = *calls[i];
            good[i] = good[i] &&
                      attn_plan_new(call.d, ATTN_FORWARD, &call.c, call.variant, &plan) == 0 &&
                      attn_run(plan, &call.c, call.workspace, streams[i]) == ATTN_OK &&
                      attn_stream_sync(call.d, streams[i]) == ATTN_OK;
            attn_plan_release(plan);
        }
    };
    std::thread threads[3];
    for (int i = 0; i < 3; i++) {
        threads[i] = std::thread(work, i);
    }
    for (std::thread &t : threads) {
        t.join();
    }
    const std::vector<float> want = alone.o.read();
    for (int i = 0; i < 3; i++) {
        CHECK(good[i]);
        CHECK(distance(calls[i]->o.read(), want) <= (i == 2 ? 0.02 : 0));
        attn_stream_release(on[i]->d, streams[i]);
    }
}

TEST_CASE("a call that is planned", "[.plan]") {
    Device on("hip:0");
    const Call call(on, ATTN_BF16);
}

TEST_CASE("compiled code is found again, in any process") {
    const std::string &folder = fake::hip().folder, count = folder + "/compiles";
    const auto compiles_of = [&](const std::string &cache) {
        const size_t before = size_of(count);
        run_apart("FAKE_FOLDER=" + folder + " FAKE_HIPRTC_COUNT=" + count + " ATTN_CACHE=" + cache,
                  "a call that is planned");
        return size_of(count) - before;
    };
    const size_t all = compiles_of(folder + "/fresh");
    CHECK(all > 0);
    CHECK(compiles_of(folder + "/fresh") == 0);
    CHECK(compiles_of("none") == all);
}

TEST_CASE("hipRTC may hang or end") {
    fake::hip();
    auto job = std::make_unique<attn__job>();
    attn__job_begin(job.get(), attn__target_find("gfx942"), "attn_fwd.hip");
    void *code = nullptr;
    size_t n = 0;
    setenv("FAKE_HIPRTC", "hang", 1);
    setenv("ATTN_COMPILE_SECONDS", "1", 1);
    CHECK(attn__hiprtc.compile(job.get(), &code, &n) == ATTN_DRIVER);
    CHECK(std::string(attn_error()).find("in 1 seconds") != std::string::npos);
    setenv("FAKE_HIPRTC", "end", 1);
    CHECK(attn__hiprtc.compile(job.get(), &code, &n) == ATTN_DRIVER);
    CHECK(std::string(attn_error()).find("ended while it compiled") != std::string::npos);
    CHECK(code == nullptr);
    unsetenv("FAKE_HIPRTC");
    unsetenv("ATTN_COMPILE_SECONDS");
}

TEST_CASE("rows of memory by HIP's copies") {
    Device on("hip:1"), host("cpu");
    Tensor from(host, ATTN_F32, {6, 5, 8}, 7), far(on, ATTN_F32, {5, 6, 8}),
        also(on, ATTN_F32, {5, 6, 8});
    std::vector<int64_t> turned = {5, 6, 8}, strides = {8, 40, 1};
    attn_tensor view = from.t;
    view.shape = turned.data();
    view.strides = strides.data();
    view.device = {1, 0};
    Tensor want(host, ATTN_F32, {5, 6, 8});
    REQUIRE(attn_tensor_copy(host.d, &want.t, &view, nullptr) == ATTN_OK);
    fake::hip().clear();
    REQUIRE(attn_tensor_copy(on.d, &far.t, &view, nullptr) == ATTN_OK);
    CHECK(std::string(fake::hip().log()).find("hipMemcpy2D kind 1 ") != std::string::npos);
    REQUIRE(attn_tensor_copy(on.d, &also.t, &far.t, nullptr) == ATTN_OK);
    CHECK(also.read() == want.read());
}
