/* The two small JSON documents of a store that are not content-addressed: tags and leases, and
 * granary.json. */
#ifndef GRANARY_FORMAT_TAG_H
#define GRANARY_FORMAT_TAG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "format/image_ref.h"

enum { TAG_DOC_MAX = 64 << 10, TAG_NONCE_MAX = 64 };

/* images/<name>/<tag> */
struct tag {
    struct digest digest;                                  /* the image */
    struct digest content_root;                            /* what a reconnecting client compares */
    int64_t created;                                       /* seconds since the epoch */
    struct digest parent;                                  /* zero: none */
    struct digest source;                                  /* of the address it was built from; zero: not known */
    char nonce[TAG_NONCE_MAX];                             /* tells our own put from another's after a lost answer */
    char name[IMAGE_NAME_MAX + 1], tag[IMAGE_TAG_MAX + 1]; /* the key it was put under; empty: an old document */
};

GR_MUST_CHECK int tag_encode(const struct tag *t, struct bytes *out);
GR_MUST_CHECK int tag_decode(const void *data, size_t len, struct tag *out); /* -EBADMSG */

/* Is it a document of Granary's, but no tag: a lease, a manifest, a mark? So for what a store that stands inside
 * another one has where the outer one's tags are. */
bool tag_is_other_document(const void *data, size_t len);

/* The name of the unique tag that a build, or a copy of what it built, writes beside the one asked for: time and
 * digest. */
enum { TAG_BUILD_NAME_MAX = 32 };
char *tag_build_name(int64_t created, const struct digest *image, char out[TAG_BUILD_NAME_MAX]);

/* Is it one, of an image of this digest: "20261121T013000Z-0123456789ab"? */
bool tag_is_build_name(const char *tag, const struct digest *image);

/* builds/<uuid>: a running build's lease. */
struct lease {
    int64_t started, renewed; /* seconds since the epoch */
    char host[256];
    uint64_t pid;
    char image[512]; /* the reference being built, for people */
};

GR_MUST_CHECK int lease_encode(const struct lease *l, struct bytes *out);
GR_MUST_CHECK int lease_decode(const void *data, size_t len, struct lease *out); /* -EBADMSG */

/* granary.json: {"format":"granary-store","version":1} */
enum { STORE_FORMAT_VERSION = 1 };
GR_MUST_CHECK int store_doc_encode(struct bytes *out);
/* -EBADMSG: not a Granary store or a newer one, with the remedy. */
GR_MUST_CHECK int store_doc_decode(const void *data, size_t len);

#endif
