/* ext4 images of small trees in sparse files, looked at by e2fsck, where it is, and by libext2fs' reading half. */
#include "unit/counts.h"
#include "unit/fs_image.h"

#include <ext2fs/ext2fs.h>

/* ------------------------------------------------------------------ making and reading them */

struct opened {
    struct image image;
    char path[40];
    struct digest digest; /* of all that is not zeros, and where */
    ext2_filsys e2;
};

static struct image begin_with(uint64_t bytes, uint64_t nodes, size_t memory)
{
    struct fs_config config = {.chunk_size = CHUNK, .nodes = nodes, .bytes = bytes, .memory = memory};
    return image_begin_as(fs_ext4_new, &config);
}

static struct image begin(void)
{
    return begin_with(1 << 20, 1000, 0);
}

struct writing {
    struct read_back_file file;
    struct hasher *hash;
};

static void write_chunk(void *arg, uint64_t number, const struct chunk_ref *ref, const struct buf *plain)
{
    struct writing *w = arg;
    read_back_into_file(&w->file, number, ref, plain);
    hasher_update(w->hash, &number, sizeof number);
    hasher_update(w->hash, plain->data, plain->len);
}

static void fsck(const char *path)
{
    char command[128];
    snprintf(command, sizeof command, "e2fsck -fn %s >&2", path);
    int rc = system(command);
    assert_true(WIFEXITED(rc) && (WEXITSTATUS(rc) == 0 || WEXITSTATUS(rc) == 127)); /* 127: not installed */
}

/* Finish the image, put it into a file, have it checked. */
static struct opened end(struct image image)
{
    struct opened o = {.image = image, .path = "/tmp/granary-ext4-XXXXXX"};
    struct sink_result sink;
    struct writing w = {.file = {.fd = mkstemp(o.path), .chunk_size = CHUNK}, .hash = hasher_new()};
    order(&o.image);
    assert_int_equal(finish(&o.image), 0);
    assert_int_equal(sink_finish(o.image.sink, o.image.result.image_size, &sink), 0);
    assert_int_equal(upload_flush(o.image.upload), 0);
    assert_true(w.file.fd >= 0);
    assert_int_equal(ftruncate(w.file.fd, (off_t)o.image.result.image_size), 0);
    read_back_node(o.image.store, &sink.index_root, sink.index_levels - 1, 0, write_chunk, &w);
    close(w.file.fd);
    o.digest = hasher_finish(w.hash);
    hasher_free(w.hash);
    fsck(o.path);
    assert_int_equal(ext2fs_open(o.path, EXT2_FLAG_64BITS, 0, 0, unix_io_manager, &o.e2), 0);
    return o;
}

static void done(struct opened *o)
{
    ext2fs_close_free(&o->e2);
    unlink(o->path);
    image_free(&o->image);
}

static ext2_ino_t ino_of(struct opened *o, const char *path)
{
    ext2_ino_t ino = EXT2_ROOT_INO;
    if (*path)
        assert_int_equal(ext2fs_namei(o->e2, EXT2_ROOT_INO, EXT2_ROOT_INO, path, &ino), 0);
    return ino;
}

static struct ext2_inode_large inode_of(struct opened *o, const char *path)
{
    struct ext2_inode_large inode;
    assert_int_equal(ext2fs_read_inode_full(o->e2, ino_of(o, path), (void *)&inode, sizeof inode), 0);
    return inode;
}

/* The bytes of a file at an offset. */
static void check_bytes(struct opened *o, const char *path, uint64_t offset, char letter, unsigned len)
{
    ext2_file_t file;
    unsigned got;
    char *data = malloc(len);
    assert_int_equal(ext2fs_file_open(o->e2, ino_of(o, path), 0, &file), 0);
    assert_int_equal(ext2fs_file_llseek(file, offset, EXT2_SEEK_SET, NULL), 0);
    assert_int_equal(ext2fs_file_read(file, data, len, &got), 0);
    assert_int_equal(got, len);
    for (unsigned k = 0; k < len; k++)
        assert_int_equal(data[k], letter);
    ext2fs_file_close(file);
    free(data);
}

