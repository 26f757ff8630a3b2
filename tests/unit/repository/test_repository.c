/* Publishing and finding images, on a store that lies, races and forgets. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "fake/image_fake.h"
#include "fake/store_fake.h"
#include "format/catalog.h"
#include "repository/repository.h"
#include "unit/threads.h"

static _Atomic unsigned warnings; /* counted by every thread */

static void count_warning(enum log_level level, const char *line)
{
    warnings += level == LOG_LEVEL_WARNING;
}

static int setup(void **state)
{
    struct store_fake *f = store_fake_new();
    *state = f;
    warnings = 0;
    log_to(count_warning, LOG_LEVEL_DEBUG);
    return repository_check(store_fake_store(f), true);
}

static int teardown(void **state)
{
    store_fake_free(*state);
    return 0;
}

static struct tag tag_of(const char *image)
{
    return (struct tag){.digest = digest_of(image, strlen(image)), .content_root = digest_of("c", 1)};
}

static struct digest resolve(struct store_fake *f, const char *name, const char *tag)
{
    struct image_ref ref = {.by_digest = false};
    struct digest d = {{0}};
    snprintf(ref.name, sizeof ref.name, "%s", name);
    snprintf(ref.tag, sizeof ref.tag, "%s", tag);
    if (repository_resolve(store_fake_store(f), &ref, &d, NULL))
        memset(&d, 0, sizeof d);
    return d;
}

static void assert_names(struct store_fake *f, const char *name, const char *tag, const char *image)
{
    struct digest d = resolve(f, name, tag), want = digest_of(image, strlen(image));
    assert_memory_equal(&d, &want, DIGEST_SIZE);
}

static void test_repository__a_store_is_made_once_and_recognized(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *f = store_fake_new();
    struct store *s = store_fake_store(f);
    assert_int_equal(repository_check(s, false), -ENOENT);
    assert_non_null(strstr(error_text(), "not a Granary store"));
    assert_int_equal(repository_check(s, true), 0);
    assert_int_equal(repository_check(s, true), 0);
    assert_int_equal(store_fake_calls(f, FAKE_PUT), 1);
    assert_int_equal(repository_check(s, false), 0);
    assert_int_equal(strlen(s->id), 32);
    const char newer[] = "{\"format\":\"granary-store\",\"version\":9}";
    store_fake_put(f, "granary.json", newer, strlen(newer));
    assert_int_equal(repository_check(s, true), -EBADMSG);
    assert_int_equal(repository_check(s, false), -EBADMSG);
    store_fake_set_dead(f, -EACCES);
    assert_int_equal(repository_check(s, true), -EACCES);
}

static void test_repository__publish_and_resolve(void **state)
{
    struct store_fake *f = *state;
    struct tag first = tag_of("one"), second = tag_of("two");
    assert_int_equal(repository_publish(store_fake_store(f), "faces", "latest", &first, true), 0);
    assert_true(first.created > 0 && first.nonce[0]);
    assert_names(f, "faces", "latest", "one");
    assert_int_equal(repository_publish(store_fake_store(f), "faces", "latest", &second, true), 0);
    assert_names(f, "faces", "latest", "two");
    assert_int_not_equal(strcmp(first.nonce, second.nonce), 0);

    struct image_ref ref;
    struct tag t;
    struct digest d;
    assert_int_equal(image_ref_parse("s3://b/faces:gone", &ref), 0);
    assert_int_equal(repository_resolve(store_fake_store(f), &ref, &d, &t), -ENOENT);
    assert_non_null(strstr(error_text(), "faces:gone"));
    assert_non_null(strstr(error_text(), "granary images"));
    ref.by_digest = true;
    ref.digest = second.digest;
    assert_int_equal(repository_resolve(store_fake_store(f), &ref, &d, &t), 0);
    assert_memory_equal(&d, &second.digest, DIGEST_SIZE);
    assert_true(digest_is_zero(&t.digest));
    assert_int_equal(repository_publish(store_fake_store(f), "../x", "latest", &t, true), -EINVAL);
    assert_int_equal(repository_publish(store_fake_store(f), "x", "a/b", &t, true), -EINVAL);
}

struct publisher {
    struct store *store;
    char image[32];
};

