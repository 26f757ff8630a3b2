/* The stages of the sink. All run in the caller's thread but the workers' encoding, and each hands on to the next in
 * the order in which chunks closed:
 *
 *   sink_write -> section's chunk -> chunker (hash, compress) -> packer (packs) -> index_writer (leaves) -> upload
 *                       |                    |
 *                     hole              equals the parent's: its reference goes straight to index_writer
 *
 * A chunk of metadata is compared with the parent's before the chunker, so that bases are read only for those that
 * differ.
 *
 * Chunk numbers, ascending:
 *
 *   | FRONT .. | HOLES, SCRUB, kept ones .. | DATA .. | METADATA .. |
 *                                           ^ border: the first chunk of DATA or METADATA
 *
 * Sections below the border may interleave, so their chunks come to the index in any order; from the border on they
 * ascend.
 *
 * With `erase`, a written chunk that equals the parent's counts as one that stays and is not put into the index yet:
 * its pack may have to be emptied in the end, and then the chunk is copied like the others of that pack.
 */
#include "imagebuild/sink/sink.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "imagebuild/sink/sink_internal.h"

/* The state of one section. Bytes of `buffer` from `filled` on are undefined. */
struct section {
    bool used, open; /* open: `chunk` is in progress, in buffer */
    uint64_t chunk;  /* number of the chunk written last */
    uint64_t end;    /* address after the last write */
    uint8_t *buffer; /* chunk_size bytes; allocated when a chunk first comes in pieces */
    uint32_t filled;
};

/* What a build with `erase` did to a chunk of the parent. */
enum fate {
    UNWRITTEN,
    WRITTEN,
    SAME, /* written with the parent's bytes */
};

/* Used from one thread. */
struct sink {
    struct sink_config config;
    struct chunker *chunker;
    struct packer *packer;
    struct index_writer *index;
    struct sink_parent given;          /* config.parent, if there is one */
    struct sink_parent parent;         /* the same; with `erase` it keeps what `fates` says */
    uint8_t *fates;                    /* enum fate of each of the parent's chunks; NULL without `erase` */
    struct parent_index *parent_index; /* NULL: no parent */
    uint64_t parent_chunks;
    struct bases *bases;          /* NULL: no chunk becomes a delta, and none of the parent's is taken */
    struct digest_map needed;     /* packs with bases of the image's deltas */
    struct parent_leaves *leaves; /* the parent's leaves, read ahead of writes between kept chunks; NULL until needed */
    uint64_t leaf;                /* the last leaf taken from `leaves` */
    uint64_t chunks_new, chunks_reused, chunks_delta;
    struct repack_counts repacked;
    /* The border is known once DATA or METADATA is written. */
    bool bordered;
    uint64_t border;         /* chunk number, if bordered */
    uint64_t low_next;       /* one more than the highest chunk of the sections below the border */
    uint64_t metadata_first; /* the first chunk of METADATA, once it is written */
    bool anew;               /* chunks of FRONT and METADATA owe nothing to the parent's */
    struct section sections[SINK_SECTIONS];
};

static const char *const section_names[SINK_SECTIONS] = {"front", "holes", "scrub", "contents", "metadata"};

/* Return whether a leaf has free chunks, which SINK_HOLES may write. SINK_SCRUB mostly writes to such leaves too. */
static bool has_holes(void *arg, uint64_t leaf)
{
    const struct sink *s = arg;
    const uint64_t first = leaf * INDEX_FANOUT, count = GR_MIN(s->parent_chunks - first, (uint64_t)INDEX_FANOUT);
    return !s->given.kept_all || !s->given.kept_all(s->given.arg, first, count);
}

/* Return the parent's chunks of a leaf, to compare chunk `number` with one of them. SINK_SCRUB and then SINK_HOLES
 * ascend through the whole index with gaps, so leaves are read ahead for them, anew when they start over. Behind the
 * border, and in the front at the end, writers stay in a few leaves, which parent_index holds. */
static int get_leaf(struct sink *s, uint64_t number, uint64_t leaf, const struct chunk_ref **out)
{
    if ((s->bordered && number >= s->border) || s->sections[SINK_FRONT].used)
        return parent_index_leaf(s->parent_index, leaf, out);
    if (leaf < s->leaf)
        parent_leaves_free(steal_ptr(&s->leaves));
    int rc = s->leaves ? 0 : parent_leaves_new(s->parent_index, has_holes, s, &s->leaves);
    s->leaf = leaf;
    return rc ? rc : parent_leaves_get(s->leaves, leaf, out);
}

/* Return which chunk of the parent chunk `number` may be equal to: of metadata, the one at the same place in the
 * parent's metadata, wherever that begins. With `erase` a chunk can only stay in its place. */
