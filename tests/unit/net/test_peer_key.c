/* The key of a cluster: a proof is good for one request, for some minutes, under any key of the file. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/io.h"
#include "net/peer_key.h"
#include "unit/scratch.h"

#define ONE "0123456789abcdef0123456789abcdef"
#define TWO "fedcba9876543210fedcba9876543210"

enum { NOW = 1700000000 };

static char dir[SCRATCH_MAX], path[SCRATCH_MAX + 8];

static void write_keys(const char *text)
{
    assert_int_equal(io_write_file_atomic(path, text, strlen(text), false), 0);
}

static struct peer_key *key_of(const char *text)
{
    struct peer_key *k = NULL;
    write_keys(text);
    assert_int_equal(peer_key_open(path, &k), 0);
    return k;
}

static const struct peer_get get = {.key = "packs/3a/3a7b", .off = 4096, .len = 65536, .chunks = "AAAA"};

/* RFC 4231, test cases 1 and 2. */
static void test_peer_key__hmac_is_that_of_the_rfc(void **state)
{
    char hex[DIGEST_HEX_SIZE], key[20];
    memset(key, 0x0b, sizeof key);
    struct digest d = digest_hmac(key, sizeof key, "Hi There", 8);
    assert_string_equal(digest_hex(&d, hex), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    d = digest_hmac("Jefe", 4, "what do ya want for nothing?", 28);
    assert_string_equal(digest_hex(&d, hex), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

static void test_peer_key__a_proof_is_for_one_request(void **state)
{
    char proof[PEER_PROOF_MAX];
    struct peer_key *k = key_of(ONE "\n");
    const struct peer_get others[] = {
        {.key = "packs/3a/3a7c", .off = 4096, .len = 65536, .chunks = "AAAA"},
        {.key = "packs/3a/3a7b", .off = 4097, .len = 65536, .chunks = "AAAA"},
        {.key = "packs/3a/3a7b", .off = 4096, .len = 65537, .chunks = "AAAA"},
        {.key = "packs/3a/3a7b", .off = 4096, .len = 65536, .chunks = "AAAB"},
    };
    peer_key_prove(k, &get, NOW, proof);
    assert_true(peer_key_check(k, &get, NOW, proof));
    assert_null(strstr(proof, ONE));
    for (size_t i = 0; i < GR_ARRAY_SIZE(others); i++)
        assert_false(peer_key_check(k, &others[i], NOW, proof));
    peer_key_free(k);
}

static void test_peer_key__a_proof_grows_old(void **state)
{
    char proof[PEER_PROOF_MAX], other[PEER_PROOF_MAX];
    struct peer_key *k = key_of(ONE);
    peer_key_prove(k, &get, NOW, proof);
    assert_true(peer_key_check(k, &get, NOW + PEER_PROOF_AGE_S, proof));
    assert_true(peer_key_check(k, &get, NOW - PEER_PROOF_AGE_S, proof));
    assert_false(peer_key_check(k, &get, NOW + PEER_PROOF_AGE_S + 1, proof));
    assert_false(peer_key_check(k, &get, NOW - PEER_PROOF_AGE_S - 1, proof));
    snprintf(other, sizeof other, "%d%s", NOW + 1, strchr(proof, ' ')); /* the time is part of it */
    assert_false(peer_key_check(k, &get, NOW + 1, other));
    peer_key_free(k);
}

static void test_peer_key__what_is_no_proof_is_refused(void **state)
{
    char proof[PEER_PROOF_MAX], wrong[2 * PEER_PROOF_MAX];
    struct peer_key *k = key_of(ONE);
    peer_key_prove(k, &get, NOW, proof);
    assert_false(peer_key_check(k, &get, NOW, NULL));
    assert_false(peer_key_check(k, &get, NOW, ""));
    assert_false(peer_key_check(k, &get, NOW, ONE));
    for (size_t i = 0; i < strlen(proof); i++) {
        snprintf(wrong, sizeof wrong, "%s", proof);
        wrong[i] ^= 1;
        assert_false(peer_key_check(k, &get, NOW, wrong));
        wrong[i] = 0;
        assert_false(peer_key_check(k, &get, NOW, wrong));
    }
    snprintf(wrong, sizeof wrong, "%s0", proof);
    assert_false(peer_key_check(k, &get, NOW, wrong));
    peer_key_free(k);
}

/* First every node knows both keys, then the new one makes proofs, then the old one goes. */
static void test_peer_key__a_key_is_replaced_without_a_gap(void **state)
{
    char proof[PEER_PROOF_MAX];
    struct peer_key *old = key_of(ONE "\n"), *both = key_of("  " ONE "\n\n" TWO "\r\n"), *turned = key_of(TWO "\n" ONE);
    struct peer_key *fresh = key_of(TWO "\n");
    peer_key_prove(both, &get, NOW, proof);
    assert_true(peer_key_check(old, &get, NOW, proof) && peer_key_check(turned, &get, NOW, proof));
    peer_key_prove(turned, &get, NOW, proof);
    assert_true(peer_key_check(both, &get, NOW, proof) && peer_key_check(fresh, &get, NOW, proof));
    assert_false(peer_key_check(old, &get, NOW, proof));
    peer_key_free(old);
    peer_key_free(both);
    peer_key_free(turned);
    peer_key_free(fresh);
}

/* A file that is wrong for a while does not throw the node out. */
static void test_peer_key__the_file_is_followed(void **state)
{
    const struct timespec pause = {.tv_sec = 1, .tv_nsec = 100000000};
    char by_one[PEER_PROOF_MAX], by_two[PEER_PROOF_MAX];
    struct peer_key *two = key_of(TWO);
    peer_key_prove(two, &get, NOW, by_two);
    struct peer_key *k = key_of(ONE);
    peer_key_prove(k, &get, NOW, by_one);
    write_keys("short\n");
    nanosleep(&pause, NULL);
    assert_true(peer_key_check(k, &get, NOW, by_one));
    write_keys(TWO);
    nanosleep(&pause, NULL);
    assert_false(peer_key_check(k, &get, NOW, by_one));
    assert_true(peer_key_check(k, &get, NOW, by_two));
    peer_key_free(k);
    peer_key_free(two);
}

static void test_peer_key__wrong_files_are_named_and_not_shown(void **state)
{
    static const char *const texts[] = {"", "\n\n", "secret\n", ONE "\nsecret\n",
                                        ONE "\n" ONE "\n" ONE "\n" ONE "\n" ONE "\n" ONE "\n" ONE "\n" ONE "\n" ONE};
    struct peer_key *k;
    for (size_t i = 0; i < GR_ARRAY_SIZE(texts); i++) {
        write_keys(texts[i]);
        assert_int_equal(peer_key_open(path, &k), -EINVAL);
        assert_non_null(strstr(error_text(), path));
        assert_null(strstr(error_text(), "secret"));
        assert_null(strstr(error_text(), ONE));
    }
    remove(path);
    assert_int_equal(peer_key_open(path, &k), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peer_key__hmac_is_that_of_the_rfc),
        cmocka_unit_test(test_peer_key__a_proof_is_for_one_request),
        cmocka_unit_test(test_peer_key__a_proof_grows_old),
        cmocka_unit_test(test_peer_key__what_is_no_proof_is_refused),
        cmocka_unit_test(test_peer_key__a_key_is_replaced_without_a_gap),
        cmocka_unit_test(test_peer_key__the_file_is_followed),
        cmocka_unit_test(test_peer_key__wrong_files_are_named_and_not_shown),
    };
    scratch_make(dir);
    snprintf(path, sizeof path, "%s/key", dir);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove(dir);
    return failed;
}
