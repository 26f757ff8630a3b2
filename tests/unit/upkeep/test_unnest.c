/* A store inside a store is taken out of it: no image is lost at any moment, and nothing of the outer store. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "fake/image_fake.h"
#include "fake/store_fake.h"
#include "repository/lease.h"
#include "repository/repository.h"
#include "unit/counters.h"
#include "unit/threads.h"
#include "upkeep/upkeep.h"

struct fixture {
    struct store_fake *fake;
    struct store *outer, *inner;
    struct image_fake ours, theirs; /* ours: the outer store's */
    struct unnest_result result;
    const char *dir;
};

static const struct nesting inner_place = {.is_store = true};

/* How often an announcement still counts as live. */
static _Atomic unsigned live_looks;

bool __wrap_lease_is_live(const struct lease_handle *l);
bool __wrap_lease_is_live(const struct lease_handle *l)
{
    return live_looks && live_looks--;
}

struct moving {
    struct store_fake *from, *to;
    const char *dir;
};

static int move_item(void *arg, const struct store_item *item)
{
    const struct moving *m = arg;
    char key[STORE_KEY_MAX + 1];
    CLEANUP_BYTES body = BYTES_INIT(1 << 30);
    assert_true(store_fake_get(m->from, item->key, &body));
    snprintf(key, sizeof key, "%s/%s", m->dir, item->key);
    store_fake_put(m->to, key, body.data, body.len);
    return 0;
}

/* Called by hooks too, on any thread. */
static void publish(struct store *s, const char *name, const char *tag, const struct image_fake *image)
{
    struct tag t = {.digest = image->digest, .content_root = image->manifest.content_root, .created = 1700000000};
    memset(t.source.b, 7, sizeof t.source.b);
    must(repository_publish(s, name, tag, &t, false) == 0, "%s", error_text());
}

static void make_place(struct fixture *f, const char *dir)
{
    static const struct catalog_entry root = {.path = "", .mode = S_IFDIR | 0755};
    const struct image_fake small = {
        .size = 512 << 10, .chunk_size = 64 << 10, .pack_chunks = 4, .entries = &root, .entry_count = 1};
    struct store_fake *before = store_fake_new();
    live_looks = 1000;
    *f = (struct fixture){.fake = store_fake_new(), .ours = small, .theirs = small, .dir = dir};
    f->theirs.seed = 5;
    image_fake_put(&f->ours, f->fake, "manifests"); /* an image may be called so */
    image_fake_put(&f->theirs, before, "faces");
    struct moving m = {.from = before, .to = f->fake, .dir = dir};
    assert_int_equal(store_list(store_fake_store(before), "", move_item, &m), 0);
    store_fake_free(before);
    f->outer = store_fake_store(f->fake);
    assert_int_equal(store_below_open(f->outer, dir, &f->inner), 0);
    publish(f->inner, "faces", "v1", &f->theirs);
    publish(f->inner, "cats", "v1", &f->theirs);
}

static void release_place(struct fixture *f)
{
    store_close(f->inner);
    image_fake_release(&f->ours);
    image_fake_release(&f->theirs);
    store_fake_free(f->fake);
}

static int setup(void **state)
{
    static struct fixture f;
    make_place(&f, "images");
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    release_place(*state);
    return 0;
}

static int unnest_as(struct fixture *f, bool dry_run)
{
    const struct unnest_options options = {.dry_run = dry_run, .copy = {.threads = 1}};
    return unnest_run(f->outer, f->dir, &options, &f->result);
}

static bool is_whole(struct store *s, const char *name, const char *tag, const struct image_fake *image)
{
    struct manifest m;
    struct verify_result r;
    struct image_ref ref = {.by_digest = false};
    struct digest digest;
    const struct verify_options deep = {.deep = true, .threads = 1};
    snprintf(ref.name, sizeof ref.name, "%s", name);
    snprintf(ref.tag, sizeof ref.tag, "%s", tag);
    return !repository_resolve(s, &ref, &digest, NULL) && digest_equal(&digest, &image->digest) &&
           !repository_manifest(s, &digest, &m) && !verify_image(s, &m, &deep, &r) && r.packs_bad + r.chunks_bad == 0;
}

