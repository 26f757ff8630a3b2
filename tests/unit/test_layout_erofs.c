/* erofs images of small trees, looked at byte by byte with a reader of this test's own, and by fsck.erofs where it is.
 */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/io.h"
#include "base/le.h"
#include "fake/store_fake.h"
#include "imagebuild/layout.h"
#include "unit/read_back.h"

enum { CHUNK = CHUNK_SIZE_MIN, BLOCK = 4096, INODE = 64 };

/* ------------------------------------------------------------------ making images */

struct image {
    struct store_fake *store;
    struct upload *upload;
    struct sink *sink;
    struct tree *tree;
    struct layout *layout;
    struct layout_result result;
    uint8_t *data;
};

static struct image image_begin(struct tree *t)
{
    struct image i = {.store = store_fake_new(), .tree = t};
    assert_int_equal(tree_seal(t), 0);
    struct upload_config upload = {.store = store_fake_store(i.store), .threads = 1, .memory = 1 << 20};
    assert_int_equal(upload_new(&upload, &i.upload), 0);
    struct sink_config sink = {
        .upload = i.upload, .chunk_size = CHUNK, .zstd_level = 1, .workers = 1, .pack_size = 1 << 20};
    assert_int_equal(sink_new(&sink, &i.sink), 0);
    struct layout_config layout = {.tree = t, .sink = i.sink, .chunk_size = CHUNK};
    assert_int_equal(layout_erofs_new(&layout, &i.layout), 0);
    return i;
}

static void image_end(struct image *i)
{
    struct sink_result sink;
    assert_int_equal(i->layout->ops->finish(i->layout, &i->result), 0);
    assert_int_equal(sink_finish(i->sink, i->result.image_size, &sink), 0);
    assert_int_equal(upload_flush(i->upload), 0);
    i->data = read_back(i->store, &sink.index_root, sink.index_levels, i->result.image_size, CHUNK);
}

static void image_free(struct image *i)
{
    free(i->data);
    layout_free(i->layout);
    sink_free(i->sink);
    upload_free(i->upload);
    store_fake_free(i->store);
    tree_free(i->tree);
}

static struct tree *new_tree(void)
{
    struct tree *t;
    struct tree_options options = {.keep_special = true};
    assert_int_equal(tree_new(&options, &t), 0);
    struct source_entry root = {.path = "", .mode = S_IFDIR | 0755, .mtime = 1700000000};
    assert_int_equal(tree_add(t, &root), 0);
    return t;
}

static struct source_entry entry(const char *path, uint32_t mode)
{
    return (struct source_entry){.path = path, .path_len = strlen(path), .mode = mode, .mtime = 1700000000};
}

static void add(struct tree *t, const struct source_entry *e)
{
    assert_int_equal(tree_add(t, e), 0);
}

static void add_file(struct tree *t, const char *path, uint64_t size)
{
    struct source_entry e = entry(path, S_IFREG | 0644);
    e.size = size;
    add(t, &e);
}

static void add_symlink(struct tree *t, const char *path, const char *target)
{
    struct source_entry e = entry(path, S_IFLNK | 0777);
    e.target = target;
    e.target_len = e.size = strlen(target);
    add(t, &e);
}

static int find_path(void *arg, struct tree *t, node_id id)
{
    struct {
        const char *path;
        node_id found;
    } *f = arg;
    CLEANUP_BYTES path = BYTES_INIT(65536);
    assert_int_equal(tree_path(t, id, &path), 0);
    if (path.len == strlen(f->path) && !memcmp(path.data, f->path, path.len))
        f->found = id;
    return 0;
}

static node_id node_of(struct tree *t, const char *path)
{
    struct {
        const char *path;
        node_id found;
    } f = {path, NODE_NONE};
    assert_int_equal(tree_walk(t, find_path, &f), 0);
    assert_int_not_equal(f.found, NODE_NONE);
    return f.found;
}

