/* Directories as they are on days that follow one another, images built of them upon each other in a fake store, and a
 * comparison with full builds. */
#ifndef GRANARY_TESTS_UNIT_REBUILD_WORLD_H
#define GRANARY_TESTS_UNIT_REBUILD_WORLD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/map.h"
#include "fake/source_fake.h"
#include "fake/store_fake.h"
#include "imagebuild/build.h"
#include "repository/read/catalog_read.h"
#include "repository/repository.h"
#include "unit/cmocka_all.h"
#include "unit/read_back.h"

enum { CHUNK = CHUNK_SIZE_MIN, FILES_MAX = 3000, BLOCK = 4096 };

enum kind { FILE_KIND, DIRECTORY, SYMLINK, HARD_LINK };

/* What stands at path "dN/fNNNN", or does not; a hard link's seed is the number of the path it links. */
struct path {
    bool there;
    enum kind kind;
    uint64_t size;
    unsigned seed, mode;
};

struct world {
    struct store_fake *store;
    unsigned count, next_seed;
    struct path paths[FILES_MAX];
    uint64_t listed; /* bytes of the files that are there */
    uint64_t blocks; /* the same in whole blocks */
    enum manifest_fs fs;
    uint64_t unequal; /* bytes, in blocks, of what was added or changed since the last build */
};

static inline void open_world(struct world *w, unsigned count)
{
    memset(w, 0, sizeof *w);
    w->store = store_fake_new();
    w->count = count;
}

/* ------------------------------------------------------------------ the source of a day */

static inline void name_path(unsigned i, char out[32])
{
    snprintf(out, 32, "d%u/f%04u", i % 7, i);
}

static inline void set_file(struct world *w, unsigned i, uint64_t size)
{
    struct path *p = &w->paths[i];
    *p = (struct path){.there = true, .size = size, .seed = ++w->next_seed, .mode = 0644};
    w->unequal += GR_ALIGN_UP(size, (uint64_t)BLOCK);
}

static inline void add_path(struct source *s, unsigned i, const struct path *p)
{
    char path[32];
    name_path(i, path);
    struct source_entry e = {
        .path = path, .path_len = strlen(path), .mode = S_IFREG | p->mode, .size = p->size, .mtime = 1700000000};
    if (p->kind == FILE_KIND) {
        source_fake_file(s, path, p->size, p->seed);
        return;
    }
    if (p->kind == HARD_LINK) {
        char file[32];
        name_path(p->seed, file);
        source_fake_link(s, path, file);
        return;
    }
    e.size = 0;
    if (p->kind == DIRECTORY) {
        e.mode = S_IFDIR | 0700;
    } else {
        e.mode = S_IFLNK | 0777;
        e.target = "d1/f0001";
        e.target_len = 1 + p->seed % 8;
    }
    source_fake_entry(s, &e);
}

static inline struct source *source_of(struct world *w)
{
    struct source *s = source_fake_new();
    w->listed = w->blocks = 0;
    for (unsigned i = 0; i < w->count; i++) {
        const struct path *linked = &w->paths[w->paths[i].seed % w->count];
        if (!w->paths[i].there || (w->paths[i].kind == HARD_LINK && (!linked->there || linked->kind != FILE_KIND)))
            continue;
        add_path(s, i, &w->paths[i]);
        w->listed += w->paths[i].kind == FILE_KIND ? w->paths[i].size : 0;
        w->blocks += w->paths[i].kind == FILE_KIND ? GR_ALIGN_UP(w->paths[i].size, (uint64_t)BLOCK) : 0;
    }
    return s;
}

/* ------------------------------------------------------------------ building */

static inline struct build_options options(void)
{
    return (struct build_options){.chunk_size = CHUNK,
                                  .zstd_level = 1,
                                  .jobs = 4,
                                  .workers = 2,
                                  .uploads = 2,
                                  .pack_size = 200 << 10,
                                  .compact_percent = 2};
}

static inline int run_as(struct world *w, struct store_fake *store, const char *image, const struct build_options *o,
                         struct build_result *r)
{
    struct image_ref ref;
    struct source *source = source_of(w);
    struct build_options with_fs = *o;
    with_fs.fs = w->fs;
    assert_int_equal(image_ref_parse(image, &ref), 0);
    int rc = build_run(source, store_fake_store(store), &ref, &with_fs, r);
    source_close(source);
    return rc;
}

static inline int run(struct world *w, struct store_fake *store, const struct build_options *o, struct build_result *r)
{
    return run_as(w, store, "/store/faces:daily", o, r);
}

