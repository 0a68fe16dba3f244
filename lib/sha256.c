/* sha256.c: the hash of FIPS 180-4, section 6.2.

   Who calls it: jit.c, for keys and checksums of the cache. */
#include "jit.h"

#include <string.h>

static uint32_t turn(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

static void round_of(attn__sha256 *s, const uint8_t *block) {
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};
    uint32_t w[64];
    for (int t = 0; t < 16; t++) {
        const uint8_t *const at = block + 4 * t;
        w[t] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    }
    for (int t = 16; t < 64; t++) {
        const uint32_t x = w[t - 15], y = w[t - 2];
        w[t] = w[t - 16] + (turn(x, 7) ^ turn(x, 18) ^ x >> 3) + w[t - 7] +
               (turn(y, 17) ^ turn(y, 19) ^ y >> 10);
    }
    uint32_t a = s->h[0], b = s->h[1], c = s->h[2], d = s->h[3];
    uint32_t e = s->h[4], f = s->h[5], g = s->h[6], h = s->h[7];
    for (int t = 0; t < 64; t++) {
        const uint32_t one =
            h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + k[t] + w[t];
        const uint32_t two =
            (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + one;
        d = c, c = b, b = a, a = one + two;
    }
    s->h[0] += a, s->h[1] += b, s->h[2] += c, s->h[3] += d;
    s->h[4] += e, s->h[5] += f, s->h[6] += g, s->h[7] += h;
}

void attn__sha256_begin(attn__sha256 *s) {
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->h, first, sizeof first);
    s->n = 0;
}

void attn__sha256_add(attn__sha256 *s, const void *bytes, size_t n) {
    const uint8_t *at = bytes;
    while (n) {
        const size_t have = (size_t)(s->n % 64);
        const size_t some = n < 64 - have ? n : 64 - have;
        memcpy(s->block + have, at, some);
        s->n += some;
        at += some;
        n -= some;
        if (s->n % 64 == 0) {
            round_of(s, s->block);
        }
    }
}

void attn__sha256_end(attn__sha256 *s, uint8_t digest[32]) {
    const uint64_t bits = 8 * s->n;
    const uint8_t one = 0x80, zero = 0;
    uint8_t length[8];
    attn__sha256_add(s, &one, 1);
    while (s->n % 64 != 56) {
        attn__sha256_add(s, &zero, 1);
    }
    for (int i = 0; i < 8; i++) {
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    }
    attn__sha256_add(s, length, 8);
    for (int i = 0; i < 32; i++) {
        digest[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
    }
}

void attn__sha256_hex(attn__sha256 *s, char hex[65]) {
    static const char digits[] = "0123456789abcdef";
    uint8_t digest[32];
    attn__sha256_end(s, digest);
    for (int i = 0; i < 32; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[64] = 0;
}

void attn__sha256_of(const void *bytes, size_t n, uint8_t digest[32]) {
    attn__sha256 sum;
    attn__sha256_begin(&sum);
    attn__sha256_add(&sum, bytes, n);
    attn__sha256_end(&sum, digest);
}