static void *publish_many(void *arg)
{
    struct publisher *p = arg;
    for (int i = 0; i < 20; i++) {
        struct tag t = tag_of(p->image);
        must(repository_publish(p->store, "faces", "latest", &t, true) == 0, "%s", error_text());
    }
    return NULL;
}

static void test_repository__publishers_who_meet_all_get_through(void **state)
{
    struct store_fake *f = *state;
    struct publisher p[6];
    pthread_t threads[6];
    for (int i = 0; i < 6; i++) {
        p[i].store = store_fake_store(f);
        snprintf(p[i].image, sizeof p[i].image, "image %d", i);
        assert_int_equal(pthread_create(&threads[i], NULL, publish_many, &p[i]), 0);
    }
    for (int i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
    struct digest d = resolve(f, "faces", "latest");
    assert_false(digest_is_zero(&d));
}

/* A rival replaces the tag just before each of the first `left` puts. */
struct rival {
    unsigned left;
};

static void rival_hook(void *arg, struct store_fake *f, enum store_fake_op op, const char *key)
{
    struct rival *r = arg;
    if (op != FAKE_PUT || strncmp(key, "images/", 7) != 0 || r->left == 0)
        return;
    r->left--;
    struct tag t = tag_of("rival");
    strcpy(t.nonce, "rival");
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    assert_int_equal(tag_encode(&t, &doc), 0);
    store_fake_put(f, key, doc.data, doc.len);
}

static void test_repository__a_put_that_lost_the_race_is_tried_again(void **state)
{
    struct store_fake *f = *state;
    struct rival r = {.left = 5};
    store_fake_set_hook(f, rival_hook, &r);
    struct tag t = tag_of("mine");
    store_fake_reset_counters(f);
    assert_int_equal(repository_publish(store_fake_store(f), "faces", "latest", &t, true), 0);
    assert_names(f, "faces", "latest", "mine");
    assert_int_equal(store_fake_calls(f, FAKE_PUT), 6);
    r.left = UINT32_MAX;
    assert_int_equal(repository_publish(store_fake_store(f), "faces", "latest", &t, true), -EAGAIN);
}

static void test_repository__a_put_whose_answer_was_lost_is_recognized(void **state)
{
    struct store_fake *f = *state;
    const int codes[] = {-EAGAIN, -ETIMEDOUT, -EEXIST, -EIO};
    for (size_t i = 0; i < GR_ARRAY_SIZE(codes); i++) {
        struct tag t = tag_of(i % 2 ? "odd" : "even");
        store_fake_clear_faults(f);
        store_fake_add_fault(f, &(struct store_fake_fault){
                                    .op = FAKE_PUT, .kind = FAKE_LOSE, .key_prefix = "images/", .code = codes[i]});
        store_fake_reset_counters(f);
        assert_int_equal(repository_publish(store_fake_store(f), "faces", "latest", &t, true), 0);
        assert_int_equal(store_fake_calls(f, FAKE_PUT), 1);
        assert_names(f, "faces", "latest", i % 2 ? "odd" : "even");
    }
    /* one that was not carried out is not success */
    store_fake_clear_faults(f);
    store_fake_add_fault(f, &(struct store_fake_fault){.op = FAKE_PUT, .key_prefix = "images/", .code = -EACCES});
    struct tag t = tag_of("refused");
    assert_int_equal(repository_publish(store_fake_store(f), "faces", "latest", &t, true), -EACCES);
    assert_non_null(strstr(error_text(), "injected"));
    assert_names(f, "faces", "latest", "odd");
}

static void test_repository__without_conditional_puts_the_last_writer_wins(void **state)
{
    struct store_fake *f = *state;
    store_fake_set_conditional(f, false);
    struct tag one = tag_of("one"), two = tag_of("two");
    assert_int_equal(repository_publish(store_fake_store(f), "faces", "latest", &one, false), 0);
    assert_int_equal(warnings, 0); /* nothing was replaced */
    assert_int_equal(repository_publish(store_fake_store(f), "faces", "latest", &two, false), 0);
    assert_int_equal(warnings, 1);
    assert_names(f, "faces", "latest", "two");
    assert_int_equal(repository_publish(store_fake_store(f), "faces", "latest", &one, true), -ENOTSUP);
    assert_names(f, "faces", "latest", "two");
}

static void test_repository__objects_are_put_once_and_whole(void **state)
{
    struct store_fake *f = *state;
    struct store *s = store_fake_store(f);
    struct digest name, again;
    enum repository_found found = REPOSITORY_WHOLE;
    char key[OBJECT_KEY_MAX];
    CLEANUP_BYTES out = BYTES_INIT(0);
    assert_int_equal(repository_put_object(s, OBJECT_INDEX, "hello", 5, NULL, &name, &found), 0);
    assert_int_equal(found, REPOSITORY_ABSENT);
    assert_int_equal(repository_put_object(s, OBJECT_INDEX, "hello", 5, &name, &again, &found), 0);
    assert_int_equal(found, REPOSITORY_WHOLE);
    assert_int_equal(store_fake_calls(f, FAKE_PUT), 2); /* granary.json and one */
    assert_int_equal(repository_get_object(s, OBJECT_INDEX, &name, 5, &out), 0);
    assert_int_equal(out.len, 5);
    assert_int_equal(repository_get_object(s, OBJECT_INDEX, &name, 5, &out), 0);
    assert_int_equal(out.len, 5);
    assert_int_equal(repository_get_object(s, OBJECT_INDEX, &name, 4, &out), -EBADMSG);
    /* one cut short by whatever is put again */
    object_key(OBJECT_INDEX, &name, key);
    assert_true(store_fake_truncate(f, key, 3));
    assert_int_equal(repository_get_object(s, OBJECT_INDEX, &name, 5, &out), -EBADMSG);
    assert_int_equal(repository_put_object(s, OBJECT_INDEX, "hello", 5, NULL, NULL, &found), 0);
    assert_int_equal(found, REPOSITORY_DAMAGED);
    assert_int_equal(repository_get_object(s, OBJECT_INDEX, &name, 5, &out), 0);
    assert_true(store_fake_flip(f, key, 0));
    assert_int_equal(repository_get_object(s, OBJECT_INDEX, &name, 5, &out), -EBADMSG);
    assert_non_null(strstr(error_text(), key));
    assert_int_equal(repository_put_object(s, OBJECT_INDEX, "hello", 5, NULL, NULL, &found), 0);
    assert_int_equal(found, REPOSITORY_DAMAGED);
    assert_int_equal(repository_get_object(s, OBJECT_INDEX, &name, 5, &out), 0);
}

static void test_repository__what_the_store_says_of_an_object_is_believed(void **state)
{
    enum { LEN = CATALOG_OBJECT_MAX + 1 };
    struct store_fake *f = *state;
    struct store *s = store_fake_store(f);
    struct digest name;
    enum repository_found found;
    char key[OBJECT_KEY_MAX];
    CLEANUP_FREE char *data = calloc(1, LEN);
    store_fake_set_md5(f, FAKE_MD5_TRUE);
    assert_int_equal(repository_put_object(s, OBJECT_PACK, data, LEN, NULL, &name, &found), 0);
    assert_int_equal(repository_put_object(s, OBJECT_PACK, data, LEN, &name, NULL, &found), 0);
    assert_int_equal(found, REPOSITORY_WHOLE);
    assert_int_equal(store_fake_calls(f, FAKE_GET), 0); /* nothing of it was read */
    assert_true(store_fake_flip(f, object_key(OBJECT_PACK, &name, key), LEN / 2));
    assert_int_equal(repository_look(s, key, data, LEN, &found), 0);
    assert_int_equal(found, REPOSITORY_DAMAGED); /* far from its end */
    assert_int_equal(store_fake_calls(f, FAKE_GET), 0);
    /* A server that encrypts says something else: then its end tells, as far as that goes. */
    store_fake_set_md5(f, FAKE_MD5_OTHER);
    assert_int_equal(repository_look(s, key, data, LEN, &found), 0);
    assert_int_equal(found, REPOSITORY_WHOLE);
    assert_true(store_fake_flip(f, key, LEN - 1));
    assert_int_equal(repository_look(s, key, data, LEN, &found), 0);
    assert_int_equal(found, REPOSITORY_DAMAGED);
}

/* Without an MD5 too, and however far the damage is from the end: a page of a catalog that stays damaged would make
 * build after build read everything. */
static void test_repository__a_catalog_page_is_compared_as_a_whole(void **state)
{
    enum { LEN = CATALOG_OBJECT_MAX };
    struct store_fake *f = *state;
    struct store *s = store_fake_store(f);
    struct digest name;
    enum repository_found found;
    char key[OBJECT_KEY_MAX];
    CLEANUP_FREE char *data = calloc(1, LEN);
    assert_int_equal(repository_put_object(s, OBJECT_CATALOG, data, LEN, NULL, &name, &found), 0);
    assert_true(store_fake_flip(f, object_key(OBJECT_CATALOG, &name, key), 0));
    assert_int_equal(repository_put_object(s, OBJECT_CATALOG, data, LEN, &name, NULL, &found), 0);
    assert_int_equal(found, REPOSITORY_DAMAGED);
    assert_int_equal(repository_put_object(s, OBJECT_CATALOG, data, LEN, &name, NULL, &found), 0);
    assert_int_equal(found, REPOSITORY_WHOLE);
}

static void test_repository__a_manifest_is_verified(void **state)
{
    struct store_fake *f = *state;
    struct image_fake img = {.size = 1 << 20, .chunk_size = 64 << 10};
    char key[OBJECT_KEY_MAX];
    struct manifest m;
    image_fake_put(&img, f, NULL);
    assert_int_equal(repository_manifest(store_fake_store(f), &img.digest, &m), 0);
    assert_int_equal(m.size, 1 << 20);
    object_key(OBJECT_MANIFEST, &img.digest, key);
    assert_true(store_fake_flip(f, key, 20));
    assert_int_equal(repository_manifest(store_fake_store(f), &img.digest, &m), -EBADMSG);
    assert_true(store_fake_remove(f, key));
    assert_int_equal(repository_manifest(store_fake_store(f), &img.digest, &m), -ENOENT);
    image_fake_release(&img);
}

static int list_tag(void *arg, const char *name, const char *tag, const struct tag *t)
{
    char *text = arg;
    size_t at = strlen(text);
    snprintf(text + at, 512 - at, "%s:%s ", name, tag);
    return !strcmp(name, "stop");
}

static void test_repository__tags_come_in_order(void **state)
{
    struct store_fake *f = *state;
    const char *const names[] = {"b", "a-x", "a", "a.b"};
    char text[512] = "";
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++) {
            struct tag t = tag_of(names[i]);
            assert_int_equal(repository_publish(store_fake_store(f), names[i], k ? "latest" : "10", &t, true), 0);
        }
    store_fake_put(f, "images/a/.tmp", "x", 1);
    store_fake_put(f, "images/readme", "x", 1);
    assert_int_equal(repository_tags(store_fake_store(f), NULL, list_tag, text), 0);
    assert_string_equal(text, "a:10 a:latest a-x:10 a-x:latest a.b:10 a.b:latest b:10 b:latest ");
    text[0] = 0;
    assert_int_equal(repository_tags(store_fake_store(f), "a", list_tag, text), 0);
    assert_string_equal(text, "a:10 a:latest ");
    assert_int_equal(repository_remove_tag(store_fake_store(f), "a", "10"), 0);
    assert_int_equal(repository_remove_tag(store_fake_store(f), "a", "10"), -ENOENT);
    text[0] = 0;
    assert_int_equal(repository_tags(store_fake_store(f), "a", list_tag, text), 0);
    assert_string_equal(text, "a:latest ");
    store_fake_put(f, "images/a/latest", "x", 1);
    assert_int_equal(repository_tags(store_fake_store(f), NULL, list_tag, text), -EBADMSG);
    assert_non_null(strstr(error_text(), "images/a/latest"));
}