static void check_moved(struct fixture *f)
{
    assert_true(is_whole(f->outer, "manifests", "latest", &f->ours));
    assert_true(is_whole(f->outer, "faces", "latest", &f->theirs));
    assert_true(is_whole(f->outer, "faces", "v1", &f->theirs));
    assert_true(is_whole(f->outer, "cats", "v1", &f->theirs));
    assert_int_equal(repository_check(f->inner, false), -ENOENT);
    assert_int_equal(store_fake_count(f->fake, "images/images/"), 0);
    assert_int_equal(store_fake_count(f->fake, "images/packs/"), 0);
    assert_false(store_fake_has(f->fake, "images/trash/sweeping"));
    assert_int_equal(store_fake_count(f->fake, "builds/"), 0);
}

static int note_dir(void *arg, const char *dir)
{
    char *all = arg;
    size_t len = strlen(all);
    snprintf(all + len, 256 - len, "%s ", dir);
    return 0;
}

static void test_unnest__finds_stores_and_the_deepest_first(void **state)
{
    struct fixture *f = *state;
    char found[256] = "";
    store_fake_put(f->fake, "images/faces/granary.json", "{}", 2);
    publish(f->outer, "dogs", "granary.json", &f->ours);
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    assert_int_equal(store_doc_encode("0123", &doc), 0);
    store_fake_put(f->fake, "images/a/b/granary.json", doc.data, doc.len);
    assert_int_equal(unnest_find(f->outer, note_dir, found), 0);
    assert_string_equal(found, "images/a/b images ");
}

static void test_unnest__moves_images_with_their_tags(void **state)
{
    struct fixture *f = *state;
    struct tag t;
    struct digest image;
    struct image_ref ref = {.name = "cats", .tag = "v1"};
    if (unnest_as(f, false))
        fail_msg("%s", error_text());
    check_moved(f);
    assert_int_equal(f->result.images, 1);
    assert_int_equal(f->result.tags, 3);
    assert_int_equal(f->result.tags_there, 0);
    assert_int_equal(f->result.objects_sent, 2 + 1); /* packs, the index; the page of the root alone is there */
    assert_int_equal(repository_resolve(f->outer, &ref, &image, &t), 0);
    assert_int_equal(t.created, 1700000000);
    assert_int_equal(t.source.b[0], 7); /* of what it was built */
}

/* At how many operations the outer store had the tag, and at how many without its signature. */
struct signed_tag {
    _Atomic unsigned there, bare;
};

static void look_at_signature(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    struct signed_tag *s = arg;
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    struct tag t;
    if (!store_fake_get(fake, "images/faces/latest", &doc))
        return;
    must(tag_decode(doc.data, doc.len, &t) == 0, "%s", error_text());
    s->there++;
    s->bare += strcmp(t.signature, "a signature") != 0;
}

static void test_unnest__a_signed_tag_is_never_without_its_signature(void **state)
{
    struct fixture *f = *state;
    struct signed_tag s = {.there = 0};
    assert_int_equal(repository_sign(f->inner, "faces", "latest", &f->theirs.digest, "a signature"), 0);
    store_fake_set_hook(f->fake, look_at_signature, &s);
    assert_int_equal(unnest_as(f, false), 0);
    store_fake_set_hook(f->fake, NULL, NULL);
    check_moved(f);
    assert_true(s.there > 0);
    assert_int_equal(s.bare, 0);
}

