/* Making small erofs images, and a reader of them that shares nothing with the writer. */
#ifndef GRANARY_TESTS_UNIT_EROFS_IMAGE_H
#define GRANARY_TESTS_UNIT_EROFS_IMAGE_H

#include "unit/fs_image.h"

enum { INODE = 64 };

static inline struct image image_begin_with(size_t memory)
{
    struct fs_config config = {.chunk_size = CHUNK, .memory = memory};
    return image_begin_as(fs_erofs_new, &config);
}

static inline struct image image_begin(void)
{
    return image_begin_with(0);
}

/* ------------------------------------------------------------------ reading them */

static inline const uint8_t *super(const struct image *i)
{
    return i->data + 1024;
}

/* Has it 48-bit block numbers? */
static inline bool is_wide(const struct image *i)
{
    return le32_get(super(i) + 80) == 0x80;
}

static inline uint64_t root_nid(const struct image *i)
{
    return is_wide(i) ? le64_get(super(i) + 112) : le16_get(super(i) + 14);
}

static inline uint64_t inode_at(const struct image *i, uint64_t nid)
{
    uint64_t at = (uint64_t)le32_get(super(i) + 40) * BLOCK + nid * 32;
    assert_true(at + INODE <= i->result.image_size);
    assert_true(at % BLOCK + INODE <= BLOCK); /* never over a border */
    return at;
}

static inline uint32_t xattr_size(const uint8_t *inode)
{
    uint16_t count = le16_get(inode + 2);
    return count ? 12 + 4 * (count - 1u) : 0;
}

/* Byte `off` of what an inode holds (directory or symlink in either layout, file in blocks). */
static inline const uint8_t *inode_data(const struct image *i, uint64_t at, uint64_t off)
{
    const uint8_t *inode = image_at(i, at);
    uint64_t size = le64_get(inode + 8), whole = size - size % BLOCK;
    bool tail_inline = le16_get(inode) >> 1 == 2;
    if (tail_inline && off >= whole) {
        uint64_t tail = at + INODE + xattr_size(inode);
        assert_true(tail / BLOCK == (tail + size % BLOCK - 1) / BLOCK);
        return image_at(i, tail) + (off - whole);
    }
    assert_true(is_wide(i) || le16_get(inode + 6) == 0);
    return image_at(i, ((uint64_t)le16_get(inode + 6) << 32 | le32_get(inode + 16)) * BLOCK + off);
}

/* The names of a directory in order, each with its inode number; *count entries, names in one buffer. */
struct names {
    struct {
        char name[256];
        uint64_t nid;
        uint8_t type;
    } items[1300];
    size_t count;
};

static inline void read_block(const uint8_t *block, size_t len, struct names *out)
{
    uint32_t n = le16_get(block + 8) / 12;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t from = le16_get(block + 12 * k + 8);
        uint32_t to = k + 1 < n ? le16_get(block + 12 * (k + 1) + 8)
                                : (uint32_t)(from + strnlen((const char *)block + from, len - from));
        assert_true(from < to && to <= len && to - from <= 255 && out->count < GR_ARRAY_SIZE(out->items));
        memcpy(out->items[out->count].name, block + from, to - from);
        out->items[out->count].name[to - from] = 0;
        out->items[out->count].nid = le64_get(block + 12 * k);
        out->items[out->count++].type = block[12 * k + 10];
    }
}

static inline void read_directory(const struct image *i, uint64_t at, struct names *out)
{
    uint64_t size = le64_get(image_at(i, at) + 8);
    out->count = 0;
    for (uint64_t off = 0; off < size; off += BLOCK)
        read_block(inode_data(i, at, off), GR_MIN(size - off, (uint64_t)BLOCK), out);
    for (size_t k = 1; k < out->count; k++)
        assert_true(strcmp(out->items[k - 1].name, out->items[k].name) < 0);
}

/* Where the inode of a path lies. */
static inline uint64_t lookup(const struct image *i, const char *path)
{
    uint64_t at = inode_at(i, root_nid(i));
    struct names *names = malloc(sizeof *names);
    while (*path) {
        size_t n = strcspn(path, "/"), k = 0;
        read_directory(i, at, names);
        while (k < names->count && (strlen(names->items[k].name) != n || memcmp(names->items[k].name, path, n)))
            k++;
        if (k == names->count)
            fail_msg("no %s", path);
        at = inode_at(i, names->items[k].nid);
        path += n + (path[n] == '/');
    }
    free(names);
    return at;
}

static inline void fsck_file(const char *path)
{
    char command[128];
    snprintf(command, sizeof command, "fsck.erofs %s >&2", path);
    int rc = system(command);
    assert_true(WIFEXITED(rc) && (WEXITSTATUS(rc) == 0 || WEXITSTATUS(rc) == 127)); /* 127: not installed */
}

static inline void check_by_fsck(const struct image *i)
{
    char path[] = "/tmp/granary-erofs-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(io_write_full(fd, i->data, i->result.image_size), 0);
    close(fd);
    fsck_file(path);
    unlink(path);
}

static inline void check_xattr(const struct image *i, const char *path, const void *value, uint32_t len)
{
    const uint8_t *inode = image_at(i, lookup(i, path)), *x = inode + INODE + 12;
    assert_int_equal(xattr_size(inode), 12 + GR_ALIGN_UP(4 + 5 + len, 4u));
    assert_int_equal(x[0], 5);
    assert_int_equal(x[1], 1); /* user. */
    assert_int_equal(le16_get(x + 2), len);
    assert_memory_equal(x + 4, "value", 5);
    assert_memory_equal(x + 9, value, len);
}

#endif
