/* Builds, garbage collections without a grace period and readers over one store in memory, whose every operation may
 * take a moment: what has a name is whole at any time, and in the end nothing needless is left. What is drawn is the
 * same in each run, what meets what is not. tests/flow/gc-race.sh does the same with processes that are killed and
 * stopped.
 */
#include "unit/cmocka_all.h"
#include "unit/counts.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "fake/source_fake.h"
#include "fake/store_fake.h"
#include "imagebuild/build.h"
#include "repository/repository.h"
#include "upkeep/upkeep.h"

enum { BUILDERS = 2, COLLECTORS = 2, VARIANTS = 8, FILES = 6 };

struct race {
    struct store_fake *fake;
    struct store *store;
    _Atomic bool stop;
    _Atomic unsigned numbers, again, swept, read;
    pthread_mutex_t lock;
    char wrong[ERROR_TEXT_MAX]; /* the first; empty: none */
};

static uint64_t draw(uint64_t *seed)
{
    *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
    return *seed >> 11;
}

static void nap(uint64_t ms)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000L}, NULL);
}

static void went_wrong(struct race *r, const char *who)
{
    pthread_mutex_lock(&r->lock);
    if (!r->wrong[0])
        snprintf(r->wrong, sizeof r->wrong, "%s: %.400s", who, error_text());
    pthread_mutex_unlock(&r->lock);
    atomic_store(&r->stop, true);
}

/* Neighbouring variants have half of their files in common. */
static struct source *new_source(unsigned variant)
{
    struct source *s = source_fake_new();
    for (unsigned f = 0; f < FILES; f++) {
        char path[16];
        unsigned seed = variant * FILES / 2 + f;
        snprintf(path, sizeof path, "file-%u", seed);
        source_fake_file(s, path, 20000 + 10000 * f, seed);
    }
    return s;
}

static void *builder_main(void *arg)
{
    struct race *r = arg;
    unsigned me = atomic_fetch_add(&r->numbers, 1);
    uint64_t seed = me + 1;
    char text[32];
    struct image_ref ref;
    snprintf(text, sizeof text, "/store/image-%u:now", me);
    if (image_ref_parse(text, &ref))
        abort();
    const unsigned builds = full_or(60, 15);
    for (unsigned i = 0; (i < builds || !atomic_load(&r->swept)) && !atomic_load(&r->stop); i++) {
        const struct build_options options = {.chunk_size = CHUNK_SIZE_MIN,
                                              .zstd_level = 1,
                                              .jobs = 1,
                                              .workers = 1,
                                              .uploads = 2,
                                              .pack_size = CHUNK_SIZE_MIN,
                                              .no_parent = draw(&seed) % 2};
        struct build_result result;
        struct source *source = new_source((unsigned)(draw(&seed) % VARIANTS));
        uint64_t start = clock_now_ms();
        int rc = build_run(source, r->store, &ref, &options, &result);
        source_close(source);
        if (rc && rc != -EAGAIN)
            went_wrong(r, "build");
        atomic_fetch_add(&r->again, rc == -EAGAIN);
        if (!rc && repository_remove_tag(r->store, ref.name, result.unique_tag) == 0 && draw(&seed) % 2)
            (void)!repository_remove_tag(r->store, ref.name, ref.tag);
        /* as long as the build, on average: nothing is swept while any build runs */
        nap(draw(&seed) % (30 + 2 * (clock_now_ms() - start)));
    }
    return NULL;
}

/* -EAGAIN: the other one sweeps. -EBADMSG: what it went through was swept by the other one, so it removed nothing. */
static void *collector_main(void *arg)
{
    struct race *r = arg;
    while (!atomic_load(&r->stop)) {
        const struct gc_options options = {.grace_s = 0};
        struct gc_result result;
        int rc = gc_run(r->store, &options, &result);
        if (rc && rc != -EAGAIN && rc != -EBADMSG)
            went_wrong(r, "gc");
        atomic_fetch_add(&r->swept, rc ? 0 : (unsigned)result.swept);
        nap(1);
    }
    return NULL;
}

