// pool_test.cc: the thread pool: every item once, forks, runs at the same time, signals, cores.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <pthread.h>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

extern "C" {
#include "cpu_pool.h"
}

namespace {

struct Pool {
    attn__pool *p = nullptr;
    explicit Pool(int threads) { REQUIRE(attn__pool_new(threads, &p) == ATTN_OK); }
    ~Pool() { attn__pool_free(p); }
    Pool(const Pool &) = delete;
};

// What a run did: how often each item came, and the threads that took part.
struct Tally {
    std::vector<std::atomic<int>> times;
    std::atomic<uint64_t> threads{0};
    std::atomic<int> blocks_signals{0};
    int wait_for = 0; // an item waits until so many threads took part, at most a second

    explicit Tally(size_t n) : times(n) {}
    static void item(void *self, int64_t item, int thread) {
        Tally &t = *static_cast<Tally *>(self);
        t.threads |= uint64_t{1} << thread;
        for (int i = 0; i < 1000 && __builtin_popcountll(t.threads) < t.wait_for; i++) {
            usleep(1000);
        }
        sigset_t blocked;
        pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
        t.blocks_signals +=
            thread > 0 && sigismember(&blocked, SIGUSR1) == 1 && sigismember(&blocked, SIGINT) == 1;
        if (thread > 0 && item % 64 == 1) {
            usleep(300); // a run that does not wait for its workers returns before the next line
        }
        t.times[static_cast<size_t>(item)]++;
    }
    bool run(attn__pool *pool) {
        for (auto &x : times) {
            x = 0;
        }
        attn__pool_run(pool, static_cast<int64_t>(times.size()), item, this);
        return std::all_of(times.begin(), times.end(),
                           [](const std::atomic<int> &x) { return x == 1; });
    }
};

// 0 if the child says so.
template <class F> int in_child(F f) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        _exit(f() ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

void write(const std::string &path, const std::string &text) {
    std::ofstream(path) << text;
}

} // namespace

TEST_CASE("pool: every item comes once, on every thread's number below `threads`") {
    for (const int threads : {1, 2, 3, 8}) {
        const Pool pool(threads);
        for (const size_t n : {0, 1, 2, 3, 100, 1000}) {
            for (int repeat = 0; repeat < 20; repeat++) {
                Tally t(n);
                REQUIRE(t.run(pool.p));
                REQUIRE((t.threads >> threads) == 0);
            }
        }
    }
}

TEST_CASE("pool: all threads take part, and workers block signals") {
    const Pool pool(4);
    Tally t(4);
    t.wait_for = 4;
    REQUIRE(t.run(pool.p));
    CHECK(t.threads == 15);
    CHECK(t.blocks_signals == 3);
}

TEST_CASE("pool: runs at the same time all finish; one has the workers") {
    const Pool pool(3);
    std::vector<std::thread> callers;
    std::atomic<int> wrong{0};
    for (int i = 0; i < 4; i++) {
        callers.emplace_back([&] {
            for (int repeat = 0; repeat < 200; repeat++) {
                Tally t(50);
                wrong += !t.run(pool.p);
            }
        });
    }
    for (std::thread &t : callers) {
        t.join();
    }
    CHECK(wrong == 0);
}

TEST_CASE("pool: a run within a run works alone") {
    struct Nest {
        attn__pool *pool;
        std::atomic<int> inner{0};
    };
    const Pool pool(2);
    Nest nest{pool.p, {}};
    attn__pool_run(
        pool.p, 8,
        [](void *arg, int64_t, int) {
            Nest &n = *static_cast<Nest *>(arg);
            attn__pool_run(
                n.pool, 5, [](void *a, int64_t, int) { static_cast<Nest *>(a)->inner++; }, arg);
        },
        &nest);
    CHECK(nest.inner == 40);
}

TEST_CASE(
    "pool: a child has a pool of its own, before and after its first run, and in the middle") {
    const Pool pool(3);
    const auto child_runs = [&] {
        Tally t(3);
        t.wait_for = 3;
        return t.run(pool.p) && t.threads == 7 && t.run(pool.p);
    };
    CHECK(in_child(child_runs) == 0);
    Tally t(3);
    t.wait_for = 3;
    REQUIRE(t.run(pool.p));
    CHECK(in_child(child_runs) == 0);
    // Another thread keeps the pool busy while this one forks.
    std::atomic<bool> stop{false};
    std::thread busy([&] {
        while (!stop) {
            Tally other(64);
            other.run(pool.p);
        }
    });
    int failed = 0;
    for (int i = 0; i < 20; i++) {
        failed += in_child(child_runs) != 0;
    }
    stop = true;
    busy.join();
    CHECK(failed == 0);
    CHECK(t.run(pool.p));
}

TEST_CASE("pool: a child may free what it inherited") {
    attn__pool *pool = nullptr;
    REQUIRE(attn__pool_new(3, &pool) == ATTN_OK);
    Tally t(30);
    REQUIRE(t.run(pool));
    CHECK(in_child([&] {
              attn__pool_free(pool);
              return true;
          }) == 0);
    attn__pool_free(pool);
}

TEST_CASE("pool: cores by the quota of the group and of those above it") {
    char root[] = "/tmp/attn_pool_XXXXXX";
    REQUIRE(mkdtemp(root));
    const std::string r = root;
    for (const char *dir : {"/a", "/a/b", "/cpu,cpuacct", "/cpu,cpuacct/c"}) {
        REQUIRE(mkdir((r + dir).c_str(), 0755) == 0);
    }
    write(r + "/v2", "0::/a/b\n");
    write(r + "/v1", "5:cpuset:/c\n3:cpu,cpuacct:/c\n");
    const auto v2 = [&](int cores) { return attn__cgroup_cores((r + "/v2").c_str(), root, cores); };
    const auto v1 = [&](int cores) { return attn__cgroup_cores((r + "/v1").c_str(), root, cores); };
    CHECK(v2(16) == 16); // no files
    write(r + "/a/b/cpu.max", "max 100000\n");
    CHECK(v2(16) == 16);
    write(r + "/a/cpu.max", "250000 100000\n");
    CHECK(v2(16) == 3);
    CHECK(v2(2) == 2);
    write(r + "/a/b/cpu.max", "20000 100000\n");
    CHECK(v2(16) == 1);
    write(r + "/cpu,cpuacct/c/cpu.cfs_quota_us", "-1\n");
    write(r + "/cpu,cpuacct/c/cpu.cfs_period_us", "100000\n");
    CHECK(v1(16) == 16);
    write(r + "/cpu,cpuacct/c/cpu.cfs_quota_us", "400000\n");
    CHECK(v1(16) == 4);
    CHECK(attn__cgroup_cores((r + "/none").c_str(), root, 5) == 5);
    CHECK(attn__cores() >= 1);
    CHECK(attn__cores() <= sysconf(_SC_NPROCESSORS_CONF));
    REQUIRE(system(("rm -r " + r).c_str()) == 0);
}