static void check_xattr(struct opened *o, const char *path, const char *name, const void *value, size_t len)
{
    struct ext2_xattr_handle *h;
    void *got;
    size_t got_len;
    assert_int_equal(ext2fs_xattrs_open(o->e2, ino_of(o, path), &h), 0);
    assert_int_equal(ext2fs_xattrs_read(h), 0);
    errcode_t code = ext2fs_xattr_get(h, name, &got, &got_len);
    if (!value) {
        assert_int_equal(code, EXT2_ET_EA_KEY_NOT_FOUND);
    } else {
        assert_int_equal(code, 0);
        assert_int_equal(got_len, len);
        assert_memory_equal(got, value, len);
        ext2fs_free_mem(&got);
    }
    ext2fs_xattrs_close(&h);
}

static int64_t time_of(const struct ext2_inode_large *inode, uint32_t *out_nsec)
{
    *out_nsec = inode->i_mtime_extra >> 2;
    return (int64_t)(int32_t)inode->i_mtime + ((int64_t)(inode->i_mtime_extra & 3) << 32);
}

/* ------------------------------------------------------------------ tests */

static void test_fs_ext4__an_empty_tree_is_a_root(void **state)
{
    struct opened o = end(begin());
    struct ext2_inode_large root = inode_of(&o, "");
    assert_int_equal(root.i_mode, S_IFDIR | 0755);
    assert_int_equal(root.i_links_count, 2);
    assert_int_equal(o.image.result.metadata_offset, o.image.fs->data_begin);
    assert_int_equal(o.image.result.metadata_len, BLOCK);
    assert_int_equal(ext2fs_blocks_count(o.e2->super) * BLOCK, o.image.result.image_size);
    assert_true(ext2fs_has_feature_readonly(o.e2->super));
    assert_false(ext2fs_has_feature_shared_blocks(o.e2->super));
    done(&o);
}

static void test_fs_ext4__inodes_hold_what_the_nodes_say(void **state)
{
    struct image i = begin();
    add_file(&i, "d/file", 5000, 'x');
    struct node *n = &find(&i, "d/file", 6)->node;
    n->mode = S_IFREG | S_ISUID | 0751;
    n->uid = 70000;
    n->gid = UINT32_MAX - 1;
    n->mtime = -5;
    n->mtime_nsec = 999999999;
    add(&i, "block", S_IFBLK | 0660)->node.rdev = 0x11110370; /* 259:70000 */
    add(&i, "char", S_IFCHR | 0666)->node.rdev = 0x103;
    add(&i, "fifo", S_IFIFO | 0600)->node.mtime = INT64_C(7258118400); /* 2200 */
    add(&i, "socket", S_IFSOCK | 0600)->node.mtime = INT64_MAX;
    struct opened o = end(i);
    struct ext2_inode_large inode = inode_of(&o, "d/file");
    uint32_t nsec;
    assert_int_equal(inode.i_mode, S_IFREG | S_ISUID | 0751);
    assert_int_equal(inode.i_uid | (uint32_t)inode.i_uid_high << 16, 70000);
    assert_int_equal(inode.i_gid | (uint32_t)inode.i_gid_high << 16, UINT32_MAX - 1);
    assert_int_equal(time_of(&inode, &nsec), -5);
    assert_int_equal(nsec, 999999999);
    assert_int_equal(EXT2_I_SIZE(&inode), 5000);
    assert_int_equal(inode.i_links_count, 1);
    check_bytes(&o, "d/file", 0, 'x', 5000);
    inode = inode_of(&o, "block");
    assert_int_equal(inode.i_block[0], 0);
    assert_int_equal(inode.i_block[1], 0x11110370);
    inode = inode_of(&o, "char");
    assert_int_equal(inode.i_block[0], 0x103);
    inode = inode_of(&o, "fifo");
    assert_int_equal(time_of(&inode, &nsec), INT64_C(7258118400));
    inode = inode_of(&o, "socket"); /* the last that ext4 can say */
    assert_int_equal(time_of(&inode, &nsec), (INT64_C(1) << 34) - (INT64_C(1) << 31) - 1);
    assert_int_equal(inode_of(&o, "").i_links_count, 3);
    done(&o);
}

static void test_fs_ext4__hard_links_share_an_inode(void **state)
{
    struct image i = begin();
    static const char *const paths[] = {"a/one", "b/two", "three"};
    for (size_t k = 0; k < 3; k++) {
        add_file(&i, paths[k], 10, 'l');
        find(&i, paths[k], strlen(paths[k]))->link = paths[0];
    }
    add_file(&i, "alone", 10, 'm');
    struct opened o = end(i);
    assert_int_equal(ino_of(&o, "b/two"), ino_of(&o, "a/one"));
    assert_int_equal(ino_of(&o, "three"), ino_of(&o, "a/one"));
    assert_int_equal(inode_of(&o, "three").i_links_count, 3);
    assert_int_equal(inode_of(&o, "alone").i_links_count, 1);
    check_bytes(&o, "b/two", 0, 'l', 10);
    done(&o);
}

