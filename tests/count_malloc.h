// count_malloc.h: how often a program allocates, between two points: glibc's malloc under its other
// name, unless a sanitizer has its own.
//
// Who includes it, after Catch, in one file of a program: cpu_test.cc, run_test.cc.
#ifndef ATTN_COUNT_MALLOC_H
#define ATTN_COUNT_MALLOC_H

#include <atomic>
#include <cstdlib>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

namespace {
std::atomic<bool> counting{false};
std::atomic<long> allocations{0};

// How often f allocates, on any thread; 0, with a warning, where that cannot be told.
template <class F> long allocations_of(F f) {
    allocations = 0;
    counting = true;
    f();
    counting = false;
#if defined(__GLIBC__) && !defined(SANITIZED)
    return allocations;
#else
    WARN("skipped: malloc is the sanitizer's own here, or no glibc");
    return 0;
#endif
}
} // namespace

#if defined(__GLIBC__) && !defined(SANITIZED)
namespace {
void count_allocation() {
    if (counting.load(std::memory_order_relaxed)) {
        allocations.fetch_add(1, std::memory_order_relaxed);
    }
}
} // namespace
extern "C" {
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *malloc(size_t n) {
    count_allocation();
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    count_allocation();
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
    count_allocation();
    return __libc_realloc(p, n);
}
}
#endif

#endif