static inline struct build_result rebuild(struct world *w, const struct build_options *o)
{
    struct build_result r;
    assert_int_equal(run(w, w->store, o, &r), 0);
    return r;
}

/* ------------------------------------------------------------------ comparing */

struct image {
    struct store_fake *store;
    struct manifest manifest;
    uint8_t *data;
    struct catalog_cursor *cursor;
};

static inline struct image open_built(struct store_fake *store, const struct build_result *r)
{
    struct image i = {.store = store};
    assert_int_equal(repository_manifest(store_fake_store(store), &r->image, &i.manifest), 0);
    const struct manifest *m = &i.manifest;
    i.data = read_back(store, &m->index_root, m->index_levels, m->size, m->chunk_size);
    return i;
}

static inline void open_entries(struct image *i)
{
    assert_int_equal(catalog_cursor_new(store_fake_store(i->store), &i->manifest, NULL, 0, 0, &i->cursor), 0);
}

static inline void close_built(struct image *i)
{
    catalog_cursor_free(i->cursor);
    free(i->data);
}

static inline void same_text(const char *a, size_t a_len, const char *b, size_t b_len)
{
    assert_int_equal(a_len, b_len);
    if (a_len)
        assert_memory_equal(a, b, a_len);
}

static inline void same_entry(const struct image *i, const struct catalog_entry *a, const struct catalog_entry *b)
{
    same_text(a->path, a->path_len, b->path, b->path_len);
    same_text(a->target, a->target_len, b->target, b->target_len);
    same_text(a->validator, a->validator_len, b->validator, b->validator_len);
    assert_int_equal(a->mode, b->mode);
    assert_int_equal(a->size, b->size);
    assert_int_equal(a->mtime, b->mtime);
    assert_int_equal(a->hard_link, b->hard_link);
    assert_true(digest_equal(&a->content, &b->content));
    assert_int_equal(a->extent_count, b->extent_count);
    if (!a->extent_count)
        return;
    assert_int_equal(a->extents[0].len, a->size);
    assert_true(a->extents[0].offset + a->size <= i->manifest.metadata_offset);
    struct digest content = digest_of(i->data + a->extents[0].offset, a->size);
    assert_true(digest_equal(&content, &a->content));
}

struct pack_sum {
    struct store_fake *store;
    struct digest_map packs;
    uint64_t bytes;
};

static inline void sum_pack(void *arg, uint64_t number, const struct chunk_ref *ref, const struct buf *plain)
{
    struct pack_sum *sum = arg;
    CLEANUP_BYTES pack = BYTES_INIT(64 << 20);
    if (digest_map_add(&sum->packs, &ref->object, 0) != 1)
        return;
    read_back_object(sum->store, OBJECT_PACK, &ref->object, &pack);
    sum->bytes += pack.len;
}

/* Bytes of the packs that the image refers to, and that are not its own. */
static inline uint64_t others_bytes(struct world *w, const struct build_result *r)
{
    struct pack_sum sum = {.store = w->store};
    read_back_node(w->store, &r->manifest.index_root, r->manifest.index_levels - 1, 0, sum_pack, &sum);
    digest_map_release(&sum.packs);
    return sum.bytes - r->manifest.stored_bytes;
}

/* The image is what a build without a parent makes, file by file; *out_size: that one's size. */
static inline void compare_with_full(struct world *w, const struct build_result *r, uint64_t *out_size)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct build_options o = options();
    struct build_result full;
    assert_int_equal(run(w, store, &o, &full), 0);
    struct image a = open_built(w->store, r), b = open_built(store, &full);
    open_entries(&a);
    open_entries(&b);
    const struct catalog_entry *ea, *eb;
    int rc;
    while ((rc = catalog_cursor_next(a.cursor, &ea)) == 1) {
        assert_int_equal(catalog_cursor_next(b.cursor, &eb), 1);
        same_entry(&a, ea, eb);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(catalog_cursor_next(b.cursor, &eb), 0);
    assert_memory_equal(&r->manifest.counts, &full.manifest.counts, sizeof full.manifest.counts);
    *out_size = full.manifest.size;
    close_built(&a);
    close_built(&b);
}

/* ------------------------------------------------------------------ what tests draw */

/* A test's state says the filesystem. */
static enum manifest_fs ext4 = MANIFEST_EXT4;

static inline enum manifest_fs fs_of(void **state)
{
    return *state ? *(enum manifest_fs *)*state : MANIFEST_EROFS;
}

static inline uint64_t small_size(void)
{
    return 1 + (uint64_t)rand() % (rand() % 4 ? 5000 : 20000);
}

#endif
