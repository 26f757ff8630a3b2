/* sink_write -> region's chunk -> chunker (hash, compress) -> packer (packs) -> index_writer (leaves), each handing on
 * to the next in the order in which chunks were closed, in the caller's thread. Holes are simply never submitted.
 *
 *   chunks   | FRONT .. | HOLES, SCRUB, kept ones .. | BODIES .. | METADATA .. |
 *                                                    ^ border: the first chunk of BODIES or METADATA
 *
 * For erasure a written chunk that is the parent's is not put into the index at once: it counts as one that stays,
 * since its pack may have to be given up in the end, and then it is copied like the others of that pack.
 */
#include "imagebuild/sink/sink.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "imagebuild/sink/chunker.h"
#include "imagebuild/sink/index_writer.h"
#include "imagebuild/sink/packer.h"

struct region {
    bool used, open; /* open: `chunk` is in progress, in buffer */
    uint64_t chunk;  /* the last one written to */
    uint64_t end;    /* of the last write */
    uint8_t *buffer; /* allocated when a chunk comes in pieces */
    uint32_t filled; /* of buffer; what is behind is undefined */
};

enum fate {
    UNWRITTEN,
    WRITTEN,
    SAME, /* as it was */
};

struct sink {
    struct sink_config config;
    struct chunker *chunker;
    struct packer *packer;
    struct index_writer *index;
    struct sink_parent given;          /* when parent_index */
    struct sink_parent parent;         /* the same, or for erasure with what stays by `fates` */
    uint8_t *fates;                    /* enum fate of each of the parent's chunks; NULL: not for erasure */
    struct parent_index *parent_index; /* NULL: none */
    uint64_t parent_chunks;
    struct parent_leaves *leaves; /* for what is written between kept chunks; NULL: nothing was yet */
    uint64_t leaf;                /* that was asked of it last */
    uint64_t chunks_new, chunks_reused;
    struct repack_counts repacked;
    bool bordered;
    uint64_t border;   /* when bordered */
    uint64_t low_next; /* behind the last chunk of the regions below the border */
    struct region regions[SINK_REGIONS];
};

static const char *const region_names[SINK_REGIONS] = {"front", "holes", "scrub", "bodies", "metadata"};

/* Is something in this leaf free, for SINK_HOLES to be written? (SINK_SCRUB is mostly where that is so, too.) */
static bool has_holes(void *arg, uint64_t leaf)
{
    const struct sink *s = arg;
    const uint64_t first = leaf * INDEX_FANOUT, count = GR_MIN(s->parent_chunks - first, (uint64_t)INDEX_FANOUT);
    return !s->given.kept_all || !s->given.kept_all(s->given.arg, first, count);
}

/* Between the kept chunks writers go up through all of the index, skipping much of it: first SINK_SCRUB, then
 * SINK_HOLES. Behind the border, and in the front at the end, they stay in a few leaves. */
static int get_leaf(struct sink *s, uint64_t number, const struct chunk_ref **out)
{
    const uint64_t leaf = number / INDEX_FANOUT;
    if ((s->bordered && number >= s->border) || s->regions[SINK_FRONT].used)
        return parent_index_leaf(s->parent_index, leaf, out);
    if (leaf < s->leaf)
        parent_leaves_free(steal_ptr(&s->leaves));
    int rc = s->leaves ? 0 : parent_leaves_new(s->parent_index, has_holes, s, &s->leaves);
    s->leaf = leaf;
    return rc ? rc : parent_leaves_get(s->leaves, leaf, out);
}

/* The parent's reference to the same bytes at the same place: *out NULL when it has none. */
static int find_in_parent(struct sink *s, uint64_t number, const struct chunk_ref *ref, const struct chunk_ref **out)
{
    const struct chunk_ref *chunks;
    *out = NULL;
    if (number >= s->parent_chunks)
        return 0;
    int rc = get_leaf(s, number, &chunks);
    if (rc || !chunks || !digest_equal(&chunks[number % INDEX_FANOUT].digest, &ref->digest))
        return rc;
    const struct digest *pack = &chunks[number % INDEX_FANOUT].object;
    if (!s->given.damaged || !digest_map_find(s->given.damaged, pack))
        *out = &chunks[number % INDEX_FANOUT];
    return 0;
}

