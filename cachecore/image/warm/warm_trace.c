/* Following a trace by digest. The entries are sorted by digest, and each chunk of the image is looked up among them.
 * So the index is walked once in its own order, whatever the order of the trace, and no further than to the chunk
 * that completes the search. No trace costs more than that, however it was made. */
#include "image/warm/warm_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t nothing = UINT32_MAX; /* not found; by digest, chunk number 2^32 - 1 cannot be told from it */

/* A trace's entries, sorted for the lookup by digest. */
struct table {
    const struct trace *t;
    uint32_t *order; /* entries sorted by digest, then as listed */
    /* the chunk of each entry, or `nothing`; of equal entries only the first is set until the walk ends */
    uint32_t *found;
    uint32_t left; /* digests not found yet */
};

/* Compare an entry's digest, of which a trace keeps the first TRACE_ID_SIZE bytes. */
static int compare_id(const struct trace *t, uint32_t i, const uint8_t id[TRACE_ID_SIZE])
{
    const struct trace_entry e = trace_entry_at(t, i);
    return memcmp(e.id, id, TRACE_ID_SIZE);
}

/* Order of entries; equal digests stay as listed. */
static int by_digest(const void *a, const void *b, void *t)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const struct trace_entry e = trace_entry_at(t, y);
    int order = compare_id(t, x, e.id);
    return order ? order : x < y ? -1 : x > y;
}

/* Does the entry at this place of the order have the same digest as the one before it? */
static bool repeats(const struct table *table, uint32_t at)
{
    const struct trace_entry e = trace_entry_at(table->t, table->order[at]);
    return at && !compare_id(table->t, table->order[at - 1], e.id);
}

/* Sort the entries by digest and count the different digests. */
static int table_init(struct table *table, const struct trace *t)
{
    *table = (struct table){.t = t};
    table->order = malloc((t->count + !t->count) * sizeof *table->order);
    table->found = calloc(t->count + !t->count, sizeof *table->found);
    if (!table->order || !table->found)
        return error_no_memory();
    for (uint32_t i = 0; i < t->count; i++) {
        table->order[i] = i;
        table->found[i] = nothing;
    }
    qsort_r(table->order, t->count, sizeof *table->order, by_digest, (void *)t);
    for (uint32_t at = 0; at < t->count; at++)
        table->left += !repeats(table, at);
    return 0;
}

/* Look a chunk up among the entries. If the image has a digest several times, the first chunk counts. */
static void match(struct table *table, uint64_t chunk, const struct chunk_ref *ref)
{
    uint32_t low = 0, high = table->t->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (compare_id(table->t, table->order[middle], ref->digest.b) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == table->t->count || compare_id(table->t, table->order[low], ref->digest.b) ||
        table->found[table->order[low]] != nothing)
        return;
    table->found[table->order[low]] = (uint32_t)chunk;
    table->left--;
}

/* Walk over the index until every digest is found, or to its end. */
static int look_for_all(struct image *img, struct store *store, struct table *table, warm_step *step, void *arg)
{
    struct image_cursor cursor;
    uint64_t total = manifest_chunk_count(&img->manifest), run = 1;
    int rc = 0;
    image_cursor_init(&cursor, img, store);
    for (uint64_t i = 0; !rc && table->left && i < total; i += run) {
        const struct chunk_ref *ref;
        rc = image_cursor_at(&cursor, i, &ref, &run);
        if (!rc && cursor.store_error.code)
            rc = error_restore(&cursor.store_error);
        if (!rc && ref)
            match(table, i, ref);
        if (!rc)
            rc = step(arg, i);
    }
    image_cursor_release(&cursor);
    return rc;
}

/* The trace is of the same content: its numbers are the image's. */
static int add_by_number(const struct trace *t, struct warm_plan *plan)
{
    int rc = 0;
    for (uint32_t i = 0; !rc && i < t->count; i++) {
        uint64_t chunk = trace_entry_at(t, i).chunk;
        rc = warm_plan_add(plan, chunk, chunk + 1);
    }
    return rc;
}

/* Add the found chunks in the trace's order, and count the others. */
static int add_found(const struct table *table, struct warm_plan *plan, uint64_t *out_absent)
{
    int rc = 0;
    for (uint32_t at = 1; at < table->t->count; at++)
        if (repeats(table, at))
            table->found[table->order[at]] = table->found[table->order[at - 1]];
    for (uint32_t i = 0; !rc && i < table->t->count; i++) {
        uint64_t chunk = table->found[i];
        if (chunk == nothing)
            ++*out_absent;
        else
            rc = warm_plan_add(plan, chunk, chunk + 1);
    }
    return rc;
}

/* Chunks of another size cannot have equal digests, so such a trace is refused instead of found absent. */
int warm_trace(struct image *img, struct store *store, const struct trace *t, warm_step *step, void *arg,
               struct warm_plan *plan, uint64_t *out_absent)
{
    const struct manifest *m = &img->manifest;
    struct table table;
    *out_absent = 0;
    if (digest_equal(&t->content_root, &m->content_root) && t->size == m->size && t->chunk_size == m->chunk_size)
        return add_by_number(t, plan);
    if (t->chunk_size != m->chunk_size)
        return error_set(-EINVAL,
                         "the trace is of an image with chunks of %u KiB, and this one's have %u KiB: none of them "
                         "can be the same; record a trace of this image",
                         t->chunk_size >> 10, m->chunk_size >> 10);
    int rc = table_init(&table, t);
    if (!rc)
        rc = look_for_all(img, store, &table, step, arg);
    if (!rc)
        rc = add_found(&table, plan, out_absent);
    free(table.order);
    free(table.found);
    return rc;
}