static int check_number(void *arg, const char *name, const char *tag, const struct tag *t)
{
    unsigned *next = arg;
    char expected[16];
    snprintf(expected, sizeof expected, "%04u", *next);
    must(!strcmp(tag, expected), "%s is not %s", tag, expected);
    ++*next;
    return 0;
}

static void *list_numbers(void *arg)
{
    unsigned next = 0;
    must(repository_tags(store_fake_store(arg), "many", check_number, &next) == 0, "%s", error_text());
    must(next == 150, "%u tags", next);
    return NULL;
}

static void test_repository__tags_are_fetched_side_by_side_and_visited_in_order(void **state)
{
    enum { TOGETHER = 16 };
    struct store_fake *f = *state;
    pthread_t lister;
    char tag[16];
    for (unsigned i = 0; i < 150; i++) {
        struct tag t = tag_of("many");
        snprintf(tag, sizeof tag, "%04u", i);
        assert_int_equal(repository_publish(store_fake_store(f), "many", tag, &t, true), 0);
    }
    store_fake_reset_counters(f);
    store_fake_hold(f, FAKE_GET_SMALL);
    assert_int_equal(pthread_create(&lister, NULL, list_numbers, f), 0);
    store_fake_wait_held(f, TOGETHER);
    store_fake_release(f);
    assert_int_equal(pthread_join(lister, NULL), 0);
    assert_int_equal(store_fake_peak(f), TOGETHER);
    assert_int_equal(store_fake_calls(f, FAKE_GET_SMALL), 150);
}

