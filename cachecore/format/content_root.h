/* The content root of an image's bytes, from the digests of its chunks in order (docs/reference/format-store.md,
 * "Content root"). No I/O; one thread. */
#ifndef GRANARY_FORMAT_CONTENT_ROOT_H
#define GRANARY_FORMAT_CONTENT_ROOT_H

#include "base/digest.h"

struct content_root;

/* -ENOMEM; -EINVAL: no image has that size and that chunk size. Free *out with content_root_free. */
GR_MUST_CHECK int content_root_new(uint64_t image_size, uint32_t chunk_size, struct content_root **out);
/* Add the next chunk: its SHA-256, or zeros for one of zeros only, which is a hole. At most as many as the image has.
 */
void content_root_add(struct content_root *c, const struct digest *chunk);
/* Return the root, after the last chunk. */
struct digest content_root_finish(struct content_root *c);
void content_root_free(struct content_root *c); /* NULL is allowed */
DEFINE_CLEANUP(content_root, struct content_root *, content_root_free)

#endif
