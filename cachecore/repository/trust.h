/* The keys whose signatures are trusted, and the check of an image against them. Any thread. */
#ifndef GRANARY_REPOSITORY_TRUST_H
#define GRANARY_REPOSITORY_TRUST_H

#include "format/image_ref.h"
#include "format/signature.h"

enum { TRUST_KEYS_MAX = 8 };

/* All zero: every image is trusted, signed or not. */
struct trust {
    struct public_key keys[TRUST_KEYS_MAX];
    size_t count;
};

/* Add a public key: the path of a minisign file, or the key itself in base64. what: the option as the user wrote it,
 * with its separator: "trust=", "trust = " or "--trust ". -EINVAL; errors of reading a file. */
GR_MUST_CHECK int trust_add(struct trust *t, const char *what, const char *key);

/* Check that a trusted key has signed ref's digest under ref's name and tag. signature: the text from the tag; NULL or
 * empty: none. -EKEYREJECTED, with a sentence that says what helps. */
GR_MUST_CHECK int trust_check(const struct trust *t, const struct image_ref *ref, const char *signature);

/* Check that ref's tag can have a signature of ref's digest, before trust_check. named: the digest that the tag names
 * now; zero: there is no such tag. No keys: 0. -EKEYREJECTED. */
GR_MUST_CHECK int trust_check_tag(const struct trust *t, const struct image_ref *ref, const struct digest *named);

#endif