/* Give a file its body: `letter` throughout. */
static void add_body(struct image *i, const char *path, char letter)
{
    node_id id = node_of(i->tree, path);
    struct node *n = tree_node(i->tree, id);
    uint8_t *data = malloc(n->size);
    memset(data, letter, n->size);
    struct body_part part = {
        .node = id, .data = data, .len = n->size, .offset = 0, .size = n->size, .first = true, .last = true};
    n->content = digest_of(data, n->size);
    assert_int_equal(i->layout->ops->body(i->layout, &part), 0);
    free(data);
}

/* ------------------------------------------------------------------ reading them */

static const uint8_t *super(const struct image *i)
{
    return i->data + 1024;
}

static uint64_t inode_at(const struct image *i, uint64_t nid)
{
    uint64_t at = (uint64_t)le32_get(super(i) + 40) * BLOCK + nid * 32;
    assert_true(at + INODE <= i->result.image_size);
    assert_true(at % BLOCK + INODE <= BLOCK); /* never over a border */
    return at;
}

static uint32_t xattr_size(const uint8_t *inode)
{
    uint16_t count = le16_get(inode + 2);
    return count ? 12 + 4 * (count - 1u) : 0;
}

/* Byte `off` of what an inode holds (directory or symlink in either layout, file in blocks). */
static const uint8_t *inode_data(const struct image *i, uint64_t at, uint64_t off)
{
    const uint8_t *inode = i->data + at;
    uint64_t size = le64_get(inode + 8), whole = size - size % BLOCK;
    bool tail_inline = le16_get(inode) >> 1 == 2;
    if (tail_inline && off >= whole) {
        uint64_t tail = at + INODE + xattr_size(inode);
        assert_true(tail / BLOCK == (tail + size % BLOCK - 1) / BLOCK);
        return i->data + tail + (off - whole);
    }
    uint64_t address = (uint64_t)le32_get(inode + 16) * BLOCK + off;
    assert_true(address < i->result.image_size);
    return i->data + address;
}

/* The names of a directory in order, each with its inode number; *count entries, names in one buffer. */
struct names {
    struct {
        char name[256];
        uint64_t nid;
        uint8_t type;
    } items[400];
    size_t count;
};

static void read_block(const uint8_t *block, size_t len, struct names *out)
{
    uint32_t n = le16_get(block + 8) / 12;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t from = le16_get(block + 12 * k + 8);
        uint32_t to = k + 1 < n ? le16_get(block + 12 * (k + 1) + 8)
                                : (uint32_t)(from + strnlen((const char *)block + from, len - from));
        assert_true(from < to && to <= len && to - from <= 255 && out->count < 400);
        memcpy(out->items[out->count].name, block + from, to - from);
        out->items[out->count].name[to - from] = 0;
        out->items[out->count].nid = le64_get(block + 12 * k);
        out->items[out->count++].type = block[12 * k + 10];
    }
}

static void read_directory(const struct image *i, uint64_t at, struct names *out)
{
    uint64_t size = le64_get(i->data + at + 8);
    out->count = 0;
    for (uint64_t off = 0; off < size; off += BLOCK)
        read_block(inode_data(i, at, off), GR_MIN(size - off, (uint64_t)BLOCK), out);
    for (size_t k = 1; k < out->count; k++)
        assert_true(strcmp(out->items[k - 1].name, out->items[k].name) < 0);
}

