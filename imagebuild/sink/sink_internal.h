/* The stages behind sink_write, in the order in which a chunk passes them: chunker, packer, index writer; and
 * repacking, which puts chunks of the parent through the packer at the end. */
#ifndef GRANARY_IMAGEBUILD_SINK_SINK_INTERNAL_H
#define GRANARY_IMAGEBUILD_SINK_SINK_INTERNAL_H

#include "base/bytes.h"
#include "base/spill/sorter.h"
#include "format/chunk.h"
#include "format/index.h"
#include "imagebuild/rebuild/parent_index.h"
#include "imagebuild/sink/sink.h"

/* ---- chunks (chunker.c) ---- */

/* Hash and compress chunks in several threads, and emit them in the order in which they were submitted.
 *
 * Memory: a ring of 4 chunks a worker, CHUNKER_MEMORY bytes at most (but at least two chunks), each with its plain
 * and its stored bytes; beside that, the bases of those that may become deltas. One thread uses a chunker.
 */

enum { CHUNKER_MEMORY = 128 << 20 }; /* bytes */

struct chunker;

/* Receive one finished chunk; ref lacks object, kind and offset, and both pointers are valid during the call. Called
 * by chunker_begin and chunker_drain in their caller's thread; they return a non-zero result to it. */
typedef int chunker_emit(void *arg, uint64_t number, const struct chunk_ref *ref, const struct bytes *stored);

/* workers: threads, at least 1. zstd_level 0: do not compress. */
struct chunker_config {
    uint32_t chunk_size;
    int zstd_level;
    unsigned workers;
    chunker_emit *emit;
    void *arg;
};

/* -ENOMEM; -EAGAIN with a sentence: threads cannot be started. */
GR_MUST_CHECK int chunker_new(const struct chunker_config *config, struct chunker **out);
void chunker_free(struct chunker *c); /* NULL is allowed; drops what was not emitted */

/* What the caller knows of a chunk that it submits; all zero: nothing. */
struct chunker_known {
    bool same;            /* the parent has it: it is emitted with its digest alone, `stored` is empty */
    struct digest digest; /* if it is the same */
    /* Otherwise it may be stored upon this base, whose plain bytes, as long as the chunk, are in `plain`, a reference
     * that chunker_submit takes over. NULL: it may not. */
    struct chunk_base base;
    struct buf *plain;
};

/* Return a buffer of chunk_size bytes to fill for the next submit; it stays the same until then. The caller may
 * replace *out with a buffer of that size from malloc, and then owns the old one. May wait for the oldest chunk and
 * emit it. Errors are those of encoding and emit. */
GR_MUST_CHECK int chunker_begin(struct chunker *c, uint8_t ***out);
/* Submit the first len bytes of the buffer as chunk `number`. */
void chunker_submit(struct chunker *c, uint64_t number, uint32_t len, const struct chunker_known *known);
/* Wait for everything submitted and emit it. Errors as from chunker_begin. */
GR_MUST_CHECK int chunker_drain(struct chunker *c);

/* ---- bases (bases.c) ---- */

/* The parent's chunks upon which chunks of metadata may be stored: read ahead of the chunks that ask for them, and
 * verified. Memory: BASES_JOBS stretches of 1 MiB, or of one chunk if that is larger. One thread. */

enum { BASES_JOBS = 8 };

struct bases;

/* Both pointers are the caller's and outlive *out. -ENOMEM. */
GR_MUST_CHECK int bases_new(const struct sink_parent *parent, struct parent_index *index, struct bases **out);
void bases_free(struct bases *b); /* NULL is allowed */

/* Return in *out the base for a chunk of len bytes that takes the place of the parent's chunk `number`: that chunk, or
 * the base of that. *out_plain: a reference to its plain bytes. NULL: there is none; it has another length, is missing
 * or damaged. Fastest where numbers ascend. PARENT_DAMAGED (parent.h): the index is; others come from the store. */
GR_MUST_CHECK int bases_get(struct bases *b, uint64_t number, uint32_t len, struct chunk_base *out,
                            struct buf **out_plain);

/* ---- packs (chunker.c) ---- */

/* Pack stored chunks back to back. A full pack is named by its SHA-256 and handed to the upload.
 *
 * A chunk's reference names its pack, so it is complete only when the pack closes. Up to PACK_CHUNKS references wait
 * for that; a pack of chunks that compress well closes at that number, long before its size. One thread.
 */

enum { PACK_CHUNKS = 4096 }; /* per pack */

struct packer;

/* Receive one completed reference, in the order of packer_add. A non-zero result ends the packer's call with it. */
typedef int packer_emit(void *arg, uint64_t number, const struct chunk_ref *ref);

/* pack_size: target in bytes; a single chunk may be longer. */
struct packer_config {
    struct upload *upload;
    size_t pack_size;
    packer_emit *emit;
    void *arg;
};

/* -ENOMEM. */
GR_MUST_CHECK int packer_new(const struct packer_config *config, struct packer **out);
void packer_free(struct packer *p); /* NULL is allowed; drops the pack in progress */

/* Append a chunk to the pack, closing the pack first if the chunk does not fit. ref lacks object, kind and offset;
 * `stored` is copied. Errors: -ENOMEM, those of upload_put and emit. */
