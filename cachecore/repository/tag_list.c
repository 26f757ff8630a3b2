/* Visits the tags of a store. Keys are listed first and sorted, since a store lists in any order; then batches of tags
 * are fetched in parallel, and visited in order. */
#include "repository/repository.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/vec.h"

typedef VEC(char *) key_list;

static void key_list_release(key_list *keys)
{
    for (size_t i = 0; i < keys->len; i++)
        free(keys->items[i]);
    vec_release(keys);
}

/* Split "images/NAME/TAG" in place. Return false if this is not a tag's key but another program's file. */
static bool split_tag_key(char *key, const char **name, const char **tag)
{
    char *first = strchr(key, '/');
    char *second = first ? strchr(first + 1, '/') : NULL;
    if (!second)
        return false;
    *second = '\0';
    *name = first + 1;
    *tag = second + 1;
    return !image_ref_check_name("image name", *name) && !image_ref_check_name("tag", *tag);
}

static int collect_key(void *arg, const struct store_item *item)
{
    key_list *keys = arg;
    CLEANUP_FREE char *key = strdup(item->key);
    if (!key || vec_push(keys, key))
        return error_no_memory();
    (void)steal_ptr(&key);
    return 0;
}

/* Order keys by name, then tag: '/' sorts before every character of a name, or "a-b/x" would come before "a/x". */
static int compare_keys(const void *a, const void *b)
{
    const unsigned char *x = *(const unsigned char *const *)a, *y = *(const unsigned char *const *)b;
    while (*x && *x == *y) {
        x++;
        y++;
    }
    int cx = *x == '/' ? 0 : *x + 1, cy = *y == '/' ? 0 : *y + 1;
    if (*x == '\0')
        cx = -1;
    if (*y == '\0')
        cy = -1;
    return cx - cy;
}

/* Counts of listed documents that are not tags of their name. Each kind is warned about once, with its first as
 * example. */
struct passed_over {
    uint64_t others, copied;
    struct store_id_now store_id; /* by which tags are told that other stores published */
};

/* Tags are fetched TAGS_BATCH at a time by several threads, and visited in order. */
enum { TAGS_BATCH = 64, TAGS_THREADS = 16 };

/* One batch; each thread fills its own docs[i]. */
struct tag_batch {
    struct store *store;
    char **keys;
    size_t count;
    struct {
        struct bytes doc;
        bool there; /* false: removed since it was listed, or another program's file */
    } docs[TAGS_BATCH];
};

/* Fetch one document of a batch, in one of several threads. A key that is not a tag's is left out. */
static int fetch_tag(void *arg, size_t i)
{
    struct tag_batch *b = arg;
    const char *name, *tag;
    CLEANUP_FREE char *parts = strdup(b->keys[i]);
    if (!parts)
        return error_no_memory();
    if (!split_tag_key(parts, &name, &tag))
        return 0;
    int rc = store_get_small(b->store, b->keys[i], &b->docs[i].doc, NULL);
    b->docs[i].there = !rc;
    return rc == -ENOENT ? 0 : rc;
}

/* Decode one tag's document and visit it, or warn about it. */
static int visit_tag(struct store *s, char *key, const struct bytes *doc, struct passed_over *passed,
                     repository_tag_visit *visit, void *arg)
{
    struct tag t;
    const char *name, *tag;
    if (tag_is_other_document(doc->data, doc->len)) {
        if (!passed->others++)
            log_warning("%s: %s is no tag, and is skipped with everything else like it: another store was made "
                        "inside this one; 'granary unnest %s' moves its images out of it",
                        s->url, key, s->url);
        return 0;
    }
    int rc = tag_decode(doc->data, doc->len, &t);
    if (rc)
        return error_prefix(rc, "%s: %s", s->url, key);
    if (!split_tag_key(key, &name, &tag))
        return 0;
    rc = repository_check_tag_of(s, &passed->store_id, name, tag, &t);
    if (rc && rc != -EBADMSG)
        return rc;
    if (rc && !passed->copied++)
        log_warning("%s", error_text());
    return visit(arg, name, tag, &t);
}

/* Fetch a batch in parallel, then visit it in order in the calling thread. */
static int visit_batch(struct store *s, char **keys, size_t count, struct passed_over *passed,
                       repository_tag_visit *visit, void *arg)
{
    CLEANUP_FREE struct tag_batch *b = calloc(1, sizeof *b);
    if (!b)
        return error_no_memory();
    *b = (struct tag_batch){.store = s, .keys = keys, .count = count};
    for (size_t i = 0; i < count; i++)
        b->docs[i].doc.max = TAG_DOC_MAX;
    const struct parallel work = {.count = count, .threads = TAGS_THREADS, .item = fetch_tag, .arg = b};
    int rc = parallel_run(&work);
    for (size_t i = 0; i < count; i++) {
        if (!rc && b->docs[i].there)
            rc = visit_tag(s, keys[i], &b->docs[i].doc, passed, visit, arg);
        bytes_release(&b->docs[i].doc);
    }
    return rc;
}

int repository_tags(struct store *s, const char *name, repository_tag_visit *visit, void *arg)
{
    CLEANUP(key_list_release) key_list keys = {0};
    struct passed_over passed = {0};
    char prefix[IMAGE_NAME_MAX + 16];
    int rc = name ? image_ref_check_name("image name", name) : 0;
    if (rc)
        return rc;
    snprintf(prefix, sizeof prefix, name ? "images/%s/" : "images/", name);
    rc = store_list(s, prefix, collect_key, &keys);
    if (rc)
        return rc;
    /* A store lists in any order. */
    if (keys.len)
        qsort(keys.items, keys.len, sizeof *keys.items, compare_keys);
    for (size_t i = 0; i < keys.len && !rc; i += TAGS_BATCH)
        rc = visit_batch(s, keys.items + i, GR_MIN(keys.len - i, (size_t)TAGS_BATCH), &passed, visit, arg);
    return rc;
}
