/* Joins: the image has the files of all the images, with all that they are; no chunk of a file is read; what cannot be
 * joined is refused, and names both sides. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/sysmacros.h>

#include "base/error.h"
#include "base/le.h"
#include "imagebuild/join/join_internal.h"
#include "unit/rebuild_world.h"

enum { PARTS = 3 };

static const char *const at_root[] = {"", "", "", ""};

/* ------------------------------------------------------------------ images and joins */

static struct image_ref ref_of(const char *image)
{
    struct image_ref ref;
    assert_int_equal(image_ref_parse(image, &ref), 0);
    return ref;
}

/* Join images into `image`; at NULL: each at the root. */
static int join(struct world *w, const char *image, const struct image_ref *images, const char *const *at, size_t count,
                struct build_result *r)
{
    struct build_options o = options();
    const struct provenance provenance = {.tool = "test"};
    const struct image_ref ref = ref_of(image);
    o.chunk_size = 0;
    o.parents = images;
    o.parent_count = count;
    o.join_at = at ? at : at_root;
    o.provenance = &provenance;
    return build_run(NULL, store_fake_store(w->store), &ref, &o, r);
}

static void open_files(struct world *w, enum manifest_fs fs)
{
    srand(1);
    open_world(w, 600);
    w->fs = fs;
    for (unsigned i = 0; i < w->count; i++)
        set_file(w, i, i % 50 ? small_size() : 300000 + i);
    for (unsigned i = 10; i < 20; i++)
        w->paths[i] = (struct path){.there = true, .kind = i % 2 ? SYMLINK : DIRECTORY, .seed = i};
    for (unsigned i = 500; i < 510; i++)
        w->paths[i] = (struct path){.there = true, .kind = HARD_LINK, .seed = i - 400};
}

/* Build all parts as faces:part-N, and name them in parts[]. */
static void build_parts(struct world *w, struct image_ref parts[PARTS], struct build_result built[PARTS])
{
    struct provenance provenance = {.tool = "test"};
    provenance_add_source(&provenance, "fake://source");
    for (unsigned i = 0; i < PARTS; i++) {
        struct build_options o = options();
        char image[64];
        snprintf(image, sizeof image, "/store/faces:part-%u", i);
        parts[i] = ref_of(image);
        o.part = (struct share){.number = i, .count = PARTS};
        o.provenance = &provenance;
        assert_int_equal(run_as(w, w->store, image, &o, &built[i]), 0);
    }
}

/* ------------------------------------------------------------------ what is read */

enum { DATA = 1, OTHER = 2 };

/* Which packs hold nothing but file data, and how often they are read. */
struct data_packs {
    const struct manifest *manifest; /* of the image being noted */
    struct digest_map packs;         /* value: DATA, OTHER or both */
    atomic_uint reads;
    uint64_t stored; /* bytes of all chunks noted */
};

static void note_chunk(void *arg, uint64_t number, const struct chunk_ref *ref, const struct buf *plain)
{
    struct data_packs *b = arg;
    const uint64_t at = number * CHUNK, first = GR_MAX(b->manifest->front_len, UINT64_C(1));
    (void)plain;
    b->stored += ref->stored_len;
    assert_true(digest_map_add(&b->packs, &ref->object, 0) >= 0);
    digest_map_find(&b->packs, &ref->object)->value |= at >= first && at < b->manifest->metadata_offset ? DATA : OTHER;
}

static void note_image(struct world *w, struct data_packs *b, const struct manifest *m)
{
    b->manifest = m;
    b->stored = 0;
    read_back_node(w->store, &m->index_root, m->index_levels - 1, 0, note_chunk, b);
}

/* Threads read packs. */
static void count_data_reads(void *arg, struct store_fake *f, enum store_fake_op op, const char *key)
{
    struct data_packs *b = arg;
    struct digest pack;
    (void)f;
    if (op != FAKE_GET || strncmp(key, "packs/", 6) != 0)
        return;
    assert_int_equal(digest_parse(key + 9, strlen(key + 9), &pack), 0);
    const struct digest_slot *slot = digest_map_find(&b->packs, &pack);
    if (slot && slot->value == DATA)
        b->reads++;
}

