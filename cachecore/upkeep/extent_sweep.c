/* A merge of three ascending sources of ranges: the chunks of the filesystem's front, the extents, the chunks of the
 * metadata region.
 *
 *         covered            at.begin   at.end
 *   ---------|------------------[==========)------->   address
 *
 * `at` is the current range, `covered` the end of all ranges before it, so bytes that two ranges share count once. */
#include "upkeep/upkeep_internal.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/spill/sorter.h"

/* Bytes [begin, end). */
struct range {
    uint64_t begin, end;
};

/* The merge in progress. */
struct extent_sweep {
    const struct manifest *m;
    struct sorter *sorter;
    struct range at;
    uint64_t covered;
    uint64_t last_offset, last_len; /* the last extent, to recognise duplicates */
    bool metadata_taken, ended;
    struct extent_totals totals;
};

/* The sorter compares bytes, so keys are big-endian. */
struct extent_key {
    uint64_t offset, len; /* big-endian */
};

int extent_sweep_new(const struct manifest *m, struct extent_sweep **out)
{
    CLEANUP(cleanup_extent_sweep) struct extent_sweep *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory();
    s->m = m;
    int rc = sorter_new(&(struct sorter_config){0}, &s->sorter);
    if (!rc)
        *out = steal_ptr(&s);
    return rc;
}

void extent_sweep_free(struct extent_sweep *s)
{
    if (!s)
        return;
    sorter_free(s->sorter);
    free(s);
}

int extent_sweep_add(struct extent_sweep *s, uint64_t offset, uint64_t len)
{
    struct extent_key key = {htobe64(offset), htobe64(len)};
    if (offset > s->m->size || len > s->m->size - offset)
        return error_set(-EBADMSG, "catalog: an extent of %llu bytes at %llu lies outside of the image",
                         (unsigned long long)len, (unsigned long long)offset);
    return sorter_add(s->sorter, &key, sizeof key, NULL, 0);
}

/* Return whole chunks: no file data lies in a chunk with metadata, so all of it counts as used. */
static struct range metadata(const struct manifest *m, uint64_t begin, uint64_t len)
{
    return (struct range){begin, GR_ALIGN_UP(begin + len, (uint64_t)m->chunk_size)};
}

int extent_sweep_sort(struct extent_sweep *s)
{
    /* At least the first chunk, which has the superblock. */
    s->at = metadata(s->m, 0, GR_MAX(s->m->front_len, UINT64_C(1)));
    return sorter_sort(s->sorter);
}

/* Make an extent the current range, and count it unless it equals the last one. */
static void take_extent(struct extent_sweep *s, uint64_t offset, uint64_t len)
{
    uint64_t end = GR_ALIGN_UP(offset + len, (uint64_t)EXTENT_BLOCK);
    s->at = (struct range){offset, end};
    if (!s->totals.contents || offset != s->last_offset || len != s->last_len) {
        s->totals.contents++;
        s->totals.content_bytes += len;
        s->totals.padding += end - offset - len;
    }
    s->last_offset = offset;
    s->last_len = len;
}

/* Go to the next range, at the end to one after every address. */
static int next_range(struct extent_sweep *s)
{
    struct sorter_record r;
    struct extent_key key;
    s->covered = GR_MAX(s->covered, s->at.end);
    int rc = s->ended ? 0 : sorter_next(s->sorter, &r);
    if (rc < 0)
        return rc;
    if (rc > 0) {
        memcpy(&key, r.key, sizeof key);
        take_extent(s, be64toh(key.offset), be64toh(key.len));
        return 0;
    }
    /* The extents are exhausted: now the metadata region, then nothing more. */
    s->ended = true;
    s->at = s->metadata_taken ? (struct range){UINT64_MAX, UINT64_MAX}
                              : metadata(s->m, s->m->metadata_offset, s->m->metadata_len);
    s->metadata_taken = true;
    return 0;
}

int extent_sweep_live(struct extent_sweep *s, uint64_t begin, uint64_t end, uint64_t *out)
{
    *out = 0;
    for (;;) {
        uint64_t from = GR_MAX(GR_MAX(s->at.begin, s->covered), begin), to = GR_MIN(s->at.end, end);
        if (from < to)
            *out += to - from;
        /* The current range goes on after `end`; the next call continues with it. */
        if (s->at.end > end || s->at.begin >= end)
            return 0;
        int rc = next_range(s);
        if (rc)
            return rc;
    }
}

int extent_sweep_end(struct extent_sweep *s, struct extent_totals *out)
{
    uint64_t live;
    int rc = extent_sweep_live(s, s->m->size, UINT64_MAX, &live);
    *out = s->totals;
    return rc;
}