static int count_visit(void *arg, const char *name, const char *tag, const struct tag *t)
{
    ++*(unsigned *)arg;
    return 0;
}

/* A tag stands for an image under the name that it was put under, or under any if it is too old to say. */
static void test_repository__a_tag_of_another_name_is_refused(void **state)
{
    struct store_fake *f = *state;
    struct store *s = store_fake_store(f);
    struct tag t = tag_of("image"), unnamed = tag_of("old");
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    CLEANUP_BYTES old = BYTES_INIT(TAG_DOC_MAX);
    struct image_ref ref;
    struct digest d;
    unsigned visited = 0;
    assert_int_equal(repository_publish(s, "faces", "v1", &t, true), 0);
    assert_true(store_fake_get(f, "images/faces/v1", &doc));
    store_fake_put(f, "images/dogs/v1", doc.data, doc.len);
    store_fake_put(f, "images/faces/v2", doc.data, doc.len);
    assert_names(f, "faces", "v1", "image");
    assert_int_equal(image_ref_parse("/store/dogs:v1", &ref), 0);
    assert_int_equal(repository_resolve(s, &ref, &d, NULL), -EBADMSG);
    assert_non_null(strstr(error_text(), "faces:v1"));
    assert_int_equal(image_ref_parse("/store/faces:v2", &ref), 0);
    assert_int_equal(repository_resolve(s, &ref, &d, NULL), -EBADMSG);
    assert_int_equal(repository_tags(s, NULL, count_visit, &visited), 0); /* what it names is not to be collected */
    assert_int_equal(visited, 3);
    assert_int_equal(warnings, 1);
    assert_int_equal(tag_encode(&unnamed, &old), 0);
    assert_null(memmem(old.data, old.len, "\"name\"", 6));
    store_fake_put(f, "images/dogs/v1", old.data, old.len);
    assert_names(f, "dogs", "v1", "old");
    assert_int_equal(repository_publish(s, "dogs", "v1", &t, true), 0); /* named anew */
    assert_names(f, "dogs", "v1", "image");
}

