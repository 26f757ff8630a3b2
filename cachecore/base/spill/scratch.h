/* Temporary storage with random access: bytes are kept in memory up to a limit, then in an unlinked file in a directory
 * for temporary files. Builds keep their sorts, lists and metadata regions here, so that a build's memory does not grow
 * with its number of files. File data is never stored here.
 *
 * One thread, except that any number of threads may call scratch_read while no thread writes.
 */
#ifndef GRANARY_BASE_SPILL_SCRATCH_H
#define GRANARY_BASE_SPILL_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/compiler.h"

enum { SCRATCH_MEMORY_DEFAULT = 32 << 20 };

struct scratch_config {
    const char *dir; /* where the file is made; NULL: $TMPDIR, else /var/tmp */
    size_t memory;   /* bytes kept in memory before the file is made; 0: SCRATCH_MEMORY_DEFAULT */
};

struct scratch;

/* Make an empty scratch; config is copied. Makes no file yet. -ENOMEM with a sentence. */
GR_MUST_CHECK int scratch_new(const struct scratch_config *config, struct scratch **out);
void scratch_free(struct scratch *s); /* NULL is allowed */
DEFINE_CLEANUP(scratch, struct scratch *, scratch_free)

/* Write len bytes at offset `at`. A gap between the former end and `at` reads as zeros. -ENOMEM, or -ENOSPC and other
 * errors of the filesystem, with a sentence that names the directory and --tmpdir. What was written before stays
 * readable. */
GR_MUST_CHECK int scratch_write(struct scratch *s, uint64_t at, const void *data, size_t len);
/* Read len bytes at offset `at`; all of them must lie before the end. -errno of the filesystem with a sentence; -EIO:
 * the file was cut. */
GR_MUST_CHECK int scratch_read(struct scratch *s, uint64_t at, void *dst, size_t len);
/* Give back the disk space of [start, end), which nobody reads or writes again. Only whole blocks of 4 KiB are given
 * back, and nothing in memory or on a filesystem that cannot do it. */
void scratch_forget(struct scratch *s, uint64_t start, uint64_t end);
/* Return the end of the last byte written. */
uint64_t scratch_len(const struct scratch *s);

/* Reads a part of a scratch in order, through a window in memory. One thread; the scratch outlives it. */
struct scratch_reader {
    struct scratch *from;
    uint64_t at, end;     /* the part that is not in the window yet */
    uint8_t *window;      /* cap bytes, grown for a record that is longer */
    size_t cap, pos, len; /* the window holds len bytes; those before pos have been used */
    bool forgets;         /* the only reader of its part: it gives back what was used (scratch_forget) */
    uint64_t forgotten;   /* up to here */
};

/* Begin to read [start, end), without forgetting, by a window of `window` bytes, or less where there is less to read.
 * Release it also after an error. -ENOMEM with a sentence. */
GR_MUST_CHECK int scratch_reader_init(struct scratch_reader *r, struct scratch *from, uint64_t start, uint64_t end,
                                      size_t window);
void scratch_reader_release(struct scratch_reader *r);
/* Have the next `need` bytes, which must not go beyond the end, in one piece at window + pos. That may move the window.
 * The caller adds to pos what it uses. -ENOMEM, or as scratch_read. */
GR_MUST_CHECK int scratch_reader_fill(struct scratch_reader *r, size_t need);
static inline bool scratch_reader_ended(const struct scratch_reader *r)
{
    return r->pos == r->len && r->at == r->end;
}

#endif