static int on_chunk(void *arg, uint64_t number, const struct chunk_ref *ref, const struct bytes *stored)
{
    struct sink *s = arg;
    const struct chunk_ref *same;
    int rc = find_in_parent(s, number, ref, &same);
    if (rc)
        return rc;
    s->chunks_reused += same != NULL;
    s->chunks_new += !same;
    if (same && s->fates) {
        s->fates[number] = SAME;
        return 0;
    }
    return same ? index_writer_add(s->index, number, same) : packer_add(s->packer, number, ref, stored);
}

static int on_packed(void *arg, uint64_t number, const struct chunk_ref *ref)
{
    struct sink *s = arg;
    return index_writer_add(s->index, number, ref);
}

static bool stays(void *arg, uint64_t chunk)
{
    const struct sink *s = arg;
    return s->fates[chunk] == SAME || (s->fates[chunk] == UNWRITTEN && s->given.kept(s->given.arg, chunk));
}

static int open_erasure(struct sink *s)
{
    s->fates = calloc(GR_MAX(s->parent_chunks, UINT64_C(1)), sizeof *s->fates);
    s->parent.kept = stays;
    s->parent.kept_all = NULL;
    s->parent.arg = s;
    return s->fates ? 0 : error_no_memory();
}

static int open_parent(struct sink *s)
{
    const struct manifest *m = s->config.parent->manifest;
    if (m->chunk_size != s->config.chunk_size)
        return error_set(-EINVAL, "build: the parent has chunks of %u bytes, this image of %u", m->chunk_size,
                         s->config.chunk_size);
    s->given = s->parent = *s->config.parent;
    s->parent_chunks = manifest_chunk_count(m);
    int rc = s->config.erase ? open_erasure(s) : 0;
    return rc ? rc : parent_index_new(s->parent.store, m, &s->parent_index);
}

static int open_parts(struct sink *s)
{
    struct chunker_config chunker = {.chunk_size = s->config.chunk_size,
                                     .zstd_level = s->config.zstd_level,
                                     .workers = s->config.workers,
                                     .emit = on_chunk,
                                     .arg = s};
    struct packer_config packer = {
        .upload = s->config.upload, .pack_size = s->config.pack_size, .emit = on_packed, .arg = s};
    int rc = s->config.parent ? open_parent(s) : 0;
    if (rc)
        return rc;
    struct index_writer_config index = {.upload = s->config.upload,
                                        .chunk_size = s->config.chunk_size,
                                        .sorter = s->config.sorter,
                                        .parent = s->parent_index ? &s->parent : NULL,
                                        .index = s->parent_index};
    rc = index_writer_new(&index, &s->index);
    if (!rc)
        rc = packer_new(&packer, &s->packer);
    return rc ? rc : chunker_new(&chunker, &s->chunker);
}

