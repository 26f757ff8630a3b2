/* What is said of a node: labels that Kubernetes takes, bounded in number, and gone when the data is. */
#include "unit/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "labels/labels.h"
#include "unit/scratch.h"

#define HEX "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static const struct label_rules rules = {.min_share = 50, .max_images = 3};

/* A round with the server's counters; nothing served yet. */
static void begin(struct label_facts *f, unsigned filled, unsigned entries)
{
    CLEANUP_JSON json_t *status =
        json_pack("{s:s, s:{s:I, s:I, s:i, s:i}}", "health", "healthy", "counters", "granary_cache_capacity_bytes",
                  (json_int_t)100 << 30, "granary_cache_used_bytes", (json_int_t)60 << 30, "granary_cache_fills_total",
                  (int)filled, "granary_cache_entries", (int)entries);
    assert_non_null(status);
    label_facts_take_status(f, status);
}

/* An image of 100 chunks. digit: the first of its digest. */
static void serve(struct label_facts *f, const char *export, char digit, unsigned cached)
{
    char digest[] = "sha256:" HEX;
    digest[7] = digit;
    CLEANUP_JSON json_t *image = json_pack("{s:o, s:s, s:i, s:i, s:i}", "export", json_lossy(export), "digest", digest,
                                           "chunks", 90, "unknown_chunks", 10, "cached_chunks", (int)cached);
    assert_non_null(image);
    assert_int_equal(label_facts_take_image(f, image), 0);
}

/* The value of a label; "": there is none. */
static const char *value(const json_t *labels, const char *key)
{
    const char *text = json_string_value(json_object_get(labels, key));
    return text ? text : "";
}

/* As the API server checks a label's key behind its prefix. */
static bool is_name(const char *name)
{
    static const char *const others = "-_.";
    size_t len = strlen(name);
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        bool alphanumeric = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!alphanumeric && (!strchr(others, c) || !i || i + 1 == len))
            return false;
    }
    return len >= 1 && len <= 63;
}

static json_t *make(const struct label_facts *f)
{
    const char *key;
    json_t *text, *labels = labels_make(f, &rules);
    assert_non_null(labels);
    json_object_foreach(labels, key, text)
    {
        assert_true(text_begins_with(key, LABEL_PREFIX));
        assert_true(is_name(key + strlen(LABEL_PREFIX)));
        assert_true(is_name(json_string_value(text)));
    }
    return labels;
}

static void test_labels__say_what_is_cached(void **state)
{
    struct label_facts f = {.disk_per_s = (UINT64_C(700) << 20) + 5, .link_per_s = UINT64_C(1) << 30};
    begin(&f, 99, 99);
    serve(&f, "faces", 'a', 97);
    serve(&f, "voices@1234", 'b', 100);
    serve(&f, "words", 'c', 49);
    label_facts_end(&f);
    CLEANUP_JSON json_t *labels = make(&f);
    assert_string_equal(value(labels, "granary.io/cached.faces"), "90");
    assert_string_equal(value(labels, "granary.io/cached-digest.a01122334455"), "90");
    assert_string_equal(value(labels, "granary.io/cached.voices"), "100");
    assert_string_equal(value(labels, "granary.io/cached.words"), "");
    assert_string_equal(value(labels, "granary.io/health"), "healthy");
    assert_string_equal(value(labels, "granary.io/cache-free-gib"), "32");
    assert_string_equal(value(labels, "granary.io/disk-mib-per-s"), "512");
    assert_string_equal(value(labels, "granary.io/link-mib-per-s"), "1024");
    assert_int_equal(json_object_size(labels), 8);
    label_facts_release(&f);
}

/* Of two versions under one name, a pod may read the one of which less is cached. */
static void test_labels__of_one_name_are_those_of_the_least_cached(void **state)
{
    struct label_facts f = {0};
    begin(&f, 0, 0);
    serve(&f, "faces", 'a', 100);
    serve(&f, "faces@b0112233", 'b', 60);
    label_facts_end(&f);
    CLEANUP_JSON json_t *labels = make(&f);
    assert_string_equal(value(labels, "granary.io/cached.faces"), "60");
    assert_string_equal(value(labels, "granary.io/cached-digest.a01122334455"), "100");
    assert_string_equal(value(labels, "granary.io/cached-digest.b01122334455"), "60");
    label_facts_release(&f);
}

static void test_labels__are_no_more_than_allowed_and_the_best(void **state)
{
    struct label_facts f = {0};
    char name[16];
    begin(&f, 0, 0);
    for (unsigned i = 0; i < 16; i++) {
        snprintf(name, sizeof name, "i%u", i);
        serve(&f, name, "0123456789abcdef"[i], 60 + i);
    }
    label_facts_end(&f);
    CLEANUP_JSON json_t *labels = make(&f);
    assert_int_equal(json_object_size(labels), 2 * rules.max_images + 2);
    assert_string_equal(value(labels, "granary.io/cached.i15"), "70");
    assert_string_equal(value(labels, "granary.io/cached-digest.f01122334455"), "70");
    assert_string_equal(value(labels, "granary.io/cached.i0"), "");
    label_facts_release(&f);
}

