"""S2 blocks, encoded and decoded, and the checksum of their frames: the format of stream archives.

A block is its decoded length as a varint, then literals and copies of earlier decoded bytes:

    xxxxxx00            literal of x + 1 bytes; 60..63: x is in the next 1..4 bytes
    ooolll01 o          copy of l + 4 bytes from o back; o = 0: from the offset of the last copy,
                        and l of 5, 6, 7: 4, 256, 65536 plus the number in the next 1, 2, 3 bytes
    llllll10 oo         copy of l + 1 bytes from o back
    llllll11 oooo       the same

Whatever the input, the code reads and writes nothing outside the given buffers. The encoder creates
only blocks that Snappy can read, too: at most 64 KiB long, and without the last-offset form.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef enum:
    TABLE_BITS = 14
    TABLE_SIZE = 16384
    MARGIN = 15                # the encoder searches a match only if so many bytes follow
    SHORT_BYTES = 17           # shorter blocks are one literal
    EFFORT = 32                # bytes without a match before the encoder starts to skip bytes
    VARINT_BYTES_MAX = 5
    POLYNOMIAL = 0x82F63B78

ENCODED_BYTES_MAX = 65536

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    /* Most processors of the day have this checksum as an instruction; who has it is asked once. */
    #if defined(__x86_64__) && defined(__GNUC__)
    __attribute__((target("sse4.2")))
    static uint32_t penstock_crc_quick(const uint8_t *at, size_t n) {
        uint64_t crc = 0xFFFFFFFF, word;
        while (n >= 8) {
            memcpy(&word, at, 8);
            crc = __builtin_ia32_crc32di(crc, word);
            at += 8; n -= 8;
        }
        while (n--) crc = __builtin_ia32_crc32qi((uint32_t)crc, *at++);
        return (uint32_t)crc ^ 0xFFFFFFFF;
    }
    static int penstock_has_crc(void) { return __builtin_cpu_supports("sse4.2") != 0; }
    #else
    static uint32_t penstock_crc_quick(const uint8_t *at, size_t n) { (void)at; (void)n; return 0; }
    static int penstock_has_crc(void) { return 0; }
    #endif
    static inline int penstock_zero_bytes(uint64_t word) { return __builtin_ctzll(word) >> 3; }
    """
    uint32_t crc_quick "penstock_crc_quick"(const uint8_t* at, size_t n) noexcept nogil
    bint has_crc "penstock_has_crc"() noexcept nogil
    int low_zero_bytes "penstock_zero_bytes"(uint64_t word) noexcept nogil

cdef uint32_t crc_table[8][256]
cdef bint is_quick = has_crc()


cdef void make_crc_table() noexcept:
    cdef uint32_t value
    cdef int i, j
    for i in range(256):
        value = <uint32_t>i
        for j in range(8):
            value = (value >> 1) ^ (<uint32_t>POLYNOMIAL if value & 1 else 0)
        crc_table[0][i] = value
    for i in range(256):
        for j in range(1, 8):
            value = crc_table[j - 1][i]
            crc_table[j][i] = (value >> 8) ^ crc_table[0][value & 255]

make_crc_table()


cdef inline uint32_t load32(const uint8_t* at) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, at, 4)
    return value

cdef inline uint64_t load64(const uint8_t* at) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, at, 8)
    return value

cdef inline uint64_t load_few(const uint8_t* at, int count) noexcept nogil:
    """Return a number of up to 8 bytes, least significant first."""
    cdef uint64_t value = 0
    cdef int i
    for i in range(count):
        value |= <uint64_t>at[i] << (8 * i)
    return value


cdef uint32_t crc_of(const uint8_t* at, size_t n) noexcept nogil:
    cdef uint32_t crc = 0xFFFFFFFF
    cdef uint64_t word
    if is_quick:
        return crc_quick(at, n)
    while n >= 8:
        word = load_few(at, 8) ^ crc
        crc = (crc_table[7][word & 255] ^ crc_table[6][(word >> 8) & 255]
               ^ crc_table[5][(word >> 16) & 255] ^ crc_table[4][(word >> 24) & 255]
               ^ crc_table[3][(word >> 32) & 255] ^ crc_table[2][(word >> 40) & 255]
               ^ crc_table[1][(word >> 48) & 255] ^ crc_table[0][word >> 56])
        at += 8
        n -= 8
    while n:
        crc = (crc >> 8) ^ crc_table[0][(crc ^ at[0]) & 255]
        at += 1
        n -= 1
    return crc ^ <uint32_t>0xFFFFFFFF


