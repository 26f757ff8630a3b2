/* The signature of a tag: who says that NAME:TAG is the image with this digest. Keys and signatures are files of
 * minisign (docs/reference/format-store.md, "Signatures"). Decoders accept any bytes. No I/O, any thread. -ENOTSUP:
 * this OpenSSL lacks an algorithm.
 */
#ifndef GRANARY_FORMAT_SIGNATURE_H
#define GRANARY_FORMAT_SIGNATURE_H

#include "base/digest.h"
#include "base/ed25519.h"

/* A key's id: random, made by minisign with the key. It tells keys apart and proves nothing. */
enum { KEY_ID_SIZE = 8, KEY_ID_TEXT_MAX = 2 * KEY_ID_SIZE + 1 };

struct public_key {
    uint8_t id[KEY_ID_SIZE], key[ED25519_KEY_SIZE];
};

struct secret_key {
    uint8_t id[KEY_ID_SIZE], secret[ED25519_KEY_SIZE];
};

enum {
    KEY_FILE_MAX = 4096,
    PUBLIC_KEY_TEXT_MAX = BASE64_LENGTH(2 + KEY_ID_SIZE + ED25519_KEY_SIZE) + 1,
    SIGNATURE_TEXT_MAX = 1024, /* bytes of a signature file, with a final NUL */
    SIGNATURE_COMMENT_MAX = 512,
    SIGNATURE_MESSAGE_MAX = 512
};

/* A signature file, decoded but not verified. */
struct signature {
    uint8_t id[KEY_ID_SIZE]; /* of the key that it says it was made with */
    uint8_t message[ED25519_SIZE];
    char comment[SIGNATURE_COMMENT_MAX]; /* the trusted comment */
    uint8_t whole[ED25519_SIZE];         /* over `message` and the comment */
};

/* Decode a public key: a minisign file, or its second line alone. -EINVAL. */
GR_MUST_CHECK int public_key_decode(const char *text, size_t len, struct public_key *out);
/* Write a public key as the second line of its file, without the newline; returns out. */
char *public_key_text(const struct public_key *key, char out[PUBLIC_KEY_TEXT_MAX]);
/* Decode a secret key file without a password. The caller wipes *out. -EINVAL: no such file, or one with a password;
 * the sentence never quotes it. */
GR_MUST_CHECK int secret_key_decode(const char *text, size_t len, struct secret_key *out);
/* Write a key's id as minisign shows it; returns out. */
char *key_id_text(const uint8_t id[KEY_ID_SIZE], char out[KEY_ID_TEXT_MAX]);

/* Write the text that is signed for an image under NAME:TAG; returns its length. */
size_t signature_message(const char *name, const char *tag, const struct digest *image,
                         char out[SIGNATURE_MESSAGE_MAX]);

/* Make a signature file of a message. comment: the trusted comment, one line of UTF-8. -EINVAL: the comment. */
GR_MUST_CHECK int signature_make(const struct secret_key *key, const char *message, size_t len, const char *comment,
                                 char out[SIGNATURE_TEXT_MAX]);
/* Decode a signature file. -EBADMSG, with half a sentence that says what it is: "is no signature: ...". */
GR_MUST_CHECK int signature_decode(const char *text, size_t len, struct signature *out);
/* Verify message and comment. -EBADMSG, without a sentence: it is not the signature of this message by this key. */
GR_MUST_CHECK int signature_verify(const struct signature *s, const struct public_key *key, const char *message,
                                   size_t len);

#endif
