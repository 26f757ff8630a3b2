/* The CRC instruction of x86-64 (SSE4.2) and of arm64 takes 8 bytes. Its result is there after 3 cycles or so, but a
 * new one can start every cycle, so three independent streams run side by side:
 *
 *   data:  | a: LANE bytes | b: LANE bytes | c: LANE bytes | next round ...
 *   join:  skip(skip(a) ^ b) ^ c
 *
 * skip(r) is the register r after LANE more zero bytes. A CRC is linear over GF(2), so skip is the XOR of one table
 * entry for each of the register's four bytes. The method is that of Mark Adler's crc32c.c (zlib licence); the code is
 * ours. Without the instruction, one table lookup a byte does the work.
 */
#include "base/crc32c.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/le.h"

/* The CPU's instruction: the register after 8 bytes, and after one. */
#if defined(__x86_64__)
#define WITH_CRC __attribute__((target("sse4.2")))

WITH_CRC static inline uint64_t crc_of_8(uint64_t reg, uint64_t bytes)
{
    return __builtin_ia32_crc32di(reg, bytes);
}

WITH_CRC static inline uint32_t crc_of_1(uint32_t reg, uint8_t byte)
{
    return __builtin_ia32_crc32qi(reg, byte);
}

static bool cpu_has_crc(void)
{
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

#define WITH_CRC

/* In assembler, because gcc and clang name the builtin differently. */
static inline uint64_t crc_of_8(uint64_t reg, uint64_t bytes)
{
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(reg) : "r"(bytes));
    return reg;
}

static inline uint32_t crc_of_1(uint32_t reg, uint8_t byte)
{
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(reg) : "r"(byte));
    return reg;
}

static bool cpu_has_crc(void)
{
    return getauxval(AT_HWCAP) & HWCAP_CRC32;
}
#endif

/* Bytes of one stream. A 4 KiB block, the cache's unit, is one round of three streams and 16 bytes. */
enum { LANE = 1360 };

static uint32_t byte_table[256];    /* one byte -> its effect on the register */
static uint32_t lane_table[4][256]; /* [i][b]: byte i of the register is b -> its share of skip(register) */
static bool have_instruction;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint32_t software(uint32_t reg, const uint8_t *p, size_t len)
{
    while (len--)
        reg = reg >> 8 ^ byte_table[(reg ^ *p++) & 0xff];
    return reg;
}

/* Fill the tables, once in a process. 0x82F63B78 is the polynomial with its bits reversed. */
static void init_tables(void)
{
    static const uint8_t zeros[LANE];
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? c >> 1 ^ 0x82F63B78u : c >> 1;
        byte_table[i] = c;
    }
    for (int lane = 0; lane < 4; lane++)
        for (uint32_t i = 0; i < 256; i++)
            lane_table[lane][i] = software(i << (8 * lane), zeros, LANE);
#ifdef WITH_CRC
    have_instruction = cpu_has_crc();
#endif
}

#ifdef WITH_CRC
static uint32_t skip_lane(uint32_t reg)
{
    return lane_table[0][reg & 0xff] ^ lane_table[1][reg >> 8 & 0xff] ^ lane_table[2][reg >> 16 & 0xff] ^
           lane_table[3][reg >> 24];
}

WITH_CRC static uint32_t hardware(uint32_t reg, const uint8_t *p, size_t len)
{
    while (len >= 3 * LANE) {
        uint64_t a = reg, b = 0, c = 0;
        for (size_t i = 0; i < LANE; i += 8) {
            a = crc_of_8(a, le64_get(p + i));
            b = crc_of_8(b, le64_get(p + LANE + i));
            c = crc_of_8(c, le64_get(p + 2 * LANE + i));
        }
        reg = skip_lane(skip_lane((uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
        p += 3 * LANE;
        len -= 3 * LANE;
    }
    uint64_t r = reg;
    for (; len >= 8; p += 8, len -= 8)
        r = crc_of_8(r, le64_get(p));
    reg = (uint32_t)r;
    while (len--)
        reg = crc_of_1(reg, *p++);
    return reg;
}
#endif

uint32_t crc32c_raw(uint32_t reg, const void *data, size_t len)
{
    pthread_once(&once, init_tables);
#ifdef WITH_CRC
    if (have_instruction)
        return hardware(reg, data, len);
#endif
    return software(reg, data, len);
}

uint32_t crc32c(const void *data, size_t len)
{
    return ~crc32c_raw(~0u, data, len);
}