static void test_join__parts_of_a_source_are_the_whole_and_nothing_is_read(void **state)
{
    static struct world w;
    struct image_ref parts[PARTS];
    static struct build_result built[PARTS], r, again;
    struct data_packs data = {.stored = 0};
    unsigned pure = 0;
    uint64_t size;
    open_files(&w, fs_of(state));
    build_parts(&w, parts, built);
    for (unsigned i = 0; i < PARTS; i++)
        note_image(&w, &data, &built[i].manifest);
    for (const struct digest_slot *s = NULL; (s = digest_map_next(&data.packs, s));)
        pure += s->value == DATA;
    assert_true(pure >= PARTS);
    store_fake_set_hook(w.store, count_data_reads, &data);
    assert_int_equal(join(&w, "/store/faces:whole", parts, NULL, PARTS, &r), 0);
    store_fake_set_hook(w.store, NULL, NULL);
    assert_int_equal(data.reads, 0);
    assert_int_equal(r.bytes_read, 0);
    assert_int_equal(r.rebuild.parents, PARTS);
    assert_int_equal(r.rebuild.bytes_kept, w.listed);
    assert_true(r.bytes_uploaded < w.listed / 4);
    compare_with_full(&w, &r, &size);
    note_image(&w, &data, &r.manifest);
    assert_int_equal(r.manifest.stored_bytes, data.stored);
    /* equal input gives the equal image */
    assert_int_equal(join(&w, "/store/faces:whole", parts, NULL, PARTS, &again), 0);
    assert_true(digest_equal(&again.image, &r.image));
    digest_map_release(&data.packs);
    store_fake_free(w.store);
}

static void test_join__is_a_parent_as_any_image(void **state)
{
    static struct world w;
    struct image_ref parts[PARTS];
    static struct build_result built[PARTS], r;
    struct build_options o = options();
    uint64_t size;
    open_files(&w, fs_of(state));
    build_parts(&w, parts, built);
    assert_int_equal(join(&w, "/store/faces:whole", parts, NULL, PARTS, &r), 0);
    /* under a new tag, since the parts are all of one source; and under its own */
    assert_int_equal(run_as(&w, w.store, "/store/faces:other", &o, &r), 0);
    assert_int_equal(r.rebuild.parents, 1);
    assert_int_equal(r.bytes_read, 0);
    assert_int_equal(run_as(&w, w.store, "/store/faces:whole", &o, &r), 0);
    assert_int_equal(r.bytes_read, 0);
    assert_int_equal(r.rebuild.removed, 0);
    set_file(&w, 300, 7777);
    w.paths[301].there = false;
    assert_int_equal(run_as(&w, w.store, "/store/faces:next", &o, &r), 0);
    assert_int_equal(r.rebuild.parents, 1);
    assert_int_equal(r.bytes_read, 7777);
    compare_with_full(&w, &r, &size);
    store_fake_free(w.store);
}

/* A join of joins, of images that were built upon others, and of one image with itself. */
static void test_join__of_images_of_any_past(void **state)
{
    static struct world w;
    struct image_ref parts[PARTS], two[2];
    static struct build_result built[PARTS], r;
    static const char *const at[] = {"a", "b"};
    uint64_t size;
    open_files(&w, fs_of(state));
    build_parts(&w, parts, built);
    for (unsigned i = 0; i < 300; i += 3)
        if (w.paths[i].kind == FILE_KIND)
            set_file(&w, i, small_size());
    build_parts(&w, parts, built);
    assert_int_equal(join(&w, "/store/faces:two", parts, NULL, 2, &r), 0);
    two[0] = ref_of("/store/faces:two");
    two[1] = parts[2];
    assert_int_equal(join(&w, "/store/faces:whole", two, NULL, 2, &r), 0);
    compare_with_full(&w, &r, &size);
    two[0] = two[1] = ref_of("/store/faces:whole");
    assert_int_equal(join(&w, "/store/twice:v1", two, at, 2, &r), 0);
    assert_int_equal(r.rebuild.bytes_kept, 2 * w.listed);
    store_fake_free(w.store);
}

/* ------------------------------------------------------------------ below directories */

