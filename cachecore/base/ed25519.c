/* OpenSSL was linked before for digests and has both algorithms; GnuTLS, which NBD's TLS uses, lacks BLAKE2b in the
 * version of Debian 12. */
#include "base/ed25519.h"

#include <assert.h>
#include <errno.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"

DEFINE_CLEANUP(evp_pkey, EVP_PKEY *, EVP_PKEY_free)
DEFINE_CLEANUP(evp_md_ctx, EVP_MD_CTX *, EVP_MD_CTX_free)

static int not_supported(const char *what)
{
    return error_set(-ENOTSUP, "this machine's OpenSSL has no %s, which signatures need; is it in FIPS mode?", what);
}

int ed25519_public(const uint8_t secret[ED25519_KEY_SIZE], uint8_t out[ED25519_KEY_SIZE])
{
    size_t len = ED25519_KEY_SIZE;
    CLEANUP(cleanup_evp_pkey)
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, secret, ED25519_KEY_SIZE);
    return key && EVP_PKEY_get_raw_public_key(key, out, &len) == 1 ? 0 : not_supported("Ed25519");
}

int ed25519_sign(const uint8_t secret[ED25519_KEY_SIZE], const void *data, size_t len, uint8_t out[ED25519_SIZE])
{
    size_t out_len = ED25519_SIZE;
    CLEANUP(cleanup_evp_pkey)
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, secret, ED25519_KEY_SIZE);
    CLEANUP(cleanup_evp_md_ctx) EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (!key || !context || EVP_DigestSignInit(context, NULL, NULL, NULL, key) != 1 ||
        EVP_DigestSign(context, out, &out_len, data, len) != 1)
        return not_supported("Ed25519");
    return 0;
}

int ed25519_verify(const uint8_t key_bytes[ED25519_KEY_SIZE], const void *data, size_t len,
                   const uint8_t signature[ED25519_SIZE])
{
    CLEANUP(cleanup_evp_pkey)
    EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key_bytes, ED25519_KEY_SIZE);
    CLEANUP(cleanup_evp_md_ctx) EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (!key || !context || EVP_DigestVerifyInit(context, NULL, NULL, NULL, key) != 1)
        return not_supported("Ed25519");
    return EVP_DigestVerify(context, signature, ED25519_SIZE, data, len) == 1 ? 0 : -EBADMSG;
}

int blake2b_512(const void *data, size_t len, uint8_t out[BLAKE2B_SIZE])
{
    return EVP_Digest(data, len, out, NULL, EVP_blake2b512(), NULL) == 1 ? 0 : not_supported("BLAKE2b");
}

/* OpenSSL's decoder takes white space and does not count padding, so the bytes are encoded again and compared. */
int base64_decode(const char *text, size_t len, uint8_t *out, size_t n)
{
    uint8_t decoded[BASE64_DATA_MAX];
    char again[BASE64_TEXT_MAX + 1];
    assert(n <= BASE64_DATA_MAX);
    bool same = len == BASE64_LENGTH(n) && EVP_DecodeBlock(decoded, (const uint8_t *)text, (int)len) >= (int)n &&
                !memcmp(base64_encode(decoded, n, again), text, len);
    if (same)
        memcpy(out, decoded, n);
    explicit_bzero(decoded, sizeof decoded); /* it may be a secret key */
    explicit_bzero(again, sizeof again);
    return same ? 0 : -EINVAL;
}

char *base64_encode(const uint8_t *data, size_t n, char *out)
{
    EVP_EncodeBlock((uint8_t *)out, data, (int)n);
    return out;
}
