/* The split form of chunks: any bytes come back, whatever they look like, and a name more in a directory is little. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/le.h"
#include "format/chunk.h"
#include "format/format_internal.h"
#include "unit/mangle.h"

enum { LEN = 64 << 10, BLOCK = 4096, ENTRY = 12, NAMES = 1900, NAME = 16, TAIL_NAMES = 100 };

static bool joins_wrongly; /* chunk_join gives another byte */

bool __real_chunk_join(const uint8_t *split, size_t split_len, uint8_t *plain, size_t len);
bool __wrap_chunk_join(const uint8_t *split, size_t split_len, uint8_t *plain, size_t len);

bool __wrap_chunk_join(const uint8_t *split, size_t split_len, uint8_t *plain, size_t len)
{
    const bool joined = __real_chunk_join(split, split_len, plain, len);
    if (joined && joins_wrongly)
        plain[len - 1] ^= 1;
    return joined;
}

/* ------------------------------------------------------------------ chunks of directories */

/* The names of a directory in order, of which a day's are "new". */
struct names {
    uint32_t count, next;
    uint64_t nids[NAMES + NAMES / 10];
    char text[NAMES + NAMES / 10][NAME];
};

/* Make NAMES names and one more after each `every` of them; 0: none more. */
static void make_names(struct names *n, uint32_t every)
{
    *n = (struct names){.count = 0};
    for (uint32_t i = 0; i < NAMES; i++) {
        n->nids[n->count] = 5000 + i * 2;
        snprintf(n->text[n->count++], NAME, "image-%06u", i * 7);
        if (!every || i % every)
            continue;
        n->nids[n->count] = 90000 + i;
        snprintf(n->text[n->count++], NAME, "image-%06unew", i * 7);
    }
}

/* Write the next names as a list of at most len bytes, and return its length. */
static uint32_t put_list(struct names *n, uint8_t *list, uint32_t len, uint32_t most)
{
    uint32_t count = 0, used = 0, offset;
    while (count < most && n->next + count < n->count && used + ENTRY + strlen(n->text[n->next + count]) <= len)
        used += ENTRY + (uint32_t)strlen(n->text[n->next + count++]);
    offset = count * ENTRY;
    for (uint32_t i = 0; i < count; i++, n->next++) {
        le64_put(list + i * ENTRY, n->nids[n->next]);
        le16_put(list + i * ENTRY + 8, (uint16_t)offset);
        list[i * ENTRY + 10] = 1;
        list[i * ENTRY + 11] = 0;
        memcpy(list + offset, n->text[n->next], strlen(n->text[n->next]));
        offset += (uint32_t)strlen(n->text[n->next]);
    }
    return offset;
}

/* An inode of a directory with a tail; attributes: as it counts them. */
static void put_directory(uint8_t *inode, uint32_t attributes, uint32_t size)
{
    le16_put(inode, 5);
    le16_put(inode + 2, (uint16_t)attributes);
    le16_put(inode + 4, S_IFDIR | 0755);
    le64_put(inode + 8, size);
}

/* A directory that has all of the chunk. */
static void put_blocks(uint8_t *chunk, uint32_t every)
{
    static struct names n;
    make_names(&n, every);
    memset(chunk, 0, LEN);
    for (uint8_t *block = chunk; block < chunk + LEN; block += BLOCK)
        (void)put_list(&n, block, BLOCK, NAMES);
}

/* Directories whose lists are tails of their inodes, one in each block, after another inode; attributes: bytes. */
static void put_tails(uint8_t *chunk, uint32_t every, uint32_t attributes)
{
    static struct names n;
    make_names(&n, every);
    memset(chunk, 0, LEN);
    for (uint8_t *block = chunk; block < chunk + LEN; block += BLOCK) {
        uint8_t *inode = block + 96;
        const uint32_t most = TAIL_NAMES + (every ? TAIL_NAMES / every : 0);
        le16_put(block, 1);
        le16_put(block + 4, S_IFREG | 0644);
        le64_put(block + 8, 12 * 77);
        const uint32_t len = put_list(&n, inode + 64 + attributes, BLOCK - 160 - attributes, most);
        put_directory(inode, attributes ? (attributes - 12) / 4 + 1 : 0, len);
    }
}

/* ------------------------------------------------------------------ tests */

static void assert_comes_back(const uint8_t *plain, size_t len)
{
    CLEANUP_FREE uint8_t *split = malloc(chunk_split_max(len)), *back = malloc(len + 1);
    assert_non_null(split);
    assert_non_null(back);
    const size_t split_len = chunk_split(plain, len, split);
    assert_true(split_len <= chunk_split_max(len));
    memset(back, 0x5a, len + 1);
    assert_true(chunk_join(split, split_len, back, len));
    assert_memory_equal(back, plain, len);
    assert_int_equal(back[len], 0x5a);
}

static void test_chunk_split__names_come_back(void **state)
{
    static uint8_t chunk[LEN];
    for (uint32_t every = 0; every <= 100; every += 20) {
        put_blocks(chunk, every);
        assert_comes_back(chunk, LEN);
        assert_comes_back(chunk, LEN - 32);
        put_tails(chunk, every, every);
        assert_comes_back(chunk, LEN);
    }
}

