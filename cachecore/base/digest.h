/* SHA-256 digests: the names of objects, chunks and images. Computed by OpenSSL. All functions are for any thread; a
 * hasher is used by one thread at a time. Without SHA-256 in OpenSSL the process aborts.
 */
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

/* For a small daemon that hashes only names: keep OpenSSL from reading its configuration, which takes 0.7 MB. To be
 * called before any other function here. */
void digest_stay_small(void);

struct digest digest_of(const void *data, size_t len);
/* HMAC-SHA-256 of data under a key (RFC 2104). */
struct digest digest_hmac(const void *key, size_t key_len, const void *data, size_t len);
bool digest_equal(const struct digest *a, const struct digest *b);
/* The same in a time that does not depend on how much is equal. */
bool digest_equal_secret(const struct digest *a, const struct digest *b);
/* Return the hash of a digest for a table (map.h): its first bytes, which are evenly spread already. */
static inline uint64_t digest_hash(const struct digest *d)
{
    uint64_t hash;
    memcpy(&hash, d->b, sizeof hash);
    return hash;
}
/* Are all bytes zero? In the index such a digest stands for a hole. */
bool digest_is_zero(const struct digest *d);
/* Write the MD5 in lower-case hex, or an empty string if this OpenSSL has no MD5 (FIPS); returns out. Use it only to
 * compare with the MD5 that a store reports for an object. */
enum { MD5_HEX_SIZE = 33 /* with the final NUL */ };
char *md5_hex(const void *data, size_t len, char out[MD5_HEX_SIZE]);
/* Write the digest as 64 lower-case hex digits and a NUL; returns out. */
char *digest_hex(const struct digest *d, char out[DIGEST_HEX_SIZE]);
/* Parse text (len bytes), which must be exactly 64 lower-case hex digits; -EINVAL otherwise, without a sentence. */
GR_MUST_CHECK int digest_parse(const char *text, size_t len, struct digest *out);

/* A running SHA-256. hasher_new returns NULL when out of memory; hasher_free allows NULL. */
struct hasher;
struct hasher *hasher_new(void);
void hasher_free(struct hasher *h);
void hasher_update(struct hasher *h, const void *data, size_t len);
/* Return the digest of everything passed to hasher_update since hasher_new or the last finish, and start afresh. */
struct digest hasher_finish(struct hasher *h);

DEFINE_CLEANUP(hasher, struct hasher *, hasher_free)

#endif