/* Directories that fit in one block to the last byte, and by four bytes do not. */
static void test_fs_ext4__directories_around_a_block(void **state)
{
    struct image i = begin();
    char path[300], name[256];
    memset(name, 'n', 255);
    for (int len = 200; len <= 255; len++) {
        for (int k = 0; k < 15; k++) {
            snprintf(path, sizeof path, "d%03d/%c%.247s", len, 'a' + k, name);
            add_file(&i, path, 0, 0);
        }
        snprintf(path, sizeof path, "d%03d/z%.*s", len, len - 200, name);
        add_file(&i, path, 0, 0);
        snprintf(path, sizeof path, "d%03d/y%.*s", len, 155, name);
        add_file(&i, path, 0, 0);
    }
    struct opened o = end(i);
    unsigned linear = 0, indexed = 0;
    for (int len = 200; len <= 255; len++) {
        snprintf(path, sizeof path, "d%03d", len);
        struct ext2_inode_large inode = inode_of(&o, path);
        linear += EXT2_I_SIZE(&inode) == BLOCK && !(inode.i_flags & EXT2_INDEX_FL);
        indexed += EXT2_I_SIZE(&inode) >= 2 * BLOCK && inode.i_flags & EXT2_INDEX_FL;
        snprintf(path, sizeof path, "d%03d/z%.*s", len, len - 200, name);
        assert_true(ino_of(&o, path) > 11);
    }
    assert_int_equal(linear + indexed, 56);
    assert_true(linear > 5 && indexed > 5);
    done(&o);
}

/* Enough leaves that the index has a second level. */
static void test_fs_ext4__directories_of_many_names(void **state)
{
    struct image i = begin_with(0, 120000, 0);
    char path[300];
    add_item(&i, "crowd", 5, S_IFDIR | 0755);
    for (unsigned k = 0; k < full_or(100000, 5000); k++) {
        int len = snprintf(path, sizeof path, "crowd/%x-%u", k * 2654435761u, k);
        add_item(&i, path, (size_t)len, S_IFREG | 0644);
    }
    add_item(&i, "long", 4, S_IFDIR | 0755);
    for (unsigned k = 0; k < 9000; k++) {
        int len = snprintf(path, sizeof path, "long/%0250u", k);
        add_item(&i, path, (size_t)len, S_IFREG | 0644);
    }
    struct opened o = end(i);
    struct ext2_inode_large crowd = inode_of(&o, "crowd"), longs = inode_of(&o, "long");
    assert_true(crowd.i_flags & EXT2_INDEX_FL && longs.i_flags & EXT2_INDEX_FL);
    assert_true(EXT2_I_SIZE(&longs) > 508 * BLOCK); /* over what the root's block can index */
    assert_true(ino_of(&o, path) > 11);
    assert_true(ino_of(&o, "crowd/9e3779b1-1") > 11);
    done(&o);
}

static void test_fs_ext4__a_directory_of_66000_says_one_link(void **state)
{
    if (!full_or(1, 0))
        skip();
    struct image i = begin_with(0, 70000, 0);
    char path[32];
    for (unsigned k = 0; k < 66000; k++) {
        int len = snprintf(path, sizeof path, "s%u", k);
        add_item(&i, path, (size_t)len, S_IFDIR | 0755);
    }
    struct opened o = end(i);
    assert_int_equal(inode_of(&o, "").i_links_count, 1);
    assert_int_equal(inode_of(&o, "s65999").i_links_count, 2);
    done(&o);
}

