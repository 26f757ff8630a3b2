/* The chunk index of an image being written, put into the store leaf by leaf as leaves become complete, and merged with
 * the parent's for chunks that stay.
 *
 * From the leaf behind the one of the first streamed chunk and behind the parent's last leaf on, chunks come in
 * ascending order; all others in any order. Numbers left out are the parent's where its chunk stays, else holes. A
 * node that comes out as the parent's is not put again.
 *
 * Memory: 72 bytes for each leaf (1,024 chunks), two leaves, the parent's nodes that parent_index.h holds;
 * chunks that are not streamed go through a sorter, 100 bytes each, sort_memory of them at a time.
 */
#ifndef GRANARY_IMAGEBUILD_SINK_INDEX_WRITER_H
#define GRANARY_IMAGEBUILD_SINK_INDEX_WRITER_H

#include "base/spill/sorter.h"
#include "format/index.h"
#include "imagebuild/rebuild/parent_index.h"
#include "imagebuild/sink/upload.h"

struct index_writer;

struct index_writer_config {
    struct upload *upload;
    uint32_t chunk_size;
    struct sorter_config sorter;
    const struct sink_parent *parent; /* NULL: none */
    struct parent_index *index;       /* the parent's, the caller's */
};

struct index_writer_result {
    struct index_child root; /* as a child of a level above */
    unsigned levels;
    uint64_t stored_bytes; /* of all chunks that are not holes, those that stay included */
    uint64_t kept;         /* chunks that stay: nobody wrote them, and the parent says so */
};

GR_MUST_CHECK int index_writer_new(const struct index_writer_config *config, struct index_writer **out);
void index_writer_free(struct index_writer *w); /* NULL is allowed */

/* Chunks from `first` on come in ascending order. Once, before any of them is added. */
void index_writer_stream(struct index_writer *w, uint64_t first);
/* A hole takes the place of what would stay. */
GR_MUST_CHECK int index_writer_add(struct index_writer *w, uint64_t number, const struct chunk_ref *ref);

/* The index of the first image_size bytes, a multiple of the chunk size that ends behind all chunks added so far, as an
 * image of its own: for a checkpoint. Chunks are added as if nothing had happened afterwards. 1: done; 0: not possible,
 * since chunks were added out of the order in which a build without a parent, or upon a checkpoint, adds them. */
GR_MUST_CHECK int index_writer_snapshot(struct index_writer *w, uint64_t image_size, struct index_writer_result *out);

/* The image is image_size bytes long. -EFBIG: more chunks than an index can hold. -EIO with a sentence: a chunk was
 * added twice, or one that stays has another length in this image. -EBADMSG: the parent is damaged. */
GR_MUST_CHECK int index_writer_finish(struct index_writer *w, uint64_t image_size, struct index_writer_result *out);

#endif
