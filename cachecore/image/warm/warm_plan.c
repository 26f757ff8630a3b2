/* A plan is a list of runs of chunks, in order, with a set of the chunks already in it. Batches of WARM_BATCH chunks
 * are cut from the list by position, so they need no memory but a count of the files that end in each.
 *
 *    runs:      [7..9] [100..139] [3]           batches by position:   0..15  16..31  32..43
 */
#include "image/warm/warm_internal.h"

#include <errno.h>

int warm_plan_init(struct warm_plan *p, const struct image *img)
{
    *p = (struct warm_plan){0};
    return chunk_set_init(&p->chosen, img);
}

void warm_plan_release(struct warm_plan *p)
{
    chunk_set_release(&p->chosen);
    vec_release(&p->runs);
    vec_release(&p->ends);
    free(p->done);
    p->done = NULL;
}

/* Append a chunk, to the last run if it continues it. */
static int warm_plan_append(struct warm_plan *p, uint64_t chunk)
{
    struct warm_run *last = p->runs.len ? &p->runs.items[p->runs.len - 1] : NULL;
    if (last && last->first + last->count == chunk) {
        last->count++;
    } else {
        const struct warm_run run = {.first = chunk, .count = 1, .at = p->chunks};
        if (vec_push(&p->runs, run))
            return -ENOMEM;
    }
    if (p->chunks++ / WARM_BATCH == p->ends.len && vec_push(&p->ends, 0))
        return -ENOMEM;
    return 0;
}

/* Chunks shared by several files are planned once, with the first of them. */
int warm_plan_add(struct warm_plan *p, uint64_t first, uint64_t end)
{
    int rc = 0;
    for (uint64_t i = first; !rc && i < end; i++)
        if (chunk_set_add(&p->chosen, i))
            rc = warm_plan_append(p, i);
    return rc;
}

/* A file whose chunks were all planned before counts at the end of the batch that is last now. */
void warm_plan_end_file(struct warm_plan *p)
{
    p->files++;
    if (p->ends.len)
        p->ends.items[p->ends.len - 1]++;
    else
        p->files_done++; /* no chunk has been planned, so there is nothing to wait for */
}

/* Batches before the prefix are done already: a file that ends in one of them counts at once. */
void warm_plan_end_file_at(struct warm_plan *p, uint64_t end)
{
    size_t batch = p->prefix;
    for (size_t i = 0; end && i < p->runs.len; i++) {
        const struct warm_run *run = &p->runs.items[i];
        if (end > run->first && end - run->first <= run->count)
            batch = (size_t)((run->at + end - 1 - run->first) / WARM_BATCH);
    }
    if (end && batch >= p->prefix)
        p->ends.items[batch]++;
    else
        p->files_done++;
}

size_t warm_plan_batches(const struct warm_plan *p)
{
    return p->ends.len;
}

/* Return the run that holds the plan's chunk number `at`, by binary search. */
static size_t run_of(const struct warm_plan *p, uint64_t at)
{
    size_t low = 0, high = p->runs.len;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (p->runs.items[middle].at <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Walks the runs from the one that holds the batch's first chunk. */
size_t warm_plan_batch(const struct warm_plan *p, size_t i, uint64_t out[WARM_BATCH])
{
    uint64_t at = (uint64_t)i * WARM_BATCH;
    size_t n = GR_MIN(p->chunks - at, (uint64_t)WARM_BATCH), done = 0;
    for (const struct warm_run *run = &p->runs.items[run_of(p, at)]; done < n; run++)
        for (uint64_t skip = at + done - run->at; skip < run->count && done < n; skip++)
            out[done++] = run->first + skip;
    return n;
}

/* Batches are done in any order, but files count in the plan's order: only the prefix without a gap counts. */
int warm_plan_done(struct warm_plan *p, size_t i)
{
    if (!p->done)
        p->done = calloc(p->ends.len, sizeof *p->done);
    if (!p->done)
        return error_no_memory();
    p->done[i] = true;
    for (; p->prefix < p->ends.len && p->done[p->prefix]; p->prefix++)
        p->files_done += p->ends.items[p->prefix];
    return 0;
}