static void test_fs_ext4__symlinks(void **state)
{
    static const int lengths[] = {1, 59, 60, 4000, 4095};
    static char targets[GR_ARRAY_SIZE(lengths)][4097];
    struct image i = begin();
    char path[16];
    for (size_t k = 0; k < GR_ARRAY_SIZE(lengths); k++) {
        memset(targets[k], 't', (size_t)lengths[k]);
        snprintf(path, sizeof path, "s%d", lengths[k]);
        add_symlink(&i, path, targets[k]);
    }
    struct opened o = end(i);
    for (size_t k = 0; k < GR_ARRAY_SIZE(lengths); k++) {
        snprintf(path, sizeof path, "s%d", lengths[k]);
        ext2_ino_t ino;
        assert_int_equal(ext2fs_lookup(o.e2, EXT2_ROOT_INO, path, (int)strlen(path), NULL, &ino), 0);
        struct ext2_inode inode;
        assert_int_equal(ext2fs_read_inode(o.e2, ino, &inode), 0);
        assert_int_equal(inode.i_size, lengths[k]);
        assert_int_equal(ext2fs_is_fast_symlink(&inode), lengths[k] < 60);
        if (lengths[k] < 60)
            assert_memory_equal(inode.i_block, targets[k], lengths[k]);
    }
    done(&o);
}

static void test_fs_ext4__xattrs_in_the_inode_in_a_block_and_left_out(void **state)
{
    static const uint8_t acl[] = {2, 0,    0,    0,    1,    0,    7,    0, 0xff, 0xff, 0xff, 0xff, 2,    0,    4,
                                  0, 0x70, 0x11, 1,    0,    4,    0,    5, 0,    0xff, 0xff, 0xff, 0xff, 0x10, 0,
                                  5, 0,    0xff, 0xff, 0xff, 0xff, 0x20, 0, 0,    0,    0xff, 0xff, 0xff, 0xff};
    struct image i = begin();
    char value[9000], name[32];
    memset(value, 'v', sizeof value);
    add_file(&i, "acl", 10, 'a');
    put_xattr(&find(&i, "acl", 3)->xattrs, "system.posix_acl_access", acl, sizeof acl);
    add_file(&i, "many", 10, 'm');
    struct bytes *many = &find(&i, "many", 4)->xattrs;
    for (unsigned k = 0; k < 60; k++) {
        snprintf(name, sizeof name, k % 3 ? "user.key%u" : "trusted.%u\xc3\xa9", k * 37 % 60);
        put_xattr(many, name, value, k);
    }
    add(&i, "dir", S_IFDIR | 0755);
    put_xattr(&find(&i, "dir", 3)->xattrs, "security.s", "label", 6);
    add_file(&i, "huge", 10, 'h');
    struct bytes *huge = &find(&i, "huge", 4)->xattrs;
    put_xattr(huge, "user.empty", "", 0);
    put_xattr(huge, "user.huge", value, sizeof value);
    put_xattr(huge, "user.large", value, 3000);
    put_xattr(huge, "user.second", value, 3000);
    struct opened o = end(i);
    assert_int_equal(o.image.result.xattrs_skipped, 2);
    uint8_t seen[sizeof acl]; /* libext2fs says 0 where an entry needs no id, the kernel what was put in */
    memcpy(seen, acl, sizeof acl);
    for (size_t k = 4; k < sizeof acl; k += 8)
        le32_put(seen + k + 4, le32_get(acl + k + 4) == UINT32_MAX ? 0 : le32_get(acl + k + 4));
    check_xattr(&o, "acl", "system.posix_acl_access", seen, sizeof seen);
    check_xattr(&o, "dir", "security.s", "label", 6);
    for (unsigned k = 0; k < 60; k++) {
        snprintf(name, sizeof name, k % 3 ? "user.key%u" : "trusted.%u\xc3\xa9", k * 37 % 60);
        check_xattr(&o, "many", name, value, k);
    }
    check_xattr(&o, "huge", "user.empty", "", 0);
    check_xattr(&o, "huge", "user.large", value, 3000);
    check_xattr(&o, "huge", "user.huge", NULL, 0);
    check_xattr(&o, "huge", "user.second", NULL, 0);
    assert_int_equal(inode_of(&o, "acl").i_file_acl, 0);
    assert_int_not_equal(inode_of(&o, "many").i_file_acl, 0);
    done(&o);
}

/* A file in the nodes without a byte written: all holes. */
static void add_hole(struct image *i, const char *path, uint64_t size)
{
    add_file(i, path, size, 0);
    struct node *n = &find(i, path, strlen(path))->node;
    n->address = i->data_end;
    i->data_end += GR_ALIGN_UP(size, (uint64_t)BLOCK);
}

