/* Which signatures are trusted, and the sentences for all others. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/io.h"
#include "repository/trust.h"
#include "unit/scratch.h"

/* A pair of keys that a number makes. */
struct pair {
    struct secret_key secret;
    char public[BASE64_TEXT_MAX + 1]; /* as a user writes it */
};

static struct pair pair_of(uint8_t number)
{
    struct pair p = {.secret = {.id = {number}, .secret = {number}}};
    uint8_t raw[2 + KEY_ID_SIZE + ED25519_KEY_SIZE] = "Ed";
    memcpy(raw + 2, p.secret.id, KEY_ID_SIZE);
    assert_int_equal(ed25519_public(p.secret.secret, raw + 2 + KEY_ID_SIZE), 0);
    base64_encode(raw, sizeof raw, p.public);
    return p;
}

static struct image_ref ref_of(const char *text)
{
    char full[IMAGE_REF_MAX], hex[DIGEST_HEX_SIZE];
    struct digest digest = digest_of("image", 5);
    struct image_ref ref;
    snprintf(full, sizeof full, "%s@sha256:%s", text, digest_hex(&digest, hex));
    assert_int_equal(image_ref_parse(full, &ref), 0);
    return ref;
}

static void sign(const struct pair *by, const struct image_ref *ref, char out[SIGNATURE_TEXT_MAX])
{
    char message[SIGNATURE_MESSAGE_MAX];
    size_t len = signature_message(ref->name, ref->tag, &ref->digest, message);
    assert_int_equal(signature_make(&by->secret, message, len, "a comment", out), 0);
}

static struct trust trust_of(const struct pair *p)
{
    struct trust t = {.count = 0};
    assert_int_equal(trust_add(&t, "--trust ", p->public), 0);
    assert_int_equal(t.count, 1);
    return t;
}

static void refused(const struct trust *t, const struct image_ref *ref, const char *signature, const char *why)
{
    assert_int_equal(trust_check(t, ref, signature), -EKEYREJECTED);
    if (!strstr(error_text(), why) || !strstr(error_text(), "is not signed by key "))
        fail_msg("no \"%s\": %s", why, error_text());
}

static void test_trust__only_the_signature_of_a_trusted_key_passes(void **state)
{
    struct pair mine = pair_of(1), other = pair_of(2);
    struct image_ref ref = ref_of("/store/faces:v1");
    struct trust both = trust_of(&other), just_other = both, none = {.count = 0};
    char text[SIGNATURE_TEXT_MAX];
    sign(&mine, &ref, text);
    refused(&just_other, &ref, text, "it has a signature of key 0000000000000001; add that key");
    assert_int_equal(trust_add(&both, "--trust ", mine.public), 0);
    assert_int_equal(trust_check(&both, &ref, text), 0);
    refused(&both, &ref, NULL, "it has no signature");
    refused(&both, &ref, "", "it has no signature");
    assert_int_equal(trust_check(&none, &ref, NULL), 0); /* without keys nothing is checked */
}

static void test_trust__it_is_of_this_name_tag_and_digest_and_of_any_store(void **state)
{
    struct pair mine = pair_of(1);
    struct trust t = trust_of(&mine);
    struct image_ref ref = ref_of("/store/faces:v1"), other;
    char text[SIGNATURE_TEXT_MAX];
    sign(&mine, &ref, text);
    other = ref_of("s3://bucket/faces:v1");
    assert_int_equal(trust_check(&t, &other, text), 0);
    other = ref_of("/store/faces:v2");
    refused(&t, &other, text, "for another image or tag");
    other = ref_of("/store/cats:v1");
    refused(&t, &other, text, "for another image or tag");
    ref.digest.b[31] ^= 1;
    refused(&t, &ref, text, "for another image or tag");
}

/* The id says which key to try, and proves nothing. */
static void test_trust__another_key_under_the_same_id_is_another_key(void **state)
{
    struct pair mine = pair_of(1), forger = pair_of(2);
    struct image_ref ref = ref_of("/store/faces:v1");
    struct trust t = trust_of(&mine);
    char text[SIGNATURE_TEXT_MAX];
    memcpy(forger.secret.id, mine.secret.id, KEY_ID_SIZE);
    sign(&forger, &ref, text);
    refused(&t, &ref, text, "was changed");
}

static void test_trust__a_changed_comment_is_refused(void **state)
{
    struct pair mine = pair_of(1);
    struct image_ref ref = ref_of("/store/faces:v1");
    struct trust t = trust_of(&mine);
    char text[SIGNATURE_TEXT_MAX];
    sign(&mine, &ref, text);
    memcpy(strstr(text, "a comment"), "A", 1);
    refused(&t, &ref, text, "was changed");
}

static void test_trust__no_truncated_signature_passes(void **state)
{
    struct pair mine = pair_of(1);
    struct image_ref ref = ref_of("/store/faces:v1");
    struct trust t = trust_of(&mine);
    char text[SIGNATURE_TEXT_MAX];
    sign(&mine, &ref, text);
    for (size_t len = strlen(text) - 2; len; len--) { /* the last newline may be missing */
        text[len] = '\0';
        refused(&t, &ref, text, "what is there is no signature");
    }
}

static void test_trust__a_key_is_text_or_a_file_and_nothing_else(void **state)
{
    char dir[SCRATCH_MAX], path[SCRATCH_MAX + 16], text[256];
    struct pair mine = pair_of(1);
    struct image_ref ref = ref_of("/store/faces:v1");
    struct trust t = {.count = 0};
    char signature[SIGNATURE_TEXT_MAX];
    scratch_make(dir);
    snprintf(path, sizeof path, "%s/mine.pub", dir);
    assert_int_equal(trust_add(&t, "--trust ", path), -EINVAL); /* no such file */
    assert_non_null(strstr(error_text(), "--trust "));
    assert_int_equal(trust_add(&t, "--trust ", "RWSnokey"), -EINVAL);
    assert_int_equal(io_write_file_atomic(path, "no key\n", 7, false), 0);
    assert_int_equal(trust_add(&t, "--trust ", path), -EINVAL);
    assert_int_equal(t.count, 0);
    int len = snprintf(text, sizeof text, "untrusted comment: mine\n%s\n", mine.public);
    assert_int_equal(io_write_file_atomic(path, text, (size_t)len, false), 0);
    assert_int_equal(trust_add(&t, "--trust ", path), 0);
    assert_int_equal(t.count, 1);
    sign(&mine, &ref, signature);
    assert_int_equal(trust_check(&t, &ref, signature), 0);
    while (t.count < TRUST_KEYS_MAX)
        assert_int_equal(trust_add(&t, "--trust ", pair_of((uint8_t)(t.count + 10)).public), 0);
    assert_int_equal(trust_add(&t, "--trust ", mine.public), -EINVAL);
    assert_non_null(strstr(error_text(), "more than 8 keys"));
    scratch_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trust__only_the_signature_of_a_trusted_key_passes),
        cmocka_unit_test(test_trust__it_is_of_this_name_tag_and_digest_and_of_any_store),
        cmocka_unit_test(test_trust__another_key_under_the_same_id_is_another_key),
        cmocka_unit_test(test_trust__a_changed_comment_is_refused),
        cmocka_unit_test(test_trust__no_truncated_signature_passes),
        cmocka_unit_test(test_trust__a_key_is_text_or_a_file_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