/* The joined image has the entries of `part` below `at`, with equal bytes. */
static void compare_below(struct world *w, const struct build_result *joined, const struct build_result *part,
                          const char *at)
{
    struct image a = open_built(w->store, joined), b = open_built(w->store, part);
    const struct catalog_entry *ea, *eb;
    char prefix[32];
    snprintf(prefix, sizeof prefix, "%s/", at);
    assert_int_equal(catalog_cursor_new(store_fake_store(w->store), &a.manifest, prefix, strlen(prefix), 0, &a.cursor),
                     0);
    open_entries(&b);
    assert_int_equal(catalog_cursor_next(b.cursor, &eb), 1); /* the root */
    while (catalog_cursor_next(b.cursor, &eb) == 1) {
        assert_int_equal(catalog_cursor_next(a.cursor, &ea), 1);
        struct catalog_entry e = *ea;
        e.path += strlen(prefix);
        e.path_len -= strlen(prefix);
        if (e.hard_link) {
            e.target += strlen(prefix);
            e.target_len -= strlen(prefix);
        }
        same_entry(&a, &e, eb);
    }
    assert_int_equal(catalog_cursor_next(a.cursor, &ea), 0);
    close_built(&a);
    close_built(&b);
}

static void test_join__each_below_its_directory(void **state)
{
    static struct world w;
    struct image_ref images[2] = {ref_of("/store/one:v1"), ref_of("/store/two:v1")};
    static const char *const at[] = {"train", "/data/val/"}, *const wrong[] = {"a", "b/../c"};
    static struct build_result one, two, r;
    struct build_options o = options();
    open_files(&w, fs_of(state));
    assert_int_equal(run_as(&w, w.store, "/store/one:v1", &o, &one), 0);
    for (unsigned i = 100; i < 200; i++)
        set_file(&w, i, small_size());
    assert_int_equal(run_as(&w, w.store, "/store/two:v1", &o, &two), 0);
    assert_int_equal(join(&w, "/store/all:v1", images, at, 2, &r), 0);
    compare_below(&w, &r, &one, "train");
    compare_below(&w, &r, &two, "data/val");
    assert_int_equal(r.manifest.counts.files, one.manifest.counts.files + two.manifest.counts.files);
    assert_int_equal(r.manifest.counts.hard_links, 20);
    assert_int_equal(join(&w, "/store/all:v2", images, wrong, 2, &r), -EINVAL);
    store_fake_free(w.store);
}

static void test_join__what_collides_is_named(void **state)
{
    static struct world w;
    struct image_ref images[2] = {ref_of("/store/one:v1"), ref_of("/store/two:v1")};
    static const char *const at[] = {"", "d1/f0001"};
    static struct build_result r;
    struct build_options o = options();
    open_files(&w, MANIFEST_EROFS);
    assert_int_equal(run_as(&w, w.store, "/store/one:v1", &o, &r), 0);
    for (unsigned i = 0; i < w.count; i++)
        w.paths[i].there = i == 42 || i > 590;
    assert_int_equal(run_as(&w, w.store, "/store/two:v1", &o, &r), 0);
    assert_int_equal(join(&w, "/store/all:v1", images, NULL, 2, &r), -EINVAL);
    assert_non_null(strstr(error_text(), "one:v1"));
    assert_non_null(strstr(error_text(), "two:v1"));
    assert_non_null(strstr(error_text(), "d0/f0042"));
    assert_non_null(strstr(error_text(), "--at"));
    /* a directory in place of a file */
    assert_int_equal(join(&w, "/store/all:v1", images, at, 2, &r), -EINVAL);
    assert_non_null(strstr(error_text(), "d1/f0001"));
    assert_false(store_fake_has(w.store, "images/all/v1"));
    store_fake_free(w.store);
}

