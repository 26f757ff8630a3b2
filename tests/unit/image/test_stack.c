/* The whole read side on a file store: names, lifetimes and what goes wrong at the start. */
#include "unit/cmocka_all.h"

#include <errno.h>

#include "base/error.h"
#include "unit/counters.h"
#include "unit/stack_world.h"

static void test_stack__images_of_two_stores_are_found_by_export_name(void **state)
{
    struct world w;
    world_init(&w);
    const struct stack_image images[] = {
        {.ref = w.faces_ref}, {.ref = w.other_ref, .export_name = "other faces"}, {.ref = w.cars_ref}};
    struct stack *s = start(&w, images, 3, true);
    assert_int_equal(stack_count(s), 3);
    struct stack_export *first = stack_next(s, NULL), *second = stack_next(s, stack_ref(first));
    assert_string_equal(stack_export_name(first), "faces");
    assert_string_equal(stack_export_name(second), "other faces");
    stack_put(first);
    stack_put(second);
    assert_ptr_equal(image_at(s, 2), image_named(s, "cars"));
    expect_image(image_named(s, "faces"), &w.faces);
    expect_image(image_named(s, "other faces"), &w.other);
    expect_image(image_named(s, "cars"), &w.cars);
    assert_null(image_named(s, ""));
    assert_null(image_named(s, "face"));
    /* Each image's counters are added up under one name. */
    assert_int_equal(counter_value(stack_counters, s, "granary_image_reads_total"), 3);
    assert_int_equal(counter_value(stack_counters, s, "granary_image_read_bytes_total"), 3 * 40 * CHUNK);
    assert_int_equal(counter_value(stack_counters, s, "granary_store_retries_total"), 0);
    stack_close(s);
    world_release(&w);
}

static void test_stack__the_only_image_is_the_default_export(void **state)
{
    struct world w;
    world_init(&w);
    const struct stack_image images[] = {{.ref = w.cars_ref}};
    struct stack *s = start(&w, images, 1, false);
    assert_ptr_equal(image_named(s, ""), image_at(s, 0));
    expect_image(image_named(s, ""), &w.cars);
    expect_image(image_named(s, ""), &w.cars); /* nothing is kept, and it works all the same */
    stack_close(s);
    world_release(&w);
}

static void test_stack__proxies_answer_for_one_store(void **state)
{
    struct world w;
    world_init(&w);
    struct stack *s = NULL;
    CLEANUP(store_l2_reports_release) struct store_l2_reports reports;
    /* Nobody listens there: everything comes from the store. */
    const struct stack_image images[] = {
        {.ref = w.faces_ref}, {.ref = w.cars_ref}, {.ref = w.other_ref, .export_name = "other faces"}};
    struct stack_config config = {.images = images,
                                  .image_count = 2,
                                  .store = {.timeout_ms = 1},
                                  .l2 = {"http://127.0.0.1:1/a", "http://127.0.0.1:1/b/"},
                                  .l2_count = 2};
    assert_int_equal(stack_open(&config, &s), 0);
    assert_int_equal(stack_start_threads(s), 0);
    expect_image(image_named(s, "faces"), &w.faces);
    expect_image(image_named(s, "cars"), &w.cars);
    stack_l2(s, &reports);
    assert_int_equal(reports.len, 2);
    assert_string_equal(reports.items[1].url, "http://127.0.0.1:1/b");
    assert_int_equal(counter_value(stack_counters, s, "granary_l2_bytes_total"), 0);
    assert_true(counter_value(stack_counters, s, "granary_l2_fallthroughs_total") >= 2);
    stack_close(s);
    config.image_count = 3;
    assert_int_equal(stack_open(&config, &s), -EINVAL);
    assert_non_null(strstr(error_text(), "one store"));
    world_release(&w);
}

static void test_stack__a_restart_finds_what_was_cached(void **state)
{
    struct world w;
    world_init(&w);
    const struct stack_image images[] = {{.ref = w.cars_ref}};
    struct stack *s = start(&w, images, 1, true);
    assert_int_equal(image_prefetch(image_named(s, ""), 0, w.cars.size), 0);
    stack_close(s);
    s = start(&w, images, 1, true);
    expect_image(image_named(s, ""), &w.cars);
    assert_int_equal(counter_value(stack_counters, s, "granary_fetch_requests_total"), 0);
    assert_int_equal(counter_value(stack_counters, s, "granary_cache_misses_total"), 0);
    assert_true(counter_value(stack_counters, s, "granary_cache_hits_total") >= 40);
    stack_close(s);
    world_release(&w);
}

