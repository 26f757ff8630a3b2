/* Whole builds from a source in memory into a store in memory: what is published, and that nothing is when it must not
 * be.
 */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/error.h"
#include "base/log.h"
#include "fake/source_fake.h"
#include "fake/store_fake.h"
#include "imagebuild/build.h"
#include "imagebuild/content/content.h"
#include "repository/read/catalog_read.h"
#include "repository/repository.h"
#include "unit/read_back.h"
#include "upkeep/upkeep.h"

enum { CHUNK = CHUNK_SIZE_MIN };

static struct image_ref reference(void)
{
    struct image_ref ref;
    assert_int_equal(image_ref_parse("/store/faces:v1", &ref), 0);
    return ref;
}

static struct build_options options(void)
{
    return (struct build_options){
        .chunk_size = CHUNK, .zstd_level = 1, .jobs = 4, .workers = 2, .uploads = 2, .pack_size = 200 << 10};
}

static int run(struct source *source, struct store_fake *store, const struct build_options *o, struct build_result *r)
{
    struct image_ref ref = reference();
    return build_run(source, store_fake_store(store), &ref, o, r);
}

static void add_directory(struct source *s, const char *path)
{
    struct source_entry e = {.path = path, .path_len = strlen(path), .mode = S_IFDIR | 0755, .mtime = 1700000000};
    source_fake_entry(s, &e);
}

/* Some of everything, 2 MB in many packs. */
static struct source *some_source(void)
{
    struct source *s = source_fake_new();
    char path[64];
    add_directory(s, "");
    add_directory(s, "empty");
    for (unsigned i = 0; i < 60; i++) {
        snprintf(path, sizeof path, "d%u/f%u", i % 7, i);
        source_fake_file(s, path, (uint64_t)i * i * 20, i);
    }
    source_fake_file(s, "same1", 50000, 99);
    source_fake_file(s, "same2", 50000, 99);
    source_fake_file(s, "big", BUFSIZ + 700001, 7);
    struct source_entry link = {
        .path = "link", .path_len = 4, .mode = S_IFLNK | 0777, .target = "big", .target_len = 3, .size = 3};
    source_fake_entry(s, &link);
    return s;
}

/* ------------------------------------------------------------------ looking at an image */

struct check {
    struct store_fake *store;
    const uint8_t *image;
    uint64_t paths, files;
    char seen[8192]; /* "path;path;" */
};

static int check_entry(void *arg, const struct catalog_entry *e)
{
    struct check *c = arg;
    c->paths++;
    size_t n = strlen(c->seen);
    snprintf(c->seen + n, sizeof c->seen - n, "%.*s;", (int)e->path_len, e->path);
    if (!S_ISREG(e->mode) || !e->size)
        return 0;
    c->files++;
    assert_int_equal(e->extent_count, 1);
    assert_int_equal(e->extents[0].len, e->size);
    struct digest content = digest_of(c->image + e->extents[0].offset, e->size);
    assert_true(digest_equal(&content, &e->content));
    return 0;
}

/* Everything the result says holds in the store; every file's bytes are where the catalog says. */
static struct check check_image(struct store_fake *store, const struct build_result *r)
{
    struct check c = {.store = store};
    struct image_ref ref = reference();
    struct digest image;
    struct tag tag;
    struct manifest m;
    assert_int_equal(repository_resolve(store_fake_store(store), &ref, &image, &tag), 0);
    assert_true(digest_equal(&image, &r->image));
    assert_true(digest_equal(&tag.content_root, &r->content_root));
    snprintf(ref.tag, sizeof ref.tag, "%s", r->unique_tag);
    assert_int_equal(repository_resolve(store_fake_store(store), &ref, &image, &tag), 0);
    assert_true(digest_equal(&image, &r->image));
    assert_int_equal(repository_manifest(store_fake_store(store), &image, &m), 0);
    uint8_t *data = read_back(store, &m.index_root, m.index_levels, m.size, m.chunk_size);
    c.image = data;
    assert_int_equal(catalog_walk(store_fake_store(store), &m, NULL, 0, check_entry, &c), 0);
    assert_int_equal(c.paths, m.catalog_entries);
    assert_int_equal(m.counts.files + m.counts.directories + m.counts.symlinks + m.counts.hard_links + m.counts.others,
                     c.paths);
    free(data);
    c.image = NULL;
    return c;
}