struct named {
    struct race *race;
    char nonce[TAG_NONCE_MAX];
    const char *name, *tag; /* to look for; NULL: all are read */
    bool same;
};

static int compare_tag(void *arg, const char *name, const char *tag, const struct tag *t)
{
    struct named *n = arg;
    n->same |= !strcmp(name, n->name) && !strcmp(tag, n->tag) && !strcmp(t->nonce, n->nonce);
    return 0;
}

static int read_tag(void *arg, const char *name, const char *tag, const struct tag *t)
{
    struct race *r = arg;
    const struct verify_options deep = {.deep = true, .threads = 1};
    struct verify_result result = {.problems = 0};
    struct manifest m;
    int rc = repository_manifest(r->store, &t->digest, &m);
    if (!rc)
        rc = verify_image(r->store, &m, &deep, &result);
    if (!rc && !result.problems) {
        atomic_fetch_add(&r->read, 1);
        return 0;
    }
    struct error failed;
    error_take(&failed, rc);
    struct named n = {.race = r, .name = name, .tag = tag};
    memcpy(n.nonce, t->nonce, sizeof n.nonce);
    if (repository_tags(r->store, NULL, compare_tag, &n) || n.same) { /* it had its name all the time */
        (void)error_restore(&failed);
        went_wrong(r, "reader");
    }
    return 0;
}

static void *reader_main(void *arg)
{
    struct race *r = arg;
    while (!atomic_load(&r->stop)) {
        if (repository_tags(r->store, NULL, read_tag, r))
            went_wrong(r, "tags");
        nap(1);
    }
    return NULL;
}

static void race(struct race *r)
{
    pthread_t builders[BUILDERS], others[COLLECTORS + 1];
    for (size_t i = 0; i < COLLECTORS; i++)
        assert_int_equal(pthread_create(&others[i], NULL, collector_main, r), 0);
    assert_int_equal(pthread_create(&others[COLLECTORS], NULL, reader_main, r), 0);
    for (size_t i = 0; i < BUILDERS; i++)
        assert_int_equal(pthread_create(&builders[i], NULL, builder_main, r), 0);
    for (size_t i = 0; i < BUILDERS; i++)
        pthread_join(builders[i], NULL);
    atomic_store(&r->stop, true);
    for (size_t i = 0; i <= COLLECTORS; i++)
        pthread_join(others[i], NULL);
}

static void collect(struct race *r, struct gc_result *out)
{
    const struct gc_options options = {.grace_s = 0};
    assert_int_equal(gc_run(r->store, &options, out), 0);
}

static void test_gc_race__loses_nothing_and_leaves_nothing(void **state)
{
    struct race r = {.fake = store_fake_new(), .lock = PTHREAD_MUTEX_INITIALIZER};
    struct gc_result result;
    r.store = store_fake_store(r.fake);
    assert_int_equal(repository_check(r.store, true), 0);
    store_fake_add_fault(r.fake,
                         &(struct store_fake_fault){.op = FAKE_ANY, .kind = FAKE_DELAY, .permille = 30, .bytes = 5});
    race(&r);
    if (r.wrong[0])
        fail_msg("%s", r.wrong);
    store_fake_clear_faults(r.fake);
    print_message("%u swept, %u read, %u builds to be run again\n", r.swept, r.read, r.again);
    r.read = 0;
    assert_int_equal(repository_tags(r.store, NULL, read_tag, &r), 0);
    assert_string_equal(r.wrong, "");
    for (int i = 0; i < 3; i++)
        collect(&r, &result);
    assert_int_equal(result.marked + result.swept + result.unmarked, 0);
    assert_int_equal(store_fake_count(r.fake, "trash/"), 0);
    assert_int_equal(store_fake_count(r.fake, "builds/"), 0);
    store_fake_free(r.fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gc_race__loses_nothing_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
