/* The set of live objects, and the marks on the others.
 *
 * Images share most of their trees, and a node or page that is in the set has been walked with all below it, so each
 * stored node is read once however many images refer to it. This relies on an order: a name enters the set before its
 * subtree is walked, and any failure ends the run, so that an incomplete set is thrown away.
 *
 * A build shares its parent's objects without putting them. While its lease is live nothing is swept, so what was
 * whole when the lease began is whole at the end. But objects may have been marked meanwhile: the parent's when its
 * last tag was removed, and the build's own if it takes longer than the grace period. If the new image then lost its
 * tags, the next gc run would find these marks old enough. So a build removes them before it publishes. */
#include "repository/gc_marks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "repository/read/catalog_read.h"
#include "repository/read/index_read.h"
#include "repository/repository.h"

/* ---- tags ---- */

void gc_tags_release(struct gc_tags *tags)
{
    vec_release(&tags->list);
}

static int collect_tag(void *arg, const char *name, const char *tag, const struct tag *t)
{
    struct gc_tags *tags = arg;
    struct gc_tag fresh = {.image = t->digest, .created = t->created, .build_tag = tag_is_build_name(tag, &t->digest)};
    snprintf(fresh.name, sizeof fresh.name, "%s", name);
    snprintf(fresh.tag, sizeof fresh.tag, "%s", tag);
    return vec_push(&tags->list, fresh);
}

/* Is build tag a newer than b? Of two builds within one second, the one that "latest" names was the later. */
static bool newer(const struct gc_tag *a, const struct gc_tag *b)
{
    if (a->created != b->created)
        return a->created > b->created;
    return a->current != b->current ? a->current : strcmp(a->tag, b->tag) > 0;
}

/* Mark the tags of the image that "latest" names. */
static void find_current(struct gc_tag *tags, size_t n)
{
    const struct gc_tag *latest = NULL;
    for (size_t i = 0; i < n && !latest; i++)
        if (!strcmp(tags[i].tag, "latest"))
            latest = &tags[i];
    for (size_t i = 0; i < n && latest; i++)
        tags[i].current = digest_equal(&tags[i].image, &latest->image);
}

/* Mark expired build tags among tags[0..n), all of one image name: those with at least keep_last newer ones. */
static void doom(struct gc_tag *tags, size_t n, unsigned keep_last)
{
    find_current(tags, n);
    for (size_t i = 0; i < n; i++) {
        unsigned ahead = 0;
        for (size_t j = 0; j < n && ahead < keep_last; j++)
            ahead += tags[j].build_tag && newer(&tags[j], &tags[i]);
        tags[i].expired = tags[i].build_tag && ahead >= keep_last;
    }
}

int gc_tags_read(struct store *s, unsigned keep_last, struct gc_tags *out)
{
    int rc = repository_tags(s, NULL, collect_tag, out);
    if (rc || keep_last == 0)
        return rc;
    size_t n = out->list.len;
    /* Tags are sorted by name, so the tags of one image name are neighbours. */
    for (size_t begin = 0, end; begin < n; begin = end) {
        for (end = begin + 1; end < n && !strcmp(out->list.items[end].name, out->list.items[begin].name); end++)
            ;
        doom(out->list.items + begin, end - begin, keep_last);
    }
    return 0;
}

/* ---- live objects ---- */

/* The walk of one image. */
struct live_walk {
    struct digest_map *live;
    const struct step *step;
};

/* Add a node or page. Return 1 if it was new, 0 if it is in the set already and its subtree is to be skipped. */
static int live_add(const struct live_walk *w, const struct digest *name)
{
    int rc = step_take(w->step);
    return rc ? rc : digest_map_add(w->live, name, 0);
}

static int live_node(void *arg, const struct index_child *node, unsigned level)
{
    int rc = live_add(arg, &node->digest);
    return rc < 0 ? rc : rc ? 0 : INDEX_WALK_SKIP;
}

/* Leaves name packs, also those with the bases of deltas; holes (NULL or a zero digest) name nothing. */
static int live_chunks(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    struct live_walk *w = arg;
    int rc = 0;
    for (uint64_t i = 0; chunks && i < count && rc >= 0; i++) {
        if (!chunk_is_hole(&chunks[i]))
            rc = digest_map_add(w->live, &chunks[i].object, 0);
        if (rc >= 0 && chunk_is_delta(&chunks[i]))
            rc = digest_map_add(w->live, &chunks[i].base.object, 0);
    }
    return GR_MIN(rc, 0);
}

static int live_page(void *arg, const struct digest *object)
{
    int rc = live_add(arg, object);
    return rc < 0 ? rc : rc ? 0 : CATALOG_WALK_SKIP;
}

int gc_live_add_chunks(struct store *s, const struct manifest *m, const struct step *step, struct digest_map *live)
{
    const struct index_walk_ops ops = {.node = live_node, .chunks = live_chunks};
    struct live_walk w = {.live = live, .step = step};
    return index_walk(s, m, &ops, &w);
}

int gc_live_add_image(struct store *s, const struct digest *image, const struct step *step, struct digest_map *live,
                      uint64_t *images)
{
    struct live_walk w = {.live = live, .step = step};
    struct manifest m;
    /* An image with several tags is walked once. */
    int rc = digest_map_add(live, image, 0);
    if (rc <= 0)
        return rc;
    if (images)
        ++*images;
    rc = repository_manifest(s, image, &m);
    if (!rc)
        rc = gc_live_add_chunks(s, &m, step, live);
    if (!rc)
        rc = catalog_walk_pages(s, &m, live_page, &w);
    return rc;
}

