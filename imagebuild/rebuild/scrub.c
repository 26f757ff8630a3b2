/* One pass over the parent's chunks in address order. Only chunks with dead blocks beside live ones are fetched, by
 * several threads ahead of this one. */
#include "imagebuild/rebuild/scrub.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "imagebuild/rebuild/parent_check.h"
#include "repository/read/chunk_read.h"

struct scrub {
    const struct scrub_config *config;
    struct scrub_counts *counts;
    uint8_t *chunk; /* copy of the current chunk */
};

/* Return whether a chunk has both dead and live blocks. */
static bool has_dead(void *arg, uint64_t number)
{
    const struct live_map *l = ((struct scrub *)arg)->config->live;
    uint32_t live = live_map_blocks(l, number);
    return live && live < live_map_chunk_size(l) / LIVE_BLOCK;
}

/* Zero the dead blocks of the copy, and return how many bytes were not zero. */
static uint64_t erase(struct scrub *s, uint64_t number, uint32_t len)
{
    uint64_t erased = 0, first = number * (live_map_chunk_size(s->config->live) / LIVE_BLOCK);
    for (uint32_t off = 0; off < len; off += LIVE_BLOCK) {
        if (live_map_is_block(s->config->live, first + off / LIVE_BLOCK))
            continue;
        uint32_t n = GR_MIN(len - off, (uint32_t)LIVE_BLOCK);
        for (uint32_t i = 0; i < n; i++)
            erased += s->chunk[off + i] != 0;
        memset(s->chunk + off, 0, n);
    }
    return erased;
}

/* Erase the dead blocks of one fetched chunk and write it. The stream's buffer is shared, hence the copy. */
static int clean_chunk(void *arg, const struct chunk_item *item)
{
    struct scrub *s = arg;
    const struct scrub_config *config = s->config;
    /* a chunk must not be left out: the build would report an erasure that did not happen */
    if (item->rc)
        return parent_failed(item->rc);
    memcpy(s->chunk, item->data, item->ref->plain_len);
    uint64_t erased = erase(s, item->number, item->ref->plain_len);
    s->counts->chunks += erased > 0;
    s->counts->bytes += erased;
    int rc =
        sink_write(config->sink, SINK_SCRUB, item->number * config->parent->chunk_size, s->chunk, item->ref->plain_len);
    if (!rc && config->step)
        rc = config->step(config->step_arg);
    return rc;
}

int scrub_run(const struct scrub_config *config, struct scrub_counts *counts)
{
    struct scrub s = {.config = config, .counts = counts, .chunk = malloc(config->parent->chunk_size)};
    const struct chunk_stream_options options = {.cancel = config->cancel, .wanted = has_dead};
    *counts = (struct scrub_counts){0};
    if (!s.chunk)
        return error_no_memory();
    int rc = chunk_stream(config->store, config->parent, &options, clean_chunk, &s);
    free(s.chunk);
    return rc;
}
