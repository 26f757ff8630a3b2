/* Keys and signatures of minisign: what is made verifies, and nothing that was changed does. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/io.h"
#include "format/signature.h"
#include "format/tag.h"

static const char message[] = "granary signature 1\nimage faces:v1\n", comment[] = "timestamp:1\tfile:faces:v1";

/* A pair of keys. */
static void make_keys(struct secret_key *secret, struct public_key *public)
{
    *secret = (struct secret_key){.id = {1, 2, 3, 4, 5, 6, 7, 0xab}, .secret = {9}};
    memcpy(public->id, secret->id, KEY_ID_SIZE);
    assert_int_equal(ed25519_public(secret->secret, public->key), 0);
}

static void make(char out[SIGNATURE_TEXT_MAX], struct public_key *public)
{
    struct secret_key secret;
    make_keys(&secret, public);
    assert_int_equal(signature_make(&secret, message, strlen(message), comment, out), 0);
}

static void refused(const char *text, size_t len, const char *why)
{
    struct signature s;
    assert_int_equal(signature_decode(text, len, &s), -EBADMSG);
    assert_non_null(strstr(error_text(), why));
}

static void test_signature__what_is_made_verifies_with_its_key_only(void **state)
{
    char text[SIGNATURE_TEXT_MAX], id[KEY_ID_TEXT_MAX];
    struct public_key public, other;
    struct signature s;
    make(text, &public);
    assert_int_equal(signature_decode(text, strlen(text), &s), 0);
    assert_string_equal(s.comment, comment);
    assert_string_equal(key_id_text(s.id, id), "AB07060504030201");
    assert_int_equal(signature_verify(&s, &public, message, strlen(message)), 0);
    assert_int_equal(signature_verify(&s, &public, message, strlen(message) - 1), -EBADMSG);
    other = public;
    other.id[0] ^= 1; /* the same key by another id */
    assert_int_equal(signature_verify(&s, &other, message, strlen(message)), -EBADMSG);
    other = public;
    assert_int_equal(ed25519_public((const uint8_t[ED25519_KEY_SIZE]){8}, other.key), 0);
    assert_int_equal(signature_verify(&s, &other, message, strlen(message)), -EBADMSG);
    s.comment[0] ^= 1;
    assert_int_equal(signature_verify(&s, &public, message, strlen(message)), -EBADMSG);
}

static void test_signature__no_changed_byte_verifies(void **state)
{
    char text[SIGNATURE_TEXT_MAX];
    struct public_key public;
    struct signature s;
    make(text, &public);
    size_t start = (size_t)(strchr(text, '\n') - text); /* the first line is not signed */
    for (size_t i = start; i < strlen(text) - 1; i++) {
        text[i] ^= 1;
        int rc = signature_decode(text, strlen(text), &s);
        assert_true(rc || signature_verify(&s, &public, message, strlen(message)) == -EBADMSG);
        text[i] ^= 1;
    }
}

static void test_signature__hostile_texts_are_refused(void **state)
{
    char text[SIGNATURE_TEXT_MAX], other[SIGNATURE_TEXT_MAX], large[SIGNATURE_TEXT_MAX + 1];
    struct public_key public;
    make(text, &public);
    for (size_t len = 0; len + 1 < strlen(text); len++) { /* truncated, but for the last newline */
        struct signature s;
        assert_int_equal(signature_decode(text, len, &s), -EBADMSG);
    }
    memset(large, 'a', sizeof large);
    refused(large, sizeof large, "more than");
    refused("a\0b", 3, "UTF-8");
    refused("\xff\xfe", 2, "UTF-8");
    refused("one\ntwo\nthree\nfour\n", 19, "four lines");
    char *second = strchr(text, '\n') + 1;
    memcpy(other, text, sizeof other);
    other[second - text + 5] = '*';
    refused(other, strlen(other), "base64");
    memcpy(other, text, sizeof other);
    other[second - text + 1] = 'W'; /* "ED" becomes "Ed" */
    refused(other, strlen(other), "-H");
}

static void test_signature__a_comment_is_one_line_that_fits(void **state)
{
    struct secret_key secret;
    struct public_key public;
    char out[SIGNATURE_TEXT_MAX], large[SIGNATURE_COMMENT_MAX + 1];
    make_keys(&secret, &public);
    memset(large, 'a', SIGNATURE_COMMENT_MAX);
    large[SIGNATURE_COMMENT_MAX] = '\0';
    assert_int_equal(signature_make(&secret, message, 1, "a\nb", out), -EINVAL);
    assert_int_equal(signature_make(&secret, message, 1, "\xff", out), -EINVAL);
    assert_int_equal(signature_make(&secret, message, 1, large, out), -EINVAL);
    large[SIGNATURE_COMMENT_MAX - 1] = '\0';
    assert_int_equal(signature_make(&secret, message, 1, large, out), 0);
    struct signature s;
    assert_int_equal(signature_decode(out, strlen(out), &s), 0);
}

