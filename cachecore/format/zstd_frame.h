/* Single zstd frames of known plain length, the stored form of chunks and catalog pages. Any thread; each keeps its
 * zstd contexts until it ends. Internal to format/.
 */
#ifndef GRANARY_FORMAT_ZSTD_FRAME_H
#define GRANARY_FORMAT_ZSTD_FRAME_H

#include <stddef.h>

#include "base/bytes.h"

/* Append one frame of at most limit bytes that contains the len bytes of plain. -EMSGSIZE: the frame would be longer;
 * the sentence may be missing, and *out is unchanged. -ENOMEM. The same input, level and limit give the same bytes for
 * one version of libzstd. */
GR_MUST_CHECK int zstd_frame_encode(const void *plain, size_t len, int level, size_t limit, struct bytes *out);

/* Decode the stored_len bytes at stored into dst. They must be exactly one frame that announces and contains exactly
 * plain_len bytes; dst has room for those and is never overrun. -EBADMSG: no sentence is set, *why says what is wrong;
 * -ENOMEM with a sentence. */
GR_MUST_CHECK int zstd_frame_decode(const void *stored, size_t stored_len, void *dst, size_t plain_len,
                                    const char **why);

#endif
