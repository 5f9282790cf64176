"""XXH64, the checksum of everything on disk, callable from C.

The published algorithm (seed and input as there), so that any reader can check our files; the
tests compare it with an independent implementation.
"""

from libc.stdint cimport uint64_t


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #define PENSTOCK_P1 0x9E3779B185EBCA87ull
    #define PENSTOCK_P2 0xC2B2AE3D27D4EB4Full
    #define PENSTOCK_P3 0x165667B19E3779F9ull
    #define PENSTOCK_P4 0x85EBCA77C2B2AE63ull
    #define PENSTOCK_P5 0x27D4EB2F165667C5ull

    static inline uint64_t penstock_rotl(uint64_t v, int n) { return (v << n) | (v >> (64 - n)); }
    static inline uint64_t penstock_le64(const unsigned char *p) {
        uint64_t v; memcpy(&v, p, 8);
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        v = __builtin_bswap64(v);
    #endif
        return v;
    }
    static inline uint32_t penstock_le32(const unsigned char *p) {
        uint32_t v; memcpy(&v, p, 4);
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        v = __builtin_bswap32(v);
    #endif
        return v;
    }
    static inline uint64_t penstock_xxh_round(uint64_t acc, uint64_t lane) {
        return penstock_rotl(acc + lane * PENSTOCK_P2, 31) * PENSTOCK_P1;
    }
    static inline uint64_t penstock_xxh_merge(uint64_t acc, uint64_t lane) {
        return (acc ^ penstock_xxh_round(0, lane)) * PENSTOCK_P1 + PENSTOCK_P4;
    }
    static uint64_t penstock_xxh64(const void *data, size_t n, uint64_t seed) {
        const unsigned char *p = (const unsigned char *)data;
        const unsigned char *end = p + n;
        uint64_t h;
        if (n >= 32) {
            uint64_t a = seed + PENSTOCK_P1 + PENSTOCK_P2, b = seed + PENSTOCK_P2;
            uint64_t c = seed, d = seed - PENSTOCK_P1;
            for (; end - p >= 32; p += 32) {
                a = penstock_xxh_round(a, penstock_le64(p));
                b = penstock_xxh_round(b, penstock_le64(p + 8));
                c = penstock_xxh_round(c, penstock_le64(p + 16));
                d = penstock_xxh_round(d, penstock_le64(p + 24));
            }
            h = penstock_rotl(a, 1) + penstock_rotl(b, 7) + penstock_rotl(c, 12)
              + penstock_rotl(d, 18);
            h = penstock_xxh_merge(h, a);
            h = penstock_xxh_merge(h, b);
            h = penstock_xxh_merge(h, c);
            h = penstock_xxh_merge(h, d);
        } else {
            h = seed + PENSTOCK_P5;
        }
        h += n;
        for (; end - p >= 8; p += 8)
            h = penstock_rotl(h ^ penstock_xxh_round(0, penstock_le64(p)), 27) * PENSTOCK_P1
              + PENSTOCK_P4;
        if (end - p >= 4) {
            h = penstock_rotl(h ^ (penstock_le32(p) * PENSTOCK_P1), 23) * PENSTOCK_P2 + PENSTOCK_P3;
            p += 4;
        }
        for (; p < end; p++)
            h = penstock_rotl(h ^ (*p * PENSTOCK_P5), 11) * PENSTOCK_P1;
        h = (h ^ (h >> 33)) * PENSTOCK_P2;
        h = (h ^ (h >> 29)) * PENSTOCK_P3;
        return h ^ (h >> 32);
    }
    """
    uint64_t xxh64 "penstock_xxh64"(const void* data, size_t n, uint64_t seed) noexcept nogil