static void assert_nothing_published(struct store_fake *store)
{
    assert_int_equal(store_fake_count(store, "images/"), 0);
    assert_int_equal(store_fake_count(store, "builds/"), 0);
}

/* ------------------------------------------------------------------ tests */

static void test_build__image_is_published_under_two_tags(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    assert_int_equal(run(source, store, &o, &r), 0);
    struct check c = check_image(store, &r);
    assert_int_equal(c.paths, 64 + 2 + 7); /* f0 is empty */
    assert_int_equal(c.files, 62);
    assert_int_equal(r.dedupe_files, 1);
    assert_int_equal(r.dedupe_bytes, 50000);
    assert_int_equal(r.packs_new, store_fake_count(store, "packs/"));
    assert_true(r.packs_new > 3);
    assert_int_equal(store_fake_count(store, "images/"), 2);
    assert_int_equal(store_fake_count(store, "builds/"), 0);
    assert_int_equal(r.manifest.metadata_offset % CHUNK, 0);
    source_close(source);
}

static void test_build__digest_does_not_depend_on_parallelism_or_order(void **state)
{
    static const unsigned jobs[] = {1, 16, 5};
    struct digest first;
    for (unsigned i = 0; i < 3; i++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct source *source = some_source();
        struct build_options o = options();
        struct build_result r;
        o.jobs = o.workers = o.uploads = jobs[i];
        o.jobs = i == 2 ? 0 : o.jobs; /* as many as it finds best */
        o.read_memory = i ? 64 << 20 : 1;
        source_fake_order(source, i);
        assert_int_equal(run(source, store, &o, &r), 0);
        if (!i)
            first = r.image;
        assert_true(digest_equal(&first, &r.image));
        source_close(source);
    }
}

static void test_build__an_empty_source_is_a_root(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = source_fake_new();
    struct build_options o = options();
    struct build_result r;
    assert_int_equal(run(source, store, &o, &r), 0);
    struct check c = check_image(store, &r);
    assert_int_equal(c.paths, 1);
    assert_int_equal(r.manifest.size, CHUNK + 4096);
    source_close(source);
}

static void test_build__what_changed_is_taken_as_it_is_now(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    source_fake_version(source, "big", 12345, 8);
    source_fake_rule(source, "big", 1000, FAKE_CHANGE, 0);
    source_fake_version(source, "d2/f9", 0, 0); /* to nothing */
    source_fake_rule(source, "d2/f9", 0, FAKE_CHANGE, 0);
    source_fake_version(source, "d3/f10", CONTENT_PART + 1, 11); /* to more than a part */
    source_fake_rule(source, "d3/f10", 0, FAKE_CHANGE, 0);
    source_fake_vanish(source, "same1");
    source_fake_counts(source,
                       &(struct source_counts){.vanished = 2, .first_vanished = "d9/early", .owners_unknown = 3});
    assert_int_equal(run(source, store, &o, &r), 0);
    assert_int_equal(r.files_changed, 3);
    assert_int_equal(r.files_vanished, 1);
    assert_int_equal(r.listing_vanished, 2);
    assert_int_equal(r.owners_unknown, 3);
    struct check c = check_image(store, &r);
    assert_null(strstr(c.seen, "same1;"));
    assert_non_null(strstr(c.seen, "same2;"));
    assert_int_equal(c.files, 60);
    source_close(source);
}

/* Each name of the file says the same. */
static int check_linked(void *arg, const struct catalog_entry *e)
{
    unsigned *names = arg;
    if (!S_ISREG(e->mode) || (e->path_len == 1 && *e->path == 'd'))
        return 0;
    ++*names;
    assert_int_equal(e->size, 77000);
    assert_int_equal(e->extent_count, 1);
    assert_int_equal(e->extents[0].offset, CHUNK);
    assert_memory_equal(e->validator, "v1", 2);
    assert_int_equal(e->hard_link, *e->path != 'a');
    if (e->hard_link) {
        assert_int_equal(e->target_len, 7);
        assert_memory_equal(e->target, "a/first", 7);
    }
    return 0;
}

