// bundle_test.cc: kernels compiled elsewhere: a bundle is made, and used where no compiler is.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "emu_host.h"
#include "host_call.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace host;

struct Folder {
    std::string path;
    Folder() {
        char name[] = "/tmp/attn-bundle-XXXXXX";
        REQUIRE(mkdtemp(name));
        path = name;
    }
    ~Folder() {
        if (std::system(("rm -r " + path).c_str()) != 0) {
            WARN("a temporary folder stays");
        }
    }
    Folder(const Folder &) = delete;
};

std::string read(const std::string &path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}
void write(const std::string &path, const std::string &bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

Call call_of(int64_t rows, int64_t d) {
    Call call;
    call.B = 1;
    call.NQ = rows;
    call.NK = 100;
    call.D = call.DV = d;
    call.type = call.real = ATTN_F16;
    call.fill();
    return call;
}

// Largest difference from the oracle.
double error_of(const char *device, int64_t rows) {
    Call a = call_of(rows, 32), b = call_of(rows, 32);
    Device chip(device), oracle("ref");
    REQUIRE(chip.status == ATTN_OK);
    REQUIRE(run(chip.d, ATTN_FORWARD, a.c, nullptr) == ATTN_OK);
    REQUIRE(run(oracle.d, ATTN_FORWARD, b.c, nullptr) == ATTN_OK);
    double most = 0;
    for (int64_t n = 0; n < a.o->count(); n++) {
        most = std::max(most, std::fabs(a.o->get(n) - b.o->get(n)));
    }
    return most;
}

int plan_of(const char *device, int64_t rows, int64_t d) {
    const Call call = call_of(rows, d);
    const Device chip(device);
    attn_plan *plan = nullptr;
    const int status = attn_plan_new(chip.d, ATTN_FORWARD, &call.c, nullptr, &plan);
    attn_plan_release(plan);
    return status;
}

} // namespace

TEST_CASE("a bundle that does not help is named where the compiler is missing") {
    const Folder folder;
    const std::string junk = folder.path + "/junk", gone = folder.path + "/gone";
    write(junk, "no bundle");
    setenv("ATTN_CACHE", "none", 1);
    setenv("CC", "no-such-compiler", 1);
    for (const auto &row : {std::make_pair(gone, "the bundle " + gone + " could not be read: No"),
                            std::make_pair(junk + ":" + gone, junk + " is no bundle")}) {
        const pid_t child = fork(); // ATTN_BUNDLE is read once
        if (child == 0) {
            setenv("ATTN_BUNDLE", row.first.c_str(), 1);
            const int status = plan_of("emu:sm_80", 100, 32);
            const std::string why = attn_error();
            _exit(status == ATTN_DEVICE && why.find("no-such-compiler") != std::string::npos &&
                          why.find("; of ATTN_BUNDLE, " + row.second) != std::string::npos
                      ? 0
                      : 1);
        }
        int status = -1;
        REQUIRE(waitpid(child, &status, 0) == child);
        CHECK(status == 0);
    }
    write(junk, std::string("attnbnd1") + std::string(8, 0)); // a whole one, of nothing
    REQUIRE(attn_bundle_open(junk.c_str()) == ATTN_OK);
    CHECK(plan_of("emu:sm_80", 100, 32) == ATTN_DEVICE);
    CHECK(std::string(attn_error()).find("; no opened bundle has this attn_fwd.hip") !=
          std::string::npos);
    unsetenv("CC");
    unsetenv("ATTN_CACHE");
}

TEST_CASE("a bundle takes the compiler's place") {
    if (!emu::has_cc()) {
        WARN("skipped: no C compiler");
        return;
    }
    const Folder folder;
    const std::string path = folder.path + "/a.bundle";
    setenv("ATTN_CACHE", "none", 1);
    {
        Call call = call_of(100, 32);
        call.o->fill_all(7);
        Device make("make:emu:sm_80");
        REQUIRE(make.status == ATTN_OK);
        REQUIRE(run(make.d, ATTN_FORWARD, call.c, nullptr) == ATTN_OK);
        CHECK(call.o->get(0) == 7); /* a run does nothing */
        REQUIRE(attn_bundle_write(make.d, path.c_str()) == ATTN_OK);
        CHECK(attn_bundle_write(make.d, "/no/such/folder/a") == ATTN_IO);
        CHECK(attn_bundle_write(make.d, nullptr) == ATTN_INVALID);
        CHECK(attn_bundle_write(Device("cpu").d, path.c_str()) == ATTN_INVALID);
    }
    setenv("CC", "no-such-compiler", 1);
    CHECK(plan_of("emu:sm_80", 100, 32) == ATTN_DEVICE);

    const std::string good = read(path);
    std::string bad = good;
    for (const size_t n : {size_t{0}, size_t{7}, size_t{15}, size_t{100}, good.size() - 1}) {
        write(path, good.substr(0, n));
        CHECK(attn_bundle_open(path.c_str()) == ATTN_IO);
    }
    bad[8] = 127; /* so many entries */
    write(path, bad);
    CHECK(attn_bundle_open(path.c_str()) == ATTN_IO);
    CHECK(attn_bundle_open((folder.path + "/none").c_str()) == ATTN_IO);
    CHECK(attn_bundle_open(nullptr) == ATTN_INVALID);
    bad = good;
    bad.back() ^= 1; /* code whose sum is wrong is none */
    write(path, bad);
    REQUIRE(attn_bundle_open(path.c_str()) == ATTN_OK);
    CHECK(plan_of("emu:sm_80", 100, 32) == ATTN_DEVICE);

    write(path, good);
    REQUIRE(attn_bundle_open(path.c_str()) == ATTN_OK);
    CHECK(error_of("emu:sm_80", 100) < 2e-3);
    CHECK(error_of("emu:sm_80", 3) < 2e-3); /* few rows: by the tile that is there */
    CHECK(plan_of("emu:sm_80", 100, 128) == ATTN_DEVICE);
    CHECK(plan_of("emu:gfx942", 100, 32) == ATTN_DEVICE);
    unsetenv("CC");
    unsetenv("ATTN_CACHE");
}

TEST_CASE("devices that compile are named after chips") {
    for (const char *const name : {"make:sm_80", "make:sm_90a", "make:gfx90a", "make:gfx942"}) {
        CHECK(Device(name).status == ATTN_OK);
    }
    for (const char *const name : {"make:", "make:sm_70", "make:emu:", "make:emu:gfx906", "make"}) {
        CHECK(Device(name).status == ATTN_DEVICE);
    }
}
