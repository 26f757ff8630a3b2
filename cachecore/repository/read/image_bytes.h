/* Reads bytes of an image at any address straight from its store, for a rebuild, a repair or a comparison, which need
 * little of an image and have no cache directory. Chunks and index nodes are verified as a server does. The most
 * recently used ones stay in memory, so that neighbouring small files cost one fetch. */
#ifndef GRANARY_REPOSITORY_READ_IMAGE_BYTES_H
#define GRANARY_REPOSITORY_READ_IMAGE_BYTES_H

#include "format/manifest.h"
#include "store/store.h"

enum { IMAGE_BYTES_CHUNKS = 128, IMAGE_BYTES_MEMORY = 32 << 20 };

struct image_bytes;

/* Store and manifest are borrowed and must outlive *out. The caller frees *out with image_bytes_free. -ENOMEM. */
GR_MUST_CHECK int image_bytes_new(struct store *s, const struct manifest *m, struct image_bytes **out);
/* No call may be running. NULL is allowed. */
void image_bytes_free(struct image_bytes *b);
DEFINE_CLEANUP(image_bytes, struct image_bytes *, image_bytes_free)

/* Read exactly len bytes from `address`. -EINVAL: outside the image; -EBADMSG: damaged; otherwise the store's errors.
 * Any thread. */
GR_MUST_CHECK int image_bytes_read(struct image_bytes *b, uint64_t address, uint64_t len, uint8_t *dst);

#endif