/* Return the bytes that `now` takes as a delta of `before`, both of len bytes; it must come back. */
static size_t delta_of(const uint8_t *before, const uint8_t *now, uint32_t len)
{
    CLEANUP_BYTES stored = BYTES_INIT(2 * (size_t)len);
    CLEANUP_BUF struct buf *base_plain = buf_new(len), *out = NULL;
    struct chunk_ref base, ref = {.kind = OBJECT_PACK};
    memcpy(base_plain->data, before, len);
    assert_int_equal(chunk_encode(before, len, 3, &stored, &base), 0);
    const struct chunk_base upon = chunk_as_base(&base);
    assert_int_equal(chunk_encode_upon(&upon, before, now, len, 3, &stored, &ref), 0);
    assert_true(chunk_is_delta(&ref));
    assert_int_equal(chunk_decode_upon(&ref, base_plain, stored.data, &out), 0);
    assert_memory_equal(out->data, now, len);
    return stored.len;
}

/* Without the split form it is 3,700 bytes in blocks, and 2,300 in tails. */
static void test_chunk_split__names_more_or_less_take_little(void **state)
{
    static uint8_t before[LEN], now[LEN];
    put_blocks(before, 0);
    put_blocks(now, 100);
    assert_true(delta_of(before, now, LEN) < 600);
    assert_true(delta_of(now, before, LEN) < 600);
    put_tails(before, 0, 0);
    put_tails(now, 50, 0);
    assert_true(delta_of(before, now, LEN) < 1200);
}

/* The split form of the longest chunk is longer than that, in the frame and in its prefix. */
static void test_chunk_split__of_the_longest_chunk(void **state)
{
    CLEANUP_FREE uint8_t *before = calloc(1, CHUNK_SIZE_MAX), *now = calloc(1, CHUNK_SIZE_MAX);
    assert_non_null(before);
    assert_non_null(now);
    mangle_noise(7, before, CHUNK_SIZE_MAX / 8);
    memcpy(now, before, CHUNK_SIZE_MAX / 8);
    before[CHUNK_SIZE_MAX - 1] = 1;
    put_blocks(now + CHUNK_SIZE_MAX / 2, 0);
    assert_true(delta_of(before, now, CHUNK_SIZE_MAX) < 20000);
}

/* Noise in which much looks like lists and inodes. */
static void test_chunk_split__any_bytes_come_back(void **state)
{
    static uint8_t chunk[LEN], noise[LEN];
    const size_t lens[] = {1, BLOCK - 1, BLOCK, BLOCK + 1, LEN - 32, LEN};
    for (uint64_t seed = 1; seed <= 40; seed++) {
        mangle_noise(seed, chunk, LEN);
        mangle_noise(seed + 1000, noise, LEN);
        for (size_t at = 0; at < LEN; at += 32) {
            const uint8_t *random = noise + at;
            if (at % BLOCK == 0 && random[0] % 2) { /* a block with a list */
                le16_put(chunk + at + 8, (uint16_t)(random[1] % 2 ? 12 * (le16_get(random + 2) % 343) : 4092));
                chunk[at + 11] = 0;
            } else if (random[0] % 8 == 0) { /* a directory with a tail, which may reach too far */
                le16_put(chunk + at, 5);
                le16_put(chunk + at + 2, random[1] % 4 ? 0 : le16_get(random + 2) % 600);
                le16_put(chunk + at + 4, S_IFDIR | 0700);
            }
            if (random[4] % 8 == 0)
                le16_put(chunk + at + 8, (uint16_t)(12 * (random[5] % 30)));
            if (random[6] % 8 == 0)
                memset(chunk + at, 0, 32);
        }
        for (size_t i = 0; i < GR_ARRAY_SIZE(lens); i++)
            assert_comes_back(chunk, lens[i]);
    }
}

static uint32_t draw(uint32_t below)
{
    static uint64_t state = 1;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 11) % below;
}

/* Directories whose tails overlap each other's and have offsets that may be lists, among zeros or noise. */
static void put_overlap(uint8_t *block, const uint8_t *noise)
{
    memset(block, 0, BLOCK);
    if (draw(2))
        memcpy(block, noise + draw(LEN - BLOCK), BLOCK);
    uint8_t *inode = block + 32 * draw(64);
    for (uint8_t *p = inode + 72 + 4 * draw(3); p < inode + 1500; p += ENTRY)
        le16_put(p, (uint16_t)(ENTRY * draw(100)));
    for (int i = 0; i < 4; i++, inode += 32)
        put_directory(inode, draw(60), draw(1500));
}

/* A list, with names that end somewhere, and offsets that need not ascend. */
static void put_any_list(uint8_t *block, const uint8_t *noise)
{
    memcpy(block, noise + draw(LEN - BLOCK), BLOCK);
    le16_put(block + 8, (uint16_t)(ENTRY * draw(343)));
    block[0] |= 0x80;
    block[11] = 0;
    const uint32_t end = 64 + draw(BLOCK - 64);
    memset(block + end, 0, BLOCK - end);
}