/* Where the inode of a path lies. */
static uint64_t lookup(const struct image *i, const char *path)
{
    uint64_t at = inode_at(i, le16_get(super(i) + 14));
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

static void fsck_file(const char *path)
{
    char command[128];
    snprintf(command, sizeof command, "fsck.erofs %s >&2", path);
    int rc = system(command);
    assert_true(WIFEXITED(rc) && (WEXITSTATUS(rc) == 0 || WEXITSTATUS(rc) == 127)); /* 127: not installed */
}

static void check_by_fsck(const struct image *i)
{
    char path[] = "/tmp/granary-erofs-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(io_write_full(fd, i->data, i->result.image_size), 0);
    close(fd);
    fsck_file(path);
    unlink(path);
}

/* ------------------------------------------------------------------ tests */

static void test_layout_erofs__an_empty_tree_is_a_root(void **state)
{
    struct image i = image_begin(new_tree());
    image_end(&i);
    struct names names;
    assert_int_equal(i.result.metadata_offset, CHUNK);
    assert_int_equal(i.result.metadata_len, BLOCK);
    assert_int_equal(i.result.image_size, CHUNK + BLOCK);
    assert_int_equal(le64_get(super(&i) + 16), 1);
    read_directory(&i, lookup(&i, ""), &names);
    assert_int_equal(names.count, 2);
    /* the root's parent is the root; a number of 0 would hide "." and ".." from readdir(3) */
    assert_int_equal(names.items[0].nid, 1);
    assert_int_equal(names.items[1].nid, 1);
    check_by_fsck(&i);
    image_free(&i);
}

static void test_layout_erofs__superblock(void **state)
{
    struct image i = image_begin(new_tree());
    image_end(&i);
    uint8_t *sb = i.data + 1024;
    uint32_t crc = le32_get(sb + 4);
    assert_int_equal(le32_get(sb), 0xE0F5E1E2);
    assert_int_equal(sb[12], 12);
    assert_int_equal(le16_get(sb + 14), 1);
    assert_int_equal((uint64_t)le32_get(sb + 36) * BLOCK, i.result.image_size);
    assert_int_equal((uint64_t)le32_get(sb + 40) * BLOCK, i.result.metadata_offset);
    assert_int_equal(le32_get(sb + 80), 0); /* nothing a Linux 5.4 does not know */
    assert_string_equal((char *)sb + 64, "granary");
    le32_put(sb + 4, 0);
    assert_int_equal(crc32c_raw(UINT32_MAX, sb, BLOCK - 1024), crc);
    image_free(&i);
}

static void test_layout_erofs__inodes_hold_what_the_tree_says(void **state)
{
    struct tree *t = new_tree();
    struct source_entry e = entry("d/file", S_IFREG | S_ISUID | 0751);
    e.size = 5000;
    e.uid = 70000;
    e.gid = UINT32_MAX - 1;
    e.mtime = -5;
    e.mtime_nsec = 999999999;
    add(t, &e);
    e = entry("device", S_IFBLK | 0660);
    e.rdev = 259u << 8 | 5;
    add(t, &e);
    struct image i = image_begin(t);
    add_body(&i, "d/file", 'x');
    image_end(&i);
    const uint8_t *inode = i.data + lookup(&i, "d/file");
    assert_int_equal(le16_get(inode), 1); /* extended, plain */
    assert_int_equal(le16_get(inode + 4), S_IFREG | S_ISUID | 0751);
    assert_int_equal(le64_get(inode + 8), 5000);
    assert_int_equal(le32_get(inode + 16), CHUNK / BLOCK); /* bodies begin in chunk 1 */
    assert_int_equal(le32_get(inode + 24), 70000);
    assert_int_equal(le32_get(inode + 28), UINT32_MAX - 1);
    assert_int_equal((int64_t)le64_get(inode + 32), -5);
    assert_int_equal(le32_get(inode + 40), 999999999);
    assert_int_equal(le32_get(inode + 44), 1);
    assert_int_equal(*inode_data(&i, lookup(&i, "d/file"), 4999), 'x');
    assert_int_equal(*inode_data(&i, lookup(&i, "d/file"), 5000), 0);
    assert_int_equal(le32_get(i.data + lookup(&i, "d") + 44), 2);
    assert_int_equal(le32_get(i.data + lookup(&i, "") + 44), 3);
    assert_int_equal(le32_get(i.data + lookup(&i, "device") + 16), tree_node(t, node_of(t, "device"))->rdev);
    assert_int_equal(i.result.metadata_offset, 2 * CHUNK);
    check_by_fsck(&i);
    image_free(&i);
}

static void test_layout_erofs__dots_stand_among_the_names(void **state)
{
    struct tree *t = new_tree();
    static const char *const files[] = {"!", "-", "...", "..a", ".a", "a", "\xff"};
    static const char *const expected[] = {"!", "-", ".", "..", "...", "..a", ".a", "a", "\xff"};
    for (size_t k = 0; k < GR_ARRAY_SIZE(files); k++)
        add_file(t, files[k], 0);
    struct image i = image_begin(t);
    image_end(&i);
    struct names names;
    read_directory(&i, lookup(&i, ""), &names);
    assert_int_equal(names.count, GR_ARRAY_SIZE(expected));
    for (size_t k = 0; k < names.count; k++)
        assert_string_equal(names.items[k].name, expected[k]);
    check_by_fsck(&i);
    image_free(&i);
}

static void test_layout_erofs__hard_links_share_an_inode(void **state)
{
    struct tree *t = new_tree();
    static const char *const paths[] = {"a/one", "b/two", "three"};
    for (size_t k = 0; k < 3; k++) {
        struct source_entry e = entry(paths[k], S_IFREG | 0644);
        e.size = 10;
        e.link_dev = 1;
        e.link_ino = 99;
        add(t, &e);
    }
    struct image i = image_begin(t);
    add_body(&i, "a/one", 'l');
    image_end(&i);
    uint64_t at = lookup(&i, "a/one");
    assert_int_equal(lookup(&i, "b/two"), at);
    assert_int_equal(lookup(&i, "three"), at);
    assert_int_equal(le32_get(i.data + at + 44), 3);
    assert_int_equal(le64_get(super(&i) + 16), 4); /* root, a, b, the file */
    check_by_fsck(&i);
    image_free(&i);
}

/* Directories whose entries end just before and just behind what fits beside the inode, and a block. */
static void test_layout_erofs__directory_tails_at_every_border(void **state)
{
    struct tree *t = new_tree();
    char path[600], name[256];
    memset(name, 'n', 255);
    for (int len = 160; len <= 255; len++) {
        for (int k = 0; k < 18; k++) {
            snprintf(path, sizeof path, "d%03d/%c%.199s", len, 'a' + k, name);
            add_file(t, path, 0);
        }
        snprintf(path, sizeof path, "d%03d/z%.*s", len, len - 1, name);
        add_file(t, path, 0);
    }
    struct image i = image_begin(t);
    image_end(&i);
    struct names *names = malloc(sizeof *names);
    unsigned inlined = 0, plain = 0;
    for (int len = 160; len <= 255; len++) {
        snprintf(path, sizeof path, "d%03d", len);
        uint64_t at = lookup(&i, path);
        read_directory(&i, at, names);
        assert_int_equal(names->count, 21);
        assert_int_equal(strlen(names->items[20].name), len);
        inlined += le16_get(i.data + at) >> 1 == 2;
        plain += le16_get(i.data + at) >> 1 == 0;
    }
    assert_true(inlined > 10 && plain > 10);
    free(names);
    check_by_fsck(&i);
    image_free(&i);
}

static void test_layout_erofs__symlinks_inline_up_to_a_block(void **state)
{
    static const int lengths[] = {1, 59, 60, 4000, 4031, 4032, 4033, 4095};
    struct tree *t = new_tree();
    char path[16], target[4097];
    for (size_t k = 0; k < GR_ARRAY_SIZE(lengths); k++) {
        memset(target, 't', sizeof target);
        target[lengths[k]] = 0;
        snprintf(path, sizeof path, "s%d", lengths[k]);
        add_symlink(t, path, target);
    }
    struct image i = image_begin(t);
    image_end(&i);
    for (size_t k = 0; k < GR_ARRAY_SIZE(lengths); k++) {
        snprintf(path, sizeof path, "s%d", lengths[k]);
        uint64_t at = lookup(&i, path);
        assert_int_equal(le64_get(i.data + at + 8), lengths[k]);
        assert_int_equal(le16_get(i.data + at) >> 1, lengths[k] <= 4032 ? 2 : 0);
        assert_int_equal(*inode_data(&i, at, 0), 't');
        assert_int_equal(*inode_data(&i, at, (uint64_t)lengths[k] - 1), 't');
    }
    check_by_fsck(&i);
    image_free(&i);
}

static void put_xattr(struct bytes *out, const char *name, const void *value, uint32_t len)
{
    uint8_t header[6];
    le16_put(header, (uint16_t)strlen(name));
    le32_put(header + 2, len);
    assert_int_equal(bytes_append(out, header, sizeof header), 0);
    assert_int_equal(bytes_append(out, name, strlen(name)), 0);
    if (len)
        assert_int_equal(bytes_append(out, value, len), 0);
}

static void test_layout_erofs__xattrs_of_any_length_never_split_an_inode(void **state)
{
    struct tree *t = new_tree();
    uint8_t value[5000];
    char path[16];
    memset(value, 'v', sizeof value);
    for (uint32_t len = 3900; len < 4300; len += 12) { /* inode and attributes end around a block's border */
        CLEANUP_BYTES xattrs = BYTES_INIT(1 << 16);
        snprintf(path, sizeof path, "f%u", len);
        put_xattr(&xattrs, "user.value", value, len);
        struct source_entry e = entry(path, len % 24 ? S_IFREG | 0644 : S_IFDIR | 0755);
        e.xattrs = xattrs.data;
        e.xattrs_len = xattrs.len;
        add(t, &e);
    }
    struct image i = image_begin(t);
    image_end(&i);
    for (uint32_t len = 3900; len < 4300; len += 12) {
        snprintf(path, sizeof path, "f%u", len);
        const uint8_t *inode = i.data + lookup(&i, path), *x = inode + INODE + 12;
        assert_int_equal(xattr_size(inode), 12 + GR_ALIGN_UP(4 + 5 + len, 4u));
        assert_int_equal(x[0], 5);
        assert_int_equal(x[1], 1); /* user. */
        assert_int_equal(le16_get(x + 2), len);
        assert_memory_equal(x + 4, "value", 5);
        assert_memory_equal(x + 9, value, len);
    }
    check_by_fsck(&i);
    image_free(&i);
}

static void test_layout_erofs__a_file_that_begins_again_gets_a_new_address(void **state)
{
    struct tree *t = new_tree();
    add_file(t, "f", 6000);
    add_file(t, "g", 10);
    struct image i = image_begin(t);
    node_id f = node_of(t, "f");
    uint8_t old[4096], fresh[6000];
    memset(old, 'o', sizeof old);
    memset(fresh, 'n', sizeof fresh);
    struct body_part part = {.node = f, .data = old, .len = sizeof old, .size = 9000, .first = true};
    assert_int_equal(i.layout->ops->body(i.layout, &part), 0);
    uint64_t first = tree_node(t, f)->address;
    part = (struct body_part){.node = f, .data = fresh, .len = 6000, .size = 6000, .first = true, .last = true};
    assert_int_equal(i.layout->ops->body(i.layout, &part), 0);
    assert_true(tree_node(t, f)->address >= first + sizeof old);
    add_body(&i, "g", 'g');
    image_end(&i);
    assert_memory_equal(inode_data(&i, lookup(&i, "f"), 0), fresh, sizeof fresh);
    assert_int_equal(*inode_data(&i, lookup(&i, "g"), 9), 'g');
    check_by_fsck(&i);
    image_free(&i);
}

static void write_chunk(void *arg, uint64_t number, const struct chunk_ref *ref, const struct buf *plain)
{
    assert_int_equal(io_pwrite_full(*(int *)arg, plain->data, plain->len, number * CHUNK), 0);
}

/* Metadata behind 9 TiB: block numbers over 2^31, an index of three levels, in a sparse file for fsck. */
static void test_layout_erofs__metadata_far_up(void **state)
{
    const uint64_t size = UINT64_C(9) << 40;
    struct tree *t = new_tree();
    add_file(t, "f", size);
    struct image i = image_begin(t);
    struct sink_result sink;
    struct body_part part = {
        .node = node_of(t, "f"), .data = (const uint8_t *)"begin", .len = 5, .size = size, .first = true};
    assert_int_equal(i.layout->ops->body(i.layout, &part), 0);
    part = (struct body_part){
        .node = part.node, .data = (const uint8_t *)"end", .len = 3, .offset = size - 3, .size = size, .last = true};
    assert_int_equal(i.layout->ops->body(i.layout, &part), 0);
    assert_int_equal(i.layout->ops->finish(i.layout, &i.result), 0);
    assert_int_equal(sink_finish(i.sink, i.result.image_size, &sink), 0);
    assert_int_equal(upload_flush(i.upload), 0);
    assert_int_equal(i.result.metadata_offset, CHUNK + size);
    assert_int_equal(sink.index_levels, 3);
    char path[] = "/tmp/granary-erofs-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    if (!ftruncate(fd, (off_t)i.result.image_size)) { /* some filesystems have no files of that size */
        read_back_node(i.store, &sink.index_root, sink.index_levels - 1, 0, write_chunk, &fd);
        fsck_file(path);
    }
    close(fd);
    unlink(path);
    image_free(&i);
}

