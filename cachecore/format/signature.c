/* minisign's files are lines of text. Each line of base64 holds, in this order:
 *
 *   public key   "Ed", id 8, key 32
 *   secret key   "Ed", kdf 2 (zero: no password), "B2", salt 32, limits 16, id 8, secret 32, public key 32, checksum 32
 *   signature    "ED", id 8, Ed25519 of the BLAKE2b-512 of the message 64; a later line: Ed25519 of those 64 bytes and
 *                the trusted comment
 *
 * The secret key's checksum is a BLAKE2b-256, which OpenSSL 3.0 does not compute. The public key beside the secret one
 * serves instead: it must be the secret's own.
 *
 * Only "ED" is taken. minisign's older "Ed", which signs the message itself, would only add a second way to be wrong.
 */
#include "format/signature.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/le.h"
#include "base/text.h"

enum {
    PUBLIC_SIZE = 2 + KEY_ID_SIZE + ED25519_KEY_SIZE,
    SECRET_SIZE = 158,
    SECRET_AT = 62, /* of the secret key in its file's bytes; the id is before it */
    SIGNATURE_SIZE = 2 + KEY_ID_SIZE + ED25519_SIZE,
};

static const char untrusted[] = "untrusted comment: ", trusted[] = "trusted comment: ";

/* A line of a text, without its end. */
struct line {
    const char *at;
    size_t len;
};

/* Cut the next line off the text; false: there is none. */
static bool take_line(const char **text, size_t *len, struct line *out)
{
    const char *end = *len ? memchr(*text, '\n', *len) : NULL;
    size_t whole = end ? (size_t)(end - *text) : *len;
    if (!*len)
        return false;
    *out = (struct line){.at = *text, .len = whole};
    if (whole && (*text)[whole - 1] == '\r')
        out->len--;
    *text += whole + (end != NULL);
    *len -= whole + (end != NULL);
    return true;
}

/* Take a line that must begin with a word, and cut that off. */
static bool take_comment(const char **text, size_t *len, const char *word, struct line *out)
{
    size_t n = strlen(word);
    if (!take_line(text, len, out) || out->len < n || memcmp(out->at, word, n) != 0)
        return false;
    out->at += n;
    out->len -= n;
    return true;
}

/* ------------------------------------------------------------------ keys */

int public_key_decode(const char *text, size_t len, struct public_key *out)
{
    uint8_t raw[PUBLIC_SIZE];
    struct line line;
    const char *at = text;
    size_t left = len;
    /* The key alone has no comment before it. */
    if (!take_comment(&at, &left, untrusted, &line)) {
        at = text;
        left = len;
    }
    if (!take_line(&at, &left, &line) || left || base64_decode(line.at, line.len, raw, sizeof raw) ||
        memcmp(raw, "Ed", 2) != 0)
        return error_set(-EINVAL, "it is no public key of minisign, which is 56 characters that begin with RW");
    memcpy(out->id, raw + 2, KEY_ID_SIZE);
    memcpy(out->key, raw + 2 + KEY_ID_SIZE, ED25519_KEY_SIZE);
    return 0;
}

char *public_key_text(const struct public_key *key, char out[PUBLIC_KEY_TEXT_MAX])
{
    uint8_t raw[PUBLIC_SIZE] = "Ed";
    memcpy(raw + 2, key->id, KEY_ID_SIZE);
    memcpy(raw + 2 + KEY_ID_SIZE, key->key, ED25519_KEY_SIZE);
    return base64_encode(raw, sizeof raw, out);
}

/* Check the decoded bytes and take the key out of them. */
static int take_secret(const uint8_t raw[SECRET_SIZE], struct secret_key *out)
{
    uint8_t public[ED25519_KEY_SIZE];
    if (memcmp(raw, "Ed", 2) != 0 || memcmp(raw + 4, "B2", 2) != 0)
        return error_set(-EINVAL, "it is a secret key of a kind that this program does not know");
    if (raw[2] || raw[3])
        return error_set(
            -EINVAL, "the secret key has a password: sign what 'granary sign IMAGE --message' prints by minisign, "
                     "and give 'granary sign IMAGE --signature FILE' the result; or make a key by 'minisign -G -W'");
    int rc = ed25519_public(raw + SECRET_AT, public);
    if (!rc && memcmp(public, raw + SECRET_AT + ED25519_KEY_SIZE, sizeof public) != 0)
        rc = error_set(-EINVAL, "the secret key is damaged: its public half is not its own");
    if (rc)
        return rc;
    memcpy(out->id, raw + SECRET_AT - KEY_ID_SIZE, KEY_ID_SIZE);
    memcpy(out->secret, raw + SECRET_AT, ED25519_KEY_SIZE);
    return 0;
}

int secret_key_decode(const char *text, size_t len, struct secret_key *out)
{
    uint8_t raw[SECRET_SIZE];
    struct line line;
    if (!take_comment(&text, &len, untrusted, &line) || !take_line(&text, &len, &line) || len ||
        base64_decode(line.at, line.len, raw, sizeof raw))
        return error_set(-EINVAL, "it is no secret key file of minisign ('minisign -G -W -s FILE' makes one)");
    int rc = take_secret(raw, out);
    explicit_bzero(raw, sizeof raw);
    return rc;
}