static void test_join__what_cannot_be_joined_is_refused(void **state)
{
    static struct world w;
    struct image_ref images[2] = {ref_of("/store/one:v1"), ref_of("/store/two:v1")};
    static struct build_result r;
    struct build_options o = options();
    open_files(&w, MANIFEST_EROFS);
    assert_int_equal(run_as(&w, w.store, "/store/one:v1", &o, &r), 0);
    assert_int_equal(join(&w, "/store/all:v1", images, NULL, 2, &r), -ENOENT);
    o.chunk_size = 2 * CHUNK;
    assert_int_equal(run_as(&w, w.store, "/store/two:v1", &o, &r), 0);
    assert_int_equal(join(&w, "/store/all:v1", images, NULL, 2, &r), -EINVAL);
    assert_non_null(strstr(error_text(), "two:v1"));
    o.chunk_size = CHUNK;
    w.fs = MANIFEST_EXT4;
    assert_int_equal(run_as(&w, w.store, "/store/two:v1", &o, &r), 0);
    assert_int_equal(join(&w, "/store/all:v1", images, NULL, 2, &r), -EINVAL);
    assert_non_null(strstr(error_text(), "ext4"));
    assert_false(store_fake_has(w.store, "images/all/v1"));
    /* without the new image's name, the last part would be replaced */
    assert_int_equal(join(&w, "/store/two:v1", images, NULL, 1, &r), -EEXIST);
    assert_non_null(strstr(error_text(), "two:v1 is an image that no join made"));
    store_fake_free(w.store);
}

/* ------------------------------------------------------------------ what the catalog does not say */

static void put_xattr(struct bytes *b, const char *name, const void *value, size_t value_len)
{
    uint8_t head[6];
    le16_put(head, (uint16_t)strlen(name));
    le32_put(head + 2, (uint32_t)value_len);
    assert_int_equal(bytes_append(b, head, sizeof head), 0);
    assert_int_equal(bytes_append(b, name, strlen(name)), 0);
    assert_int_equal(bytes_append(b, value, value_len), 0);
}

/* An access control list, as getxattr gives it. */
static const uint8_t acl[] = {2, 0,    0,    0,    1,    0,    7,    0, 0xff, 0xff, 0xff, 0xff, 2,    0,    5,
                              0, 0xe8, 3,    0,    0,    4,    0,    5, 0,    0xff, 0xff, 0xff, 0xff, 0x10, 0,
                              5, 0,    0xff, 0xff, 0xff, 0xff, 0x20, 0, 1,    0,    0xff, 0xff, 0xff, 0xff};

/* The attributes of a path; of others: none. */
static void xattrs_of(const char *path, struct bytes *out)
{
    static uint8_t large[3000];
    memset(large, 'l', sizeof large);
    bytes_clear(out);
    if (!strcmp(path, "a")) {
        put_xattr(out, "security.capability", "\1\0\0\2", 4);
        put_xattr(out, "trusted.t", "", 0);
        put_xattr(out, "user.large", large, sizeof large);
    } else if (!strcmp(path, "c")) {
        put_xattr(out, "system.posix_acl_access", acl, sizeof acl);
        put_xattr(out, "system.posix_acl_default", acl, sizeof acl);
        put_xattr(out, "user.c", "directory", 9);
    } else if (!*path) {
        put_xattr(out, "user.root", "1", 1);
    }
}

static void add_odd(struct source *s, const char *path, uint32_t mode, uint64_t rdev, bool linked)
{
    CLEANUP_BYTES xattrs = BYTES_INIT(64 << 10);
    xattrs_of(path, &xattrs);
    const struct source_entry e = {.path = path,
                                   .path_len = strlen(path),
                                   .mode = mode,
                                   .uid = 70000,
                                   .gid = 3,
                                   .mtime = 1700000000,
                                   .mtime_nsec = 5,
                                   .rdev = rdev,
                                   .link_dev = linked,
                                   .link_ino = linked,
                                   .xattrs = xattrs.data,
                                   .xattrs_len = xattrs.len};
    source_fake_entry(s, &e);
}

/* In path order: the root, a, c, c/dev, c/small, c/x, l1 = l2, z. Without `c` and what is in it: the day before. */
static struct source *odd_source(bool with_c)
{
    struct source *s = source_fake_new();
    add_odd(s, "", S_IFDIR | 0755, 0, false);
    add_odd(s, "a", S_IFREG | 04755, 0, false);
    if (with_c) {
        add_odd(s, "c", S_IFDIR | 0750, 0, false);
        add_odd(s, "c/dev", S_IFCHR | 0600, makedev(259, 70000), false);
        add_odd(s, "c/small", S_IFBLK | 0600, makedev(8, 1), false);
        add_odd(s, "c/x", S_IFIFO | 0600, 0, false);
    }
    add_odd(s, "l1", S_IFREG | 0644, 0, true);
    add_odd(s, "l2", S_IFREG | 0644, 0, true);
    add_odd(s, "z", S_IFREG | 0644, 0, false);
    return s;
}

