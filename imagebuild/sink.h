/* The image's address space on its way into the store: bytes in ascending order become chunks, chunks become packs and
 * index leaves, all of it put into the store while more is written.
 *
 * Chunk 0 comes last (sink_write_front): the filesystem's superblock is known only when everything else is. Addresses
 * that are never written are zeros, and a chunk of nothing but zeros is a hole that costs nothing. The result does not
 * depend on the number of workers or uploads.
 *
 * Memory: chunker.h and index_writer.h state theirs; one pack being filled (pack_size), the upload's budget.
 * Used from one thread.
 */
#ifndef GRANARY_IMAGEBUILD_SINK_H
#define GRANARY_IMAGEBUILD_SINK_H

#include "format/index.h"
#include "imagebuild/upload.h"

struct sink;

struct sink_config {
    struct upload *upload; /* the caller's */
    uint32_t chunk_size;
    int zstd_level;   /* 0: none */
    unsigned workers; /* threads that hash and compress, at least 1 */
    size_t pack_size; /* a pack is closed before it would pass this */
};

struct sink_result {
    struct index_child index_root;
    unsigned index_levels;
    struct digest content_root;
    uint64_t stored_bytes; /* of all chunks that are not holes */
};

GR_MUST_CHECK int sink_new(const struct sink_config *config, struct sink **out);
/* Stops the workers. NULL is allowed. */
void sink_free(struct sink *s);

/* len bytes at address, which lies in chunk 1 or later and not before the end of the last write. */
GR_MUST_CHECK int sink_write(struct sink *s, uint64_t address, const void *data, size_t len);

/* The image's first len bytes, at most a chunk; the rest of chunk 0 is zeros. Once. */
GR_MUST_CHECK int sink_write_front(struct sink *s, const void *data, size_t len);

/* Nothing more comes: the image is image_size bytes. Everything has been handed to the upload when this returns, not
 * all of it has arrived (upload_flush). */
GR_MUST_CHECK int sink_finish(struct sink *s, uint64_t image_size, struct sink_result *out);

#endif
