/* One walk over the index in its own order. Chunks are collected in batches, since the cache answers a batch in one
 * locked section. */
#include "image/warm/warm_missing.h"

#include "image/image_internal.h"

enum { LOOK_BATCH = 64 };

/* The walk's result so far, and the batch that waits for the cache. */
struct looking {
    struct image *img;
    struct chunk_set *missing;
    struct missing_sums *sums;
    size_t n;
    uint64_t chunks[LOOK_BATCH];
    struct digest digests[LOOK_BATCH];
    uint32_t lens[LOOK_BATCH], stored[LOOK_BATCH];
};

/* Ask the cache about the batch, and empty it. */
static void warm_missing_look(struct looking *l)
{
    struct cache_chunk found[LOOK_BATCH];
    struct missing_sums *sums = l->sums;
    cache_query(l->img->config.cache, l->digests, l->n, found);
    for (size_t i = 0; i < l->n; i++) {
        sums->chunks++;
        sums->bytes += l->lens[i];
        if (found[i].cached)
            continue;
        chunk_set_add(l->missing, l->chunks[i]);
        sums->missing++;
        sums->missing_bytes += l->lens[i];
        sums->fetch_bytes += l->stored[i];
    }
    l->n = 0;
}

/* Add a chunk to the batch, and look the batch up when it is full. */
static void warm_missing_add(struct looking *l, uint64_t chunk, const struct chunk_ref *ref)
{
    l->chunks[l->n] = chunk;
    l->digests[l->n] = ref->digest;
    l->lens[l->n] = ref->plain_len;
    l->stored[l->n++] = ref->stored_len;
    if (l->n == LOOK_BATCH)
        warm_missing_look(l);
}

/* Count a chunk whose index node is not available as missing. */
static void add_unknown(struct looking *l, uint64_t chunk)
{
    uint64_t len = image_chunk_len(l->img, chunk);
    chunk_set_add(l->missing, chunk);
    l->sums->chunks++;
    l->sums->missing++;
    l->sums->bytes += len;
    l->sums->missing_bytes += len;
}

/* Walk over the chosen chunks; a run of holes is passed in one step. */
static int look_all(struct looking *l, struct image_cursor *cursor, const struct chunk_set *chosen, missing_step *step,
                    void *arg)
{
    uint64_t run = 1;
    int rc = 0;
    for (uint64_t i = chunk_set_next(chosen, 0); !rc && i != UINT64_MAX; i = chunk_set_next(chosen, i + run)) {
        const struct chunk_ref *ref;
        rc = image_cursor_at(cursor, i, &ref, &run);
        if (!rc && cursor->store_error.code)
            rc = error_restore(&cursor->store_error);
        if (rc)
            break;
        if (cursor->unknown) {
            run = 1;
            add_unknown(l, i);
        } else if (ref) {
            warm_missing_add(l, i, ref);
        }
        rc = step(arg, i);
    }
    warm_missing_look(l);
    return rc;
}

/* fetch_bytes also counts the index nodes that the walk met and the cache does not have. */
int warm_missing(struct image *img, struct store *store, const struct chunk_set *chosen, missing_step *step, void *arg,
                 struct chunk_set *out, struct missing_sums *sums)
{
    struct looking l = {.img = img, .missing = out, .sums = sums};
    struct image_cursor cursor;
    *sums = (struct missing_sums){0};
    int rc = chunk_set_init(out, img);
    image_cursor_init(&cursor, img, store);
    if (!rc)
        rc = look_all(&l, &cursor, chosen, step, arg);
    sums->fetch_bytes += cursor.missing_bytes;
    image_cursor_release(&cursor);
    return rc;
}
