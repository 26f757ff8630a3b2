/* SHA-256 through OpenSSL's EVP interface, and its hex form. EVP calls on memory fail only when the algorithm is
 * missing. Nothing here works without SHA-256, so that aborts instead of burdening every caller with an error.
 */
#include "base/digest.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

/* A handle around OpenSSL's context, so that only this file and ed25519.c include OpenSSL's headers. */
struct hasher {
    EVP_MD_CTX *context;
};

void digest_stay_small(void)
{
    /* If it fails, OpenSSL starts as usual. */
    (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ADD_ALL_CIPHERS |
                                  OPENSSL_INIT_NO_ADD_ALL_DIGESTS | OPENSSL_INIT_NO_LOAD_CRYPTO_STRINGS,
                              NULL);
}

struct digest digest_of(const void *data, size_t len)
{
    struct digest d;
    if (!EVP_Digest(data, len, d.b, NULL, EVP_sha256(), NULL))
        abort();
    return d;
}

struct digest digest_hmac(const void *key, size_t key_len, const void *data, size_t len)
{
    struct digest d;
    if (!HMAC(EVP_sha256(), key, (int)key_len, data, len, d.b, NULL))
        abort();
    return d;
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
    return !memcmp(a->b, b->b, DIGEST_SIZE);
}

bool digest_equal_secret(const struct digest *a, const struct digest *b)
{
    return !CRYPTO_memcmp(a->b, b->b, DIGEST_SIZE);
}

bool digest_is_zero(const struct digest *d)
{
    static const struct digest zero;
    return digest_equal(d, &zero);
}

/* Write n bytes in hex and a NUL; returns out. */
static char *hex_of(const uint8_t *b, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[b[i] >> 4];
        out[2 * i + 1] = digits[b[i] & 15];
    }
    out[2 * n] = 0;
    return out;
}

char *md5_hex(const void *data, size_t len, char out[MD5_HEX_SIZE])
{
    uint8_t b[MD5_HEX_SIZE / 2];
    /* In FIPS mode OpenSSL refuses MD5. The empty result then equals no object's MD5, so callers read the object. */
    bool made = EVP_Digest(data, len, b, NULL, EVP_md5(), NULL);
    return hex_of(b, made ? sizeof b : 0, out);
}

char *digest_hex(const struct digest *d, char out[DIGEST_HEX_SIZE])
{
    return hex_of(d->b, DIGEST_SIZE, out);
}

/* Return a digit's value, or -1. Upper case is refused: a digest has one spelling only, since it names objects. */
static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

int digest_parse(const char *text, size_t len, struct digest *out)
{
    if (len != 2 * DIGEST_SIZE)
        return -EINVAL;
    for (int i = 0; i < DIGEST_SIZE; i++) {
        int high = hex_value(text[2 * i]), low = hex_value(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return -EINVAL;
        out->b[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}

struct hasher *hasher_new(void)
{
    struct hasher *h = malloc(sizeof *h);
    if (!h)
        return NULL;
    h->context = EVP_MD_CTX_new();
    if (!h->context || !EVP_DigestInit_ex(h->context, EVP_sha256(), NULL)) {
        hasher_free(h);
        return NULL;
    }
    return h;
}

void hasher_free(struct hasher *h)
{
    if (!h)
        return;
    EVP_MD_CTX_free(h->context);
    free(h);
}

void hasher_update(struct hasher *h, const void *data, size_t len)
{
    if (!EVP_DigestUpdate(h->context, data, len))
        abort();
}

struct digest hasher_finish(struct hasher *h)
{
    struct digest d;
    if (!EVP_DigestFinal_ex(h->context, d.b, NULL) || !EVP_DigestInit_ex(h->context, EVP_sha256(), NULL))
        abort();
    return d;
}
