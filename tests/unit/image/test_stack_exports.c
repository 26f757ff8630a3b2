/* Exports that come and go while others walk over them, read them, count them. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>

#include "base/error.h"
#include "unit/counters.h"
#include "unit/stack_world.h"

static struct stack *start_faces(struct world *w)
{
    const struct stack_image images[] = {{.ref = w->faces_ref}};
    return start(w, images, 1, true);
}

static void add(struct stack *s, const char *ref, const char *name, bool expect_added)
{
    struct stack_export *e = NULL;
    bool added;
    const struct stack_image image = {.ref = ref, .export_name = name};
    assert_int_equal(stack_add(s, &image, NULL, &e, &added), 0);
    assert_int_equal(added, expect_added);
    assert_string_equal(stack_export_name(e), name);
    stack_put(e);
}

static void test_stack__an_export_that_is_added_is_read_and_one_that_is_removed_is_gone(void **state)
{
    struct world w;
    world_init(&w);
    struct stack *s = start_faces(&w);
    add(s, w.cars_ref, "cars", true);
    add(s, w.other_ref, "others", true); /* of another store */
    assert_int_equal(stack_count(s), 3);
    assert_null(image_named(s, ""));
    expect_image(image_named(s, "cars"), &w.cars);
    expect_image(image_named(s, "others"), &w.other);
    assert_int_equal(stack_remove(s, "cars"), 0);
    assert_null(image_named(s, "cars"));
    assert_int_equal(stack_remove(s, "cars"), -ENOENT);
    assert_int_equal(stack_remove(s, ""), -ENOENT);
    /* What was counted of it stays, and its memory does not. */
    assert_int_equal(counter_value(stack_counters, s, "granary_image_reads_total"), 2);
    assert_int_equal(stack_remove(s, "others"), 0);
    assert_int_equal(counter_value(stack_counters, s, "granary_image_reads_total"), 2);
    assert_int_equal(counter_value(stack_counters, s, "granary_image_node_bytes"), 0);
    expect_image(image_named(s, ""), &w.faces);
    assert_int_equal(stack_remove(s, "faces"), 0);
    assert_int_equal(stack_count(s), 0);
    assert_int_equal(counter_value(stack_counters, s, "granary_image_reads_total"), 3);
    add(s, w.faces_ref, "faces", true);
    expect_image(image_named(s, ""), &w.faces);
    stack_close(s);
    world_release(&w);
}

static void test_stack__the_same_image_again_is_the_export_that_is_there(void **state)
{
    struct world w;
    struct stack_export *e = NULL;
    bool added;
    world_init(&w);
    struct stack *s = start_faces(&w);
    struct stack_export *there = stack_get(s, "faces");
    assert_int_equal(stack_add(s, &(struct stack_image){.ref = w.faces_ref}, NULL, &e, &added), 0);
    assert_false(added);
    assert_ptr_equal(e, there);
    stack_put(e);
    stack_put(there);
    assert_int_equal(stack_add(s, &(struct stack_image){.ref = w.cars_ref, .export_name = "faces"}, NULL, &e, &added),
                     -EEXIST);
    assert_non_null(strstr(error_text(), "'faces'"));
    assert_int_equal(stack_add(s, &(struct stack_image){.ref = "no store", .export_name = NULL}, NULL, &e, &added),
                     -EINVAL);
    char missing[300];
    snprintf(missing, sizeof missing, "%s:old", w.cars_ref);
    assert_int_equal(stack_add(s, &(struct stack_image){.ref = missing}, NULL, &e, &added), -ENOENT);
    assert_int_equal(stack_count(s), 1);
    stack_close(s);
    world_release(&w);
}

static int add_with_quota(struct stack *s, const char *ref, const char *name, uint64_t quota)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    bool added;
    const struct stack_image image = {.ref = ref, .export_name = name, .quota = quota};
    return stack_add(s, &image, NULL, &e, &added);
}

static uint64_t quota_of_image(struct stack *s, const char *export)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = stack_get(s, export);
    return stack_export_quota_use(e).size;
}

/* faces is 40 chunks; its quota of 10 comes with another export of it, counts over restarts, and goes with that. An
 * image of that name in another store has its own. */