int gc_live_add(struct store *s, const struct gc_tags *tags, const struct step *step, struct digest_map *live,
                uint64_t *images)
{
    for (size_t i = 0; i < tags->list.len; i++) {
        const struct gc_tag *t = &tags->list.items[i];
        if (t->expired)
            continue;
        int rc = gc_live_add_image(s, &t->image, step, live, images);
        if (rc == -ECANCELED)
            return rc;
        if (rc)
            /* -ENOENT would read as a missing tag, but here a part of an image is missing. */
            return error_prefix(rc == -ENOENT ? -EBADMSG : rc,
                                "gc: nothing was removed, since what image %s:%s needs is not known; repair or remove "
                                "that tag",
                                t->name, t->tag);
    }
    return 0;
}

/* ---- marks ---- */

char *gc_mark_key(const struct digest *name, char out[OBJECT_KEY_MAX])
{
    char hex[DIGEST_HEX_SIZE];
    snprintf(out, OBJECT_KEY_MAX, GC_MARKS_PREFIX "%s", digest_hex(name, hex));
    return out;
}

bool gc_mark_key_parse(const char *key, struct digest *out)
{
    const char *hex = key + strlen(GC_MARKS_PREFIX);
    return !digest_parse(hex, strlen(hex), out) && !digest_is_zero(out);
}

/* Set *out to whether the object is marked. */
static int is_marked(struct store *s, const struct digest *name, bool *out)
{
    char key[OBJECT_KEY_MAX];
    struct store_item item;
    int rc = store_stat(s, gc_mark_key(name, key), &item);
    *out = !rc;
    return rc == -ENOENT ? 0 : rc;
}

/* The marks to remove. They are collected first, so that no object is removed during the listing. */
struct unmarking {
    const struct digest_map *names;
    VEC(struct digest) marked;
};

static void unmarking_release(struct unmarking *u)
{
    vec_release(&u->marked);
}

static int collect_marked(void *arg, const struct store_item *item)
{
    struct unmarking *u = arg;
    struct digest name;
    if (!gc_mark_key_parse(item->key, &name) || !digest_map_find(u->names, &name))
        return 0;
    return vec_push(&u->marked, name);
}

int gc_unmark(struct store *s, const struct digest_map *names, const struct step *step)
{
    CLEANUP(unmarking_release) struct unmarking u = {.names = names};
    int rc = names->map.count ? store_list(s, GC_MARKS_PREFIX, collect_marked, &u) : 0;
    for (size_t i = 0; i < u.marked.len && !rc; i++) {
        char key[OBJECT_KEY_MAX];
        rc = store_remove(s, gc_mark_key(&u.marked.items[i], key));
        if (!rc)
            rc = step_take(step);
    }
    return rc;
}

/* The sentence for a parent that lost an object. */
static int removed(const struct store *s, const char *what)
{
    return error_set(-EAGAIN,
                     "build: %s of the parent image is gone from %s (a garbage collection while the build stood still, "
                     "or before it?); nothing was published, run the build again, with --parent none if it persists",
                     what, s->url);
}

/* Give a listed object the value 1. */
static int note_present(void *arg, const struct store_item *item)
{
    enum object_kind kind;
    struct digest name;
    if (object_key_parse(item->key, &kind, &name) || digest_is_zero(&name))
        return 0;
    struct digest_slot *slot = digest_map_find(arg, &name);
    if (slot)
        slot->value = 1;
    return 0;
}

/* Check that all these packs and index nodes are in the store. Two listings cost less than a request for each
 * object. */
static int look_for(struct store *s, struct digest_map *names, const struct step *step)
{
    int rc = store_list(s, "packs/", note_present, names);
    if (!rc)
        rc = step_take(step);
    if (!rc)
        rc = store_list(s, "indexes/", note_present, names);
    for (struct digest_slot *slot = NULL; !rc && (slot = digest_map_next(names, slot));) {
        char hex[DIGEST_HEX_SIZE];
        if (!slot->value)
            rc = removed(s, digest_hex(&slot->key, hex));
    }
    return rc;
}

int gc_hold_parent(struct store *s, const struct digest *image, bool look, const struct step *step)
{
    CLEANUP_DIGEST_MAP names = {0};
    struct manifest m;
    bool marked = false;
    int rc = repository_manifest(s, image, &m);
    if (!rc)
        /* One request looks up the manifest's mark. Only if there is one, the index is walked. */
        rc = is_marked(s, image, &marked);
    if (!rc && (look || marked))
        rc = gc_live_add_chunks(s, &m, step, &names);
    /* The manifest or a node is gone. */
    if (rc == -ENOENT)
        return removed(s, "something");
    if (!rc && look)
        rc = look_for(s, &names, step);
    if (!rc && names.map.count)
        rc = digest_map_add(&names, image, 0);
    return rc < 0 ? rc : gc_unmark(s, &names, step);
}

static int note_mark(void *arg, const struct store_item *item)
{
    struct digest name;
    *(bool *)arg |= gc_mark_key_parse(item->key, &name);
    return 0;
}

int gc_unmark_image(struct store *s, const struct digest *image, const struct step *step)
{
    CLEANUP_DIGEST_MAP names = {0};
    bool marks = false;
    int rc = store_list(s, GC_MARKS_PREFIX, note_mark, &marks);
    if (!rc && marks)
        rc = gc_live_add_image(s, image, step, &names, NULL);
    return rc ? rc : gc_unmark(s, &names, step);
}

int gc_unmark_chunks(struct store *s, const struct manifest *m, const struct step *step)
{
    CLEANUP_DIGEST_MAP names = {0};
    bool marks = false;
    int rc = store_list(s, GC_MARKS_PREFIX, note_mark, &marks);
    if (!rc && marks)
        rc = gc_live_add_chunks(s, m, step, &names);
    return rc ? rc : gc_unmark(s, &names, step);
}