static void test_public_key__only_whole_keys_are_taken(void **state)
{
    uint8_t raw[42] = "Ed";
    char base64[BASE64_TEXT_MAX + 1], text[512];
    struct public_key key;
    base64_encode(raw, sizeof raw, base64);
    assert_int_equal(public_key_decode(base64, strlen(base64), &key), 0);
    snprintf(text, sizeof text, "untrusted comment: a key\n%s\n", base64);
    assert_int_equal(public_key_decode(text, strlen(text), &key), 0);
    assert_int_equal(public_key_decode(text, strlen(text) - 2, &key), -EINVAL);
    assert_int_equal(public_key_decode("", 0, &key), -EINVAL);
    raw[1] = 'D';
    base64_encode(raw, sizeof raw, base64);
    assert_int_equal(public_key_decode(base64, strlen(base64), &key), -EINVAL);
}

static void test_secret_key__with_a_password_or_damaged_it_is_refused(void **state)
{
    struct secret_key secret, back;
    struct public_key public;
    uint8_t raw[158] = "Ed\0\0B2";
    char base64[BASE64_TEXT_MAX + 1], text[512];
    make_keys(&secret, &public);
    memcpy(raw + 54, secret.id, KEY_ID_SIZE);
    memcpy(raw + 62, secret.secret, ED25519_KEY_SIZE);
    memcpy(raw + 94, public.key, ED25519_KEY_SIZE);
    snprintf(text, sizeof text, "untrusted comment: a key\n%s\n", base64_encode(raw, sizeof raw, base64));
    assert_int_equal(secret_key_decode(text, strlen(text), &back), 0);
    assert_memory_equal(&back, &secret, sizeof back);
    raw[94] ^= 1;
    snprintf(text, sizeof text, "untrusted comment: a key\n%s\n", base64_encode(raw, sizeof raw, base64));
    assert_int_equal(secret_key_decode(text, strlen(text), &back), -EINVAL);
    assert_non_null(strstr(error_text(), "damaged"));
    memcpy(raw + 2, "Sc", 2);
    snprintf(text, sizeof text, "untrusted comment: a key\n%s\n", base64_encode(raw, sizeof raw, base64));
    assert_int_equal(secret_key_decode(text, strlen(text), &back), -EINVAL);
    assert_non_null(strstr(error_text(), "password"));
}

static void test_tag__a_signature_is_kept_as_it_is(void **state)
{
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    struct tag t = {.digest.b = {1}, .nonce = "n", .name = "faces", .tag = "v1", .signature = "no signature at all\n"};
    struct tag back;
    assert_int_equal(tag_encode(&t, &doc), 0);
    assert_int_equal(tag_decode(doc.data, doc.len, &back), 0);
    assert_string_equal(back.signature, t.signature);
}

/* Ed25519 has no randomness, so the whole document is pinned. Its signature also verifies with the key as text. */
static void test_tag__golden_bytes_with_a_signature(void **state)
{
    static const char key[] = "RWQBAgMEBQYHq7tcZySCsNzKkaIaTtY7Fa/eiqE3jacs0Bs0lYnW591q";
    CLEANUP_BYTES golden = BYTES_INIT(TAG_DOC_MAX);
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    struct secret_key secret;
    struct public_key public;
    struct tag t = {.digest = digest_of("abc", 3),
                    .content_root = digest_of("c", 1),
                    .created = 1795000000,
                    .nonce = "0123456789abcdef",
                    .name = "faces",
                    .tag = "v1"};
    struct signature s;
    char text[SIGNATURE_MESSAGE_MAX];
    size_t len = signature_message(t.name, t.tag, &t.digest, text);
    make_keys(&secret, &public);
    assert_int_equal(signature_make(&secret, text, len, comment, t.signature), 0);
    assert_int_equal(tag_encode(&t, &doc), 0);
    assert_int_equal(io_read_file(GRANARY_GOLDEN_DIR "/ok-tag-signed.json", &golden), 0);
    assert_int_equal(doc.len, golden.len);
    assert_memory_equal(doc.data, golden.data, doc.len);

    assert_int_equal(tag_decode(golden.data, golden.len, &t), 0);
    assert_int_equal(signature_decode(t.signature, strlen(t.signature), &s), 0);
    assert_int_equal(public_key_decode(key, strlen(key), &public), 0);
    assert_int_equal(signature_verify(&s, &public, text, len), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signature__what_is_made_verifies_with_its_key_only),
        cmocka_unit_test(test_signature__no_changed_byte_verifies),
        cmocka_unit_test(test_signature__hostile_texts_are_refused),
        cmocka_unit_test(test_signature__a_comment_is_one_line_that_fits),
        cmocka_unit_test(test_public_key__only_whole_keys_are_taken),
        cmocka_unit_test(test_secret_key__with_a_password_or_damaged_it_is_refused),
        cmocka_unit_test(test_tag__a_signature_is_kept_as_it_is),
        cmocka_unit_test(test_tag__golden_bytes_with_a_signature),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
