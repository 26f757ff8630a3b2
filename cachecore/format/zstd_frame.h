/* One zstd frame whose plain length is known beforehand: what chunks and catalog pages are stored
 * as. Contexts are kept per thread and freed when the thread ends. Internal to format/.
 */
#ifndef GRANARY_FORMAT_ZSTD_FRAME_H
#define GRANARY_FORMAT_ZSTD_FRAME_H

#include <stddef.h>

#include "base/bytes.h"

/* Append one frame of at most limit bytes that holds plain. -EMSGSIZE (no sentence): it would be
 * longer, *out is as before; -ENOMEM. The same input, level and limit give the same bytes for one
 * version of libzstd. */
GR_MUST_CHECK int zstd_frame_encode(const void *plain, size_t len, int level, size_t limit, struct bytes *out);

/* Decode stored[0..stored_len), which must be exactly one frame that says and holds exactly
 * plain_len bytes. Never writes beyond dst[plain_len). Returns 0, -EBADMSG (no sentence; *why says
 * what is wrong) or -ENOMEM (with one). */
GR_MUST_CHECK int zstd_frame_decode(const void *stored, size_t stored_len, void *dst, size_t plain_len,
                                    const char **why);

#endif
