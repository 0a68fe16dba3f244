// cache_test.cc: the cache of compiled kernels and temporary folders, where something goes wrong:
// writers that are killed, entries of others, a full disk, a home that cannot be written, too much.

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include "fake_gpu_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string>

extern "C" {
#include "jit.h"
#include "temporary.h"
}

namespace {

const time_t now = time(nullptr);

struct Folder {
    std::string path;
    Folder() {
        char name[] = "/tmp/attn-cache-XXXXXX";
        REQUIRE(mkdtemp(name));
        path = name;
        setenv("ATTN_CACHE", path.c_str(), 1);
    }
    ~Folder() {
        unsetenv("ATTN_CACHE");
        unsetenv("ATTN_CACHE_MIB");
        unsetenv("TMPDIR");
        if (system(("chmod -R u+w " + path + " && rm -r " + path).c_str()) != 0) {
            WARN("a temporary folder stays");
        }
    }
    Folder(const Folder &) = delete;
    std::string operator/(const std::string &name) const { return path + "/" + name; }
    std::set<std::string> names() const {
        std::set<std::string> list;
        DIR *const dir = opendir(path.c_str());
        while (const dirent *const e = readdir(dir)) {
            if (std::strcmp(e->d_name, ".") != 0 && std::strcmp(e->d_name, "..") != 0) {
                list.insert(e->d_name);
            }
        }
        closedir(dir);
        return list;
    }
};

std::string key(char digit) {
    return std::string(64, digit);
}
std::string entry(char digit) {
    return key(digit) + ".code";
}

// What the cache has under that key.
std::string cached(char digit) {
    void *code = nullptr;
    size_t n = 0;
    if (!attn__cache_read(key(digit).c_str(), &code, &n)) {
        return "nothing";
    }
    const std::string text(static_cast<char *>(code), n);
    free(code);
    return text;
}
void cache(char digit, const std::string &text) {
    attn__cache_write(key(digit).c_str(), text.data(), text.size());
}

void set_age(const std::string &path, time_t seconds) {
    const timespec times[2] = {{now - seconds, 0}, {now - seconds, 0}};
    REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

// How a child ended that did f.
template <class F> int in_child(F f) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(f() ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

bool is_there(const std::string &path) {
    return access(path.c_str(), F_OK) == 0;
}

} // namespace

TEST_CASE("what was used longest ago goes first") {
    const Folder here;
    const std::string megabyte(1 << 20, 'x');
    setenv("ATTN_CACHE_MIB", "4", 1);
    for (const char c : {'a', 'b', 'c'}) {
        cache(c, megabyte + c);
        set_age(here / entry(c), 1000 - c);
    }
    CHECK(here.names().size() == 3);
    CHECK(cached('a') == megabyte + 'a'); // is used now
    cache('d', megabyte);
    CHECK(here.names() == std::set<std::string>{entry('a'), entry('c'), entry('d')});
    CHECK(cached('b') == "nothing");

    setenv("ATTN_CACHE_MIB", "0", 1);
    cache('e', megabyte); // what was just written stays
    CHECK(here.names() == std::set<std::string>{entry('e')});
    setenv("ATTN_CACHE_MIB", "much", 1); // a plan refuses it; here: the default
    cache('f', megabyte);
    CHECK(here.names() == std::set<std::string>{entry('e'), entry('f')});
}

TEST_CASE("only entries are removed, and what killed writers left an hour ago") {
    const Folder here;
    setenv("ATTN_CACHE_MIB", "0", 1);
    for (const char *const name : {"notes", ".new-AAAAAA", ".new-BBBBBB", "a.code"}) {
        std::ofstream(here / name) << "text";
        set_age(here / name, 7200);
    }
    set_age(here / ".new-BBBBBB", 60);
    REQUIRE(mkdir((here / entry('0')).c_str(), 0700) == 0);
    cache('1', "code");
    CHECK(here.names() ==
          std::set<std::string>{"notes", ".new-BBBBBB", "a.code", entry('0'), entry('1')});
}

TEST_CASE("entries and folders of another user are not ours") {
    const Folder here;
    if (geteuid() != 0) {
        WARN("skipped: only root gives files away");
        return;
    }
    cache('a', "code");
    REQUIRE(cached('a') == "code");
    if (chown((here / entry('a')).c_str(), 65534, 65534) != 0) {
        WARN("skipped: this root gives no file away");
        return;
    }
    CHECK(cached('a') == "nothing");
    cache('a', "new");
    CHECK(cached('a') == "new");
    REQUIRE(chown(here.path.c_str(), 65534, 65534) == 0);
    CHECK(cached('a') == "nothing");
    cache('b', "code");
    CHECK_FALSE(is_there(here / entry('b')));
    REQUIRE(chown(here.path.c_str(), 0, 0) == 0);
}

TEST_CASE("the log tells why a kernel is not kept") {
    const Folder here;
    const std::string log = here / "log", shared = here / "sh\"ared";
    const auto why = [&](const std::string &folder) {
        setenv("ATTN_CACHE", folder.c_str(), 1);
        REQUIRE(attn_log(log.c_str(), 1) == ATTN_OK);
        cache('a', "code");
        REQUIRE(attn_log(nullptr, 0) == ATTN_OK);
        std::string line;
        std::getline(std::ifstream(log), line);
        std::remove(log.c_str());
        return line;
    };
    const std::string begin = R"({"event":"not kept","key":")" + key('a') + R"(","cache":")";
    REQUIRE(mkdir(shared.c_str(), 0700) == 0);
    CHECK(why(shared).empty());
    REQUIRE(chmod(shared.c_str(), 0770) == 0); // as umask 002 makes it
    CHECK(why(shared) == begin + here.path + R"(/sh\"ared","why":"others may write to the )" +
                             R"(folder; chmod go-w closes it"})");
    CHECK(why("/proc/no/such") == begin + R"(/proc/no/such","why":"the folder is not there"})");
    CHECK(why("none") == "");
    REQUIRE(chmod(shared.c_str(), 0700) == 0);
    CHECK(why(shared).empty());
    CHECK(cached('a') == "code");
}