static void test_layout_erofs__sixteen_tebibytes_are_the_limit(void **state)
{
    struct tree *t = new_tree();
    add_file(t, "f", UINT64_C(17) << 40);
    struct image i = image_begin(t);
    struct body_part part = {
        .node = node_of(t, "f"), .data = (const uint8_t *)"x", .len = 1, .size = UINT64_C(17) << 40, .first = true};
    assert_int_equal(i.layout->ops->body(i.layout, &part), -EFBIG);
    assert_non_null(strstr(error_text(), "16 TiB"));
    part.size = UINT64_MAX - 5;
    assert_int_equal(i.layout->ops->body(i.layout, &part), -EFBIG);
    image_free(&i);
}

static void test_layout_erofs__a_body_without_an_address_is_noticed(void **state)
{
    struct tree *t = new_tree();
    add_file(t, "f", 10);
    struct image i = image_begin(t);
    assert_int_equal(i.layout->ops->finish(i.layout, &i.result), -EIO);
    image_free(&i);
}

/* The bytes of one image, pinned: a change of the layout changes every image's digest and must be meant. */
static void make_golden(struct image *i, char letter)
{
    struct tree *t = new_tree();
    char path[300];
    for (int k = 0; k < 300; k++) {
        snprintf(path, sizeof path, "many/%d", k);
        add_file(t, path, k % 3 ? 0 : 100);
    }
    add_symlink(t, "link", "many/7");
    *i = image_begin(t);
    for (int k = 0; k < 300; k += 3) {
        snprintf(path, sizeof path, "many/%d", k);
        add_body(i, path, letter);
    }
    image_end(i);
}

