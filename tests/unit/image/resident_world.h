/* An image, a cache, and its whole images: for the tests of these. */
#ifndef GRANARY_UNIT_IMAGE_RESIDENT_WORLD_H
#define GRANARY_UNIT_IMAGE_RESIDENT_WORLD_H

#include "unit/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "cache/resident.h"
#include "fake/image_fake.h"
#include "format/index.h"
#include "image/image.h"
#include "unit/scratch.h"

enum { CHUNK = 64 << 10, CACHE_SIZE = 64 << 20 };

/* ---- an image and a cache ---- */

struct world {
    struct store_fake *fake;
    struct image_fake img;
    char dir[SCRATCH_MAX];
    uint64_t cache_size;
    struct cache *cache;
    struct image *image;
    struct resident_id id;
};

static inline bool every_third(uint64_t chunk)
{
    return chunk % 3 == 1;
}

/* Two levels, the middle leaf all holes, most of the others holes. */
static inline bool middle_leaf(uint64_t chunk)
{
    return chunk / INDEX_FANOUT == 1 || chunk % 64 != 5;
}

static const struct image_fake small = {.seed = 1, .size = 20 * CHUNK + 4096, .chunk_size = CHUNK, .hole = every_third};
static const struct image_fake large = {.seed = 2,
                                        .size = (2 * INDEX_FANOUT + 7) * (uint64_t)CHUNK + 8192,
                                        .chunk_size = CHUNK,
                                        .pack_chunks = 256,
                                        .hole = middle_leaf};
static const struct image_fake full_leaf = {
    .seed = 3, .size = INDEX_FANOUT * (uint64_t)CHUNK, .chunk_size = CHUNK, .hole = middle_leaf};

static inline void open_cache(struct world *w)
{
    struct cache_config config = {.fetch = {.workers = 8}, .dir_count = 1, .disk_timeout_ms = 60000};
    config.dirs[0].path = w->dir;
    config.dirs[0].size = w->cache_size;
    assert_int_equal(cache_open(&config, &w->cache), 0);
    assert_int_equal(cache_start_threads(w->cache), 0);
}

static inline void world_init(struct world *w, const struct image_fake *img)
{
    *w = (struct world){.fake = store_fake_new(), .img = *img, .cache_size = CACHE_SIZE};
    image_fake_put(&w->img, w->fake, NULL);
    scratch_make(w->dir);
    open_cache(w);
    const struct image_config image = {
        .cache = w->cache, .store = store_fake_store(w->fake), .manifest = &w->img.manifest};
    assert_int_equal(image_open(&image, &w->img.digest, &w->image), 0);
    const struct manifest *m = &w->img.manifest;
    w->id = (struct resident_id){.content_root = m->content_root, .size = m->size, .chunk_size = m->chunk_size};
}

/* Take another size; the image is closed, as it uses the cache. */
static inline void reopen_cache(struct world *w)
{
    image_close(w->image);
    w->image = NULL;
    cache_close(w->cache);
    open_cache(w);
}

static inline int evict_it(void *arg, const struct resident_entry *e)
{
    (void)!resident_evict(arg, e->name); /* an immutable file is not removed by scratch_remove */
    return 0;
}

static inline void world_release(struct world *w)
{
    image_close(w->image);
    cache_close(w->cache);
    image_fake_release(&w->img);
    store_fake_free(w->fake);
    assert_int_equal(resident_each(w->dir, evict_it, w->dir), 0);
    scratch_remove(w->dir);
}

static inline int write_chunk(void *arg, uint64_t off, const void *data, size_t len)
{
    return resident_write(arg, off, data, len);
}

static inline int no_step(void *arg, uint64_t done)
{
    return 0;
}

/* Write the whole file. */
static inline int fill(struct world *w)
{
    CLEANUP_RESIDENT_FILLING f = RESIDENT_FILLING_NONE;
    int rc = resident_begin(w->dir, &w->id, &f);
    if (!rc)
        rc = image_copy_out(w->image, &(struct image_copy){.visit = write_chunk, .step = no_step, .arg = &f});
    return rc ? rc : resident_finish(&f);
}

static inline int open_it(struct world *w, int *out_fd)
{
    char path[PATH_MAX];
    return resident_open(w->dir, &w->id, path, out_fd);
}

struct found {
    unsigned count;
    struct resident_entry entry; /* the last one */
};

static inline int keep_it(void *arg, const struct resident_entry *e)
{
    struct found *f = arg;
    f->count++;
    f->entry = *e;
    return 0;
}

/* Is there exactly one file? */
static inline bool only(struct world *w, struct resident_entry *out)
{
    struct found f = {0};
    assert_int_equal(resident_each(w->dir, keep_it, &f), 0);
    *out = f.entry;
    return f.count == 1;
}

static inline bool none(struct world *w)
{
    struct found f = {0};
    assert_int_equal(resident_each(w->dir, keep_it, &f), 0);
    return !f.count;
}

/* A world with one file, that of `small`, complete. */
static inline void world_init_complete(struct world *w, struct resident_entry *out)
{
    world_init(w, &small);
    assert_int_equal(fill(w), 0);
    assert_true(only(w, out));
}

static inline void expect_image(struct world *w)
{
    CLEANUP_FD int fd = -1;
    CLEANUP_FREE uint8_t *got = malloc(w->id.size + 1), *expected = malloc(w->id.size);
    assert_int_equal(open_it(w, &fd), 0);
    assert_int_equal(io_pread_full(fd, got, w->id.size + 1, 0), w->id.size);
    image_fake_bytes(&w->img, 0, expected, w->id.size);
    assert_memory_equal(got, expected, w->id.size);
}

/* Change the mode of a complete file. */
static inline void set_mode(struct world *w, const char *name, mode_t mode)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "chattr -i %s/" RESIDENT_DIR "/%s 2>&1 | grep -q never", w->dir, name);
    assert_true(system(path) >= 0); /* it need not be there: the flag is root's */
    snprintf(path, sizeof path, "%s/" RESIDENT_DIR "/%s", w->dir, name);
    assert_int_equal(chmod(path, mode), 0);
}

/* Change a byte of a complete file, as a disk may. */
static inline void flip(struct world *w, const char *name, uint64_t off)
{
    char path[PATH_MAX];
    uint8_t byte;
    set_mode(w, name, 0600);
    snprintf(path, sizeof path, "%s/" RESIDENT_DIR "/%s", w->dir, name);
    CLEANUP_FD int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && io_pread_full(fd, &byte, 1, off) == 1);
    byte ^= 1;
    assert_int_equal(io_pwrite_full(fd, &byte, 1, off), 0);
}

/* Set when it was mounted last. */
static inline void set_time(struct world *w, const char *name, time_t seconds)
{
    char path[PATH_MAX];
    const struct timespec times[] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    set_mode(w, name, 0400);
    snprintf(path, sizeof path, "%s/" RESIDENT_DIR "/%s", w->dir, name);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Tests run on overlay, too, where there is no file to make room for. Releases the world then. */
static inline bool is_unfit(struct world *w)
{
    const char *dir;
    if (!resident_check_place(w->dir))
        return false;
    assert_int_equal(cache_resident_begin(w->cache, &w->id, NULL, &dir), -ENOTSUP);
    world_release(w);
    return true;
}

#endif