static void test_unnest__a_dry_run_changes_nothing_and_says_the_same(void **state)
{
    struct fixture *f = *state;
    size_t before = store_fake_count(f->fake, "");
    assert_int_equal(unnest_as(f, true), 0);
    assert_int_equal(store_fake_count(f->fake, ""), before);
    assert_int_equal(store_fake_calls(f->fake, FAKE_REMOVE), 0);
    struct unnest_result said = f->result;
    assert_int_equal(unnest_as(f, false), 0);
    assert_int_equal(said.removed, f->result.removed);
    assert_int_equal(said.removed_bytes, f->result.removed_bytes);
    assert_int_equal(said.left, store_fake_count(f->fake, "images/manifests/")); /* the outer store's own tags */
    assert_int_equal(f->result.left, store_fake_count(f->fake, "images/"));      /* and those that it has got */
}

static void test_unnest__in_a_directory_of_an_image(void **state)
{
    struct fixture f;
    make_place(&f, "images/lake");
    assert_int_equal(unnest_as(&f, false), 0);
    check_moved(&f);
    assert_int_equal(store_fake_count(f.fake, "images/lake/"), 0);
    assert_int_equal(f.result.left, 0);
    release_place(&f);
}

/* Where the inner store has its leases and marks. */
static void test_unnest__tags_of_the_outer_store_stay(void **state)
{
    struct fixture *f = *state;
    publish(f->outer, "builds", "v1", &f->ours);
    publish(f->outer, "trash", "v1", &f->ours);
    assert_true(store_fake_set_mtime(f->fake, "images/builds/v1", 1700000000));
    store_fake_put(f->fake, "images/trash/sweeping", "{\"format\":\"granary-lease\"}", 26);
    assert_int_equal(unnest_as(f, false), 0);
    check_moved(f);
    assert_true(is_whole(f->outer, "builds", "v1", &f->ours));
    assert_true(is_whole(f->outer, "trash", "v1", &f->ours));
    assert_false(store_fake_has(f->fake, "images/trash/sweeping"));
}

/* Every operation fails from the n-th put or removal on, as if the process had been killed there. */
static bool fails_from(struct fixture *f, enum store_fake_op op, unsigned n)
{
    store_fake_add_fault(f->fake, &(struct store_fake_fault){.op = op, .skip = n, .code = -EACCES});
    int rc = unnest_as(f, false);
    store_fake_clear_faults(f->fake);
    if (!rc)
        return false;
    assert_int_equal(rc, -EACCES);
    assert_true(is_whole(f->outer, "faces", "v1", &f->theirs) || is_whole(f->inner, "faces", "v1", &f->theirs));
    assert_true(is_whole(f->outer, "cats", "v1", &f->theirs) || is_whole(f->inner, "cats", "v1", &f->theirs));
    assert_true(is_whole(f->outer, "manifests", "latest", &f->ours));
    return true;
}

/* Ten minutes pass after a run was killed: its announcement counts no more. */
static void let_announcement_die(struct fixture *f)
{
    const struct lease dead = {.renewed = time(NULL) - LEASE_SWEEP_DEAD_S - 1, .host = "h", .image = ""};
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    assert_int_equal(lease_encode(&dead, &doc), 0);
    if (store_fake_has(f->fake, "images/trash/sweeping"))
        store_fake_put(f->fake, "images/trash/sweeping", doc.data, doc.len);
}

/* The lease of a copy that was killed is of the outer store, and keeps nobody from going on. */
static unsigned end_everywhere(enum store_fake_op op)
{
    struct fixture f;
    for (unsigned n = 0;; n++) {
        make_place(&f, "images");
        bool failed = fails_from(&f, op, n);
        let_announcement_die(&f);
        if (failed && unnest_as(&f, false))
            fail_msg("after %u: %s", n, error_text());
        assert_true(is_whole(f.outer, "cats", "v1", &f.theirs));
        assert_int_equal(repository_check(f.inner, false), -ENOENT);
        assert_int_equal(store_fake_count(f.fake, "images/packs/"), 0);
        release_place(&f);
        if (!failed)
            return n;
    }
}

