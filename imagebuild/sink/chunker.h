/* Chunks hashed and compressed by several threads, handed on in the order they were submitted.
 *
 * Memory: a ring of at most 4 chunks a worker and at most CHUNKER_MEMORY bytes (but two chunks at least), each with its
 * plain and its stored bytes.
 */
#ifndef GRANARY_IMAGEBUILD_SINK_CHUNKER_H
#define GRANARY_IMAGEBUILD_SINK_CHUNKER_H

#include "base/bytes.h"
#include "format/chunk.h"

enum { CHUNKER_MEMORY = 128 << 20 };

struct chunker;

/* One finished chunk: ref lacks object, kind and offset. Called by chunker_begin and chunker_drain, in the caller's
 * thread; non-zero is returned to their caller. */
typedef int chunker_emit(void *arg, uint64_t number, const struct chunk_ref *ref, const struct bytes *stored);

struct chunker_config {
    uint32_t chunk_size;
    int zstd_level;
    unsigned workers;
    chunker_emit *emit;
    void *arg;
};

GR_MUST_CHECK int chunker_new(const struct chunker_config *config, struct chunker **out);
void chunker_free(struct chunker *c);

/* A buffer of chunk_size bytes to fill for the next submit; the same one until then. The caller may exchange it, *out,
 * for one of its own from malloc. May wait for the oldest chunk. */
GR_MUST_CHECK int chunker_begin(struct chunker *c, uint8_t ***out);
/* The first len bytes of the buffer are chunk `number`. */
void chunker_submit(struct chunker *c, uint64_t number, uint32_t len);
/* Wait for and hand on everything submitted. */
GR_MUST_CHECK int chunker_drain(struct chunker *c);

#endif