TEST_CASE("a full disk keeps nothing, and no half of an entry") {
    const Folder here;
    CHECK(in_child([&] { // as on a full disk, writing ends after so many bytes
              signal(SIGXFSZ, SIG_IGN);
              const rlimit limit = {4096, 4096};
              setrlimit(RLIMIT_FSIZE, &limit);
              cache('a', std::string(8192, 'x'));
              attn__temporary t;
              bool said = attn__temporary_new(&t) == ATTN_OK;
              const std::string large(8192, 'x');
              said = said &&
                     attn__temporary_write(&t, "in/it", large.data(), large.size()) == ATTN_IO &&
                     std::strstr(attn_error(), "in/it could not be written") != nullptr;
              attn__temporary_remove(&t);
              return said && !is_there(t.path);
          }) == 0);
    CHECK(here.names().empty());
    cache('a', "code");
    CHECK(cached('a') == "code");
}

TEST_CASE("a home that cannot be written has no cache") {
    const Folder here;
    REQUIRE(mkdir((here / "home").c_str(), 0500) == 0);
    const std::string home = geteuid() == 0 ? "/proc/1" : here / "home";
    CHECK(in_child([&] {
              unsetenv("ATTN_CACHE");
              unsetenv("XDG_CACHE_HOME");
              setenv("HOME", home.c_str(), 1);
              cache('a', "code");
              return cached('a') == "nothing";
          }) == 0);
    CHECK_FALSE(is_there(home + "/.cache"));
    REQUIRE(chmod((here / "home").c_str(), 0700) == 0);
    CHECK(in_child([&] {
              unsetenv("ATTN_CACHE");
              unsetenv("XDG_CACHE_HOME");
              setenv("HOME", (here / "home").c_str(), 1);
              cache('a', "code");
              return cached('a') == "code";
          }) == 0);
    CHECK(is_there(here / ("home/.cache/attn/" + entry('a'))));
}

// A plan of a kernel that nobody has compiled, by NVIDIA's look-alike, whose compiler is a library.
static bool plan_by(const fake::Library &cuda) {
    int64_t shape[] = {1, 1, 40, 160};
    attn_tensor x = {nullptr, {0, 0}, 4, {2, 16, 1}, shape, nullptr, 0};
    attn_call call = {};
    attn_device *d = nullptr;
    attn_plan *plan = nullptr;
    call.size = sizeof call;
    call.q = call.k = call.v = call.o = &x;
    cuda.clear();
    const bool made = attn_device_open("cuda:0", nullptr, &d) == ATTN_OK &&
                      attn_plan_new(d, ATTN_FORWARD, &call, nullptr, &plan) == ATTN_OK;
    if (!made) {
        std::fprintf(stderr, "%s\n", attn_error());
    }
    attn_plan_release(plan);
    attn_device_release(d);
    return made && std::strstr(cuda.log(), "nvrtcCompileProgram") != nullptr;
}

