/* A source in memory with some of everything, built into a store in memory, and a look at the image. */
#ifndef GRANARY_TESTS_UNIT_BUILD_WORLD_H
#define GRANARY_TESTS_UNIT_BUILD_WORLD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fake/source_fake.h"
#include "fake/store_fake.h"
#include "imagebuild/build.h"
#include "repository/read/catalog_read.h"
#include "repository/repository.h"
#include "unit/cmocka_all.h"
#include "unit/read_back.h"

enum { CHUNK = CHUNK_SIZE_MIN };

static inline struct image_ref reference(void)
{
    struct image_ref ref;
    assert_int_equal(image_ref_parse("/store/faces:v1", &ref), 0);
    return ref;
}

static inline struct build_options options(void)
{
    return (struct build_options){
        .chunk_size = CHUNK, .zstd_level = 1, .jobs = 4, .workers = 2, .uploads = 2, .pack_size = 200 << 10};
}

static inline int run(struct source *source, struct store_fake *store, const struct build_options *o,
                      struct build_result *r)
{
    struct image_ref ref = reference();
    return build_run(source, store_fake_store(store), &ref, o, r);
}

static inline void add_directory(struct source *s, const char *path)
{
    struct source_entry e = {.path = path, .path_len = strlen(path), .mode = S_IFDIR | 0755, .mtime = 1700000000};
    source_fake_entry(s, &e);
}

/* Some of everything, 2 MB in many packs. */
static inline struct source *some_source(void)
{
    struct source *s = source_fake_new();
    char path[64];
    add_directory(s, "");
    add_directory(s, "empty");
    for (unsigned i = 0; i < 60; i++) {
        snprintf(path, sizeof path, "d%u/f%u", i % 7, i);
        source_fake_file(s, path, (uint64_t)i * i * 20, i);
    }
    source_fake_file(s, "same1", 50000, 99);
    source_fake_file(s, "same2", 50000, 99);
    source_fake_file(s, "big", BUFSIZ + 700001, 7);
    struct source_entry link = {
        .path = "link", .path_len = 4, .mode = S_IFLNK | 0777, .target = "big", .target_len = 3, .size = 3};
    source_fake_entry(s, &link);
    return s;
}

struct check {
    struct store_fake *store;
    const uint8_t *image;
    uint64_t paths, files;
    char seen[8192]; /* "path;path;" */
};

static inline int check_entry(void *arg, const struct catalog_entry *e)
{
    struct check *c = arg;
    c->paths++;
    size_t n = strlen(c->seen);
    snprintf(c->seen + n, sizeof c->seen - n, "%.*s;", (int)e->path_len, e->path);
    if (!S_ISREG(e->mode) || !e->size)
        return 0;
    c->files++;
    assert_int_equal(e->extent_count, 1);
    assert_int_equal(e->extents[0].len, e->size);
    struct digest content = digest_of(c->image + e->extents[0].offset, e->size);
    assert_true(digest_equal(&content, &e->content));
    return 0;
}

/* Everything the result says holds in the store; every file's bytes are where the catalog says. */
static inline struct check check_image(struct store_fake *store, const struct build_result *r)
{
    struct check c = {.store = store};
    struct image_ref ref = reference();
    struct digest image;
    struct tag tag;
    struct manifest m;
    assert_int_equal(repository_resolve(store_fake_store(store), &ref, &image, &tag), 0);
    assert_true(digest_equal(&image, &r->image));
    assert_true(digest_equal(&tag.content_root, &r->content_root));
    snprintf(ref.tag, sizeof ref.tag, "%s", r->unique_tag);
    assert_int_equal(repository_resolve(store_fake_store(store), &ref, &image, &tag), 0);
    assert_true(digest_equal(&image, &r->image));
    assert_int_equal(repository_manifest(store_fake_store(store), &image, &m), 0);
    uint8_t *data = read_back(store, &m.index_root, m.index_levels, m.size, m.chunk_size);
    c.image = data;
    assert_int_equal(catalog_walk(store_fake_store(store), &m, NULL, 0, check_entry, &c), 0);
    assert_int_equal(c.paths, m.catalog_entries);
    assert_int_equal(m.counts.files + m.counts.directories + m.counts.symlinks + m.counts.hard_links + m.counts.others,
                     c.paths);
    free(data);
    c.image = NULL;
    return c;
}

static inline void assert_nothing_published(struct store_fake *store)
{
    assert_int_equal(store_fake_count(store, "images/"), 0);
    assert_int_equal(store_fake_count(store, "builds/"), 0);
}

#endif