/* Two stores, and one's objects copied over the other's by another tool, but for granary.json. */
static void test_repository__a_tag_of_another_store_is_refused(void **state)
{
    struct store_fake *f = *state;
    CLEANUP(cleanup_store_fake) struct store_fake *other = store_fake_new();
    struct store *s = store_fake_store(f), *from = store_fake_store(other);
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    struct tag t = tag_of("image");
    struct image_ref ref;
    struct digest d;
    unsigned visited = 0, before;
    assert_int_equal(repository_check(from, true), 0);
    assert_string_not_equal(from->id, s->id);
    assert_int_equal(repository_publish(from, "faces", "v1", &t, true), 0);
    assert_string_equal(t.store, from->id);
    assert_true(store_fake_get(other, "images/faces/v1", &doc));
    store_fake_put(f, "images/faces/v1", doc.data, doc.len);
    assert_int_equal(repository_publish(from, "faces", "v2", &t, true), 0);
    CLEANUP_BYTES second = BYTES_INIT(TAG_DOC_MAX);
    assert_true(store_fake_get(other, "images/faces/v2", &second));
    store_fake_put(f, "images/faces/v2", second.data, second.len);
    assert_int_equal(image_ref_parse("/store/faces:v1", &ref), 0);
    assert_int_equal(repository_resolve(s, &ref, &d, NULL), -EBADMSG);
    assert_non_null(strstr(error_text(), "another store"));
    assert_non_null(strstr(error_text(), "granary copy"));
    before = store_fake_calls(f, FAKE_GET_SMALL);
    assert_int_equal(repository_tags(s, NULL, count_visit, &visited), 0); /* what they name is not to be collected */
    assert_int_equal(visited, 2);
    assert_int_equal(warnings, 1);
    assert_int_equal(store_fake_calls(f, FAKE_GET_SMALL), before + 3);   /* both, and granary.json once */
    assert_int_equal(repository_publish(s, "faces", "v1", &t, true), 0); /* as 'granary copy' does */
    assert_names(f, "faces", "v1", "image");

    /* a handle that has not read granary.json reads it then; one of a store without an id knows no such tag */
    bytes_clear(&doc);
    assert_true(store_fake_get(other, "images/faces/v1", &doc));
    free(s->id);
    s->id = NULL;
    before = store_fake_calls(f, FAKE_GET_SMALL);
    assert_names(f, "faces", "v1", "image");
    assert_int_equal(store_fake_calls(f, FAKE_GET_SMALL), before + 2);
    assert_names(f, "faces", "v1", "image");
    assert_int_equal(store_fake_calls(f, FAKE_GET_SMALL), before + 3);
    const char old[] = "{\"format\":\"granary-store\",\"version\":1}";
    store_fake_put(f, "granary.json", old, strlen(old));
    free(s->id);
    s->id = NULL;
    store_fake_put(f, "images/faces/v1", doc.data, doc.len);
    assert_int_equal(repository_resolve(s, &ref, &d, NULL), -EBADMSG);
    t = tag_of("image");
    assert_int_equal(repository_publish(s, "faces", "v1", &t, true), 0);
    assert_string_equal(t.store, "");
    assert_names(f, "faces", "v1", "image");
}