int sink_new(const struct sink_config *config, struct sink **out)
{
    struct sink *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory();
    s->config = *config;
    int rc = open_parts(s);
    if (rc) {
        sink_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void sink_free(struct sink *s)
{
    if (!s)
        return;
    chunker_free(s->chunker);
    packer_free(s->packer);
    index_writer_free(s->index);
    parent_leaves_free(s->leaves);
    parent_index_free(s->parent_index);
    free(s->fates);
    for (int i = 0; i < SINK_REGIONS; i++)
        free(s->regions[i].buffer);
    free(s);
}

/* ------------------------------------------------------------------ the regions' rules */

static int misuse(enum sink_region region, uint64_t address, const char *what)
{
    return error_set(-EIO, "build: the %s lane writes at %" PRIu64 ", %s: a bug, nothing was published",
                     region_names[region], address, what);
}

static bool is_high(enum sink_region region)
{
    return region == SINK_DATA || region == SINK_METADATA;
}

/* May this region write to this chunk, its next? Notes the border. What slips through (a chunk that another region has
 * left behind) is found by index_writer_finish. */
static int enter_chunk(struct sink *s, enum sink_region region, uint64_t chunk)
{
    const uint64_t address = chunk * s->config.chunk_size;
    for (int i = 0; i < SINK_REGIONS; i++)
        if (i != (int)region && s->regions[i].used && s->regions[i].chunk == chunk)
            return misuse(region, address, "in a chunk of another lane");
    if (!is_high(region)) {
        s->low_next = GR_MAX(s->low_next, chunk + 1);
        return s->bordered && chunk >= s->border ? misuse(region, address, "behind the bodies") : 0;
    }
    if (chunk < s->low_next)
        return misuse(region, address, "before the end of what stays");
    if (region == SINK_METADATA && s->regions[SINK_DATA].used && chunk <= s->regions[SINK_DATA].chunk)
        return misuse(region, address, "before the end of the bodies");
    if (!s->bordered) {
        s->bordered = true;
        s->border = chunk;
        index_writer_stream(s->index, chunk);
    }
    return 0;
}

/* ------------------------------------------------------------------ chunks */

/* The chunk's first `filled` bytes are at data, the others, up to len, are zeros. Bytes in a region's buffer are not
 * copied: the buffer is exchanged for an empty one. region_buffer is NULL for others. */
static int submit(struct sink *s, uint64_t chunk, const uint8_t *data, uint8_t **region_buffer, uint32_t filled,
                  uint32_t len)
{
    static const struct chunk_ref hole;
    uint8_t **buffer;
    if (s->fates && chunk < s->parent_chunks)
        s->fates[chunk] = WRITTEN;
    if (chunk_all_zero(data, filled)) /* in the place of what would stay */
        return chunk < s->parent_chunks ? index_writer_add(s->index, chunk, &hole) : 0;
    int rc = chunker_begin(s->chunker, &buffer);
    if (rc)
        return rc;
    if (region_buffer) {
        uint8_t *full = *region_buffer;
        *region_buffer = *buffer;
        *buffer = full;
    } else {
        memcpy(*buffer, data, filled);
    }
    memset(*buffer + filled, 0, len - filled);
    chunker_submit(s->chunker, chunk, len);
    return 0;
}

static int close_region(struct sink *s, struct region *l, uint32_t len)
{
    if (!l->open)
        return 0;
    l->open = false;
    return submit(s, l->chunk, l->buffer, &l->buffer, l->filled, len);
}

/* Put n bytes at `off` of the region's chunk, which is entered. */
static int sink_fill(struct sink *s, struct region *l, uint32_t off, const uint8_t *data, uint32_t n)
{
    const uint32_t size = s->config.chunk_size;
    if (n == size)
        return submit(s, l->chunk, data, NULL, n, size);
    if (!l->buffer)
        l->buffer = malloc(size);
    if (!l->buffer)
        return error_no_memory();
    if (!l->open)
        l->filled = 0;
    l->open = true;
    memset(l->buffer + l->filled, 0, off - l->filled);
    memcpy(l->buffer + off, data, n);
    l->filled = off + n;
    return l->filled == size ? close_region(s, l, size) : 0;
}

int sink_write(struct sink *s, enum sink_region region, uint64_t address, const void *data, size_t len)
{
    const uint32_t size = s->config.chunk_size;
    struct region *l = &s->regions[region];
    const uint8_t *p = data;
    int rc = 0;
    if (address < l->end)
        return misuse(region, address, "before the end of its last write");
    if (region == SINK_DATA && s->regions[SINK_METADATA].used)
        return misuse(region, address, "after the metadata has begun");
    if (region == SINK_METADATA)
        rc = close_region(s, &s->regions[SINK_DATA], size);
    while (len && !rc) {
        const uint64_t chunk = address / size;
        const uint32_t off = (uint32_t)(address % size), n = (uint32_t)GR_MIN(len, (size_t)(size - off));
        if (!l->used || l->chunk != chunk) {
            rc = close_region(s, l, size);
            if (!rc)
                rc = enter_chunk(s, region, chunk);
            l->used = true;
            l->chunk = chunk;
        }
        if (!rc)
            rc = sink_fill(s, l, off, p, n);
        address += n;
        p += n;
        len -= n;
        l->end = address;
    }
    return rc;
}

static void describe(const struct sink *s, uint64_t image_size, const struct index_writer_result *index,
                     struct sink_result *out)
{
    *out =
        (struct sink_result){.index_root = index->root,
                             .index_levels = index->levels,
                             .content_root = index_content_root(image_size, s->config.chunk_size, &index->root.content),
                             .stored_bytes = index->stored_bytes,
                             .chunks_new = s->chunks_new,
                             .chunks_kept = index->kept,
                             .chunks_reused = s->chunks_reused,
                             .repacked = s->repacked};
}

/* Everything written so far reaches the index. */
static int sink_drain(struct sink *s)
{
    int rc = chunker_drain(s->chunker);
    return rc ? rc : packer_finish(s->packer);
}

int sink_snapshot(struct sink *s, uint64_t address, struct sink_result *out)
{
    struct region *data_region = &s->regions[SINK_DATA];
    struct index_writer_result index;
    bool only = !s->fates;
    if (address % s->config.chunk_size || address < data_region->end)
        return misuse(SINK_DATA, address, "where no checkpoint can be");
    int rc = close_region(s, data_region, s->config.chunk_size);
    data_region->end = address;
    if (!rc)
        rc = sink_drain(s);
    for (int i = 0; i < SINK_REGIONS; i++)
        only = only && (i == SINK_DATA || !s->regions[i].used);
    if (rc || !only)
        return rc;
    rc = index_writer_snapshot(s->index, address, &index);
    if (rc == 1)
        describe(s, address, &index, out);
    return rc;
}

/* Scrubbing writes chunks that stay: they may not come a second time. For erasure it is known which these are. */
static int repack(struct sink *s)
{
    const struct repack_config config = {.parent = &s->parent,
                                         .index = s->parent_index,
                                         .packer = s->packer,
                                         .upload = s->config.upload,
                                         .budget = s->config.repack_budget,
                                         .erase = s->fates};
    bool wanted = s->parent_index && (config.erase || (config.budget && !s->regions[SINK_SCRUB].used));
    return wanted ? repack_run(&config, &s->repacked) : 0;
}

int sink_finish(struct sink *s, uint64_t image_size, struct sink_result *out)
{
    static const enum sink_region order[SINK_REGIONS] = {SINK_HOLES, SINK_SCRUB, SINK_DATA, SINK_METADATA, SINK_FRONT};
    const uint32_t size = s->config.chunk_size;
    const uint64_t count = (image_size + size - 1) / size;
    const uint32_t last_len = (uint32_t)(image_size - (count - 1) * size);
    int rc = 0;
    for (int i = 0; i < SINK_REGIONS && !rc; i++) {
        struct region *l = &s->regions[order[i]];
        if (l->end > image_size)
            return misuse(order[i], l->end, "behind the end of the image");
        rc = close_region(s, l, l->chunk == count - 1 ? last_len : size);
    }
    if (!rc)
        rc = chunker_drain(s->chunker);
    parent_leaves_free(steal_ptr(&s->leaves));
    if (!rc)
        rc = repack(s);
    if (!rc)
        rc = packer_finish(s->packer);
    struct index_writer_result index;
    if (!rc)
        rc = index_writer_finish(s->index, image_size, &index);
    if (!rc)
        describe(s, image_size, &index, out);
    return rc;
}
