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
#ifndef GRANARY_IMAGEBUILD_SINK_INDEX_WRITER_H
#define GRANARY_IMAGEBUILD_SINK_INDEX_WRITER_H

#include "base/spill/sorter.h"
#include "format/index.h"
#include "imagebuild/rebuild/parent_index.h"
#include "imagebuild/sink/upload.h"

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
 * the chunk size and lies behind all chunks added so far. The writer then continues as if nothing had happened. 1:
 * done; 0: not possible, because chunks were not added in the order of a build without a parent or upon a checkpoint;
 * or -errno. */
GR_MUST_CHECK int index_writer_snapshot(struct index_writer *w, uint64_t image_size, struct index_writer_result *out);

/* Write the rest of the index; the image is image_size bytes long. -EFBIG: more chunks than an index can hold. -EIO
 * with a sentence: a chunk was added twice or lies behind the end, or one that stays has another length in this
 * image. -EBADMSG: the parent is damaged. Others come from the sorter, the upload and the store. */
GR_MUST_CHECK int index_writer_finish(struct index_writer *w, uint64_t image_size, struct index_writer_result *out);

#endif