static void test_stack__a_quota_lasts_as_long_as_an_export_that_brought_it(void **state)
{
    struct world w;
    world_init(&w);
    struct stack *s = NULL;
    for (int life = 0; life < 2; life++) {
        s = start_faces(&w);
        assert_int_equal(add_with_quota(s, w.faces_ref, "small", 10 * CHUNK), 0);
        assert_int_equal(add_with_quota(s, w.faces_ref, "more", 20 * CHUNK), -EDQUOT);
        assert_non_null(strstr(error_text(), "'faces' has a quota of 640.0 KiB"));
        assert_int_equal(stack_count(s), 2);
        assert_int_equal(add_with_quota(s, w.other_ref, "other", 20 * CHUNK), 0);
        assert_int_equal(quota_of_image(s, "faces"), 10 * CHUNK);
        assert_int_equal(quota_of_image(s, "other"), 20 * CHUNK);
        assert_int_equal(image_prefetch(image_named(s, "other"), 0, w.other.size), 0);
        assert_int_equal(image_prefetch(image_named(s, "faces"), 0, w.faces.size), 0);
        uint64_t used = counter_value(stack_counters, s, "granary_cache_used_bytes");
        assert_true(used <= 30 * CHUNK + counter_value(stack_counters, s, "granary_cache_metadata_bytes"));
        assert_true(used >= 10 * CHUNK); /* a quota is no ban */
        assert_int_equal(stack_remove(s, "other"), 0);
        if (!life)
            stack_close(s);
    }
    assert_int_equal(stack_remove(s, "small"), 0);
    assert_int_equal(quota_of_image(s, "faces"), 0);
    assert_int_equal(image_prefetch(image_named(s, "faces"), 0, w.faces.size), 0);
    assert_true(counter_value(stack_counters, s, "granary_cache_used_bytes") >= 40 * CHUNK);
    assert_int_equal(add_with_quota(s, w.faces_ref, "faces", 30 * CHUNK), -EDQUOT); /* one that is there gets none */
    assert_non_null(strstr(error_text(), "'faces' is there without a quota of 1.9 MiB"));
    assert_int_equal(add_with_quota(s, w.faces_ref, "small", 30 * CHUNK), 0);
    assert_int_equal(add_with_quota(s, w.faces_ref, "small", 30 * CHUNK), 0);
    assert_int_equal(add_with_quota(s, w.faces_ref, "small", 0), 0);
    stack_close(s);
    s = start(&w, NULL, 0, false);
    assert_int_equal(add_with_quota(s, w.faces_ref, "faces", 10 * CHUNK), -EDQUOT);
    assert_non_null(strstr(error_text(), "has none"));
    stack_close(s);
    world_release(&w);
}

static void test_stack__an_export_with_clients_is_not_removed(void **state)
{
    struct world w;
    world_init(&w);
    struct stack *s = start_faces(&w);
    add(s, w.cars_ref, "cars", true);
    struct stack_export *client = stack_connect(s, "cars"), *second = stack_connect(s, "cars");
    assert_null(stack_connect(s, "boats"));
    assert_int_equal(stack_export_clients(client), 2);
    assert_int_equal(stack_remove(s, "cars"), -EBUSY);
    assert_non_null(strstr(error_text(), "2 connections"));
    stack_disconnect(second);
    assert_int_equal(stack_remove(s, "cars"), -EBUSY);
    struct stack_export *held = stack_ref(client);
    stack_disconnect(client);
    assert_int_equal(stack_remove(s, "cars"), 0);
    /* Work that holds a reference, and no connection, ends in its own time. */
    expect_image(stack_export_image(held), &w.cars);
    stack_put(held);
    stack_close(s);
    world_release(&w);
}

static void test_stack__a_walk_goes_on_behind_what_was_removed(void **state)
{
    struct world w;
    world_init(&w);
    struct stack *s = start_faces(&w);
    add(s, w.cars_ref, "a", true);
    add(s, w.cars_ref, "b", true);
    add(s, w.cars_ref, "c", true);
    struct stack_export *e = stack_next(s, stack_next(s, NULL));
    assert_string_equal(stack_export_name(e), "a");
    assert_int_equal(stack_remove(s, "a"), 0);
    assert_int_equal(stack_remove(s, "b"), 0);
    e = stack_next(s, e);
    assert_string_equal(stack_export_name(e), "c");
    add(s, w.cars_ref, "a", true); /* it comes again, last */
    e = stack_next(s, e);
    assert_string_equal(stack_export_name(e), "a");
    assert_null(stack_next(s, e));
    stack_close(s);
    world_release(&w);
}

/* Both images were served, and the one that was added is in the cache. */
static void expect_start_without_store(struct world *w, struct stack *s)
{
    stack_close(s);
    take_away(w);
    const struct stack_image images[] = {{.ref = w->faces_ref}, {.ref = w->cars_ref}};
    s = start(w, images, 2, true);
    expect_image(image_named(s, "cars"), &w->cars);
    stack_close(s);
}

static void test_stack__what_was_added_starts_with_its_store_away(void **state)
{
    struct world w;
    world_init(&w);
    struct stack *s = start_faces(&w);
    add(s, w.cars_ref, "cars", true);
    assert_int_equal(image_prefetch(image_named(s, "cars"), 0, w.cars.size), 0);
    expect_start_without_store(&w, s);
    world_release(&w);
}