GR_MUST_CHECK int packer_add(struct packer *p, uint64_t number, const struct chunk_ref *ref,
                             const struct bytes *stored);
/* Emit a complete reference to a chunk of the parent after those that were added before. Errors as from packer_add. */
GR_MUST_CHECK int packer_pass(struct packer *p, uint64_t number, const struct chunk_ref *ref);
/* Close the last pack. Errors as from packer_add. */
GR_MUST_CHECK int packer_finish(struct packer *p);

/* ---- repacking (repack.c) ---- */

/* Repacking: copy kept chunks, as stored, into new packs, out of packs that this image uses little of. gc can remove
 * the old packs once no other image needs them. Without this, a pack would live as long as the longest-lived chunk in
 * it, and a store of daily builds would grow.
 *
 * Nothing is done while the packs' dead bytes are at most REPACK_DEAD_PERCENT of the kept bytes. Beyond that, packs
 * with at most REPACK_LIVE_PERCENT live bytes are emptied, those with the smallest live part first, within the budget.
 * The choice depends only on the parent, on its kept chunks, on the bases that are needed, and on the sizes of its
 * packs in the store.
 *
 * With `erase`, every pack that holds anything but kept chunks is emptied, at any cost. One thread.
 */

enum { REPACK_DEAD_PERCENT = 10, REPACK_LIVE_PERCENT = 50 };

/* All pointers are the caller's. */
struct repack_config {
    const struct sink_parent *parent;
    struct parent_index *index; /* the parent's */
    struct packer *packer;      /* receives the copies under their numbers */
    struct upload *upload;      /* its step is called meanwhile */
    /* Packs that hold bases of the new image's deltas: emptying them would free nothing. */
    const struct digest_map *needed;
    uint64_t budget; /* stored bytes copied, at most; not used with erase */
    bool erase;      /* empty every pack with dead bytes; a chunk that cannot be read fails the build */
};

/* Choose the packs and copy their kept chunks. Each chunk is verified, its plain bytes included. Reads the parent's
 * whole index. Memory: 40 to 80 bytes for each pack of the parent. Without `erase`, a chunk that cannot be read ends
 * the copying with a warning, and the result is 0. Errors come from the parent's index, the store, the packer and step.
 */
GR_MUST_CHECK int repack_run(const struct repack_config *config, struct repack_counts *out);

/* ---- the chunk index (index_writer.c) ---- */

/* Write the chunk index of an image. Leaves are put into the store as they become complete, and merged with the
 * parent's leaves for chunks that stay.
 *
 * From a known chunk on (index_writer_stream) chunks come in ascending order; their leaves are encoded at once.
 * Chunks before that may come in any order and are sorted. A number that is never added keeps the parent's chunk if
 * that stays, and else is a hole. A node that equals the parent's is not put again.
 *
 * Memory: 72 bytes for each leaf (1,024 chunks), two leaves, the nodes that parent_index.h holds. Chunks that are not
 * streamed go through a sorter, 100 bytes each. One thread.
 */

struct index_writer;

/* All pointers are the caller's and outlive the writer. */
struct index_writer_config {
    struct upload *upload;
    uint32_t chunk_size;
    struct sorter_config sorter;
    const struct sink_parent *parent; /* NULL: no parent */
    struct parent_index *index;       /* the parent's; NULL: no parent */
};

struct index_writer_result {
    struct index_child root; /* root, as a child of a level above */
    unsigned levels;
    uint64_t stored_bytes; /* of all chunks but holes, those that stay included */
    uint64_t kept;         /* chunks that stay */
    unsigned deltas;       /* manifest.deltas */
};

/* -ENOMEM; the errors of sorter_new. */
GR_MUST_CHECK int index_writer_new(const struct index_writer_config *config, struct index_writer **out);
void index_writer_free(struct index_writer *w); /* NULL is allowed */

/* Chunks from `first` on come in ascending order. Called once, before any of them is added. */
void index_writer_stream(struct index_writer *w, uint64_t first);
/* Add a chunk; `ref` is copied. A hole replaces the parent's chunk of that number. Each number is added once. Errors:
 * -ENOMEM, those of the sorter and of upload_put. */
GR_MUST_CHECK int index_writer_add(struct index_writer *w, uint64_t number, const struct chunk_ref *ref);

/* Write the index of the first image_size bytes as a separate image, for a checkpoint. image_size is a multiple of
 * the chunk size and lies after all chunks added so far. The writer then continues as if nothing had happened. 1:
 * done; 0: not possible, because chunks were not added in the order of a build without a parent or upon a checkpoint;
 * or -errno. */
GR_MUST_CHECK int index_writer_snapshot(struct index_writer *w, uint64_t image_size, struct index_writer_result *out);

/* Write the rest of the index; the image is image_size bytes long. -EFBIG: more chunks than an index can hold. -EIO
 * with a sentence: a chunk was added twice or lies past the end, or one that stays has another length in this
 * image. PARENT_DAMAGED (rebuild/parent.h). Others come from the sorter, the upload and the store. */
GR_MUST_CHECK int index_writer_finish(struct index_writer *w, uint64_t image_size, struct index_writer_result *out);

#endif