static int open_with_quota(struct world *w, const char *name, struct stack **out)
{
    const struct stack_image images[] = {{.ref = w->faces_ref}, {.ref = w->cars_ref, .export_name = "bikes"}};
    struct stack_config config = {.images = images, .image_count = 2, .store = {.timeout_ms = 1}};
    config.cache.dirs[0].path = w->cache;
    config.cache.dirs[0].size = 64 << 20;
    config.cache.dir_count = 1;
    config.cache.disk_timeout_ms = DISK_TIMEOUT_MS;
    config.cache.quotas[0].name = name;
    config.cache.quotas[0].size = 10 * CHUNK;
    config.cache.quota_count = 1;
    return stack_open(&config, out);
}

static uint64_t data_bytes(struct stack *s)
{
    return counter_value(stack_counters, s, "granary_cache_used_bytes") -
           counter_value(stack_counters, s, "granary_cache_metadata_bytes");
}

static void test_stack__an_image_keeps_to_its_quota_over_restarts(void **state)
{
    struct world w;
    world_init(&w);
    uint64_t kept = 0;
    for (int life = 0; life < 3; life++) {
        struct stack *s = NULL;
        assert_int_equal(open_with_quota(&w, "cars", &s), 0);
        assert_int_equal(stack_start_threads(s), 0);
        if (life)
            assert_int_equal(data_bytes(s), kept + 10 * CHUNK);
        assert_int_equal(image_prefetch(image_named(s, "faces"), 0, w.faces.size), 0);
        if (!life)
            kept = data_bytes(s);
        assert_int_equal(image_prefetch(image_named(s, "bikes"), 0, w.cars.size), 0);
        expect_image(image_named(s, "bikes"), &w.cars);
        expect_image(image_named(s, "faces"), &w.faces);
        stack_close(s); /* fills are through */
    }
    assert_true(kept > 20 * CHUNK);
    struct stack *s = NULL;
    assert_int_equal(open_with_quota(&w, "bikes", &s), -EINVAL); /* an export's name is not an image's */
    assert_non_null(strstr(error_text(), "'bikes'"));
    world_release(&w);
}

static void test_stack__what_was_read_once_is_served_with_the_store_away(void **state)
{
    struct world w;
    char hex[DIGEST_HEX_SIZE], pinned[512];
    world_init(&w);
    const struct stack_image both[] = {{.ref = w.faces_ref}, {.ref = w.cars_ref}};
    struct stack *s = start(&w, both, 2, true);
    expect_image(image_named(s, "faces"), &w.faces);
    assert_int_equal(image_prefetch(image_named(s, "cars"), 0, w.cars.size), 0);
    stack_close(s);
    take_away(&w);
    s = start(&w, both, 2, true); /* by tag */
    expect_image(image_named(s, "faces"), &w.faces);
    expect_image(image_named(s, "cars"), &w.cars);
    stack_close(s);
    snprintf(pinned, sizeof pinned, "%s@sha256:%s", w.cars_ref, digest_hex(&w.cars.digest, hex));
    const struct stack_image one[] = {{.ref = pinned}};
    s = start(&w, one, 1, true); /* by digest */
    expect_image(image_named(s, ""), &w.cars);
    assert_int_equal(counter_value(stack_counters, s, "granary_fetch_requests_total"), 0);
    stack_close(s);
    s = start(&w, both, 2, true); /* one image alone did not make it forget the other */
    expect_image(image_named(s, "faces"), &w.faces);
    stack_close(s);
    world_release(&w);
}

static void test_stack__with_the_store_away_what_is_missing_is_an_error_and_the_rest_is_not(void **state)
{
    struct world w;
    uint8_t byte;
    world_init(&w);
    const struct stack_image images[] = {{.ref = w.cars_ref}}, other[] = {{.ref = w.faces_ref}};
    struct stack *s = start(&w, images, 1, true);
    assert_int_equal(image_prefetch(image_named(s, ""), 0, CHUNK), 0);
    stack_close(s);
    take_away(&w);
    s = start(&w, images, 1, true);
    assert_int_equal(image_read(image_named(s, ""), &byte, 5, 1), 0);
    assert_true(image_read(image_named(s, ""), &byte, 5 * CHUNK, 1) < 0);
    assert_int_equal(image_read(image_named(s, ""), &byte, 6, 1), 0);
    assert_int_equal(image_prefetch(image_named(s, ""), 0, CHUNK), 0);
    stack_close(s);
    assert_int_equal(open_stack(&w, other, 1, true, &s), -ENOENT);   /* never served from here */
    assert_int_equal(open_stack(&w, images, 1, false, &s), -ENOENT); /* no cache, no table */
    world_release(&w);
}