static uint64_t counterpart(const struct sink *s, uint64_t number)
{
    const bool moves = s->parent_index && !s->fates && s->given.image_count <= 1;
    if (!moves || !s->sections[SINK_METADATA].used || number < s->metadata_first)
        return number;
    return s->given.manifest->metadata_offset / s->config.chunk_size + (number - s->metadata_first);
}

/* Return whether a chunk is packed whole even if the parent has it. The front's chunks are the first of all. */
static bool is_anew(const struct sink *s, uint64_t number)
{
    const struct section *front = &s->sections[SINK_FRONT], *metadata = &s->sections[SINK_METADATA];
    return s->anew && ((front->used && number <= front->chunk) || (metadata->used && number >= s->metadata_first));
}

/* May new entries of the index refer to a chunk of the parent? Not if it, or its base, lies in a damaged pack. */
static bool may_stay(const struct sink *s, const struct chunk_ref *chunk)
{
    const struct digest_map *damaged = s->given.damaged;
    if (chunk_is_delta(chunk) && (!s->bases || (damaged && digest_map_find(damaged, &chunk->base.object))))
        return false;
    return !damaged || !digest_map_find(damaged, &chunk->object);
}

/* Find the same bytes in the parent's chunk `there`. *out NULL: it has others, or may not stay. */
static int find_at(struct sink *s, uint64_t number, uint64_t there, const struct digest *digest,
                   const struct chunk_ref **out)
{
    const struct chunk_ref *chunks;
    *out = NULL;
    if (there >= s->parent_chunks || is_anew(s, number))
        return 0;
    int rc = get_leaf(s, number, there / INDEX_FANOUT, &chunks);
    if (rc || !chunks || !digest_equal(&chunks[there % INDEX_FANOUT].digest, digest))
        return rc;
    if (may_stay(s, &chunks[there % INDEX_FANOUT]))
        *out = &chunks[there % INDEX_FANOUT];
    return 0;
}

/* Find the bytes of chunk `number` in the parent, at *out_there; *out as for find_at. */
static int find_in_parent(struct sink *s, uint64_t number, const struct digest *digest, uint64_t *out_there,
                          const struct chunk_ref **out)
{
    *out_there = counterpart(s, number);
    int rc = find_at(s, number, *out_there, digest, out);
    /* a region that begins with zeros, which ext4 does not write, seems to have moved */
    if (!rc && !*out && *out_there != number)
        rc = find_at(s, number, *out_there = number, digest, out);
    return rc;
}

/* Note that the image needs the pack of a delta's base. */
static int need_base(struct sink *s, const struct chunk_ref *ref)
{
    return chunk_is_delta(ref) ? GR_MIN(digest_map_add(&s->needed, &ref->base.object, 0), 0) : 0;
}

/* Take an encoded chunk from the chunker. */
static int on_chunk(void *arg, uint64_t number, const struct chunk_ref *ref, const struct bytes *stored)
{
    struct sink *s = arg;
    const struct chunk_ref *same;
    uint64_t there;
    int rc = find_in_parent(s, number, &ref->digest, &there, &same);
    if (!rc)
        rc = need_base(s, same ? same : ref);
    if (rc)
        return rc;
    s->chunks_reused += same != NULL;
    s->chunks_new += !same;
    s->chunks_delta += !same && chunk_is_delta(ref);
    if (same && s->fates) {
        s->fates[number] = SAME;
        return 0;
    }
    if (!same && !stored->len)
        return error_set(-EIO, "build: chunk %" PRIu64 " no longer equals the parent's: a bug, nothing was published",
                         number);
    if (!same)
        return packer_add(s->packer, number, ref, stored);
    /* behind the parent's leaves the index takes chunks in ascending order, and some wait in the packer */
    return there == number ? index_writer_add(s->index, number, same) : packer_pass(s->packer, number, same);
}

/* Take a completed reference from the packer. */
static int on_packed(void *arg, uint64_t number, const struct chunk_ref *ref)
{
    struct sink *s = arg;
    return index_writer_add(s->index, number, ref);
}

/* sink_parent.kept for `erase`: a chunk stays if it was not written and the parent keeps it, or was written
 * with the same bytes. */
static bool stays(void *arg, uint64_t chunk)
{
    const struct sink *s = arg;
    return s->fates[chunk] == SAME || (s->fates[chunk] == UNWRITTEN && s->given.kept(s->given.arg, chunk));
}

/* Track the fate of each of the parent's chunks. kept_all is unset: leaves may no longer be taken over unread. */
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
    if (!rc)
        rc = parent_index_new(&s->parent, &s->parent_index);
    if (rc || !s->config.deltas || !s->config.zstd_level || s->fates)
        return rc;
    return bases_new(&s->given, s->parent_index, &s->bases);
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
    bases_free(s->bases);
    parent_index_free(s->parent_index);
    digest_map_release(&s->needed);
    free(s->fates);
    for (int i = 0; i < SINK_SECTIONS; i++)
        free(s->sections[i].buffer);
    free(s);
}