/* As the first name does while it is read. */
static void change_further(struct source *s)
{
    static const char *const names[] = {"b", "c/last"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(names); i++) {
        source_fake_version(s, names[i], 77000, 3);
        source_fake_change(s, names[i]);
    }
}

static void test_build__names_of_one_file_change_and_leave_together(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct build_options o = options();
    struct build_result r;
    struct source *source = source_fake_new();
    source_fake_linked(source);
    unsigned names = 0;
    source_fake_version(source, "a/first", 77000, 3);
    source_fake_rule(source, "a/first", 0, FAKE_CHANGE, 0);
    change_further(source);
    assert_int_equal(run(source, store, &o, &r), 0);
    assert_int_equal(r.files_changed, 1);
    assert_int_equal(r.manifest.counts.files, 2);
    assert_int_equal(r.manifest.counts.hard_links, 2);
    assert_int_equal(r.manifest.counts.bytes, 77010);
    assert_int_equal(catalog_walk(store_fake_store(store), &r.manifest, NULL, 0, check_linked, &names), 0);
    assert_int_equal(names, 3);
    source_close(source);
    source = source_fake_new();
    source_fake_linked(source);
    o.no_parent = true;
    source_fake_rule(source, "a/first", 0, FAKE_VANISH, 0);
    source_fake_vanish(source, "b");
    source_fake_vanish(source, "c/last");
    assert_int_equal(run(source, store, &o, &r), 0);
    assert_int_equal(r.files_vanished, 1);
    struct check c = check_image(store, &r);
    assert_string_equal(c.seen, ";a;c;d;");
    source_close(source);
}

static struct {
    unsigned count;
    char last[2048];
} vanished_lines;

static void take_vanished(enum log_level level, const char *line)
{
    if (level != LOG_LEVEL_WARNING || !strstr(line, "not there when it is read"))
        return;
    vanished_lines.count++;
    snprintf(vanished_lines.last, sizeof vanished_lines.last, "%s", line);
}

/* What a listing named and a read did not find: the first few by name, all of them counted. */
static void test_build__what_vanished_is_named(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = source_fake_new();
    struct build_options o = options();
    struct build_result r;
    char path[16];
    for (unsigned i = 0; i < 20; i++) {
        snprintf(path, sizeof path, "f%02u", i);
        source_fake_file(source, path, 5000, i);
        if (i >= 3 && i < 15)
            source_fake_rule(source, path, 0, FAKE_VANISH, 0);
    }
    vanished_lines.count = 0;
    log_to(take_vanished, LOG_LEVEL_INFO);
    int rc = run(source, store, &o, &r);
    log_to(NULL, LOG_LEVEL_INFO);
    assert_int_equal(rc, 0);
    assert_int_equal(r.files_vanished, 12);
    assert_int_equal(vanished_lines.count, SOURCE_VANISHED_NAMED);
    assert_non_null(strstr(vanished_lines.last, "'f10'"));
    source_close(source);
}

static void test_build__strict_refuses_what_vanished_from_the_listing(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    o.strict = true;
    source_fake_counts(source, &(struct source_counts){.owners_unknown = 3}); /* no reason to fail */
    assert_int_equal(run(source, store, &o, &r), 0);
    source_close(source);
    source = some_source();
    CLEANUP(cleanup_store_fake) struct store_fake *other = store_fake_new();
    source_fake_counts(source, &(struct source_counts){.vanished = 1, .first_vanished = "d9/early"});
    assert_int_equal(run(source, other, &o, &r), -ENOENT);
    assert_non_null(strstr(error_text(), "fake://source: 'd9/early' vanished while it was listed"));
    assert_nothing_published(other);
    source_close(source);
}

