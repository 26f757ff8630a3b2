/* Stored chunks back to back in packs: a pack is named by its SHA-256 and handed to the upload when it is full.
 *
 * A chunk's reference can be completed only when its pack is closed, so up to PACK_CHUNKS references wait with it; a
 * pack of well-compressing chunks is closed at that number, well before its size.
 */
#ifndef GRANARY_IMAGEBUILD_SINK_PACKER_H
#define GRANARY_IMAGEBUILD_SINK_PACKER_H

#include "format/chunk.h"
#include "imagebuild/sink/upload.h"

enum { PACK_CHUNKS = 4096 };

struct packer;

/* One completed reference, in the order of packer_add. */
typedef int packer_emit(void *arg, uint64_t number, const struct chunk_ref *ref);

struct packer_config {
    struct upload *upload;
    size_t pack_size;
    packer_emit *emit;
    void *arg;
};

GR_MUST_CHECK int packer_new(const struct packer_config *config, struct packer **out);
void packer_free(struct packer *p);

/* ref lacks object, kind and offset; stored is copied. */
GR_MUST_CHECK int packer_add(struct packer *p, uint64_t number, const struct chunk_ref *ref,
                             const struct bytes *stored);
/* Close the last pack. */
GR_MUST_CHECK int packer_finish(struct packer *p);

#endif
