/* Bytes of an image at any address, straight from its store: for the little that a rebuild, a repair or a comparison
 * needs of an image, without a cache directory. Chunks and index nodes are proved like a reader's; those used last are
 * kept in memory, so that neighbouring small files cost one fetch.
 *
 * Memory: IMAGE_BYTES_CHUNKS chunks, IMAGE_BYTES_MEMORY bytes of them at most, and 16 index nodes of 90 KiB.
 */
#ifndef GRANARY_STORE_READ_IMAGE_BYTES_H
#define GRANARY_STORE_READ_IMAGE_BYTES_H

#include "format/manifest.h"
#include "store/store.h"

enum { IMAGE_BYTES_CHUNKS = 128, IMAGE_BYTES_MEMORY = 32 << 20 };

struct image_bytes;

/* Store and manifest are the caller's and stay. */
GR_MUST_CHECK int image_bytes_new(struct store *s, const struct manifest *m, struct image_bytes **out);
/* No call may be running. NULL is allowed. */
void image_bytes_free(struct image_bytes *b);
DEFINE_CLEANUP(image_bytes, struct image_bytes *, image_bytes_free)

/* Exactly len bytes from `address`. -EINVAL: beyond the image; -EBADMSG: damaged; or the store's error. Any thread. */
GR_MUST_CHECK int image_bytes_read(struct image_bytes *b, uint64_t address, uint64_t len, uint8_t *dst);

#endif