def set_quick(bint wanted):
    """Use the processor's CRC instruction, if it has one, or else the table."""
    global is_quick
    is_quick = wanted and has_crc()


def crc32c(const uint8_t[::1] data not None):
    """Return the CRC-32C (Castagnoli) of the bytes."""
    return crc_of(&data[0], data.shape[0]) if data.shape[0] else 0


# -- decoding

cdef int long_copy(const uint8_t* src, size_t room, int kind, size_t* length) noexcept nogil:
    """Read the length of a last-offset copy; return the bytes used, -1 if cut off."""
    cdef int extra = kind - 4
    if extra <= 0:
        return 0
    if <size_t>extra > room:
        return -1
    length[0] = load_few(src, extra) + (4 if extra == 1 else 256 if extra == 2 else 65536)
    return extra

cdef int tag_bytes(const uint8_t* src, size_t n, size_t* length, size_t* offset) noexcept nogil:
    """Read a tag: the length, and the offset of a copy. Return its bytes, -1 if cut off."""
    cdef int kind = src[0] & 3
    cdef int extra, more
    cdef size_t near
    length[0] = src[0] >> 2
    if kind == 0:
        extra = <int>length[0] - 59 if length[0] >= 60 else 0
        if <size_t>extra >= n:
            return -1
        if extra:
            length[0] = load_few(src + 1, extra)
        length[0] += 1
        return extra + 1
    if kind == 1:
        if n < 2:
            return -1
        near = (<size_t>(src[0] & 0xE0) << 3) | src[1]
        length[0] &= 7
        more = 0
        if near:
            offset[0] = near
        else:
            more = long_copy(src + 2, n - 2, <int>length[0], length)
        length[0] += 4
        return -1 if more < 0 else more + 2
    extra = 2 if kind == 2 else 4
    if <size_t>extra >= n:
        return -1
    offset[0] = load_few(src + 1, extra)
    length[0] += 1
    return extra + 1

cdef inline void copy_short(uint8_t* to, const uint8_t* what, size_t n) noexcept nogil:
    """Copy up to 16 bytes in steps of 8: all 16 must be readable and writable."""
    memcpy(to, what, 8)
    if n > 8:
        memcpy(to + 8, what + 8, 8)

cdef bint expand(const uint8_t* src, size_t n, uint8_t* dst, size_t size) noexcept nogil:
    """Fill all of `dst`; return False if the block does not decode to exactly that size."""
    cdef size_t at = 0, done = 0, length = 0, offset = 0, i
    cdef int taken
    cdef bint is_literal
    while at < n:
        is_literal = (src[at] & 3) == 0
        taken = tag_bytes(src + at, n - at, &length, &offset)
        if taken < 0 or length > size - done:
            return False
        at += taken
        if is_literal:
            if length > n - at:
                return False
            if length <= 16 and n - at >= 16 and size - done >= 16:
                copy_short(dst + done, src + at, length)
            else:
                memcpy(dst + done, src + at, length)
            at += length
        elif offset == 0 or offset > done:
            return False
        elif length <= 16 and offset >= 16 and size - done >= 16:
            copy_short(dst + done, dst + done - offset, length)
        elif offset >= length:
            memcpy(dst + done, dst + done - offset, length)
        else:
            for i in range(length):
                dst[done + i] = dst[done + i - offset]
        done += length
    return done == size


def decode_block(const uint8_t[::1] data not None, Py_ssize_t bytes_max):
    """Return the decoded block. Raises ValueError if it is invalid or exceeds `bytes_max`."""
    cdef size_t n = data.shape[0], at = 0
    cdef uint64_t size = 0
    cdef bint is_whole = False
    while at < n and at < VARINT_BYTES_MAX and not is_whole:
        size |= <uint64_t>(data[at] & 127) << (7 * at)
        is_whole = data[at] < 128
        at += 1
    if not is_whole or size > <uint64_t>bytes_max:
        raise ValueError("a block has no length, or one that is not allowed")
    if size == 0:
        if at != n:
            raise ValueError("a block is longer than it says")
        return b""
    result = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* dst = <uint8_t*>PyBytes_AS_STRING(result)
    cdef const uint8_t* src = &data[0]
    cdef bint is_valid
    with nogil:
        is_valid = expand(src + at, n - at, dst, size)
    if not is_valid:
        raise ValueError("a block does not hold what it says")
    return result