char *key_id_text(const uint8_t id[KEY_ID_SIZE], char out[KEY_ID_TEXT_MAX])
{
    snprintf(out, KEY_ID_TEXT_MAX, "%016" PRIX64, le64_get(id));
    return out;
}

/* ------------------------------------------------------------------ signatures */

size_t signature_message(const char *name, const char *tag, const struct digest *image, char out[SIGNATURE_MESSAGE_MAX])
{
    char hex[DIGEST_HEX_SIZE];
    return (size_t)snprintf(out, SIGNATURE_MESSAGE_MAX, "granary signature 1\nimage %s:%s\ndigest sha256:%s\n", name,
                            tag, digest_hex(image, hex));
}

/* Put together what the second signature covers; returns its length. */
static size_t cover(const struct signature *s, uint8_t out[ED25519_SIZE + SIGNATURE_COMMENT_MAX])
{
    size_t len = strlen(s->comment);
    memcpy(out, s->message, ED25519_SIZE);
    memcpy(out + ED25519_SIZE, s->comment, len);
    return ED25519_SIZE + len;
}

static int check_comment(const char *comment)
{
    if (strlen(comment) >= SIGNATURE_COMMENT_MAX)
        return error_set(-EINVAL, "a trusted comment has at most %d bytes", SIGNATURE_COMMENT_MAX - 1);
    if (strpbrk(comment, "\r\n") || !text_is_utf8(comment, strlen(comment)))
        return error_set(-EINVAL, "a trusted comment is one line of UTF-8");
    return 0;
}

int signature_make(const struct secret_key *key, const char *message, size_t len, const char *comment,
                   char out[SIGNATURE_TEXT_MAX])
{
    struct signature s = {.comment = ""};
    uint8_t hash[BLAKE2B_SIZE], covered[ED25519_SIZE + SIGNATURE_COMMENT_MAX], raw[SIGNATURE_SIZE] = "ED";
    char first[BASE64_TEXT_MAX + 1], second[BASE64_TEXT_MAX + 1], id[KEY_ID_TEXT_MAX];
    int rc = check_comment(comment);
    if (!rc)
        rc = blake2b_512(message, len, hash);
    if (!rc)
        rc = ed25519_sign(key->secret, hash, sizeof hash, s.message);
    if (rc)
        return rc;
    snprintf(s.comment, sizeof s.comment, "%s", comment);
    rc = ed25519_sign(key->secret, covered, cover(&s, covered), s.whole);
    if (rc)
        return rc;
    memcpy(raw + 2, key->id, KEY_ID_SIZE);
    memcpy(raw + 2 + KEY_ID_SIZE, s.message, ED25519_SIZE);
    snprintf(out, SIGNATURE_TEXT_MAX, "%ssignature by granary with key %s\n%s\n%s%s\n%s\n", untrusted,
             key_id_text(key->id, id), base64_encode(raw, sizeof raw, first), trusted, s.comment,
             base64_encode(s.whole, sizeof s.whole, second));
    return 0;
}

int signature_decode(const char *text, size_t len, struct signature *out)
{
    struct signature s = {.comment = ""};
    struct line first, key, comment, last;
    uint8_t raw[SIGNATURE_SIZE];
    if (len >= SIGNATURE_TEXT_MAX)
        return error_set(-EBADMSG, "is no signature: it has more than %d bytes", SIGNATURE_TEXT_MAX - 1);
    if (!text_is_utf8(text, len) || memchr(text, 0, len))
        return error_set(-EBADMSG, "is no signature: it is not UTF-8 text");
    if (!take_comment(&text, &len, untrusted, &first) || !take_line(&text, &len, &key) ||
        !take_comment(&text, &len, trusted, &comment) || !take_line(&text, &len, &last) || len)
        return error_set(-EBADMSG, "is no signature: it has not the four lines of a minisign file");
    if (base64_decode(key.at, key.len, raw, sizeof raw) || base64_decode(last.at, last.len, s.whole, sizeof s.whole))
        return error_set(-EBADMSG, "is no signature: a line of it is not base64 of the right length");
    if (memcmp(raw, "ED", 2) != 0)
        return error_set(-EBADMSG,
                         "is of a kind that is not taken: sign with minisign 0.10 or later, or with its option -H");
    if (comment.len >= SIGNATURE_COMMENT_MAX)
        return error_set(-EBADMSG, "is no signature: its trusted comment has more than %d bytes",
                         SIGNATURE_COMMENT_MAX - 1);
    memcpy(s.id, raw + 2, KEY_ID_SIZE);
    memcpy(s.message, raw + 2 + KEY_ID_SIZE, ED25519_SIZE);
    memcpy(s.comment, comment.at, comment.len);
    *out = s;
    return 0;
}

int signature_verify(const struct signature *s, const struct public_key *key, const char *message, size_t len)
{
    uint8_t hash[BLAKE2B_SIZE], covered[ED25519_SIZE + SIGNATURE_COMMENT_MAX];
    int rc = memcmp(s->id, key->id, KEY_ID_SIZE) ? -EBADMSG : blake2b_512(message, len, hash);
    if (!rc)
        rc = ed25519_verify(key->key, hash, sizeof hash, s->message);
    return rc ? rc : ed25519_verify(key->key, covered, cover(s, covered), s->whole);
}
