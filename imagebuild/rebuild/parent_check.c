/* Two passes over the index. The first finds the packs, and the last needed chunk of each. Then threads read these
 * chunks; each writes bad[i] of its own pack, so they share nothing but `named`. If packs are damaged, the second pass
 * finds the chunks in them.
 */
#include "imagebuild/rebuild/rebuild_internal.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/vec.h"
#include "repository/read/chunk_read.h"
#include "repository/read/index_read.h"

enum { NAMED_MAX = 8 }; /* damaged packs logged by name */

struct checking {
    const struct parent_check_config *config;
    struct parent_damage *damage;
    uint64_t first;             /* number of the first chunk of the image that is walked */
    struct digest_map packs;    /* value: index into `last` */
    VEC(struct chunk_ref) last; /* of each pack, the chunk with the highest offset */
    bool *bad;                  /* by index into `last` */
    _Atomic unsigned named;
};

int parent_failed(int code)
{
    return error_of_one_thing(code) ? PARENT_DAMAGED : parent_refused(code);
}

int parent_refused(int code)
{
    struct error why;
    error_take(&why, code);
    return error_set(code, "%.400s; the parent image cannot be used: --parent none builds without it", why.text);
}

/* The damage itself is the caller's, and stays. */
static void parent_check_release(struct checking *c)
{
    digest_map_release(&c->packs);
    vec_release(&c->last);
    free(c->bad);
}

static int parent_check_step(void *arg)
{
    struct checking *c = arg;
    return step_take(&c->config->step);
}

/* Note the pack of a chunk, and the chunk if it is the pack's last one so far. */
static int note_chunk(struct checking *c, const struct chunk_ref *ref)
{
    int rc = digest_map_add(&c->packs, &ref->object, (int64_t)c->last.len);
    if (rc < 0)
        return rc;
    if (rc)
        return vec_push(&c->last, *ref);
    struct chunk_ref *last = &c->last.items[digest_map_find(&c->packs, &ref->object)->value];
    /* chunks of a pack do not overlap, so the highest offset ends last */
    if (ref->offset > last->offset)
        *last = *ref;
    return 0;
}

/* Note the chunks of an index leaf, and the bases of its deltas. */
static int note_chunks(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    struct checking *c = arg;
    int rc = 0;
    for (uint64_t i = 0; chunks && i < count && !rc; i++) {
        if (!chunk_is_hole(&chunks[i]))
            rc = note_chunk(c, &chunks[i]);
        if (!rc && chunk_is_delta(&chunks[i])) {
            const struct chunk_ref base = chunk_base_ref(&chunks[i]);
            rc = note_chunk(c, &base);
        }
    }
    return rc ? rc : parent_check_step(c);
}

/* Does the chunk, or its base, lie in a damaged pack? */
static bool is_damaged(const struct parent_damage *d, const struct chunk_ref *ref)
{
    return digest_map_find(&d->packs, &ref->object) ||
           (chunk_is_delta(ref) && digest_map_find(&d->packs, &ref->base.object));
}

/* Mark the chunks that lie in damaged packs. */
static int mark_chunks(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    struct parent_damage *d = ((struct checking *)arg)->damage;
    first += ((struct checking *)arg)->first;
    for (uint64_t i = 0; chunks && i < count; i++)
        if (!chunk_is_hole(&chunks[i]) && is_damaged(d, &chunks[i]))
            d->chunks[(first + i) / 8] |= (uint8_t)(1 << (first + i) % 8);
    return parent_check_step(arg);
}

/* Walk the index of every image. */
static int parent_check_walk(struct checking *c,
                             int (*chunks)(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks))
{
    const struct index_walk_ops ops = {.chunks = chunks};
    int rc = 0;
    for (size_t i = 0; i < c->config->image_count && !rc; i++) {
        const struct parent_image *image = &c->config->images[i];
        c->first = image->begin / image->manifest.chunk_size;
        rc = index_walk(c->config->store, &image->manifest, &ops, c);
    }
    return error_of_one_thing(rc) ? PARENT_DAMAGED : rc;
}

/* Check pack i, in any thread. Only damage counts; an error of the store ends the check. */
static int check_pack(void *arg, size_t i)
{
    struct checking *c = arg;
    struct buf *plain = NULL;
    int rc = chunk_read_one(c->config->store, &c->last.items[i], &plain);
    buf_unref(plain);
    if (rc != -EBADMSG && rc != -ENOENT)
        return rc;
    c->bad[i] = true;
    if (atomic_fetch_add(&c->named, 1) < NAMED_MAX)
        log_warning("build: a pack of the parent image is missing or damaged; the files in it are read from the source "
                    "again: %s",
                    error_text());
    return 0;
}

/* Check all packs in parallel. */
static int check_packs(struct checking *c)
{
    const struct parallel work = {
        .count = c->last.len, .threads = PARENT_CHECK_THREADS, .item = check_pack, .step = parent_check_step, .arg = c};
    /* calloc(0) may return NULL */
    c->bad = calloc(c->last.len + 1, sizeof *c->bad);
    return c->bad ? parallel_run(&work) : error_no_memory();
}

/* Note the damaged packs. */
static int take_bad(struct checking *c)
{
    struct digest_map *packs = &c->damage->packs;
    int rc = 0;
    for (size_t i = 0; i < c->last.len && rc >= 0; i++)
        if (c->bad[i])
            rc = digest_map_add(packs, &c->last.items[i].object, 0);
    if (packs->map.count > NAMED_MAX)
        log_warning("build: %zu packs of the parent image are missing or damaged", packs->map.count);
    return GR_MIN(rc, 0);
}

int parent_check(const struct parent_check_config *config, struct parent_damage *out)
{
    struct checking c CLEANUP(parent_check_release) = {.config = config, .damage = out};
    int rc = parent_check_walk(&c, note_chunks);
    if (!rc)
        rc = check_packs(&c);
    if (!rc)
        rc = take_bad(&c);
    /* no damage: the second pass is not needed */
    if (rc || !out->packs.map.count)
        return rc;
    out->chunk_size = config->images->manifest.chunk_size;
    out->chunks = calloc(config->size / out->chunk_size / 8 + 1, 1);
    return out->chunks ? parent_check_walk(&c, mark_chunks) : error_no_memory();
}

void parent_damage_release(struct parent_damage *d)
{
    digest_map_release(&d->packs);
    free(d->chunks);
    *d = (struct parent_damage){.chunks = NULL};
}

bool parent_damage_touches(const struct parent_damage *d, uint64_t address, uint64_t len)
{
    if (!d->chunks || !len)
        return false;
    const uint64_t end = (address + len - 1) / d->chunk_size;
    for (uint64_t i = address / d->chunk_size; i <= end; i++)
        if (d->chunks[i / 8] >> i % 8 & 1)
            return true;
    return false;
}
