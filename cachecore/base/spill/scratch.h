/* Room beside memory: bytes at any offset, in memory while they are few, then in an unlinked file of a directory for
 * temporary files. What sorts, lists and metadata regions of a build are kept in, so that a build's memory does not
 * grow with its files. File bodies are never put here.
 *
 * One thread, but for scratch_read, which any number of threads may call while nobody writes.
 */
#ifndef GRANARY_BASE_SPILL_SCRATCH_H
#define GRANARY_BASE_SPILL_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/compiler.h"

enum { SCRATCH_MEMORY_DEFAULT = 32 << 20 };

struct scratch_config {
    const char *dir; /* for the file; NULL: $TMPDIR, else /var/tmp */
    size_t memory;   /* bytes kept in memory before the file is made; 0: SCRATCH_MEMORY_DEFAULT */
};

struct scratch;

GR_MUST_CHECK int scratch_new(const struct scratch_config *config, struct scratch **out);
void scratch_free(struct scratch *s); /* NULL is allowed */
DEFINE_CLEANUP(scratch, struct scratch *, scratch_free)

/* Put len bytes at `at`; bytes between the former end and `at` are zeros. -ENOSPC and other errors of the file system,
 * with a sentence that names the directory and --tmpdir. */
GR_MUST_CHECK int scratch_write(struct scratch *s, uint64_t at, const void *data, size_t len);
/* Exactly len bytes from `at`, which lie before the end. */
GR_MUST_CHECK int scratch_read(struct scratch *s, uint64_t at, void *dst, size_t len);
uint64_t scratch_len(const struct scratch *s);

#endif