static void test_layout_erofs__golden_image(void **state)
{
    static const char expected[] = "80973057db221737a5b1cf5bb09f4e1bf32ff8fba1be0cb78228989bf4b65050";
    struct image a, b;
    char hex[DIGEST_HEX_SIZE];
    make_golden(&a, 'a');
    struct digest d = digest_of(a.data, a.result.image_size);
    assert_string_equal(digest_hex(&d, hex), expected);
    make_golden(&b, 'b');
    assert_int_equal(a.result.image_size, b.result.image_size);
    assert_memory_not_equal(super(&a) + 48, super(&b) + 48, 16); /* another content, another UUID */
    image_free(&a);
    image_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_erofs__an_empty_tree_is_a_root),
        cmocka_unit_test(test_layout_erofs__superblock),
        cmocka_unit_test(test_layout_erofs__inodes_hold_what_the_tree_says),
        cmocka_unit_test(test_layout_erofs__dots_stand_among_the_names),
        cmocka_unit_test(test_layout_erofs__hard_links_share_an_inode),
        cmocka_unit_test(test_layout_erofs__directory_tails_at_every_border),
        cmocka_unit_test(test_layout_erofs__symlinks_inline_up_to_a_block),
        cmocka_unit_test(test_layout_erofs__xattrs_of_any_length_never_split_an_inode),
        cmocka_unit_test(test_layout_erofs__a_file_that_begins_again_gets_a_new_address),
        cmocka_unit_test(test_layout_erofs__metadata_far_up),
        cmocka_unit_test(test_layout_erofs__sixteen_tebibytes_are_the_limit),
        cmocka_unit_test(test_layout_erofs__a_body_without_an_address_is_noticed),
        cmocka_unit_test(test_layout_erofs__golden_image),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