/* The first name was given to another file, or removed, while the others stay what they were. */
static void test_build__names_of_one_file_that_part_are_not_mixed_up(void **state)
{
    for (int gone = 0; gone < 2; gone++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct build_options o = options();
        struct build_result r;
        struct source *source = source_fake_new();
        source_fake_linked(source);
        source_fake_version(source, "a/first", 77000, 3);
        source_fake_rule(source, "a/first", 0, gone ? FAKE_VANISH : FAKE_CHANGE, 0);
        assert_int_equal(run(source, store, &o, &r), -ESTALE);
        assert_non_null(strstr(error_text(), "'b' and 'a/first' were names of one file"));
        assert_nothing_published(store);
        source_close(source);
    }
}

static void test_build__strict_refuses_what_changed(void **state)
{
    static const enum fake_action actions[] = {FAKE_CHANGE, FAKE_VANISH};
    for (size_t i = 0; i < 2; i++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct source *source = some_source();
        struct build_options o = options();
        struct build_result r;
        o.strict = true;
        source_fake_version(source, "big", 12345, 8);
        source_fake_rule(source, "big", 1000, actions[i], 0);
        assert_true(run(source, store, &o, &r) < 0);
        assert_non_null(strstr(error_text(), "big"));
        assert_nothing_published(store);
        source_close(source);
    }
}

static void test_build__a_source_that_fails_is_named(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    source_fake_rule(source, "d3/f45", 0, FAKE_READ_FAIL, -EIO);
    assert_int_equal(run(source, store, &o, &r), -EIO);
    assert_non_null(strstr(error_text(), "d3/f45"));
    assert_nothing_published(store);
    source_close(source);
}

/* A put fails at every place in turn: nothing is visible, and the next run goes on with what is there. */
static void test_build__a_store_failing_at_any_put_publishes_nothing(void **state)
{
    struct build_options o = options();
    struct build_result r;
    int rc = -1;
    unsigned skip = 0;
    for (; rc; skip++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct source *source = some_source();
        store_fake_add_fault(store,
                             &(struct store_fake_fault){.op = FAKE_PUT, .skip = skip, .count = 1, .code = -EACCES});
        rc = run(source, store, &o, &r);
        if (rc) {
            assert_int_equal(rc, -EACCES);
            assert_nothing_published(store);
            size_t packs = store_fake_count(store, "packs/");
            store_fake_clear_faults(store);
            source_close(source); /* a failed build may have cancelled it */
            source = some_source();
            assert_int_equal(run(source, store, &o, &r), 0);
            assert_int_equal(r.packs_reused, packs);
            check_image(store, &r);
        }
        source_close(source);
    }
    assert_true(skip > 10);
}

static void test_build__a_dead_store_is_reported_at_every_step(void **state)
{
    struct build_options o = options();
    struct build_result r;
    int rc = -1;
    unsigned skip = 0;
    log_to(NULL, LOG_LEVEL_ERROR); /* of leases and tags that cannot be removed */
    for (; rc; skip++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct source *source = some_source();
        store_fake_add_fault(store, &(struct store_fake_fault){.op = FAKE_ANY, .skip = skip, .code = -EIO});
        rc = run(source, store, &o, &r);
        struct image_ref ref = reference();
        struct digest image;
        store_fake_clear_faults(store);
        if (rc) /* the asked tag is never there after a failure */
            assert_int_equal(repository_resolve(store_fake_store(store), &ref, &image, NULL), -ENOENT);
        source_close(source);
        assert_true(skip < 1000);
    }
    log_to(NULL, LOG_LEVEL_INFO);
    assert_true(skip > 20);
}

struct canceller {
    volatile int cancel;
    const char *phase;
    unsigned calls;
};

static void cancel_at(void *arg, const struct build_progress *p)
{
    struct canceller *c = arg;
    c->calls++;
    if (!strcmp(p->phase, c->phase))
        c->cancel = 1;
}

