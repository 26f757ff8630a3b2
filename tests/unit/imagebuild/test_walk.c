/* The walker of all trees: what it lists and visits, what it keeps, and how it ends. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/thread.h"
#include "imagebuild/source/source_internal.h"

enum { THREADS = 4 };

static uint64_t visited;

static int visit_one(void *arg, const struct source_entry *e)
{
    visited++;
    return arg ? *(int *)arg : 0;
}

static int run(unsigned threads, int (*list)(void *arg, struct walker *w, const struct walk_place *place),
               int *visit_rc, struct source_counts *counts)
{
    const struct walk walk = {.url = "fake://tree",
                              .threads = threads,
                              .list = list,
                              .visit = visit_one,
                              .visit_arg = visit_rc,
                              .counts = counts};
    visited = 0;
    return walk_run(&walk);
}

/* ------------------------------------------------------------------ all of a tree */

enum { WIDTH = 9, DEPTH = 4, PLACES = 1 + 9 + 9 * 9 + 9 * 9 * 9 };

/* A directory that holds WIDTH others, and a file whose attributes no batch has room for beside another. In pages: one
 * holds a third. */
static int list_wide(void *arg, struct walker *w, const struct walk_place *place)
{
    static const uint8_t attributes[40000];
    char path[64];
    int from = place->after ? atoi(place->after) + 1 : 0, rc = 0;
    if (from + WIDTH / 3 < WIDTH) {
        struct walk_place rest = *place;
        char last[16];
        snprintf(last, sizeof last, "%d", from + WIDTH / 3 - 1);
        rest.after = last;
        rc = walk_push(w, &rest);
    }
    if (!from)
        rc = rc ? rc
                : walk_emit(w, &(struct source_entry){.path = place->path,
                                                      .path_len = place->path_len,
                                                      .xattrs = attributes,
                                                      .xattrs_len = sizeof attributes});
    for (int i = from; !rc && place->path_len < (size_t)2 * (DEPTH - 1) && i < from + WIDTH / 3; i++) {
        size_t len = (size_t)snprintf(path, sizeof path, "%s/%d", place->path, i);
        rc = walk_push(w, &(struct walk_place){.path = path, .path_len = len});
    }
    return rc;
}

static void test_walk__every_place_is_listed_once(void **state)
{
    for (unsigned threads = 1; threads <= THREADS; threads++) {
        assert_int_equal(run(threads, list_wide, NULL, NULL), 0);
        assert_int_equal(visited, PLACES);
    }
}

static int list_gone(void *arg, struct walker *w, const struct walk_place *place)
{
    int rc = 0;
    if (place->path_len)
        return error_set(-ENOENT, "it is not there");
    for (int i = 0; !rc && i < 20; i++)
        rc = walk_push(w, &(struct walk_place){.path = "gone", .path_len = 4});
    return rc;
}

static int list_nothing(void *arg, struct walker *w, const struct walk_place *place)
{
    return error_set(-ENOENT, "the root is not there");
}

static void test_walk__places_that_are_gone_are_counted(void **state)
{
    struct source_counts counts = {0};
    assert_int_equal(run(THREADS, list_gone, NULL, &counts), 0);
    assert_int_equal(counts.vanished, 20);
    assert_string_equal(counts.first_vanished, "gone");
    assert_int_equal(run(THREADS, list_nothing, NULL, &counts), -ENOENT);
    assert_string_equal(error_text(), "the root is not there");
}

static _Atomic int listing, listing_alone, together, alone_met;

/* Of 300 places every tenth is to be listed alone. */
static int list_some_alone(void *arg, struct walker *w, const struct walk_place *place)
{
    int rc = 0;
    for (int i = 0; !rc && !place->path_len && i < 300; i++)
        rc = walk_push(w, &(struct walk_place){.path = "x", .path_len = 1, .alone = i % 10 == 0});
    int others = atomic_fetch_add(&listing, 1);
    if (place->alone)
        atomic_fetch_add(&listing_alone, 1);
    usleep(100); /* with it in here, others come upon it */
    if (others && atomic_load(&listing_alone))
        atomic_fetch_add(&alone_met, 1);
    atomic_fetch_add(&together, others > 0);
    if (place->alone)
        atomic_fetch_sub(&listing_alone, 1);
    atomic_fetch_sub(&listing, 1);
    return rc ? rc : walk_emit(w, &(struct source_entry){.path = place->path, .path_len = place->path_len});
}

