/* builds/<key>.checkpoint: how far a build came, for the one that is run again after it failed
 * (docs/reference/format-store.md, "Checkpoints"). It describes the part of the image whose bodies are stored as an
 * image of its own, without a filesystem's metadata.
 */
#ifndef GRANARY_FORMAT_CHECKPOINT_DOC_H
#define GRANARY_FORMAT_CHECKPOINT_DOC_H

#include "format/manifest.h"

enum { CHECKPOINT_DOC_MAX = 64 << 10, CHECKPOINT_KEY_MAX = 96 };

struct checkpoint_doc {
    struct digest key; /* of the build; also in the object's key */
    /* size: where bodies go on, a chunk's begin; front_len: where they began; metadata of no length at the end; counts
     * of nothing */
    struct manifest image;
};

/* Append the document to *out. */
GR_MUST_CHECK int checkpoint_doc_encode(const struct checkpoint_doc *c, struct bytes *out);
/* -EBADMSG. Any bytes are safe. */
GR_MUST_CHECK int checkpoint_doc_decode(const void *data, size_t len, struct checkpoint_doc *out);
/* The object's key. */
char *checkpoint_doc_key(const struct digest *key, char out[CHECKPOINT_KEY_MAX]);

#endif