static void test_build__cancel_publishes_nothing(void **state)
{
    static const char *const phases[] = {"listing", "reading", "metadata"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(phases); i++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct source *source = some_source();
        struct canceller c = {.phase = phases[i]};
        struct build_options o = options();
        struct build_result r;
        o.cancel = &c.cancel;
        o.progress = cancel_at;
        o.progress_arg = &c;
        assert_int_equal(run(source, store, &o, &r), -ECANCELED);
        assert_nothing_published(store);
        c.phase = "never";
        c.cancel = 0;
        source_close(source);
        source = some_source();
        assert_int_equal(run(source, store, &o, &r), 0);
        assert_true(c.calls >= 4);
        check_image(store, &r);
        source_close(source);
    }
}

static void test_build__dry_run_writes_nothing(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    o.dry_run = true;
    assert_int_equal(run(source, store, &o, &r), 0);
    assert_int_equal(store_fake_calls(store, FAKE_ANY), 2); /* is there a parent: of the tag, of the name? */
    assert_int_equal(store_fake_calls(store, FAKE_GET_SMALL), 1);
    assert_int_equal(r.manifest.counts.files, 63);
    assert_int_equal(source_fake_stats(source).reads, 0);
    source_close(source);
}

static void test_build__strict_tags_asks_before_anything_is_sent(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    o.strict_tags = true;
    store_fake_set_conditional(store, false);
    assert_int_equal(run(source, store, &o, &r), -ENOTSUP);
    assert_int_equal(store_fake_count(store, ""), 0);
    assert_int_equal(source_fake_stats(source).reads, 0);
    store_fake_set_conditional(store, true);
    assert_int_equal(run(source, store, &o, &r), 0);
    source_close(source);
}

static void remove_reused_pack(void *arg, struct store_fake *f, enum store_fake_op op, const char *key)
{
    const char *victim = arg;
    if (op == FAKE_PUT && !strncmp(key, "indexes/", 8)) /* all packs were looked at by then */
        store_fake_remove(f, victim);
}

static void test_build__a_reused_pack_that_vanishes_stops_the_publishing(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    o.no_parent = true; /* packs are found again by their names alone */
    struct build_result r;
    char key[OBJECT_KEY_MAX];
    assert_int_equal(run(source, store, &o, &r), 0);
    struct index_child root = r.manifest.index_root;
    CLEANUP_BYTES object = BYTES_INIT(INDEX_NODE_MAX);
    CLEANUP(cleanup_index_node) struct index_node *node = NULL;
    read_back_object(store, OBJECT_INDEX, &root.digest, &object);
    assert_int_equal(index_decode(object.data, object.len, &node), 0);
    object_key(OBJECT_PACK, &node->chunks[1].object, key);
    char index[OBJECT_KEY_MAX], manifest[OBJECT_KEY_MAX];
    assert_true(store_fake_remove(store, object_key(OBJECT_INDEX, &root.digest, index)));
    assert_true(store_fake_remove(store, object_key(OBJECT_MANIFEST, &r.image, manifest)));
    store_fake_set_hook(store, remove_reused_pack, key);
    assert_int_equal(run(source, store, &o, &r), -EAGAIN);
    assert_non_null(strstr(error_text(), key));
    assert_false(store_fake_has(store, manifest));
    store_fake_set_hook(store, NULL, NULL);
    assert_int_equal(run(source, store, &o, &r), 0);
    check_image(store, &r);
    source_close(source);
}

/* Else a gc that comes when the new image is gone again would sweep at once what servers still read. */
static void test_build__what_it_reuses_loses_its_marks(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    struct gc_result gc;
    struct image_ref ref = reference();
    assert_int_equal(run(source, store, &o, &r), 0);
    assert_int_equal(repository_remove_tag(store_fake_store(store), ref.name, ref.tag), 0);
    assert_int_equal(repository_remove_tag(store_fake_store(store), ref.name, r.unique_tag), 0);
    store_fake_put(store, "trash/strange", "x", 1);
    const struct gc_options old = {.grace_s = 100, .now = time(NULL) + 1000};
    assert_int_equal(gc_run(store_fake_store(store), &old, &gc), 0);
    assert_int_equal(gc.marked, gc.objects);
    assert_int_equal(store_fake_count(store, "trash/"), gc.objects + 1);
    assert_int_equal(run(source, store, &o, &r), 0);
    assert_int_equal(r.objects_new, 0);
    assert_int_equal(store_fake_count(store, "trash/"), 1);
    source_close(source);
}