# -- encoding

cdef inline uint8_t* put_literal(uint8_t* out, const uint8_t* src, size_t n) noexcept nogil:
    cdef size_t x = n - 1
    if n == 0:
        return out
    if x < 60:
        out[0] = <uint8_t>(x << 2)
        out += 1
    elif x < 256:
        out[0] = 60 << 2
        out[1] = <uint8_t>x
        out += 2
    else:
        out[0] = 61 << 2
        out[1] = <uint8_t>(x & 255)
        out[2] = <uint8_t>(x >> 8)
        out += 3
    memcpy(out, src, n)
    return out + n

cdef inline uint8_t* put_copy2(uint8_t* out, size_t offset, size_t n) noexcept nogil:
    out[0] = <uint8_t>(((n - 1) << 2) | 2)
    out[1] = <uint8_t>(offset & 255)
    out[2] = <uint8_t>(offset >> 8)
    return out + 3

cdef inline uint8_t* put_copy(uint8_t* out, size_t offset, size_t n) noexcept nogil:
    while n >= 68:
        out = put_copy2(out, offset, 64)
        n -= 64
    if n > 64:
        out = put_copy2(out, offset, 60)  # leaves enough bytes for the short form
        n -= 60
    if n >= 12 or offset >= 2048:
        return put_copy2(out, offset, n)
    out[0] = <uint8_t>(((offset >> 8) << 5) | ((n - 4) << 2) | 1)
    out[1] = <uint8_t>(offset & 255)
    return out + 2

cdef inline size_t slot_of(const uint8_t* at) noexcept nogil:
    return (load32(at) * <uint32_t>0x1E35A7BD) >> (32 - TABLE_BITS)

cdef inline size_t match_length(const uint8_t* src, size_t old, size_t at, size_t n) noexcept nogil:
    cdef size_t length = 4
    cdef uint64_t unlike
    while at + length + 8 <= n:
        unlike = load64(src + old + length) ^ load64(src + at + length)
        if unlike:
            return length + low_zero_bytes(unlike)
        length += 8
    while at + length < n and src[old + length] == src[at + length]:
        length += 1
    return length

cdef uint8_t* squeeze(const uint8_t* src, size_t n, uint8_t* out) noexcept nogil:
    """Encode greedily: take the first match, and skip faster the longer there is none."""
    cdef uint16_t table[TABLE_SIZE]
    cdef size_t at = 1, copied = 0, old, slot, length, strides = EFFORT
    if n < SHORT_BYTES:
        return put_literal(out, src, n)
    memset(table, 0, sizeof(table))
    while at <= n - MARGIN:
        slot = slot_of(src + at)
        old = table[slot]
        table[slot] = <uint16_t>at
        if load32(src + old) != load32(src + at):
            at += strides // EFFORT
            strides += 1
            continue
        length = match_length(src, old, at, n)
        out = put_literal(out, src + copied, at - copied)
        out = put_copy(out, at - old, length)
        at += length
        copied = at
        strides = EFFORT
    return put_literal(out, src + copied, n - copied)


def encode_block(const uint8_t[::1] data not None):
    """Return a block that holds `data`; ValueError above ENCODED_BYTES_MAX bytes."""
    cdef size_t n = data.shape[0]
    if n > <size_t>ENCODED_BYTES_MAX:
        raise ValueError("a block of more than 64 KiB")
    if n == 0:
        return b"\0"
    # Worst case: every literal of 60 bytes costs one byte more, and a copy is never longer than
    # the bytes it replaces.
    result = bytearray(32 + n + n // 6)
    cdef uint8_t[::1] view = result
    cdef uint8_t* out = &view[0]
    cdef uint8_t* start = out
    cdef size_t rest = n
    while rest >= 128:
        out[0] = <uint8_t>(rest & 127 | 128)
        rest >>= 7
        out += 1
    out[0] = <uint8_t>rest
    out += 1
    cdef const uint8_t* src = &data[0]
    with nogil:
        out = squeeze(src, n, out)
    return PyBytes_FromStringAndSize(<char*>start, out - start)