static void test_unnest__goes_on_wherever_it_ended(void **state)
{
    assert_true(end_everywhere(FAKE_PUT) > 8);    /* objects, a manifest, tags */
    assert_true(end_everywhere(FAKE_REMOVE) > 8); /* the same */
}

static void test_unnest__a_name_for_two_images_is_refused(void **state)
{
    struct fixture *f = *state;
    publish(f->outer, "faces", "v1", &f->ours);
    size_t before = store_fake_count(f->fake, "");
    assert_int_equal(unnest_as(f, false), -EEXIST);
    assert_non_null(strstr(error_text(), "faces:v1 is one image in"));
    assert_int_equal(store_fake_count(f->fake, ""), before);
    assert_int_equal(store_fake_calls(f->fake, FAKE_REMOVE), 0);
}

/* The outer store names the image already, but has nothing of it: the inner one's is the last there is. */
static void test_unnest__heals_what_the_outer_store_has_lost(void **state)
{
    struct fixture *f = *state;
    publish(f->outer, "faces", "latest", &f->theirs);
    publish(f->outer, "faces", "v1", &f->theirs);
    publish(f->outer, "cats", "v1", &f->theirs);
    if (unnest_as(f, false))
        fail_msg("%s", error_text());
    assert_int_equal(f->result.tags_there, 3);
    check_moved(f);
}

/* What is there already is as long and ends alike, but has a wrong byte: the inner store's is the only good one. */
static void test_unnest__leaves_the_inner_store_where_the_outer_image_is_damaged(void **state)
{
    struct fixture *f = *state;
    char key[OBJECT_KEY_MAX], inner[OBJECT_KEY_MAX + 8];
    CLEANUP_BYTES pack = BYTES_INIT(1 << 30);
    object_key(OBJECT_PACK, &f->theirs.refs[0].object, key);
    snprintf(inner, sizeof inner, "images/%s", key);
    assert_true(store_fake_get(f->fake, inner, &pack));
    assert_true(pack.len > REPOSITORY_COMPARED);
    store_fake_put(f->fake, key, pack.data, pack.len);
    assert_true(store_fake_flip(f->fake, key, 0));
    assert_int_equal(unnest_as(f, false), -EBADMSG);
    assert_non_null(strstr(error_text(), "is damaged, so the one in"));
    assert_true(is_whole(f->inner, "faces", "v1", &f->theirs));
    assert_true(store_fake_remove(f->fake, key));
    assert_int_equal(unnest_as(f, false), 0);
    check_moved(f);
}

static void publish_outside(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    struct fixture *f = arg;
    if (op != FAKE_PUT || strncmp(key, "packs/", 6) != 0)
        return;
    store_fake_set_hook(fake, NULL, NULL);
    publish(f->outer, "faces", "v1", &f->ours);
}

static void test_unnest__a_tag_that_was_published_outside_meanwhile_stays(void **state)
{
    struct fixture *f = *state;
    store_fake_set_hook(f->fake, publish_outside, f);
    assert_int_equal(unnest_as(f, false), -EEXIST);
    assert_true(is_whole(f->outer, "faces", "v1", &f->ours));
    assert_true(is_whole(f->inner, "faces", "v1", &f->theirs));
}

/* A store that is deeper still and was not recognized: its manifest lies where the inner store's tags are. */
static void test_unnest__what_is_no_tag_of_the_inner_store_stays(void **state)
{
    struct fixture *f = *state;
    store_fake_put(f->fake, "images/images/manifests/abc", "{\"format\":\"granary-image\"}", 26);
    assert_int_equal(unnest_as(f, false), 0);
    assert_true(store_fake_has(f->fake, "images/images/manifests/abc"));
    assert_true(is_whole(f->outer, "faces", "v1", &f->theirs));
}

