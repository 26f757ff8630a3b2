/* Image references: STORE/NAME[:TAG] or STORE/NAME[:TAG]@sha256:DIGEST (docs/reference/format-store.md,
 * "References"). */
#ifndef GRANARY_FORMAT_IMAGE_REF_H
#define GRANARY_FORMAT_IMAGE_REF_H

#include <stdbool.h>

#include "base/digest.h"

enum {
    IMAGE_NAME_MAX = 128,
    IMAGE_TAG_MAX = 128,
    IMAGE_STORE_MAX = 1024,
    IMAGE_REF_MAX = IMAGE_STORE_MAX + IMAGE_NAME_MAX + IMAGE_TAG_MAX + DIGEST_HEX_SIZE + 16,
};

struct image_ref {
    char store[IMAGE_STORE_MAX]; /* URL without a final slash: file:///p, s3://b/p, http(s)://h/p,
                                    hdfs://h,h/p, swebhdfs://h/p */
    char name[IMAGE_NAME_MAX + 1];
    char tag[IMAGE_TAG_MAX + 1]; /* "latest" when none was written, empty then when by digest */
    bool by_digest;              /* the digest counts, a tag beside it says where it came from */
    struct digest digest;
};

/* A plain absolute path counts as file://. Names and tags: [A-Za-z0-9][A-Za-z0-9._-]*, as in OCI.
 * -EINVAL with a sentence that shows the right form. */
GR_MUST_CHECK int image_ref_parse(const char *text, struct image_ref *out);

/* Written out in full, to be parsed to the same again; returns out. */
char *image_ref_text(const struct image_ref *ref, char out[IMAGE_REF_MAX]);

/* What to write in place of an address of another kind of store ("gs://..."), or of one without a bucket; NULL: nothing
 * is known. */
const char *image_ref_advice(const char *url);

/* The store part alone ("granary images STORE"): out->name empty. */
GR_MUST_CHECK int image_ref_parse_store(const char *text, struct image_ref *out);

/* A name or a tag by itself. what: "image name" or "tag", for the sentence. */
GR_MUST_CHECK int image_ref_check_name(const char *what, const char *text);

#endif