/* More extents than an inode holds, than one block, than four blocks. */
static void test_fs_ext4__trees_of_extents(void **state)
{
    const uint64_t mib = 1 << 20, gib = 1 << 30;
    const uint64_t sizes[] = {512 * mib, 512 * mib + 1, 4300 * mib, 43 * gib, full_or(200, 44) * gib};
    struct image i = begin_with(full_or(260, 100) * gib, 10, 0);
    char path[16];
    for (size_t k = 0; k < GR_ARRAY_SIZE(sizes); k++) {
        snprintf(path, sizeof path, "f%zu", k);
        add_hole(&i, path, sizes[k]);
    }
    add_file(&i, "z", 5000, 'z'); /* after them all */
    struct opened o = end(i);
    for (size_t k = 0; k < GR_ARRAY_SIZE(sizes); k++) {
        snprintf(path, sizeof path, "f%zu", k);
        struct ext2_inode_large inode = inode_of(&o, path);
        assert_int_equal(EXT2_I_SIZE(&inode), sizes[k]);
        check_bytes(&o, path, sizes[k] - 100, 0, 100);
    }
    check_bytes(&o, "z", 0, 'z', 5000);
    done(&o);
}

static void test_fs_ext4__equal_bodies_share_blocks(void **state)
{
    struct image i = begin();
    add_file(&i, "a", 5000, 's');
    add_file(&i, "b", 5000, 0);
    add_file(&i, "c", 3000, 0);
    find(&i, "b", 1)->node.address = find(&i, "c", 1)->node.address = i.data_end;
    struct opened o = end(i);
    check_bytes(&o, "b", 0, 's', 5000);
    check_bytes(&o, "c", 0, 's', 3000);
    assert_true(ext2fs_has_feature_shared_blocks(o.e2->super));
    done(&o);
}

static void test_fs_ext4__dead_space_and_vanished_files_are_free(void **state)
{
    struct image i = begin();
    char path[16];
    i.gap = 7;
    for (unsigned k = 0; k < 400; k++) {
        snprintf(path, sizeof path, "d%u/%u", k % 5, k);
        add_file(&i, path, k % 50 ? 0 : 5000, 'f');
    }
    i.data_end += 1 << 20; /* before the first body, as if one had been there */
    struct opened o = end(i);
    uint64_t used = ext2fs_blocks_count(o.e2->super) - ext2fs_free_blocks_count(o.e2->super);
    uint64_t front = 1 + 1 + 2 * 2 + 2 * 2048, data_begin = 8 * 2, directories = 6;
    assert_int_equal(used, front + data_begin + directories);
    assert_int_equal(o.e2->super->s_inodes_count - o.e2->super->s_free_inodes_count, 10 + 405);
    check_bytes(&o, "d0/0", 0, 'f', 5000);
    done(&o);
}

static struct digest digest_of_tree(const char *letters, size_t memory)
{
    struct image i = begin_with(1 << 20, 30000, memory);
    char path[40];
    for (unsigned k = 0; k < 20000; k++) {
        int len = snprintf(path, sizeof path, "%u-%u", k * 2654435761u, k);
        add_item(&i, path, (size_t)len, S_IFREG | 0644);
    }
    for (const char *l = letters; *l; l++) {
        snprintf(path, sizeof path, "z%zu", (size_t)(l - letters));
        add_file(&i, path, 10000, *l);
    }
    struct opened o = end(i);
    struct digest d = o.digest;
    done(&o);
    return d;
}

/* Whatever memory there is, and whenever; but another content is another image. */
static void test_fs_ext4__the_same_input_is_the_same_image(void **state)
{
    struct digest a = digest_of_tree("abc", 0), b = digest_of_tree("abc", 1 << 16), c = digest_of_tree("abd", 0);
    assert_true(digest_equal(&a, &b));
    assert_false(digest_equal(&a, &c));
}

static struct fs *make(uint64_t nodes, uint64_t bytes, uint64_t parent_size, uint64_t parent_data_end)
{
    struct fs_config config = {.chunk_size = CHUNK,
                               .nodes = nodes,
                               .bytes = bytes,
                               .parent_size = parent_size,
                               .parent_data_end = parent_data_end};
    struct fs *f;
    assert_int_equal(fs_ext4_new(&config, &f), 0);
    return f;
}

/* Of the image it will make: the only one with these bodies. */
static uint64_t size_of(const struct fs *f)
{
    const uint64_t group = 128 << 20;
    for (uint64_t size = GR_ALIGN_UP(f->data_max, group);; size += group) {
        CLEANUP(cleanup_fs) struct fs *same = make(1, 1, size, f->data_begin);
        assert_true(same->keeps && same->data_begin <= f->data_begin);
        if (same->data_begin == f->data_begin)
            return size;
    }
}