/* Both have the same attributes; the filesystem has an order of its own. */
static void same_xattrs(const struct inode_extra *e, const struct bytes *want)
{
    assert_int_equal(e->xattrs_len, want->len);
    for (size_t at = 0, len; at < want->len; at += len) {
        len = 6 + (size_t)le16_get(want->data + at) + le32_get(want->data + at + 2);
        assert_non_null(memmem(e->xattrs, e->xattrs_len, want->data + at, len));
    }
}

/* The inode of a path says what it must. */
static void check_found(struct inodes *inodes, uint64_t number, const char *path, int found)
{
    CLEANUP_BYTES xattrs = BYTES_INIT(64 << 10);
    struct inode_extra e = {.links = 0};
    const bool device = !strcmp(path, "c/dev") || !strcmp(path, "c/small"), linked = !strcmp(path, "l1");
    xattrs_of(path, &xattrs);
    assert_int_equal(inodes_find(inodes, path, strlen(path), number, &e), found);
    assert_int_equal(e.links, linked ? 2 : e.links);
    assert_int_equal(e.rdev, !device ? 0 : strcmp(path, "c/dev") ? makedev(8, 1) : makedev(259, 70000));
    same_xattrs(&e, &xattrs);
}

/* The same for inodes that state their numbers: only those that the catalog does not describe are kept. */
static void check_inode(struct inodes *inodes, uint64_t number, const char *path)
{
    static const char *const kept[] = {"", "a", "c", "c/dev", "c/small", "l1"};
    int found = 0;
    for (unsigned i = 0; i < GR_ARRAY_SIZE(kept); i++)
        found |= !strcmp(path, kept[i]);
    check_found(inodes, number, path, found);
}

/* Check all inodes of an image of odd_source: at the root, or below one directory, and alone. */
static void check_odd(struct world *w, const struct build_result *r, bool below)
{
    static const char *const late[] = {"a", "c/dev", "c/small", "c/x", "c", "l1", "z", ""};
    static const char *const early[] = {"", "a", "c", "c/dev", "c/small", "c/x", "l1", "z"};
    CLEANUP(cleanup_inodes) struct inodes *inodes = NULL;
    const struct inodes_config config = {.store = store_fake_store(w->store), .manifest = &r->manifest};
    assert_int_equal(inodes_read(&config, &inodes), 0);
    const bool closed = inodes_close_directories(inodes);
    assert_int_equal(closed, w->fs == MANIFEST_EROFS);
    for (unsigned i = 0; i < GR_ARRAY_SIZE(late); i++)
        check_inode(inodes, i + (below && !closed), closed ? late[i] : early[i]);
}

static void test_join__attributes_devices_and_links_stay(void **state)
{
    static struct world w;
    const struct image_ref image = ref_of("/store/odd:v1");
    static const char *const at[] = {"sub"};
    static struct build_result part, r;
    struct build_options o = options();
    open_world(&w, 0);
    o.fs = w.fs = fs_of(state);
    o.keep_special = true;
    struct source *s = odd_source(true);
    assert_int_equal(build_run(s, store_fake_store(w.store), &image, &o, &part), 0);
    source_close(s);
    assert_int_equal(part.xattrs_skipped, 0);
    check_odd(&w, &part, false);
    assert_int_equal(join(&w, "/store/odd:joined", &image, at, 1, &r), 0);
    check_odd(&w, &r, true);
    compare_below(&w, &r, &part, "sub");
    assert_int_equal(r.manifest.counts.hard_links, 1);
    assert_int_equal(r.manifest.counts.others, 3);
    store_fake_free(w.store);
}

