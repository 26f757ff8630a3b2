/* Hash and compress chunks in several threads, and emit them in the order in which they were submitted.
 *
 * Memory: a ring of 4 chunks a worker, CHUNKER_MEMORY bytes at most (but at least two chunks), each with its plain
 * and its stored bytes. One thread uses a chunker.
 */
#ifndef GRANARY_IMAGEBUILD_SINK_SINK_INTERNAL_H
#define GRANARY_IMAGEBUILD_SINK_SINK_INTERNAL_H

#include "base/bytes.h"
#include "format/chunk.h"

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

/* Return a buffer of chunk_size bytes to fill for the next submit; it stays the same until then. The caller may
 * replace *out with a buffer of that size from malloc, and then owns the old one. May wait for the oldest chunk and
 * emit it. Errors are those of encoding and emit. */
GR_MUST_CHECK int chunker_begin(struct chunker *c, uint8_t ***out);
/* Submit the first len bytes of the buffer as chunk `number`. */
void chunker_submit(struct chunker *c, uint64_t number, uint32_t len);
/* Wait for everything submitted and emit it. Errors as from chunker_begin. */
GR_MUST_CHECK int chunker_drain(struct chunker *c);

#endif
