/* Measures an image in three passes: the catalog, whose extents are sorted by address; the index, in step with those,
 * to tell dead bytes; the packs, looked up in parallel. */
#include "upkeep/upkeep.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/parallel.h"
#include "repository/read/catalog_read.h"
#include "repository/read/index_read.h"
#include "upkeep/upkeep_internal.h"

enum { STATS_THREADS = 8, PROGRESS_ENTRIES = 4096 };

/* One run. The packs' counters are atomic since threads add to them. */
struct counting {
    struct store *store;
    const struct manifest *m;
    const struct image_stats_options *options;
    struct image_stats *stats;
    struct extent_sweep *sweep;
    struct pack_set packs;
    uint64_t entries;
    _Atomic uint64_t pack_bytes, packs_missing;
};

static void image_stats_release(struct counting *c)
{
    extent_sweep_free(c->sweep);
    pack_set_release(&c->packs);
}

static int image_stats_step(void *arg)
{
    struct counting *c = arg;
    int rc = cancel_check(c->options->cancel);
    if (!rc && c->options->progress)
        c->options->progress(c->options->progress_arg, c->entries, c->m->catalog_entries);
    return rc;
}

/* Return the number of bits of size. */
static unsigned size_class(uint64_t size)
{
    return size ? 64 - (unsigned)__builtin_clzll(size) : 0;
}

static int count_entry(struct counting *c, const struct catalog_entry *e)
{
    int rc = ++c->entries % PROGRESS_ENTRIES ? 0 : image_stats_step(c);
    if (rc || !S_ISREG(e->mode) || e->hard_link)
        return rc;
    /* Hard links share the data of another entry. */
    struct image_size_class *class = &c->stats->sizes[size_class(e->size)];
    class->files++;
    class->bytes += e->size;
    c->stats->files++;
    c->stats->file_bytes += e->size;
    for (size_t i = 0; i < e->extent_count && !rc; i++)
        rc = extent_sweep_add(c->sweep, e->extents[i].offset, e->extents[i].len);
    return rc;
}

/* The first pass: count the files and collect their extents. */
static int read_catalog(struct counting *c)
{
    CLEANUP(cleanup_catalog_cursor) struct catalog_cursor *cursor = NULL;
    const struct catalog_entry *e;
    int rc = catalog_cursor_new(c->store, c->m, "", 0, CATALOG_CURSOR_AHEAD, &cursor);
    while (!rc && (rc = catalog_cursor_next(cursor, &e)) > 0)
        rc = count_entry(c, e);
    return rc ? rc : extent_sweep_sort(c->sweep);
}

static int count_node(void *arg, const struct index_child *node, unsigned level)
{
    struct counting *c = arg;
    c->stats->index_nodes++;
    c->stats->index_bytes += node->len;
    return image_stats_step(c);
}

/* Add one stored chunk to the figures. */
static int count_chunk(struct counting *c, uint64_t number, const struct chunk_ref *ref)
{
    uint64_t begin = number * c->m->chunk_size, live;
    c->stats->zstd_chunks += !!(ref->flags & CHUNK_ZSTD);
    c->stats->delta_chunks += chunk_is_delta(ref);
    c->stats->plain_bytes += ref->plain_len;
    c->stats->stored_bytes += ref->stored_len;
    int rc = extent_sweep_live(c->sweep, begin, begin + ref->plain_len, &live);
    if (rc)
        return rc;
    c->stats->dead_bytes += ref->plain_len - live;
    return pack_set_add(&c->packs, ref);
}

static int count_chunks(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    struct counting *c = arg;
    int rc = 0;
    c->stats->chunks += count;
    c->stats->holes += chunks ? 0 : count;
    for (uint64_t i = 0; chunks && i < count && !rc; i++) {
        if (chunk_is_hole(&chunks[i]))
            c->stats->holes++;
        else
            rc = count_chunk(c, first + i, &chunks[i]);
    }
    return rc;
}

/* Look up one pack. A missing one is a figure here, not an error. */
static int measure_pack(void *arg, size_t i)
{
    struct counting *c = arg;
    struct store_item item;
    char key[OBJECT_KEY_MAX];
    int rc = store_stat(c->store, object_key(OBJECT_PACK, &c->packs.needs.items[i].pack, key), &item);
    if (rc == -ENOENT)
        atomic_fetch_add(&c->packs_missing, 1);
    else if (!rc)
        atomic_fetch_add(&c->pack_bytes, item.size);
    return rc == -ENOENT ? 0 : rc;
}

/* The third pass: the sizes of all packs. */
static int measure_packs(struct counting *c)
{
    pack_set_finish(&c->packs);
    c->stats->packs = c->packs.needs.len;
    const struct parallel work = {.count = c->packs.needs.len,
                                  .threads = c->options->threads ? c->options->threads : STATS_THREADS,
                                  .item = measure_pack,
                                  .step = image_stats_step,
                                  .arg = c};
    int rc = parallel_run(&work);
    c->stats->pack_bytes = c->pack_bytes;
    c->stats->packs_missing = c->packs_missing;
    /* An image refers to each stored chunk once, so the sum of its chunks is what it uses of the packs. */
    if (c->pack_bytes > c->stats->stored_bytes)
        c->stats->foreign_bytes = c->pack_bytes - c->stats->stored_bytes;
    return rc;
}

int image_stats(struct store *s, const struct manifest *m, const struct image_stats_options *options,
                struct image_stats *out)
{
    *out = (struct image_stats){0};
    struct counting c CLEANUP(image_stats_release) = {.store = s, .m = m, .options = options, .stats = out};
    const struct index_walk_ops ops = {.node = count_node, .chunks = count_chunks};
    struct extent_totals totals;
    int rc = extent_sweep_new(m, &c.sweep);
    if (!rc)
        rc = read_catalog(&c);
    if (!rc)
        rc = index_walk(s, m, &ops, &c);
    if (!rc)
        rc = extent_sweep_end(c.sweep, &totals);
    if (rc)
        return rc;
    out->contents = totals.contents;
    out->content_bytes = totals.content_bytes;
    out->padding = totals.padding;
    return measure_packs(&c);
}