static void test_stack__two_owners_of_a_cache_directory_are_refused(void **state)
{
    struct world w;
    struct stack *second = NULL;
    char pid[32];
    world_init(&w);
    const struct stack_image images[] = {{.ref = w.cars_ref}};
    struct stack *s = start(&w, images, 1, true);
    assert_int_equal(open_stack(&w, images, 1, true, &second), -EBUSY);
    snprintf(pid, sizeof pid, "%d", getpid());
    assert_non_null(strstr(error_text(), pid));
    stack_close(s);
    assert_int_equal(open_stack(&w, images, 1, true, &second), 0);
    stack_close(second); /* its threads were never started */
    world_release(&w);
}

static void expect_refused(struct world *w, const struct stack_image *images, size_t n, int code, const char *part)
{
    struct stack *s = NULL;
    assert_int_equal(open_stack(w, images, n, false, &s), code);
    assert_null(s);
    if (!strstr(error_text(), part))
        fail_msg("'%s' does not say '%s'", error_text(), part);
}

static void test_stack__what_cannot_be_opened_is_said_with_its_name(void **state)
{
    struct world w;
    char missing_image[300], missing_tag[300], missing_store[300];
    world_init(&w);
    snprintf(missing_image, sizeof missing_image, "%s/a/boats", w.dir);
    snprintf(missing_tag, sizeof missing_tag, "%s:old", w.cars_ref);
    snprintf(missing_store, sizeof missing_store, "%s/nowhere/cars", w.dir);
    expect_refused(&w, &(struct stack_image){.ref = missing_image}, 1, -ENOENT, "boats");
    expect_refused(&w, &(struct stack_image){.ref = missing_tag}, 1, -ENOENT, "old");
    expect_refused(&w, &(struct stack_image){.ref = missing_store}, 1, -ENOENT, "nowhere");
    expect_refused(&w, &(struct stack_image){.ref = "cars"}, 1, -EINVAL, "cars");
    expect_refused(&w, &(struct stack_image){.ref = w.cars_ref, .export_name = ""}, 1, -EINVAL, "empty");
    const struct stack_image twice[] = {{.ref = w.faces_ref}, {.ref = w.other_ref}};
    expect_refused(&w, twice, 2, -EINVAL, "two images would be exported as 'faces'");
    world_release(&w);
}

static void test_stack__a_damaged_manifest_is_refused(void **state)
{
    struct world w;
    char path[300], key[OBJECT_KEY_MAX];
    world_init(&w);
    snprintf(path, sizeof path, "%s/a/%s", w.dir, object_key(OBJECT_MANIFEST, &w.cars.digest, key));
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    fputc('[', f);
    fclose(f);
    expect_refused(&w, &(struct stack_image){.ref = w.cars_ref}, 1, -EBADMSG, "cars");
    world_release(&w);
}

/* Add a version: the image of that reference under NAME@sha256:DIGEST. */
static int add_version(struct stack *s, const char *ref, const struct digest *digest, struct stack_export **out)
{
    char hex[DIGEST_HEX_SIZE], name[128];
    bool added;
    snprintf(name, sizeof name, "daily@sha256:%s", digest_hex(digest, hex));
    return stack_add(s, &(struct stack_image){.ref = ref, .export_name = name}, NULL, out, &added);
}