static void test_fs_ext4__a_parents_geometry_is_kept_while_it_does(void **state)
{
    const uint64_t gib = 1 << 30;
    CLEANUP(cleanup_fs) struct fs *first = make(100000, 10 * gib, 0, 0);
    uint64_t size = size_of(first), end = first->data_begin + 10 * gib;
    CLEANUP(cleanup_fs) struct fs *same = make(100000, 10 * gib, size, end);
    CLEANUP(cleanup_fs) struct fs *grown = make(150000, 15 * gib, size, end);
    CLEANUP(cleanup_fs) struct fs *over = make(100000, 40 * gib, size, end);
    CLEANUP(cleanup_fs) struct fs *alike = make(100100, 10 * gib + 100000000, 0, 0);
    CLEANUP(cleanup_fs) struct fs *foreign = make(100000, 10 * gib, size + BLOCK, end);
    CLEANUP(cleanup_fs) struct fs *fresh = make(150000, 15 * gib, 0, 0);
    assert_false(first->keeps);
    assert_true(same->keeps && same->data_begin == first->data_begin);
    assert_true(grown->keeps && grown->data_begin == first->data_begin);
    assert_false(over->keeps);
    assert_int_equal(alike->data_begin, first->data_begin);
    assert_false(foreign->keeps);
    assert_true(fresh->data_begin > first->data_begin);
    assert_true(over->data_max > over->data_begin + 40 * gib);
}

static void test_fs_ext4__limits(void **state)
{
    struct fs_config config = {.chunk_size = CHUNK, .nodes = 10, .bytes = UINT64_C(200) << 40};
    struct fs *f = NULL;
    assert_int_equal(fs_ext4_new(&config, &f), -EFBIG);
    assert_non_null(strstr(error_text(), "128 TiB"));
    config.bytes = UINT64_C(90) << 40; /* fits, without room to grow */
    assert_int_equal(fs_ext4_new(&config, &f), 0);
    assert_true(f->data_max - f->data_begin > config.bytes);
    fs_free(f);
    config.gaps = UINT64_C(40) << 40;
    assert_int_equal(fs_ext4_new(&config, &f), -EFBIG);
    config.bytes = UINT64_C(60) << 40;
    assert_int_equal(fs_ext4_new(&config, &f), 0);
    assert_true(f->data_max - f->data_begin > config.bytes + config.gaps);
    fs_free(f);
    config = (struct fs_config){.chunk_size = CHUNK, .nodes = 4000000000};
    assert_int_equal(fs_ext4_new(&config, &f), 0);
    fs_free(f);
}

static void test_fs_ext4__what_is_wrong_is_noticed(void **state)
{
    struct image i = begin();
    add_file(&i, "f", 10, 0); /* no address */
    order(&i);
    assert_int_equal(finish(&i), -EIO);
    image_free(&i);
    i = begin();
    add_file(&i, "f", 10, 'f');
    find(&i, "f", 1)->node.linked = true; /* in the nodes of a hard link, whose first name is not there */
    find(&i, "f", 1)->link = "";
    order(&i);
    assert_int_equal(finish(&i), -EIO);
    image_free(&i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fs_ext4__an_empty_tree_is_a_root),
        cmocka_unit_test(test_fs_ext4__inodes_hold_what_the_nodes_say),
        cmocka_unit_test(test_fs_ext4__hard_links_share_an_inode),
        cmocka_unit_test(test_fs_ext4__directories_around_a_block),
        cmocka_unit_test(test_fs_ext4__directories_of_many_names),
        cmocka_unit_test(test_fs_ext4__a_directory_of_66000_says_one_link),
        cmocka_unit_test(test_fs_ext4__symlinks),
        cmocka_unit_test(test_fs_ext4__xattrs_in_the_inode_in_a_block_and_left_out),
        cmocka_unit_test(test_fs_ext4__trees_of_extents),
        cmocka_unit_test(test_fs_ext4__equal_bodies_share_blocks),
        cmocka_unit_test(test_fs_ext4__dead_space_and_vanished_files_are_free),
        cmocka_unit_test(test_fs_ext4__the_same_input_is_the_same_image),
        cmocka_unit_test(test_fs_ext4__a_parents_geometry_is_kept_while_it_does),
        cmocka_unit_test(test_fs_ext4__limits),
        cmocka_unit_test(test_fs_ext4__what_is_wrong_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
