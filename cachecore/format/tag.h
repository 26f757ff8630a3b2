/* The small JSON documents of a store that are not content-addressed: tags, leases and granary.json. They are replaced
 * as a whole. Encoders append to *out: -EMSGSIZE, -ENOMEM. Decoders accept any bytes: -EBADMSG with a sentence; *out is
 * unchanged then. No I/O, any thread.
 */
#ifndef GRANARY_FORMAT_TAG_H
#define GRANARY_FORMAT_TAG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "format/image_ref.h"
#include "format/provenance.h"
#include "format/signature.h"

enum { TAG_DOC_MAX = 64 << 10, TAG_NONCE_MAX = 64, STORE_ID_MAX = 65 };

/* images/<name>/<tag>: the image that a tag names. */
struct tag {
    struct digest digest;                                  /* the image */
    struct digest content_root;                            /* a reconnecting client compares it */
    int64_t created;                                       /* seconds since the epoch */
    struct digest parent;                                  /* the image it was built upon; zero: none */
    struct digest source;                                  /* SHA-256 of the source's address; zero: not known */
    char nonce[TAG_NONCE_MAX];                             /* after a lost answer, shows whether the put was ours */
    char name[IMAGE_NAME_MAX + 1], tag[IMAGE_TAG_MAX + 1]; /* the key it was put under; empty: an old document */
    char store[STORE_ID_MAX];                              /* id of the store it was put into; empty: not known */
    char signature[SIGNATURE_TEXT_MAX];   /* of name, tag and digest, as a minisign file; empty: none. Not verified, and
                                             not even decoded, so that a broken one hides no image */
    char provenance[PROVENANCE_TEXT_MAX]; /* where the image came from; empty: not known. Not decoded either; what is no
                                             object, or too large for this, counts as not known */
};

GR_MUST_CHECK int tag_encode(const struct tag *t, struct bytes *out);
GR_MUST_CHECK int tag_decode(const void *data, size_t len, struct tag *out);

/* Is this a Granary document other than a tag, such as a lease or a manifest? Listing tags meets such documents where
 * one store lies inside another, below the outer store's tags. */
bool tag_is_other_document(const void *data, size_t len);

/* Write the build tag's name, "20261121T013000Z-0123456789ab": time in UTC and the digest's first digits. A build, and
 * a copy of what it built, puts this unique tag beside the one the user named. Returns out. */
enum { TAG_BUILD_NAME_MAX = 32 };
char *tag_build_name(int64_t created, const struct digest *image, char out[TAG_BUILD_NAME_MAX]);

/* Is this the name of a build tag of the image with this digest? Compares the part with the digest only. */
bool tag_is_build_name(const char *tag, const struct digest *image);

/* builds/<uuid>: the lease of a running build or copy, which keeps gc from removing its objects. */
struct lease {
    int64_t started, renewed; /* seconds since the epoch */
    char host[256];           /* host and process, for people */
    uint64_t pid;
    char image[512]; /* the reference being built, for people */
};

GR_MUST_CHECK int lease_encode(const struct lease *l, struct bytes *out);
GR_MUST_CHECK int lease_decode(const void *data, size_t len, struct lease *out);

/* granary.json marks a store: {"format":"granary-store","id":"...","version":1}. The id is random, and travels with the
 * document when a store is moved or copied as a whole. */
enum { STORE_FORMAT_VERSION = 1 };
GR_MUST_CHECK int store_doc_encode(const char *id, struct bytes *out);
/* Check a granary.json, and put its id, or "" if it is an old one without, into id. -EBADMSG: not a Granary store, or a
 * newer one; the sentence says what to do. */
GR_MUST_CHECK int store_doc_decode(const void *data, size_t len, char id[STORE_ID_MAX]);

#endif