/* ------------------------------------------------------------------ the sections' rules */

static int misuse(enum sink_section section, uint64_t address, const char *what)
{
    return error_set(-EIO, "build: the %s section is written at %" PRIu64 ", %s: a bug, nothing was published",
                     section_names[section], address, what);
}

/* Enter the next chunk of a section, or fail if the rules forbid it. Sets the border at the first chunk of DATA or
 * METADATA. This catches a chunk that another section writes now; index_writer_finish finds one that another section
 * has left. */
static int enter_chunk(struct sink *s, enum sink_section section, uint64_t chunk)
{
    const uint64_t address = chunk * s->config.chunk_size;
    for (int i = 0; i < SINK_SECTIONS; i++)
        if (i != (int)section && s->sections[i].used && s->sections[i].chunk == chunk)
            return misuse(section, address, "in a chunk of another section");
    if (section != SINK_DATA && section != SINK_METADATA) {
        s->low_next = GR_MAX(s->low_next, chunk + 1);
        return s->bordered && chunk >= s->border ? misuse(section, address, "after the contents") : 0;
    }
    if (chunk < s->low_next)
        return misuse(section, address, "before the end of what stays");
    if (section == SINK_METADATA && s->sections[SINK_DATA].used && chunk <= s->sections[SINK_DATA].chunk)
        return misuse(section, address, "before the end of the contents");
    if (section == SINK_METADATA && !s->sections[SINK_METADATA].used)
        s->metadata_first = chunk;
    if (!s->bordered) {
        s->bordered = true;
        s->border = chunk;
        index_writer_stream(s->index, chunk);
    }
    return 0;
}

/* ------------------------------------------------------------------ chunks */

/* Find out what the parent has in the place of a chunk of metadata: the same bytes, or some that it may be stored upon.
 * One that differs is hashed again when it is encoded. */
static int look_up(struct sink *s, uint64_t chunk, const uint8_t *plain, uint32_t len, struct chunker_known *out)
{
    const struct chunk_ref *same;
    uint64_t there;
    out->digest = digest_of(plain, len);
    int rc = find_in_parent(s, chunk, &out->digest, &there, &same);
    out->same = same;
    return rc || same ? rc : bases_get(s->bases, counterpart(s, chunk), len, &out->base, &out->plain);
}

static bool is_of_filesystem(const struct sink *s, const struct section *section)
{
    return section == &s->sections[SINK_METADATA] || section == &s->sections[SINK_FRONT];
}

/* Submit the section's chunk of `len` bytes: `filled` bytes from data, zeros after them. own: data is in the section's
 * buffer, to be exchanged for an empty one instead of copied. */
static int submit(struct sink *s, struct section *section, const uint8_t *data, bool own, uint32_t filled, uint32_t len)
{
    static const struct chunk_ref hole;
    const uint64_t chunk = section->chunk;
    struct chunker_known known = {.same = false};
    uint8_t **buffer;
    if (s->fates && chunk < s->parent_chunks)
        s->fates[chunk] = WRITTEN;
    if (chunk_all_zero(data, filled)) /* an explicit hole: the parent's chunk must not stay */
        return chunk < s->parent_chunks ? index_writer_add(s->index, chunk, &hole) : 0;
    int rc = chunker_begin(s->chunker, &buffer);
    if (rc)
        return rc;
    if (own) {
        uint8_t *full = section->buffer;
        section->buffer = *buffer;
        *buffer = full;
    } else {
        memcpy(*buffer, data, filled);
    }
    memset(*buffer + filled, 0, len - filled);
    if (s->bases && !s->anew && is_of_filesystem(s, section))
        rc = look_up(s, chunk, *buffer, len, &known);
    if (!rc)
        chunker_submit(s->chunker, chunk, len, &known);
    return rc;
}

/* Submit the section's chunk in progress, if there is one. */
static int close_section(struct sink *s, struct section *state, uint32_t len)
{
    if (!state->open)
        return 0;
    state->open = false;
    return submit(s, state, state->buffer, true, state->filled, len);
}

/* Put n bytes at offset `off` of the chunk that the section has entered. A whole chunk is submitted without a copy
 * into the section's buffer. */
static int sink_fill(struct sink *s, struct section *state, uint32_t off, const uint8_t *data, uint32_t n)
{
    const uint32_t size = s->config.chunk_size;
    if (n == size)
        return submit(s, state, data, false, n, size);
    if (!state->buffer)
        state->buffer = malloc(size);
    if (!state->buffer)
        return error_no_memory();
    if (!state->open)
        state->filled = 0;
    state->open = true;
    memset(state->buffer + state->filled, 0, off - state->filled);
    memcpy(state->buffer + off, data, n);
    state->filled = off + n;
    return state->filled == size ? close_section(s, state, size) : 0;
}

