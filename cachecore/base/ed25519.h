/* Ed25519 signatures, and the BLAKE2b and base64 that minisign's files need beside them. Computed by OpenSSL. Any
 * thread. -ENOTSUP, with a sentence: this OpenSSL lacks an algorithm (FIPS mode).
 */
#ifndef GRANARY_BASE_ED25519_H
#define GRANARY_BASE_ED25519_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

enum { ED25519_KEY_SIZE = 32, ED25519_SIZE = 64, BLAKE2B_SIZE = 64 };

/* Derive the public key from a secret key. -ENOTSUP. */
GR_MUST_CHECK int ed25519_public(const uint8_t secret[ED25519_KEY_SIZE], uint8_t out[ED25519_KEY_SIZE]);
GR_MUST_CHECK int ed25519_sign(const uint8_t secret[ED25519_KEY_SIZE], const void *data, size_t len,
                               uint8_t out[ED25519_SIZE]);
/* -EBADMSG, without a sentence: it is no signature of data by that key. */
GR_MUST_CHECK int ed25519_verify(const uint8_t key[ED25519_KEY_SIZE], const void *data, size_t len,
                                 const uint8_t signature[ED25519_SIZE]);

GR_MUST_CHECK int blake2b_512(const void *data, size_t len, uint8_t out[BLAKE2B_SIZE]);

/* The length of n bytes in base64, without the final NUL. */
#define BASE64_LENGTH(n) (((n) + 2) / 3 * 4)
/* Longest text and longest data that these two take. */
enum { BASE64_DATA_MAX = 192, BASE64_TEXT_MAX = BASE64_LENGTH(BASE64_DATA_MAX) };

/* Decode base64 (with padding) of exactly n bytes. -EINVAL, without a sentence, for any other text, also for another
 * spelling of the same bytes. */
GR_MUST_CHECK int base64_decode(const char *text, size_t len, uint8_t *out, size_t n);
/* Write n bytes as base64 and a NUL; returns out, which has room for BASE64_LENGTH(n) + 1. */
char *base64_encode(const uint8_t *data, size_t n, char *out);

#endif
