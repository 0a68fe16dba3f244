// fork_test.cc: a child that is forked while other threads work is not kept waiting by what they
// held: a kernel that was being made, the compiler that was being asked, memory, the log.

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

extern "C" {
#include "fork.h"
#include "gpu_module.h"
}

namespace {

// A folder that is gone at the end. $CC within it is a compiler that lingers over its first compile
// until the file `hold` is gone.
struct Folder {
    std::string path;
    Folder() {
        char name[] = "/tmp/attn-fork-XXXXXX";
        REQUIRE(mkdtemp(name));
        path = name;
        std::ofstream(path + "/cc") << "#!/bin/sh\n"
                                       "case \" $* \" in *' -v '*) exec cc \"$@\" ;; esac\n"
                                       "if mkdir " +
                                           path +
                                           "/begun 2>/dev/null; then\n"
                                           "    while [ -e " +
                                           path +
                                           "/hold ]; do sleep 0.02; done\n"
                                           "fi\n"
                                           "exec cc \"$@\"\n";
        std::ofstream(path + "/hold") << "";
        REQUIRE(chmod((path + "/cc").c_str(), 0700) == 0);
        setenv("CC", (path + "/cc").c_str(), 1);
        setenv("ATTN_CACHE", "none", 1);
    }
    ~Folder() {
        unsetenv("CC");
        unsetenv("ATTN_CACHE");
        if (system(("rm -r " + path).c_str()) != 0) {
            WARN("a temporary folder stays");
        }
    }
    Folder(const Folder &) = delete;
    bool has(const char *name) const { return access((path + "/" + name).c_str(), F_OK) == 0; }
};

struct Device {
    attn_device *d = nullptr;
    Device() { REQUIRE(attn_device_open("emu:sm_80", nullptr, &d) == ATTN_OK); }
    ~Device() { attn_device_release(d); }
    Device(const Device &) = delete;
};

// A module with nothing in it but its own number.
attn__job job_of(const attn_device *device, int number) {
    attn__job job;
    attn__job_begin(&job, device->driver->target(device->chip), "small.c");
    job.file[job.n_files++] = {"small.c", "const int answer = NUMBER;\n"
                                          "void attn_emu_bind(const void *api) { (void)api; }\n"};
    attn__job_define(&job, "NUMBER", number);
    return job;
}

bool makes(const attn_device *device, int number) {
    const attn__job job = job_of(device, number);
    attn__kernel_code *code = nullptr;
    const bool made = attn__code_get(device, &job, &code) == ATTN_OK && attn__code_module(code);
    attn__code_put(code);
    return made;
}

// 0 if the child says so before its time is up.
template <class F> int in_child(F f, unsigned seconds) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(seconds);
        _exit(f() ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

} // namespace

TEST_CASE("a child makes the kernel that another thread was making") {
    const Folder here;
    const Device device;
    std::atomic<bool> made{false};
    std::thread other([&] { made = makes(device.d, 1); });
    while (!here.has("begun")) {
        usleep(5000);
    }
    // One more waits for the first.
    std::atomic<bool> found{false};
    std::thread third([&] { found = makes(device.d, 1); });
    usleep(20000);
    CHECK(in_child([&] { return makes(device.d, 1); }, 60) == 0);
    CHECK_FALSE(made);
    CHECK(unlink((here.path + "/hold").c_str()) == 0);
    other.join();
    third.join();
    CHECK(made);
    CHECK(found);
}

TEST_CASE("a child does not wait for the compiler that another thread asks what it is") {
    const Folder here;
    const Device device;
    const std::string slow = here.path + "/slow";
    std::ofstream(slow) << "#!/bin/sh\n" // five seconds at most
                           "touch " +
                               here.path +
                               "/asked\n"
                               "for i in 0 1 2 3 4 5 6 7 8 9; do\n"
                               "    [ -e " +
                               here.path +
                               "/hold ] && sleep 0.5\n"
                               "done\n"
                               "exec cc \"$@\"\n";
    REQUIRE(chmod(slow.c_str(), 0700) == 0);
    setenv("CC", slow.c_str(), 1);
    std::thread other([&] { makes(device.d, 3); });
    while (!here.has("asked")) {
        usleep(5000);
    }
    const auto begin = std::chrono::steady_clock::now();
    CHECK(in_child([] { return true; }, 60) == 0);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(2));
    CHECK(unlink((here.path + "/hold").c_str()) == 0);
    other.join();
}

TEST_CASE("children are forked while other threads take every lock") {
    const auto take_all = [] {
        for (int i = 0; i < ATTN__LOCKS; i++) {
            attn__lock(static_cast<attn__lock_name>(i));
            attn__unlock(static_cast<attn__lock_name>(i));
        }
        return true;
    };
    std::atomic<bool> stop{false};
    std::thread busy[3];
    for (std::thread &t : busy) {
        t = std::thread([&] {
            while (!stop) {
                take_all();
            }
        });
    }
    for (int i = 0; i < 100; i++) {
        CHECK(in_child(take_all, 20) == 0);
    }
    stop = true;
    for (std::thread &t : busy) {
        t.join();
    }
}

TEST_CASE("a child has the log, memory and kernels of its parent") {
    const Folder here;
    const Device device;
    REQUIRE(unlink((here.path + "/hold").c_str()) == 0);
    REQUIRE(makes(device.d, 2));
    REQUIRE(attn_log((here.path + "/log").c_str(), 2) == ATTN_OK);
    CHECK(in_child(
              [&] {
                  void *memory = nullptr;
                  const bool has = attn_buffer_new(device.d, 64, &memory) == ATTN_OK;
                  attn_buffer_release(device.d, memory);
                  attn__log_write(1, "{\"child\": 1}");
                  return has && makes(device.d, 2);
              },
              60) == 0);
    CHECK(attn_log(nullptr, 0) == ATTN_OK);
    std::string line;
    std::getline(std::ifstream(here.path + "/log"), line);
    CHECK(line == "{\"child\": 1}");
}