/* Names that are no labels get one, each its own, whatever they are. */
static void test_labels__of_hostile_names_are_valid(void **state)
{
    char deep[5000], out[LABEL_NAME_MAX + 1], other[LABEL_NAME_MAX + 1];
    memset(deep, 'x', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    const char *const names[] = {"",      "@",       "a b", "../../etc", "a\nb=c", "\xff\xfe",
                                 "ends.", "ünïcode", "=",   "\"},",      deep};
    struct label_facts f = {0};
    begin(&f, 0, 0);
    for (size_t i = 0; i < GR_ARRAY_SIZE(names); i++) {
        serve(&f, names[i], '1', 100);
        label_facts_end(&f);
        CLEANUP_JSON json_t *labels = make(&f);
        label_name(names[i], out);
        label_facts_release(&f);
    }
    label_name("a b", out);
    assert_string_equal(out, "a_b-c8687a08aa5d");
    label_name("a_b", other);
    assert_string_equal(other, "a_b");
    label_name("a:b", other);
    assert_string_not_equal(out, other);
    label_name(deep, out);
    deep[4000] = 'y';
    label_name(deep, other);
    assert_string_not_equal(out, other);
    assert_int_equal(strlen(out), LABEL_NAME_MAX);
    deep[LABEL_NAME_MAX] = 0;
    label_name(deep, out);
    assert_string_equal(out, deep);
}

/* Answers of a server that is not ours do no harm, and make no labels of images. */
static void test_labels__of_nonsense_are_none(void **state)
{
    static const char *const answers[] = {
        "null",
        "[]",
        "{}",
        "{\"counters\": 5, \"health\": {}}",
        "{\"export\": \"a\", \"digest\": \"sha256:xyz\", \"chunks\": 1, \"cached_chunks\": 1}",
        "{\"export\": \"a\", \"digest\": \"sha256:" HEX "\", \"chunks\": -1, \"cached_chunks\": 1}",
        "{\"export\": \"a\", \"digest\": \"sha256:" HEX "\", \"chunks\": 9223372036854775807, \"unknown_chunks\": "
        "9223372036854775807, \"cached_chunks\": 9223372036854775807}"};
    struct label_facts f = {0};
    for (size_t i = 0; i < GR_ARRAY_SIZE(answers); i++) {
        CLEANUP_JSON json_t *answer = json_loads(answers[i], JSON_DECODE_ANY, NULL);
        assert_non_null(answer);
        label_facts_take_status(&f, answer);
        assert_int_equal(label_facts_take_image(&f, answer), 0);
        label_facts_end(&f);
        CLEANUP_JSON json_t *labels = make(&f);
        assert_string_equal(value(labels, "granary.io/health"), "failing");
        assert_int_equal(json_object_size(labels), 2);
    }
    label_facts_release(&f);
}

/* After the last pod the image is served no more, but cached; then others take its place. */
static void test_labels__stay_while_enough_must_be_cached(void **state)
{
    struct label_facts f = {0};
    begin(&f, 1000, 500);
    serve(&f, "faces", 'a', 90);
    label_facts_end(&f);
    begin(&f, 1020, 510); /* 20 written, 10 more are there */
    label_facts_end(&f);
    CLEANUP_JSON json_t *labels = make(&f);
    assert_string_equal(value(labels, "granary.io/cached.faces"), "80");
    begin(&f, 10, 510); /* another server: 10 written, as many more gone */
    label_facts_end(&f);
    CLEANUP_JSON json_t *after = make(&f);
    assert_string_equal(value(after, "granary.io/cached.faces"), "70");
    begin(&f, 41, 510);
    label_facts_end(&f);
    CLEANUP_JSON json_t *less = make(&f);
    assert_string_equal(value(less, "granary.io/cached.faces"), "");
    begin(&f, 41, 0); /* the cache was emptied */
    label_facts_end(&f);
    assert_int_equal(f.images.len, 0);
    label_facts_release(&f);
}

/* An old version that nobody reads any more says nothing about the new one. */
static void test_labels__of_a_name_follow_what_is_served(void **state)
{
    struct label_facts f = {0};
    begin(&f, 0, 0);
    serve(&f, "faces", 'a', 60);
    label_facts_end(&f);
    begin(&f, 0, 0);
    serve(&f, "faces", 'b', 100);
    label_facts_end(&f);
    CLEANUP_JSON json_t *labels = make(&f);
    assert_string_equal(value(labels, "granary.io/cached.faces"), "100");
    assert_string_equal(value(labels, "granary.io/cached-digest.a01122334455"), "60");
    label_facts_release(&f);
}

static void test_labels__known_images_are_bounded(void **state)
{
    struct label_facts f = {0};
    char name[16];
    begin(&f, 0, 0);
    for (unsigned i = 0; i < 3; i++)
        serve(&f, i ? "b" : "a", 'a', 100);
    assert_int_equal(f.images.len, 2);
    for (unsigned i = 0; i < LABEL_KNOWN_MAX; i += LABEL_KNOWN_MAX / 10) {
        snprintf(name, sizeof name, "i%u", i);
        while (f.images.len < LABEL_KNOWN_MAX)
            assert_int_equal(vec_push(&f.images, f.images.items[1]), 0);
        serve(&f, name, 'c', 100);
        assert_int_equal(f.images.len, LABEL_KNOWN_MAX);
        assert_string_equal(f.images.items[LABEL_KNOWN_MAX - 1].name, name);
    }
    label_facts_release(&f);
}

static void test_labels__patch_has_what_differs_and_removes_what_is_stale(void **state)
{
    bool none;
    CLEANUP_JSON json_t *now = json_pack("{s:s, s:s, s:s, s:s}", "kubernetes.io/hostname", "n", "csi.granary.io/driver",
                                         "yes", "granary.io/old", "1", "granary.io/same", "2");
    CLEANUP_JSON json_t *wanted = json_pack("{s:s, s:s}", "granary.io/same", "2", "granary.io/new", "3");
    CLEANUP_JSON json_t *patch = labels_patch(now, wanted, &none);
    CLEANUP_JSON json_t *expected =
        json_pack("{s:{s:{s:s, s:n}}}", "metadata", "labels", "granary.io/new", "3", "granary.io/old");
    assert_false(none);
    assert_true(json_equal(patch, expected));
    CLEANUP_JSON json_t *after = labels_patch(wanted, wanted, &none);
    assert_non_null(after);
    assert_true(none);
}

static void test_labels__as_a_feature_file(void **state)
{
    CLEANUP_BYTES text = BYTES_INIT(4096);
    struct label_facts f = {0};
    begin(&f, 0, 0);
    serve(&f, "faces", 'a', 100);
    label_facts_end(&f);
    CLEANUP_JSON json_t *labels = make(&f);
    assert_int_equal(labels_feature_file(labels, 0, &text), 0);
    assert_string_equal(bytes_string(&text), "# +expiry-time=1970-01-01T00:00:00Z\n"
                                             "granary.io/cached-digest.a01122334455=100\n"
                                             "granary.io/cached.faces=100\n"
                                             "granary.io/health=healthy\n"
                                             "granary.io/cache-free-gib=32\n");
    label_facts_release(&f);
}

static void test_labels__waits_grow_to_five_minutes_and_differ(void **state)
{
    uint64_t before = 0;
    for (unsigned failures = 0; failures < 50; failures++) {
        uint64_t least = labels_wait_ms(10000, failures, 0), most = 0;
        for (uint32_t random = 0; random < 1000; random++)
            most = GR_MAX(most, labels_wait_ms(10000, failures, random * 4294967));
        assert_true(least >= before && least >= 7500 && most <= 375000 && most > least);
        before = least;
    }
    assert_int_equal(before, 225000);
    assert_int_equal(labels_wait_ms(3600000, 0, 0), 2700000); /* the interval itself may be longer */
}

static void test_labels__take_what_was_measured(void **state)
{
    static const char *const files[] = {
        "{\"kind\": \"dir\", \"figures\": {\"read\": {\"raw\": 9, \"granary\": 1048576}}}",
        "{\"kind\": \"store\", \"figures\": {\"read_many\": {\"raw\": 2097152, \"granary\": null}}}",
        "{\"kind\": \"store\", \"figures\": {}}",
        "",
    };
    struct label_facts f = {0};
    char dir[SCRATCH_MAX], path[SCRATCH_MAX + 16];
    scratch_make(dir);
    for (size_t i = 0; i < GR_ARRAY_SIZE(files); i++) {
        snprintf(path, sizeof path, "%s/measured", dir);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(files[i], file);
        fclose(file);
        assert_int_equal(!label_facts_measured(path, &f), i < 2);
    }
    assert_int_equal(f.disk_per_s, 1 << 20);
    assert_int_equal(f.link_per_s, 2 << 20);
    scratch_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels__say_what_is_cached),
        cmocka_unit_test(test_labels__of_one_name_are_those_of_the_least_cached),
        cmocka_unit_test(test_labels__are_no_more_than_allowed_and_the_best),
        cmocka_unit_test(test_labels__of_hostile_names_are_valid),
        cmocka_unit_test(test_labels__of_nonsense_are_none),
        cmocka_unit_test(test_labels__stay_while_enough_must_be_cached),
        cmocka_unit_test(test_labels__of_a_name_follow_what_is_served),
        cmocka_unit_test(test_labels__known_images_are_bounded),
        cmocka_unit_test(test_labels__patch_has_what_differs_and_removes_what_is_stale),
        cmocka_unit_test(test_labels__as_a_feature_file),
        cmocka_unit_test(test_labels__waits_grow_to_five_minutes_and_differ),
        cmocka_unit_test(test_labels__take_what_was_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