static void test_chunk_split__tails_that_overlap_come_back(void **state)
{
    static uint8_t chunk[4 * BLOCK], noise[LEN];
    /* The first directory has no list: its first offset, 1200, is beyond its tail. It is the second offset of the
     * second one's, which would make 1200 - 720 of it, and that is not beyond. */
    put_directory(chunk, 9, 600);
    put_directory(chunk + 32, 0, 1000);
    le16_put(chunk + 32 + 64 + 8, 720);
    le16_put(chunk + 32 + 64 + 8 + ENTRY, 1200);
    assert_comes_back(chunk, BLOCK);
    mangle_noise(9, noise, LEN);
    for (int i = 0; i < 20000; i++) {
        const size_t blocks = draw(4) ? 1 : 2 + draw(3), rest = draw(4) ? 0 : draw(BLOCK);
        for (size_t b = 0; b < blocks; b++)
            (blocks > 1 && draw(3) == 0 ? put_any_list : put_overlap)(chunk + b * BLOCK, noise);
        assert_comes_back(chunk, blocks * BLOCK - rest);
    }
}

/* An error of the split form costs only the delta. */
static void test_chunk_split__what_does_not_come_back_is_no_delta(void **state)
{
    static uint8_t chunk[LEN];
    CLEANUP_BYTES stored = BYTES_INIT(CHUNK_SIZE_MAX);
    CLEANUP_BUF struct buf *out = NULL;
    struct chunk_ref ref = {.kind = OBJECT_PACK};
    const struct chunk_base base = {.stored_len = LEN};
    put_blocks(chunk, 0);
    assert_int_equal(chunk_encode_upon(&base, chunk, chunk, LEN, 3, &stored, &ref), 0);
    assert_true(chunk_is_delta(&ref));
    joins_wrongly = true;
    assert_int_equal(chunk_encode_upon(&base, chunk, chunk, LEN, 3, &stored, &ref), 0);
    joins_wrongly = false;
    assert_int_equal(ref.flags, CHUNK_ZSTD);
    assert_int_equal(chunk_decode(&ref, stored.data, &out), 0);
    assert_memory_equal(out->data, chunk, LEN);
}

static int join(void *arg, const void *data, size_t len)
{
    static uint8_t plain[LEN];
    return chunk_join(data, len, plain, LEN) ? 0 : -EBADMSG;
}

static void test_chunk_split__what_is_none_is_refused(void **state)
{
    static uint8_t chunk[LEN], split[2 * LEN], plain[LEN + 32];
    put_blocks(chunk, 100);
    mangle_noise(3, chunk + LEN / 2, BLOCK);
    const size_t len = chunk_split(chunk, LEN, split);
    assert_int_equal(join(NULL, split, len), 0);
    assert_int_equal(join(NULL, split, len + 1), -EBADMSG);
    assert_false(chunk_join(split, len, plain, LEN + 32));
    for (size_t n = 0; n < len; n += n < 80 ? 1 : 111)
        assert_int_equal(mangle_try(join, NULL, split, n), -EBADMSG);
    (void)mangle_flip(join, NULL, split, 4 * LEN / BLOCK, 1, -EBADMSG);
#define REFUSED(at, value)                                                                                             \
    do {                                                                                                               \
        const uint16_t was = le16_get(split + (at));                                                                   \
        le16_put(split + (at), value);                                                                                 \
        assert_int_equal(join(NULL, split, len), -EBADMSG);                                                            \
        le16_put(split + (at), was);                                                                                   \
    } while (0)
    REFUSED(0, UINT16_MAX);                           /* more entries than a block has room for */
    REFUSED(2, BLOCK + 1);                            /* names behind the block's end */
    REFUSED(2, (uint16_t)(12 * le16_get(split) - 1)); /* an end before the names */
    REFUSED(0, 0);                                    /* names without entries */
#undef REFUSED
    /* the same with as many names in all */
    const uint16_t more = (uint16_t)(BLOCK + 1 - le16_get(split + 2));
    le16_put(split + 2, BLOCK + 1);
    le16_put(split + 6, (uint16_t)(le16_get(split + 6) - more));
    assert_int_equal(join(NULL, split, len), -EBADMSG);
    le16_put(split + 2, (uint16_t)(BLOCK + 1 - more));
    le16_put(split + 6, (uint16_t)(le16_get(split + 6) + more));
    assert_int_equal(join(NULL, split, len), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunk_split__names_come_back),
        cmocka_unit_test(test_chunk_split__names_more_or_less_take_little),
        cmocka_unit_test(test_chunk_split__of_the_longest_chunk),
        cmocka_unit_test(test_chunk_split__any_bytes_come_back),
        cmocka_unit_test(test_chunk_split__tails_that_overlap_come_back),
        cmocka_unit_test(test_chunk_split__what_does_not_come_back_is_no_delta),
        cmocka_unit_test(test_chunk_split__what_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