static void test_stack__several_are_added_one_after_another_and_noted_at_the_end(void **state)
{
    struct world w;
    struct stack_adding *a = NULL;
    struct stack_export *e = NULL;
    bool added;
    char missing[300];
    world_init(&w);
    struct stack *s = start_faces(&w);
    snprintf(missing, sizeof missing, "%s:old", w.faces_ref);
    assert_int_equal(stack_adding_begin(s, NULL, &a), 0);
    assert_int_equal(stack_adding_add(a, &(struct stack_image){.ref = w.faces_ref, .export_name = "again"}, &e, &added),
                     0);
    assert_true(added);
    stack_put(e);
    assert_int_equal(stack_adding_add(a, &(struct stack_image){.ref = w.cars_ref, .export_name = "cars"}, &e, &added),
                     0);
    assert_int_equal(image_prefetch(stack_export_image(e), 0, w.cars.size), 0);
    stack_put(e);
    assert_int_equal(stack_adding_add(a, &(struct stack_image){.ref = missing}, &e, &added), -ENOENT);
    stack_adding_end(a);
    assert_non_null(strstr(error_text(), "faces:old"));
    assert_int_equal(stack_count(s), 3);
    expect_start_without_store(&w, s);
    world_release(&w);
}

struct strain {
    struct world *w;
    struct stack *s;
    const char *name;
    _Atomic int working;
    uint64_t walked;
};

/* Adds, reads as a client, removes. */
static void *come_and_go(void *arg)
{
    struct strain *t = arg;
    for (int i = 0; i < 20; i++) {
        uint8_t byte;
        add(t->s, t->w->cars_ref, t->name, true);
        struct stack_export *client = stack_connect(t->s, t->name);
        assert_non_null(client);
        assert_int_equal(image_read(stack_export_image(client), &byte, (uint64_t)i * CHUNK, 1), 0);
        assert_int_equal(stack_remove(t->s, t->name), -EBUSY);
        stack_disconnect(client);
        assert_int_equal(stack_remove(t->s, t->name), 0);
    }
    atomic_fetch_sub(&t->working, 1);
    return NULL;
}

static void *walk_and_count(void *arg)
{
    struct strain *t = arg;
    struct store_health health;
    char of[STACK_EXPORT_NAME_MAX + 1];
    do {
        for (struct stack_export *e = NULL; (e = stack_next(t->s, e));)
            t->walked += strlen(stack_export_name(e)) + image_manifest(stack_export_image(e))->size;
        for (size_t i = 0; stack_store_health(t->s, i, of, &health); i++)
            t->walked++;
        assert_true(counter_value(stack_counters, t->s, "granary_image_reads_total") <= 40);
    } while (atomic_load(&t->working));
    return NULL;
}

static void test_stack__readers_walk_safely_while_exports_come_and_go(void **state)
{
    struct world w;
    pthread_t threads[4];
    world_init(&w);
    const struct stack_image images[] = {{.ref = w.faces_ref}};
    struct stack_config config = {
        .images = images, .image_count = 1, .store = {.timeout_ms = 60000}, .readahead = 1 << 20};
    config.cache.memory = 64 << 20;
    struct stack *s = NULL;
    assert_int_equal(stack_open(&config, &s), 0);
    assert_int_equal(stack_start_threads(s), 0);
    struct strain a = {.w = &w, .s = s, .name = "a", .working = 1}, b = {.w = &w, .s = s, .name = "b", .working = 1};
    assert_int_equal(pthread_create(&threads[0], NULL, walk_and_count, &a), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, walk_and_count, &b), 0);
    assert_int_equal(pthread_create(&threads[2], NULL, come_and_go, &a), 0);
    assert_int_equal(pthread_create(&threads[3], NULL, come_and_go, &b), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_true(a.walked && b.walked);
    assert_int_equal(stack_count(s), 1);
    assert_int_equal(counter_value(stack_counters, s, "granary_image_reads_total"), 40);
    stack_close(s);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stack__an_export_that_is_added_is_read_and_one_that_is_removed_is_gone),
        cmocka_unit_test(test_stack__the_same_image_again_is_the_export_that_is_there),
        cmocka_unit_test(test_stack__a_quota_lasts_as_long_as_an_export_that_brought_it),
        cmocka_unit_test(test_stack__an_export_with_clients_is_not_removed),
        cmocka_unit_test(test_stack__a_walk_goes_on_behind_what_was_removed),
        cmocka_unit_test(test_stack__what_was_added_starts_with_its_store_away),
        cmocka_unit_test(test_stack__several_are_added_one_after_another_and_noted_at_the_end),
        cmocka_unit_test(test_stack__readers_walk_safely_while_exports_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