static void test_walk__a_place_may_be_listed_alone(void **state)
{
    assert_int_equal(run(THREADS, list_some_alone, NULL, NULL), 0);
    assert_int_equal(visited, 301);
    assert_int_equal(atomic_load(&alone_met), 0);
    assert_true(atomic_load(&together));
}

/* ------------------------------------------------------------------ ends */

static void test_walk__the_visitors_error_ends_it(void **state)
{
    int rc = -ENOSPC;
    assert_int_equal(run(THREADS, list_wide, &rc, NULL), -ENOSPC);
    assert_int_equal(visited, 1);
    rc = -EINVAL;
    (void)error_set(rc, "a name");
    assert_int_equal(run(1, list_wide, &rc, NULL), -EINVAL);
    assert_memory_equal(error_text(), "source: fake://tree: ", 21);
}

static _Atomic unsigned begun;

/* One place fails while all threads list; others wait by the thousand. */
static int list_failing(void *arg, struct walker *w, const struct walk_place *place)
{
    int rc = 0;
    atomic_fetch_add(&begun, 1);
    if (place->kind)
        return error_set(-EACCES, "place %d is closed", place->kind);
    for (int i = 0; !rc && i < 1000; i++)
        rc = walk_push(w, &(struct walk_place){.path = "x", .path_len = 1, .kind = i == 999});
    return rc;
}

static void test_walk__after_an_error_no_place_is_begun(void **state)
{
    atomic_store(&begun, 0);
    assert_int_equal(run(1, list_failing, NULL, NULL), -EACCES);
    assert_string_equal(error_text(), "place 1 is closed");
    assert_int_equal(atomic_load(&begun), 2);
}

/* ------------------------------------------------------------------ what is kept */

static sem_t visits;
static _Atomic unsigned emitted;

static int visit_when_told(void *arg, const struct source_entry *e)
{
    sem_wait(&visits);
    visited++;
    return 0;
}

static int list_without_end(void *arg, struct walker *w, const struct walk_place *place)
{
    static const uint8_t attributes[60000]; /* a batch each */
    const struct source_entry e = {.path = "x", .path_len = 1, .xattrs = attributes, .xattrs_len = sizeof attributes};
    int rc = 0;
    for (int i = 0; !rc && i < 100; i++) {
        rc = walk_emit(w, &e);
        atomic_fetch_add(&emitted, !rc);
    }
    return rc;
}

static void *let_visit(void *arg)
{
    unsigned before;
    do { /* until the thread that lists waits */
        before = atomic_load(&emitted);
        usleep(100000);
    } while (!before || before != atomic_load(&emitted));
    *(unsigned *)arg = before;
    for (int i = 0; i < 100; i++)
        sem_post(&visits);
    return NULL;
}

static void test_walk__entries_wait_for_the_visitor_and_not_in_memory(void **state)
{
    const struct walk walk = {.url = "x", .threads = 1, .list = list_without_end, .visit = visit_when_told};
    pthread_t thread;
    unsigned ahead;
    visited = 0;
    assert_int_equal(sem_init(&visits, 0, 0), 0);
    assert_int_equal(thread_start(&thread, let_visit, &ahead), 0);
    assert_int_equal(walk_run(&walk), 0);
    pthread_join(thread, NULL);
    sem_destroy(&visits);
    assert_int_equal(visited, 100);
    assert_in_range(ahead, 1, 4); /* one is visited, two are ready, one is the thread's */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walk__every_place_is_listed_once),
        cmocka_unit_test(test_walk__places_that_are_gone_are_counted),
        cmocka_unit_test(test_walk__a_place_may_be_listed_alone),
        cmocka_unit_test(test_walk__the_visitors_error_ends_it),
        cmocka_unit_test(test_walk__after_an_error_no_place_is_begun),
        cmocka_unit_test(test_walk__entries_wait_for_the_visitor_and_not_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
