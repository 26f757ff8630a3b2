/* The set of live objects. Images share most of their trees, and a node or page that is in the set has been walked with
 * all below it, so each stored node is read once however many images refer to it. This relies on an order: a name
 * enters the set before its subtree is walked, and any failure ends the run, so that an incomplete set is thrown
 * away. */
#include "repository/gc_live.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "repository/read/catalog_read.h"
#include "repository/read/index_read.h"
#include "repository/repository.h"

int gc_step_take(const struct gc_step *step)
{
    return step->step ? step->step(step->arg) : 0;
}

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
    return vec_push(&tags->list, fresh) ? error_no_memory() : 0;
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

/* The walk of one image. */
struct live_walk {
    struct digest_map *live;
    const struct gc_step *step;
};

/* Add a node or page. Return 1 if it was new, 0 if it is in the set already and its subtree is to be skipped. */
static int live_add(const struct live_walk *w, const struct digest *name)
{
    int rc = gc_step_take(w->step);
    return rc ? rc : digest_map_add(w->live, name, 0);
}

static int live_node(void *arg, const struct index_child *node, unsigned level)
{
    int rc = live_add(arg, &node->digest);
    return rc < 0 ? rc : rc ? 0 : INDEX_WALK_SKIP;
}

/* Leaves name packs; holes (NULL or a zero digest) name nothing. */
static int live_chunks(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    struct live_walk *w = arg;
    int rc = 0;
    for (uint64_t i = 0; chunks && i < count && rc >= 0; i++)
        if (!chunk_is_hole(&chunks[i]))
            rc = digest_map_add(w->live, &chunks[i].object, 0);
    return GR_MIN(rc, 0);
}

static int live_page(void *arg, const struct digest *object)
{
    int rc = live_add(arg, object);
    return rc < 0 ? rc : rc ? 0 : CATALOG_WALK_SKIP;
}

int gc_live_add_chunks(struct store *s, const struct manifest *m, const struct gc_step *step, struct digest_map *live)
{
    const struct index_walk_ops ops = {.node = live_node, .chunks = live_chunks};
    struct live_walk w = {.live = live, .step = step};
    return index_walk(s, m, &ops, &w);
}

int gc_live_add_image(struct store *s, const struct digest *image, const struct gc_step *step, struct digest_map *live,
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

int gc_live_add(struct store *s, const struct gc_tags *tags, const struct gc_step *step, struct digest_map *live,
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