int sink_write(struct sink *s, enum sink_section section, uint64_t address, const void *data, size_t len)
{
    const uint32_t size = s->config.chunk_size;
    struct section *state = &s->sections[section];
    const uint8_t *p = data;
    int rc = 0;
    if (address < state->end)
        return misuse(section, address, "before the end of its last write");
    if (section == SINK_DATA && s->sections[SINK_METADATA].used)
        return misuse(section, address, "after the metadata has begun");
    if (section == SINK_METADATA)
        rc = close_section(s, &s->sections[SINK_DATA], size);
    while (len && !rc) {
        const uint64_t chunk = address / size;
        const uint32_t off = (uint32_t)(address % size), n = (uint32_t)GR_MIN(len, (size_t)(size - off));
        if (!state->used || state->chunk != chunk) {
            rc = close_section(s, state, size);
            if (!rc)
                rc = enter_chunk(s, section, chunk);
            state->used = true;
            state->chunk = chunk;
        }
        if (!rc)
            rc = sink_fill(s, state, off, p, n);
        address += n;
        p += n;
        len -= n;
        state->end = address;
    }
    return rc;
}

void sink_metadata_anew(struct sink *s)
{
    s->anew = true;
    upload_send_packs(s->config.upload);
}

/* Fill in *out from the finished index. */
static void describe(const struct sink *s, uint64_t image_size, const struct index_writer_result *index,
                     struct sink_result *out)
{
    *out =
        (struct sink_result){.index_root = index->root,
                             .index_levels = index->levels,
                             .content_root = index_content_root(image_size, s->config.chunk_size, &index->root.content),
                             .stored_bytes = index->stored_bytes,
                             .deltas = index->deltas,
                             .chunks_new = s->chunks_new,
                             .chunks_kept = index->kept,
                             .chunks_reused = s->chunks_reused,
                             .chunks_delta = s->chunks_delta,
                             .repacked = s->repacked};
}

int sink_snapshot(struct sink *s, uint64_t address, struct sink_result *out)
{
    struct section *data_section = &s->sections[SINK_DATA];
    struct index_writer_result index;
    bool only = !s->fates;
    if (address % s->config.chunk_size || address < data_section->end)
        return misuse(SINK_DATA, address, "where no checkpoint can be");
    int rc = close_section(s, data_section, s->config.chunk_size);
    data_section->end = address;
    /* bring everything that was submitted into the index, closing the last pack */
    if (!rc)
        rc = chunker_drain(s->chunker);
    if (!rc)
        rc = packer_finish(s->packer);
    for (int i = 0; i < SINK_SECTIONS; i++)
        only = only && (i == SINK_DATA || !s->sections[i].used);
    if (rc || !only)
        return rc;
    rc = index_writer_snapshot(s->index, address, &index);
    if (rc == 1)
        describe(s, address, &index, out);
    return rc;
}

/* Repack what stays, if asked to. After SINK_SCRUB only with `erase`: chunks written by it have already taken their
 * place in the index, and only `fates` can tell which these are. */
static int repack(struct sink *s)
{
    const struct repack_config config = {.parent = &s->parent,
                                         .index = s->parent_index,
                                         .packer = s->packer,
                                         .upload = s->config.upload,
                                         .needed = &s->needed,
                                         .budget = s->config.repack_budget,
                                         .erase = s->fates};
    bool wanted = s->parent_index && (config.erase || (config.budget && !s->sections[SINK_SCRUB].used));
    return wanted ? repack_run(&config, &s->repacked) : 0;
}

/* Close all sections, repack, and finish the index. `order` decides in which order the last chunks are packed, so it is
 * part of the image's digest. The image's last chunk may be short. */
int sink_finish(struct sink *s, uint64_t image_size, struct sink_result *out)
{
    static const enum sink_section order[SINK_SECTIONS] = {SINK_HOLES, SINK_SCRUB, SINK_DATA, SINK_METADATA,
                                                           SINK_FRONT};
    const uint32_t size = s->config.chunk_size;
    const uint64_t count = (image_size + size - 1) / size;
    const uint32_t last_len = (uint32_t)(image_size - (count - 1) * size);
    int rc = 0;
    for (int i = 0; i < SINK_SECTIONS && !rc; i++) {
        struct section *state = &s->sections[order[i]];
        if (state->end > image_size)
            return misuse(order[i], state->end, "past the end of the image");
        rc = close_section(s, state, state->chunk == count - 1 ? last_len : size);
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
