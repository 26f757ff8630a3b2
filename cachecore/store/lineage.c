/* All tags of the name are read once; each step looks for those of the next digest among them. */
#include "store/lineage.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "store/repository.h"

struct known {
    struct tag tag;
    char name[IMAGE_TAG_MAX + 1];
};

struct known_tags {
    VEC(struct known) list;
};

static void known_release(struct known_tags *k)
{
    vec_release(&k->list);
}

void lineage_release(struct lineage *l)
{
    vec_release(&l->steps);
}

static int lineage_collect(void *arg, const char *name, const char *tag, const struct tag *t)
{
    struct known_tags *tags = arg;
    struct known k = {.tag = *t};
    snprintf(k.name, sizeof k.name, "%s", tag);
    return vec_push(&tags->list, k) ? error_no_memory() : 0;
}

/* What the image's tags say it was built upon; zero: nothing. */
static struct digest parent_of(const struct known_tags *tags, const struct digest *image)
{
    for (size_t i = 0; i < tags->list.len; i++) {
        const struct tag *t = &tags->list.items[i].tag;
        if (digest_equal(&t->digest, image) && !digest_is_zero(&t->parent) && !digest_equal(&t->parent, image))
            return t->parent;
    }
    return (struct digest){{0}};
}

static struct lineage_step step_to(const struct known_tags *tags, const struct digest *image)
{
    struct lineage_step s = {.image = *image};
    for (size_t i = 0; i < tags->list.len; i++) {
        const struct known *k = &tags->list.items[i];
        if (!digest_equal(&k->tag.digest, image) || (s.tag[0] && k->tag.created >= s.created))
            continue;
        memcpy(s.tag, k->name, sizeof s.tag);
        s.created = k->tag.created;
    }
    return s;
}

/* Going back to where one was before is a circle, which tags by other hands may have. */
static bool was_seen(const struct lineage *l, const struct digest *first, const struct digest *image)
{
    bool seen = digest_equal(first, image);
    for (size_t i = 0; i < l->steps.len; i++)
        seen |= digest_equal(&l->steps.items[i].image, image);
    return seen;
}

/* ------------------------------------------------------------------ the newest image */

/* Is `old` among the images that `image` was built upon, one step after the other? A chain longer than LINEAGE_MAX, or
 * a circle, ends unfound. */
static bool was_built_upon(const struct known_tags *tags, const struct digest *image, const struct digest *old)
{
    struct digest at = *image;
    for (unsigned i = 0; i < LINEAGE_MAX && !digest_is_zero(&at); i++) {
        at = parent_of(tags, &at);
        if (digest_equal(&at, old))
            return true;
    }
    return false;
}

/* Times are whole seconds, so of one second the parents are the older ones. What is equal even so is decided by the
 * name, since it must not depend on the order in which a store lists. */
static bool is_newer(const struct known_tags *tags, const struct known *a, const struct known *b)
{
    if (a->tag.created != b->tag.created || digest_equal(&a->tag.digest, &b->tag.digest))
        return a->tag.created > b->tag.created;
    bool a_upon_b = was_built_upon(tags, &a->tag.digest, &b->tag.digest);
    bool b_upon_a = was_built_upon(tags, &b->tag.digest, &a->tag.digest);
    return a_upon_b != b_upon_a ? a_upon_b : strcmp(a->name, b->name) > 0;
}

/* People know an image by the name they gave it. */
static bool is_better_name(const struct known *k, const struct known *than)
{
    return tag_is_build_name(than->name, &than->tag.digest) && !tag_is_build_name(k->name, &k->tag.digest);
}

/* A tag copied from another name's is none of this one's. */
static bool is_candidate(const struct known *k, const char *name, const struct digest *source)
{
    const struct tag *t = &k->tag;
    return digest_equal(&t->source, source) && (!t->name[0] || (!strcmp(t->name, name) && !strcmp(t->tag, k->name)));
}

int lineage_newest(struct store *s, const char *name, const struct digest *source, char out_tag[IMAGE_TAG_MAX + 1],
                   struct tag *out)
{
    struct known_tags tags CLEANUP(known_release) = {0};
    const struct known *newest = NULL;
    int rc = repository_tags(s, name, lineage_collect, &tags);
    if (rc)
        return rc;
    for (size_t i = 0; i < tags.list.len; i++) {
        const struct known *k = &tags.list.items[i];
        if (is_candidate(k, name, source) && (!newest || is_newer(&tags, k, newest)))
            newest = k;
    }
    if (!newest)
        return error_set(-ENOENT, "there is no image %s of this source in %s", name, s->url);
    for (size_t i = 0; i < tags.list.len; i++) {
        const struct known *k = &tags.list.items[i];
        if (is_candidate(k, name, source) && digest_equal(&k->tag.digest, &newest->tag.digest) &&
            is_better_name(k, newest))
            newest = k;
    }
    memcpy(out_tag, newest->name, sizeof newest->name);
    *out = newest->tag;
    return 0;
}

/* ------------------------------------------------------------------ an image's parents */

int lineage_read(struct store *s, const char *name, const struct digest *image, const struct digest *parent,
                 struct lineage *out)
{
    struct known_tags tags CLEANUP(known_release) = {0};
    int rc = repository_tags(s, name, lineage_collect, &tags);
    if (rc)
        return rc;
    struct digest at = *parent;
    if (digest_is_zero(&at) || digest_equal(&at, image))
        at = parent_of(&tags, image);
    while (!digest_is_zero(&at) && !was_seen(out, image, &at) && out->steps.len < LINEAGE_MAX) {
        struct lineage_step step = step_to(&tags, &at);
        if (vec_push(&out->steps, step))
            return error_no_memory();
        at = parent_of(&tags, &at);
    }
    return 0;
}