/* The inodes of an image that was built upon another are in no order: they are found by their paths. */
static void test_join__inodes_of_a_second_day(void **state)
{
    static const char *const paths[] = {"", "a", "c", "c/dev", "c/small", "c/x", "l1", "z"};
    static struct world w;
    const struct image_ref image = ref_of("/store/odd:v1");
    static const char *const at[] = {"sub"};
    static struct build_result day, r;
    CLEANUP(cleanup_inodes) struct inodes *inodes = NULL;
    struct inode_extra extra;
    struct build_options o = options();
    (void)state;
    open_world(&w, 0);
    o.keep_special = true;
    for (int with_c = 0; with_c < 2; with_c++) {
        struct source *s = odd_source(with_c);
        assert_int_equal(build_run(s, store_fake_store(w.store), &image, &o, &day), 0);
        source_close(s);
    }
    const struct inodes_config config = {.store = store_fake_store(w.store), .manifest = &day.manifest};
    assert_int_equal(inodes_read(&config, &inodes), 0);
    assert_false(inodes_close_directories(inodes));
    for (unsigned i = 0; i < GR_ARRAY_SIZE(paths); i++)
        check_found(inodes, i, paths[i], 1);
    assert_int_equal(inodes_find(inodes, "zz", 2, 0, &extra), -EBADMSG);
    assert_non_null(strstr(error_text(), "'zz' has none"));
    assert_int_equal(join(&w, "/store/odd:joined", &image, at, 1, &r), 0);
    check_odd(&w, &r, true);
    compare_below(&w, &r, &day, "sub");
    store_fake_free(w.store);
}

/* A file without or with large attributes; a symbolic link that is short or has a block. */
static struct source *block_source(bool block)
{
    static const uint8_t value[20000] = {1};
    static char target[4081];
    CLEANUP_BYTES xattrs = BYTES_INIT(64 << 10);
    struct source *s = source_fake_new();
    memset(target, 't', sizeof target - 1);
    put_xattr(&xattrs, "user.large", value, sizeof value);
    const struct source_entry dir = {.path = "", .mode = S_IFDIR | 0755, .mtime = 1700000000};
    const struct source_entry a = {.path = "a",
                                   .path_len = 1,
                                   .mode = S_IFREG | 0644,
                                   .mtime = 1700000000,
                                   .xattrs = block ? NULL : xattrs.data,
                                   .xattrs_len = block ? 0 : xattrs.len};
    struct source_entry link = {.path = "s", .path_len = 1, .mode = S_IFLNK | 0777, .mtime = 1700000000};
    link.target = block ? target : "short";
    link.size = link.target_len = strlen(link.target);
    struct source_entry z = a;
    z.path = "z";
    z.xattrs_len = 0;
    source_fake_entry(s, &dir);
    source_fake_entry(s, &a);
    source_fake_entry(s, &link);
    source_fake_entry(s, &z);
    return s;
}

/* All inodes are where they were, but a block lies between them, in the room of attributes that were removed. */
static void test_join__a_block_between_inodes_is_no_inode(void **state)
{
    static struct world w;
    const struct image_ref image = ref_of("/store/odd:v1");
    static const char *const at[] = {"sub"};
    static struct build_result day, r;
    struct build_options o = options();
    (void)state;
    open_world(&w, 0);
    for (int block = 0; block < 2; block++) {
        struct source *s = block_source(block);
        assert_int_equal(build_run(s, store_fake_store(w.store), &image, &o, &day), 0);
        source_close(s);
        assert_int_equal(join(&w, block ? "/store/odd:b" : "/store/odd:a", &image, at, 1, &r), 0);
        compare_below(&w, &r, &day, "sub");
    }
    store_fake_free(w.store);
}

#define EXT4(test) cmocka_unit_test_prestate(test, &ext4)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join__parts_of_a_source_are_the_whole_and_nothing_is_read),
        EXT4(test_join__parts_of_a_source_are_the_whole_and_nothing_is_read),
        cmocka_unit_test(test_join__is_a_parent_as_any_image),
        EXT4(test_join__is_a_parent_as_any_image),
        cmocka_unit_test(test_join__of_images_of_any_past),
        EXT4(test_join__of_images_of_any_past),
        cmocka_unit_test(test_join__each_below_its_directory),
        EXT4(test_join__each_below_its_directory),
        cmocka_unit_test(test_join__what_collides_is_named),
        cmocka_unit_test(test_join__what_cannot_be_joined_is_refused),
        cmocka_unit_test(test_join__attributes_devices_and_links_stay),
        EXT4(test_join__attributes_devices_and_links_stay),
        cmocka_unit_test(test_join__inodes_of_a_second_day),
        cmocka_unit_test(test_join__a_block_between_inodes_is_no_inode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
