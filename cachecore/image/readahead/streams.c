/* A read belongs to the run whose end is nearest. A random read that happens to fall near a run counts as part of it;
 * that costs at most its own length ahead.
 *
 * The next part is fetched when less than half of the window is left ahead of the reader. So a steady reader never
 * waits, and each GET is large enough to be worth its round trip.
 */
#include "image/readahead/streams.h"

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* Return the run that a read at `off` continues, or NULL. */
static struct stream *streams_find(struct streams *s, uint64_t off)
{
    struct stream *best = NULL;
    for (size_t i = 0; i < STREAMS_MAX; i++) {
        struct stream *run = &s->runs[i];
        if (!run->used || off < run->begin || off + STREAM_BACK < run->end || off > run->end + STREAM_FORWARD)
            continue;
        if (!best || distance(off, run->end) < distance(off, best->end))
            best = run;
    }
    return best;
}

/* Begin a run at `off`, in place of the least recently used one. */
static struct stream *streams_begin(struct streams *s, uint64_t off)
{
    struct stream *oldest = &s->runs[0];
    for (size_t i = 1; i < STREAMS_MAX; i++)
        if (s->runs[i].used < oldest->used)
            oldest = &s->runs[i];
    *oldest = (struct stream){.begin = off, .end = off};
    return oldest;
}

/* Return how many bytes may be fetched ahead of the run's end. A run that skips more than it reads gets nothing. */
static uint64_t window_of(const struct stream *run, uint64_t most)
{
    if (run->bytes <= STREAM_FREE || run->bytes < (run->end - run->begin) / 2)
        return 0;
    return GR_MIN(run->bytes - STREAM_FREE, most);
}

struct stream_window streams_read(struct streams *s, uint64_t off, uint64_t len, const struct stream_limits *limits)
{
    struct stream *run = streams_find(s, off);
    /* The first read of a run gets no window, however long it is: kernels read a file of a megabyte at once. */
    bool follows = run;
    if (!run)
        run = streams_begin(s, off);
    run->used = ++s->clock;
    run->end = GR_MAX(run->end, off + len);
    run->bytes = GR_MIN(run->bytes + len, run->end - run->begin); /* reading the same bytes again is no progress */

    uint64_t window = window_of(run, limits->most), from = GR_MAX(run->ahead, run->end);
    from = GR_ALIGN_UP(from, limits->align);
    uint64_t to = GR_MIN(GR_ALIGN_UP(run->end + window, limits->align), limits->stop);
    if (!follows || !window || to <= from || from - run->end >= window / 2 + limits->align)
        return (struct stream_window){from, from};
    run->ahead = to;
    return (struct stream_window){from, to};
}
