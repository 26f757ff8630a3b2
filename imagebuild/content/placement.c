/* Where file data goes: an address of its own, or the blocks of an equal file.
 *
 * Two positions, both ascending: one moves through the runs of free chunks; the other starts at the first chunk
 * boundary after the kept data.
 *
 *   | kept | free: hole .. hole_end | kept | free | kept | end ..
 *                  ^ SINK_HOLES                        ^ SINK_DATA
 *
 * If a file does not fit into the rest of the current run, the first position moves on to the next run, and the bytes
 * in between are given up for this build. If that would give up more than was placed altogether, the file goes to the
 * end instead: one large file does not cost the small files all their space.
 *
 * A reader fetches whole chunks, so a file that would touch one more than its size needs begins at the next chunk:
 *
 *   | file 1 ........ | .. file 1 | zeros | file 2 ........ | .. file 2 |
 *
 * The zeros take hardly any room in the store, but some in caches. So they are at most an eighth of the files' bytes.
 */
#include "imagebuild/content/content_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/le.h"

enum { GAP_SHARE = 8 }; /* gaps may take one byte for each 8 of file data */

uint64_t content_gaps_most(uint64_t bytes, uint32_t chunk_size)
{
    return chunk_size + bytes / GAP_SHARE;
}

void alloc_init(struct alloc *a, const struct alloc_config *config)
{
    uint64_t kept = config->live ? live_map_chunk_end(config->live) * config->chunk_size : 0;
    *a = (struct alloc){.config = *config, .end = GR_MAX(GR_MAX(kept, config->data_begin), config->written_end)};
    a->hole = a->hole_end = config->data_begin;
    a->spare = content_gaps_most(0, config->chunk_size);
    a->no_hole = !config->live || config->written_end;
}

/* Give up the rest of the current run, and begin the next one. */
static void next_hole(struct alloc *a)
{
    const uint64_t size = a->config.chunk_size;
    uint64_t first, count;
    a->given_up += a->hole_end - a->hole;
    if (live_map_next_free(a->config.live, a->hole_end / size, &first, &count)) {
        a->hole = first * size;
        a->hole_end = (first + count) * size;
    } else {
        a->no_hole = true;
    }
}

/* Move a->hole on to a run with `size` free bytes. false: there is none, or it would cost too much. */
static bool find_hole(struct alloc *a, uint64_t size)
{
    while (!a->no_hole && size > a->hole_end - a->hole) {
        if (a->given_up + (a->hole_end - a->hole) > a->placed + size)
            return false;
        next_hole(a);
    }
    return !a->no_hole;
}

/* Return how many bytes to leave out before a file of `size` bytes that would begin at `at`, so that it touches no
 * chunk more than it has to. */
static uint64_t gap_before(const struct alloc *a, uint64_t at, uint64_t size, uint64_t limit)
{
    const uint64_t chunk = a->config.chunk_size, rest = chunk - at % chunk, tail = (size - 1) % chunk + 1;
    bool gains = a->config.gaps && tail > rest;
    return gains && rest <= a->spare && rest <= limit - at - size ? rest : 0;
}

int alloc_data(struct alloc *a, uint64_t size, enum sink_section *out_section, uint64_t *out_address)
{
    const uint64_t max = a->config.data_max;
    bool possible = size <= max;
    size = GR_ALIGN_UP(size, (uint64_t)LIVE_BLOCK);
    bool in_hole = possible && find_hole(a, size);
    uint64_t *at = in_hole ? &a->hole : &a->end;
    if (!possible || *at > max || size > max - *at)
        return error_set(-EFBIG, "build: the image would pass %s; divide the dataset into several images",
                         a->config.limit);
    uint64_t gap = gap_before(a, *at, size, in_hole ? GR_MIN(a->hole_end, max) : max);
    *out_section = in_hole ? SINK_HOLES : SINK_DATA;
    *out_address = *at + gap;
    *at += gap + size;
    a->placed += size;
    a->spare += size / GAP_SHARE - gap;
    return 0;
}

void alloc_go_on(struct alloc *a, uint64_t end)
{
    a->end = end;
    a->spare = content_gaps_most(0, a->config.chunk_size);
}

uint64_t alloc_end(const struct alloc *a)
{
    return a->end;
}

/* ------------------------------------------------------------------ equal files */

/* A direct-mapped table, indexed by the digest: a newer file replaces an older one in its slot. So a lookup depends
 * only on the files before it, in an order that is the same in every build of the same source. That matters, because
 * a shared address is part of the image's digest. A file that was replaced costs only space: an equal file is
 * written again. */

/* A file that was placed. */
struct entry {
    struct digest content;
    uint64_t size, address; /* address 0: an empty slot */
};

struct dedupe {
    struct entry entries[DEDUPE_SLOTS];
};

struct dedupe *dedupe_new(void)
{
    return calloc(1, sizeof(struct dedupe)); /* pages that are never touched cost no memory */
}

void dedupe_free(struct dedupe *d)
{
    free(d);
}

/* A SHA-256 is uniform, so a part of it serves as the hash. */
static size_t slot_of(const struct digest *content)
{
    return le32_get(content->b) % DEDUPE_SLOTS;
}

uint64_t dedupe_find(const struct dedupe *d, const struct digest *content, uint64_t size)
{
    const struct entry *e = &d->entries[slot_of(content)];
    return e->address && e->size == size && digest_equal(&e->content, content) ? e->address : 0;
}

void dedupe_add(struct dedupe *d, const struct digest *content, uint64_t size, uint64_t address)
{
    d->entries[slot_of(content)] = (struct entry){.content = *content, .size = size, .address = address};
}
