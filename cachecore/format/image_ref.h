/* Image references: STORE/NAME[:TAG] or STORE/NAME[:TAG]@sha256:DIGEST (docs/reference/format-store.md, "References").
 * Parsers return 0, or -EINVAL with a sentence that shows the right form; *out is unchanged then. No I/O, any thread.
 */
#ifndef GRANARY_FORMAT_IMAGE_REF_H
#define GRANARY_FORMAT_IMAGE_REF_H

#include <stdbool.h>

#include "base/digest.h"

enum {
    IMAGE_NAME_MAX = 128, /* bytes, as all limits here; without the final NUL for names and tags */
    IMAGE_TAG_MAX = 128,
    IMAGE_STORE_MAX = 1024,
    IMAGE_REF_MAX = IMAGE_STORE_MAX + IMAGE_NAME_MAX + IMAGE_TAG_MAX + DIGEST_HEX_SIZE + 16,
};

struct image_ref {
    char store[IMAGE_STORE_MAX]; /* a URL without a final slash: file:///p, s3://b/p, http(s)://h/p, hdfs://h,h/p,
                                    swebhdfs://h/p */
    char name[IMAGE_NAME_MAX + 1];
    char tag[IMAGE_TAG_MAX + 1]; /* if none is written: "latest", or empty with a digest */
    bool by_digest;              /* the digest selects the image; a tag beside it says where the digest came from */
    struct digest digest;
};

/* Parse a reference. A plain absolute path counts as file://. Names and tags are [A-Za-z0-9][A-Za-z0-9._-]*, as in
 * OCI. A URL with a user or password is refused. */
GR_MUST_CHECK int image_ref_parse(const char *text, struct image_ref *out);

/* Write a reference in full; parsing it gives the same reference again. Returns out. */
char *image_ref_text(const struct image_ref *ref, char out[IMAGE_REF_MAX]);

/* Whether an export's name is that of a version of an export that follows a tag: FOLLOWED@sha256:... */
bool image_ref_is_version(const char *name, const char *followed);

/* Return advice on what to write instead of an unknown kind of store ("gs://...") or an S3 address without a bucket, as
 * half a sentence; NULL: there is none. */
const char *image_ref_advice(const char *url);

/* Parse a store's address alone, as in "granary images STORE". out->name and out->tag are empty. */
GR_MUST_CHECK int image_ref_parse_store(const char *text, struct image_ref *out);

/* Check a name or a tag by itself. what: "image name" or "tag", for the sentence. */
GR_MUST_CHECK int image_ref_check_name(const char *what, const char *text);

#endif