/* granary.json was lost, or another build's replaced it: the tags are still this store's. */
static void test_repository__a_store_keeps_its_id(void **state)
{
    struct store_fake *f = *state;
    struct store *s = store_fake_store(f);
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    struct tag t = tag_of("image");
    char id[STORE_ID_MAX];
    assert_int_equal(repository_publish(s, "faces", "v1", &t, true), 0);
    snprintf(id, sizeof id, "%s", s->id);
    assert_true(store_fake_remove(f, "granary.json"));
    assert_int_equal(repository_check(s, true), 0);
    assert_true(store_fake_get(f, "granary.json", &doc));
    assert_non_null(memmem(doc.data, doc.len, id, strlen(id)));

    s->id[0] ^= 1; /* what this handle noted is old */
    assert_names(f, "faces", "v1", "image");
}

/* What a store that was made inside this one has where the tags are. */
static void test_repository__documents_of_an_inner_store_are_no_tags(void **state)
{
    static const char *const documents[] = {"{\"format\":\"granary-lease\"}", "{\"format\":\"granary-image\"}"};
    struct store_fake *f = *state;
    struct store *s = store_fake_store(f);
    struct tag t = tag_of("image");
    unsigned visited = 0;
    assert_int_equal(repository_publish(s, "faces", "v1", &t, true), 0);
    store_fake_put(f, "images/builds/x", documents[0], strlen(documents[0]));
    store_fake_put(f, "images/manifests/x", documents[1], strlen(documents[1]));
    assert_int_equal(repository_tags(s, NULL, count_visit, &visited), 0);
    assert_int_equal(visited, 1);
    assert_int_equal(warnings, 1);
    store_fake_put(f, "images/manifests/y", "{", 1); /* that may have been a tag */
    assert_int_equal(repository_tags(s, NULL, count_visit, &visited), -EBADMSG);
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(test_repository__a_tag_of_another_name_is_refused),
        RUN(test_repository__a_tag_of_another_store_is_refused),
        RUN(test_repository__a_store_keeps_its_id),
        RUN(test_repository__documents_of_an_inner_store_are_no_tags),
        RUN(test_repository__a_store_is_made_once_and_recognized),
        RUN(test_repository__publish_and_resolve),
        RUN(test_repository__publishers_who_meet_all_get_through),
        RUN(test_repository__a_put_that_lost_the_race_is_tried_again),
        RUN(test_repository__a_put_whose_answer_was_lost_is_recognized),
        RUN(test_repository__without_conditional_puts_the_last_writer_wins),
        RUN(test_repository__objects_are_put_once_and_whole),
        RUN(test_repository__what_the_store_says_of_an_object_is_believed),
        RUN(test_repository__a_catalog_page_is_compared_as_a_whole),
        RUN(test_repository__a_manifest_is_verified),
        RUN(test_repository__tags_come_in_order),
        RUN(test_repository__tags_are_fetched_side_by_side_and_visited_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