TEST_CASE("a plan is made where the disk is full or the home cannot be written") {
    const fake::Library cuda("tests/fake_cuda.c", "ATTN_CUDA", "ATTN_NVRTC");
    const Folder here;
    CHECK(in_child([&] {
              setenv("ATTN_CACHE", "none", 1);
              attn_device *d = nullptr;
              void *memory = nullptr; // the look-alike's own is a file
              if (attn_device_open("cuda:0", nullptr, &d) != ATTN_OK ||
                  attn_buffer_new(d, 1, &memory) != ATTN_OK) {
                  return false;
              }
              signal(SIGXFSZ, SIG_IGN);
              setenv("ATTN_CACHE", here.path.c_str(), 1);
              const rlimit nothing = {0, 0};
              setrlimit(RLIMIT_FSIZE, &nothing);
              return plan_by(cuda);
          }) == 0);
    CHECK(here.names().empty());
    CHECK(in_child([&] {
              unsetenv("ATTN_CACHE");
              unsetenv("XDG_CACHE_HOME");
              setenv("HOME", "/proc/1", 1);
              return plan_by(cuda);
          }) == 0);
    CHECK(in_child([&] { return plan_by(cuda); }) == 0);
    CHECK(here.names().size() >= 1); // as there is room
}

TEST_CASE("writers may be killed at any time") {
    const Folder here;
    const std::string one(300000, '1'), two(300000, '2');
    for (int i = 0; i < 30; i++) {
        const pid_t child = fork();
        if (child == 0) {
            for (;;) {
                cache('a', one);
                cache('a', two);
            }
        }
        usleep(static_cast<useconds_t>(500 + 700 * i));
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
        const std::string found = cached('a');
        CHECK((found == "nothing" || found == one || found == two));
    }
    cache('a', "code");
    CHECK(cached('a') == "code");
}

TEST_CASE("folders of killed processes are removed, no others") {
    const Folder here;
    setenv("TMPDIR", here.path.c_str(), 1);
    std::string killed, lives;
    int told[2];
    char name[ATTN__PATH] = "";
    REQUIRE(pipe(told) == 0);
    const auto make_and_tell = [&] {
        attn__temporary mine;
        if (attn__temporary_new(&mine) == ATTN_OK &&
            write(told[1], mine.path, sizeof mine.path) > 0) {
            pause();
        }
        _exit(1);
    };
    const pid_t first = fork();
    if (first == 0) {
        make_and_tell();
    }
    REQUIRE(read(told[0], name, sizeof name) == sizeof name);
    killed = name;
    const pid_t second = fork();
    if (second == 0) {
        make_and_tell();
    }
    REQUIRE(read(told[0], name, sizeof name) == sizeof name);
    lives = name;
    kill(first, SIGKILL);
    waitpid(first, nullptr, 0);
    REQUIRE(mkdir((here / "attn-master").c_str(), 0700) == 0); // somebody's sources
    REQUIRE(mkdir((here / "attn-young1").c_str(), 0700) == 0);
    std::ofstream(here / "attn-young1/.attn-temporary") << "";
    std::ofstream(here / "attn-master/file") << "";
    std::ofstream(killed + "/code.so") << "";
    set_age(killed + "/.attn-temporary", 120);
    set_age(lives + "/.attn-temporary", 120);

    CHECK(in_child([&] { // the first one that a process makes is the occasion
              attn__temporary t;
              const bool made = attn__temporary_new(&t) == ATTN_OK;
              attn__temporary_remove(&t);
              return made;
          }) == 0);
    CHECK_FALSE(is_there(killed));
    CHECK(is_there(lives));
    CHECK(is_there(here / "attn-master/file"));
    CHECK(is_there(here / "attn-young1"));
    kill(second, SIGKILL);
    waitpid(second, nullptr, 0);
    close(told[0]);
    close(told[1]);
}

TEST_CASE("TMPDIR may be relative; where it is nothing that is said") {
    const Folder here;
    CHECK(in_child([&] {
              attn__temporary t;
              setenv("TMPDIR", "t", 1);
              if (chdir(here.path.c_str()) != 0 || mkdir("t", 0700) != 0 ||
                  attn__temporary_new(&t) != ATTN_OK || chdir("/") != 0) {
                  return false;
              }
              const bool made = std::string(t.path).find(here.path + "/t/attn-") == 0 &&
                                attn__temporary_write(&t, "a/b/c", "text", 4) == ATTN_OK &&
                                is_there(std::string(t.path) + "/a/b/c");
              attn__temporary_remove(&t);
              setenv("TMPDIR", "no/such", 1);
              const std::string gone = t.path;
              return made && !is_there(gone) && attn__temporary_new(&t) == ATTN_IO &&
                     std::strstr(attn_error(), "no/such, which TMPDIR names") != nullptr;
          }) == 0);
}