static void test_stack__a_followed_name_leads_new_clients_to_the_next_image_and_others_keep_theirs(void **state)
{
    struct world w;
    world_init(&w);
    struct stack *s = NULL;
    struct stack_export *faces, *cars, *none = NULL;
    const struct stack_image followed[] = {{.ref = w.faces_ref, .export_name = "daily"}};
    struct stack_config config = {.followed = followed, .followed_count = 1, .store = {.timeout_ms = 1}};
    assert_int_equal(stack_open(&config, &s), 0);
    assert_int_equal(stack_start_threads(s), 0);
    assert_string_equal(stack_followed(s, 0), "daily");
    assert_null(stack_followed(s, 1));
    assert_null(stack_get(s, "daily")); /* it leads to none yet */

    assert_int_equal(add_version(s, w.faces_ref, &w.faces.digest, &faces), 0);
    assert_int_equal(stack_show(s, 0, faces), 0);
    struct stack_export *early = stack_connect(s, "daily"), *nameless = stack_connect(s, "");
    assert_ptr_equal(early, faces);
    assert_ptr_equal(nameless, faces);
    stack_disconnect(nameless);
    assert_int_equal(add_version(s, w.cars_ref, &w.cars.digest, &cars), 0);
    assert_int_equal(stack_show(s, 0, cars), 0);
    struct stack_export *late = stack_connect(s, "daily");
    assert_ptr_equal(late, cars);
    expect_image(stack_export_image(early), &w.faces);
    expect_image(stack_export_image(late), &w.cars);

    assert_string_equal(stack_followed_as(s, "daily"), "daily");
    assert_string_equal(stack_followed_as(s, ""), "daily");
    assert_null(stack_followed_as(s, stack_export_name(cars)));
    assert_int_equal(stack_remove(s, stack_export_name(cars)), -EBUSY); /* the name leads there */
    stack_disconnect(late);
    assert_int_equal(stack_remove(s, stack_export_name(cars)), -EBUSY);
    assert_int_equal(stack_remove(s, stack_export_name(faces)), -EBUSY); /* a client has it */
    assert_int_equal(stack_remove(s, "daily"), -ENOENT);
    expect_image(stack_export_image(early), &w.faces);
    stack_disconnect(early);
    assert_int_equal(stack_remove(s, stack_export_name(faces)), 0);
    assert_int_equal(stack_show(s, 0, faces), -ENOENT); /* no client could know what it is connected to */
    late = stack_connect(s, "daily");
    assert_ptr_equal(late, cars);
    stack_disconnect(late);

    /* A name by digest is never another image's, whatever stands before it; a followed name is no other export's. */
    assert_int_equal(add_version(s, w.cars_ref, &w.faces.digest, &none), -ESTALE);
    bool added;
    char hex[DIGEST_HEX_SIZE], twice[256];
    snprintf(twice, sizeof twice, "a@sha256:b@sha256:%s", digest_hex(&w.faces.digest, hex));
    const struct stack_image other = {.ref = w.cars_ref, .export_name = twice};
    assert_int_equal(stack_add(s, &other, NULL, &none, &added), -ESTALE);
    const struct stack_image same = {.ref = w.cars_ref, .export_name = "daily"};
    assert_int_equal(stack_add(s, &same, NULL, &none, &added), -EEXIST);
    assert_null(none);
    assert_int_equal(stack_count(s), 1);
    stack_put(faces);
    stack_put(cars);
    stack_close(s);
    world_release(&w);
}

static void test_stack__what_cannot_be_followed_is_refused(void **state)
{
    struct world w;
    char hex[DIGEST_HEX_SIZE], pinned[512];
    struct stack *s = NULL;
    world_init(&w);
    snprintf(pinned, sizeof pinned, "%s@sha256:%s", w.cars_ref, digest_hex(&w.cars.digest, hex));
    const struct stack_image by_digest[] = {{.ref = pinned}}, twice[] = {{.ref = w.faces_ref}, {.ref = w.other_ref}};
    struct stack_config config = {.followed = by_digest, .followed_count = 1, .store = {.timeout_ms = 1}};
    assert_int_equal(stack_open(&config, &s), -EINVAL);
    assert_non_null(strstr(error_text(), "give a tag"));
    config.followed = twice;
    config.followed_count = 2;
    assert_int_equal(stack_open(&config, &s), -EINVAL);
    assert_non_null(strstr(error_text(), "two images would be exported as 'faces'"));
    char long_name[STACK_EXPORT_NAME_MAX + 1] = "";
    memset(long_name, 'n', sizeof long_name - 60);
    const struct stack_image too_long[] = {{.ref = w.faces_ref, .export_name = long_name}};
    config.followed = too_long;
    config.followed_count = 1;
    assert_int_equal(stack_open(&config, &s), -EINVAL);
    assert_non_null(strstr(error_text(), "too long"));
    config.followed = twice;
    config.images = twice; /* an image that is served besides has the name, too */
    config.image_count = config.followed_count = 1;
    assert_int_equal(stack_open(&config, &s), -EEXIST);
    assert_non_null(strstr(error_text(), "follows a tag"));
    assert_null(s);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stack__images_of_two_stores_are_found_by_export_name),
        cmocka_unit_test(test_stack__the_only_image_is_the_default_export),
        cmocka_unit_test(test_stack__proxies_answer_for_one_store),
        cmocka_unit_test(test_stack__a_restart_finds_what_was_cached),
        cmocka_unit_test(test_stack__an_image_keeps_to_its_quota_over_restarts),
        cmocka_unit_test(test_stack__what_was_read_once_is_served_with_the_store_away),
        cmocka_unit_test(test_stack__with_the_store_away_what_is_missing_is_an_error_and_the_rest_is_not),
        cmocka_unit_test(test_stack__two_owners_of_a_cache_directory_are_refused),
        cmocka_unit_test(test_stack__what_cannot_be_opened_is_said_with_its_name),
        cmocka_unit_test(test_stack__a_damaged_manifest_is_refused),
        cmocka_unit_test(test_stack__a_followed_name_leads_new_clients_to_the_next_image_and_others_keep_theirs),
        cmocka_unit_test(test_stack__what_cannot_be_followed_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
