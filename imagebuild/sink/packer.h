/* Pack stored chunks back to back. A full pack is named by its SHA-256 and handed to the upload.
 *
 * A chunk's reference names its pack, so it is complete only when the pack closes. Up to PACK_CHUNKS references wait
 * for that; a pack of chunks that compress well closes at that number, long before its size. One thread.
 */
#ifndef GRANARY_IMAGEBUILD_SINK_PACKER_H
#define GRANARY_IMAGEBUILD_SINK_PACKER_H

#include "format/chunk.h"
#include "imagebuild/sink/upload.h"

enum { PACK_CHUNKS = 4096 }; /* per pack */

struct packer;

/* Receive one completed reference, in the order of packer_add. A non-zero result ends the packer's call with it. */
typedef int packer_emit(void *arg, uint64_t number, const struct chunk_ref *ref);

/* pack_size: target in bytes; a single chunk may be longer. */
struct packer_config {
    struct upload *upload;
    size_t pack_size;
    packer_emit *emit;
    void *arg;
};

/* -ENOMEM. */
GR_MUST_CHECK int packer_new(const struct packer_config *config, struct packer **out);
void packer_free(struct packer *p); /* NULL is allowed; drops the pack in progress */

/* Append a chunk to the pack, closing the pack first if the chunk does not fit. ref lacks object, kind and offset;
 * `stored` is copied. Errors: -ENOMEM, those of upload_put and emit. */
GR_MUST_CHECK int packer_add(struct packer *p, uint64_t number, const struct chunk_ref *ref,
                             const struct bytes *stored);
/* Close the last pack. Errors as from packer_add. */
GR_MUST_CHECK int packer_finish(struct packer *p);

#endif
