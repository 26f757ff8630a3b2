/* builds/<key>.checkpoint: how far an interrupted build came, so that the next one continues from there
 * (docs/reference/format-store.md, "Checkpoints"). The part of the image whose file data is stored is described as an
 * image itself, one without filesystem metadata.
 */
#ifndef GRANARY_FORMAT_CHECKPOINT_DOC_H
#define GRANARY_FORMAT_CHECKPOINT_DOC_H

#include "format/manifest.h"

enum { CHECKPOINT_DOC_MAX = 64 << 10, CHECKPOINT_KEY_MAX = 96 }; /* bytes */

struct checkpoint_doc {
    struct digest key; /* identifies the build; also part of the object's key */
    /* image.size: the address where file data continues, the start of a chunk. image.front_len: the address where file
     * data began. The metadata region is empty and lies at the end; the counts are zero. */
    struct manifest image;
};

/* Append the document to *out. -EINVAL: the image breaks a manifest's rules; -EMSGSIZE, -ENOMEM. */
GR_MUST_CHECK int checkpoint_doc_encode(const struct checkpoint_doc *c, struct bytes *out);
/* Decode a document; any bytes are safe. -EBADMSG or -ENOMEM, with a sentence; *out is unchanged then. */
GR_MUST_CHECK int checkpoint_doc_decode(const void *data, size_t len, struct checkpoint_doc *out);
/* Write the object's key; returns out. */
char *checkpoint_doc_key(const struct digest *key, char out[CHECKPOINT_KEY_MAX]);

#endif