/* Bodies in the order of the listing, by no read at all; equal ones once. */
static void test_build__bodies_may_come_with_the_listing(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r, again;
    source_fake_file(source, "huge", (16 << 20) + 12345, 5);
    source_fake_stream(source, 0);
    assert_int_equal(run(source, store, &o, &r), 0);
    struct check c = check_image(store, &r);
    assert_int_equal(c.files, 63);
    assert_int_equal(r.dedupe_files, 1);
    assert_int_equal(source_fake_stats(source).reads, 0);
    assert_int_equal(r.bytes_read, r.manifest.counts.bytes);
    o.no_parent = true;
    assert_int_equal(run(source, store, &o, &again), 0);
    assert_true(digest_equal(&r.image, &again.image));
    assert_int_equal(again.packs_new, 0);
    source_close(source);
}

/* A source that cannot be told what the parent has is built as if there were none. */
static void test_build__streamed_bodies_upon_a_parent(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    assert_int_equal(run(source, store, &o, &r), 0); /* read, not streamed */
    source_fake_stream(source, 0);
    source_fake_file(source, "one more", 100000, 55);
    assert_int_equal(run(source, store, &o, &r), 0);
    struct check c = check_image(store, &r);
    assert_int_equal(c.files, 63);
    source_close(source);
}

static void test_build__a_streamed_body_of_another_length_is_refused(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    source_fake_stream(source, 1);
    assert_int_equal(run(source, store, &o, &r), -EBADMSG);
    assert_non_null(strstr(error_text(), "does not have the"));
    assert_nothing_published(store);
    o.fs = MANIFEST_EXT4;
    assert_int_equal(run(source, store, &o, &r), -EBADMSG);
    assert_nothing_published(store);
    o.fs = MANIFEST_EROFS;
    o.dry_run = true;
    assert_int_equal(run(source, store, &o, &r), 0);
    source_close(source);
}

static void test_build__wrong_options_are_refused(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    o.chunk_size = 100000;
    assert_int_equal(run(source, store, &o, &r), -EINVAL);
    o = options();
    struct image_ref ref = reference();
    ref.by_digest = true;
    assert_int_equal(build_run(source, store_fake_store(store), &ref, &o, &r), -EINVAL);
    assert_int_equal(store_fake_calls(store, FAKE_ANY), 0);
    source_close(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build__image_is_published_under_two_tags),
        cmocka_unit_test(test_build__digest_does_not_depend_on_parallelism_or_order),
        cmocka_unit_test(test_build__an_empty_source_is_a_root),
        cmocka_unit_test(test_build__what_changed_is_taken_as_it_is_now),
        cmocka_unit_test(test_build__names_of_one_file_change_and_leave_together),
        cmocka_unit_test(test_build__what_vanished_is_named),
        cmocka_unit_test(test_build__strict_refuses_what_vanished_from_the_listing),
        cmocka_unit_test(test_build__names_of_one_file_that_part_are_not_mixed_up),
        cmocka_unit_test(test_build__strict_refuses_what_changed),
        cmocka_unit_test(test_build__a_source_that_fails_is_named),
        cmocka_unit_test(test_build__a_store_failing_at_any_put_publishes_nothing),
        cmocka_unit_test(test_build__a_dead_store_is_reported_at_every_step),
        cmocka_unit_test(test_build__cancel_publishes_nothing),
        cmocka_unit_test(test_build__dry_run_writes_nothing),
        cmocka_unit_test(test_build__strict_tags_asks_before_anything_is_sent),
        cmocka_unit_test(test_build__a_reused_pack_that_vanishes_stops_the_publishing),
        cmocka_unit_test(test_build__what_it_reuses_loses_its_marks),
        cmocka_unit_test(test_build__bodies_may_come_with_the_listing),
        cmocka_unit_test(test_build__streamed_bodies_upon_a_parent),
        cmocka_unit_test(test_build__a_streamed_body_of_another_length_is_refused),
        cmocka_unit_test(test_build__wrong_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
