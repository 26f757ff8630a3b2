/* SHA-256 digests: the names of objects, chunks and images. Computed by OpenSSL. */
#ifndef GRANARY_BASE_DIGEST_H
#define GRANARY_BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"

enum { DIGEST_SIZE = 32, DIGEST_HEX_SIZE = 65 /* with the final NUL */ };

struct digest {
    uint8_t b[DIGEST_SIZE];
};

struct digest digest_of(const void *data, size_t len);
bool digest_equal(const struct digest *a, const struct digest *b);
/* For tables (map.h): its first bytes, since a digest needs no further hashing. */
static inline uint64_t digest_hash(const struct digest *d)
{
    uint64_t hash;
    memcpy(&hash, d->b, sizeof hash);
    return hash;
}
/* All bytes zero: in the index it stands for a hole. */
bool digest_is_zero(const struct digest *d);
/* The MD5 in lower-case hex, to compare with what a store says of an object, for nothing else; empty where this OpenSSL
 * has none (FIPS). Returns out. */
enum { MD5_HEX_SIZE = 33 /* with the final NUL */ };
char *md5_hex(const void *data, size_t len, char out[MD5_HEX_SIZE]);
/* Lower-case hex with a final NUL; returns out. */
char *digest_hex(const struct digest *d, char out[DIGEST_HEX_SIZE]);
/* Exactly 64 lower-case hex digits of text (len bytes); -EINVAL otherwise, without a sentence. */
GR_MUST_CHECK int digest_parse(const char *text, size_t len, struct digest *out);

/* A running SHA-256. new: NULL when out of memory. */
struct hasher;
struct hasher *hasher_new(void);
void hasher_free(struct hasher *h);
void hasher_update(struct hasher *h, const void *data, size_t len);
/* The digest of what was given since new or the last finish; the hasher starts afresh. */
struct digest hasher_finish(struct hasher *h);

DEFINE_CLEANUP(hasher, struct hasher *, hasher_free)

#endif