static void test_unnest__waits_for_no_build(void **state)
{
    struct fixture *f = *state;
    CLEANUP(cleanup_lease_handle) struct lease_handle *build = NULL;
    assert_int_equal(lease_begin(f->inner, &inner_place, "faces", NULL, &build), 0);
    assert_int_equal(unnest_as(f, false), -EBUSY);
    assert_true(is_whole(f->inner, "faces", "v1", &f->theirs));
}

/* Somebody builds into the inner store while its images are copied. */
static void publish_meanwhile(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    struct fixture *f = arg;
    if (op != FAKE_PUT || strncmp(key, "manifests/", 10) != 0)
        return;
    store_fake_set_hook(fake, NULL, NULL);
    publish(f->inner, "faces", "new", &f->theirs);
}

static void test_unnest__what_was_published_meanwhile_stays(void **state)
{
    struct fixture *f = *state;
    store_fake_set_hook(f->fake, publish_meanwhile, f);
    assert_int_equal(unnest_as(f, false), -EAGAIN);
    assert_true(is_whole(f->inner, "faces", "new", &f->theirs));
    assert_int_equal(unnest_as(f, false), 0);
    check_moved(f);
    assert_true(is_whole(f->outer, "faces", "new", &f->theirs));
}

/* A build begins after the last look at the inner store's leases, or just before the announcement. */
static void begin_at_announcement(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    if (op == FAKE_PUT && !strcmp(key, "images/trash/sweeping"))
        store_fake_put(fake, "images/builds/new", "{}", 2);
}

static void test_unnest__gives_way_to_a_build_that_begins_before_it_removes(void **state)
{
    struct fixture *f = *state;
    store_fake_set_hook(f->fake, begin_at_announcement, f);
    assert_int_equal(unnest_as(f, false), -EBUSY);
    store_fake_set_hook(f->fake, NULL, NULL);
    assert_true(is_whole(f->inner, "faces", "v1", &f->theirs));
    assert_int_equal(store_fake_count(f->fake, "images/trash/"), 0);
    assert_true(store_fake_remove(f->fake, "images/builds/new"));
    assert_int_equal(unnest_as(f, false), 0);
    check_moved(f);
}

struct late_build {
    struct fixture *f;
    pthread_t thread;
    bool begun;
    int rc;
    char sentence[ERROR_TEXT_MAX];
};

static void *build_late(void *arg)
{
    struct late_build *b = arg;
    struct lease_handle *lease = NULL;
    b->rc = lease_begin(b->f->inner, &inner_place, "faces", NULL, &lease);
    snprintf(b->sentence, sizeof b->sentence, "%s", error_text());
    lease_end(lease);
    return NULL;
}

/* The first removal waits until the build's lease is there. */
static void begin_at_removal(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    struct late_build *b = arg;
    if (b->begun || op != FAKE_REMOVE || strncmp(key, "images/images/", 14) != 0)
        return;
    b->begun = true;
    must(pthread_create(&b->thread, NULL, build_late, b) == 0, "no thread");
    for (uint64_t since_ms = 0; !store_fake_count(fake, "images/builds/");)
        counter_pause(&since_ms, "the lease of the late build");
}

static void test_unnest__a_build_that_begins_while_it_removes_waits_and_finds_no_store(void **state)
{
    struct fixture *f = *state;
    struct late_build b = {.f = f};
    store_fake_set_hook(f->fake, begin_at_removal, &b);
    assert_int_equal(unnest_as(f, false), 0);
    assert_true(b.begun);
    assert_int_equal(pthread_join(b.thread, NULL), 0);
    assert_int_equal(b.rc, -ESTALE);
    assert_non_null(strstr(b.sentence, "is no longer a store"));
    check_moved(f);
}

static void test_unnest__stops_where_its_announcement_has_died(void **state)
{
    struct fixture *f = *state;
    live_looks = 2;
    assert_int_equal(unnest_as(f, false), -EAGAIN);
    assert_int_equal(f->result.removed, 2);
    assert_int_equal(repository_check(f->inner, false), 0);
    live_looks = 1000;
    assert_int_equal(unnest_as(f, false), 0);
    check_moved(f);
}

static void test_unnest__finds_what_a_run_left_that_failed_at_its_end(void **state)
{
    struct fixture *f = *state;
    char found[256] = "";
    log_to(NULL, LOG_LEVEL_ERROR);
    store_fake_put(f->fake, "images/builds/old", "{\"format\":\"granary-lease\"}", 26);
    assert_true(store_fake_set_mtime(f->fake, "images/builds/old", 1700000000));
    store_fake_add_fault(
        f->fake, &(struct store_fake_fault){.op = FAKE_REMOVE, .key_prefix = "images/builds/", .code = -EACCES});
    assert_int_equal(unnest_as(f, false), -EACCES);
    store_fake_clear_faults(f->fake);
    log_to(NULL, LOG_LEVEL_INFO);
    assert_int_equal(repository_check(f->inner, false), -ENOENT);
    assert_int_equal(unnest_find(f->outer, note_dir, found), 0);
    assert_string_equal(found, "images ");
    assert_int_equal(unnest_as(f, false), -EAGAIN);
    let_announcement_die(f);
    assert_int_equal(unnest_as(f, false), 0);
    check_moved(f);
    assert_int_equal(store_fake_count(f->fake, "images/builds/"), 0);
    found[0] = '\0';
    assert_int_equal(unnest_find(f->outer, note_dir, found), 0);
    assert_string_equal(found, "");
}

static void test_unnest__leaves_no_announcement_where_granary_json_stays(void **state)
{
    struct fixture *f = *state;
    store_fake_add_fault(
        f->fake, &(struct store_fake_fault){.op = FAKE_REMOVE, .key_prefix = "images/granary.json", .code = -EACCES});
    assert_int_equal(unnest_as(f, false), -EACCES);
    assert_non_null(strstr(error_text(), "images/granary.json"));
    assert_false(store_fake_has(f->fake, "images/trash/sweeping"));
    store_fake_clear_faults(f->fake);
    assert_int_equal(unnest_as(f, false), 0);
    check_moved(f);
}

/* The inner store's announcement would lie there. */
static void test_unnest__a_tag_in_the_way_of_its_announcement_stays(void **state)
{
    struct fixture *f = *state;
    publish(f->outer, "trash", "sweeping", &f->ours);
    assert_int_equal(unnest_as(f, false), -EEXIST);
    assert_true(is_whole(f->outer, "trash", "sweeping", &f->ours));
    assert_true(is_whole(f->inner, "faces", "v1", &f->theirs));
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_unnest__##name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(finds_stores_and_the_deepest_first),
        TEST(moves_images_with_their_tags),
        TEST(a_signed_tag_is_never_without_its_signature),
        TEST(a_dry_run_changes_nothing_and_says_the_same),
        TEST(in_a_directory_of_an_image),
        TEST(tags_of_the_outer_store_stay),
        TEST(goes_on_wherever_it_ended),
        TEST(a_name_for_two_images_is_refused),
        TEST(heals_what_the_outer_store_has_lost),
        TEST(leaves_the_inner_store_where_the_outer_image_is_damaged),
        TEST(a_tag_that_was_published_outside_meanwhile_stays),
        TEST(what_is_no_tag_of_the_inner_store_stays),
        TEST(waits_for_no_build),
        TEST(what_was_published_meanwhile_stays),
        TEST(gives_way_to_a_build_that_begins_before_it_removes),
        TEST(a_build_that_begins_while_it_removes_waits_and_finds_no_store),
        TEST(stops_where_its_announcement_has_died),
        TEST(finds_what_a_run_left_that_failed_at_its_end),
        TEST(leaves_no_announcement_where_granary_json_stays),
        TEST(a_tag_in_the_way_of_its_announcement_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
