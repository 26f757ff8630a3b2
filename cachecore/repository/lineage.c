/* An image's ancestry, and the newest image of a name, from tags. A tag records its image's parent, so the tags of a
 * name form chains. All tags of the name are read once; each step searches them in memory for the next digest. Tags
 * written by other tools may form a circle or a long chain, so every loop is bounded by LINEAGE_MAX or stops at an
 * image that it has seen. */
#include "repository/repository.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* A tag and its name. */
struct known {
    struct tag tag;
    char name[IMAGE_TAG_MAX + 1];
};

/* All tags of the name. */
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
    return vec_push(&tags->list, k);
}

/* Return the parent that the image's tags name; zero: none. */
static struct digest parent_of(const struct known_tags *tags, const struct digest *image)
{
    for (size_t i = 0; i < tags->list.len; i++) {
        const struct tag *t = &tags->list.items[i].tag;
        if (digest_equal(&t->digest, image) && !digest_is_zero(&t->parent) && !digest_equal(&t->parent, image))
            return t->parent;
    }
    return (struct digest){{0}};
}

/* Return the step to an image, with its oldest tag. */
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

/* Is the image among the steps already? Tags written by other tools may form a circle. */
static bool was_seen(const struct lineage *l, const struct digest *first, const struct digest *image)
{
    bool seen = digest_equal(first, image);
    for (size_t i = 0; i < l->steps.len; i++)
        seen |= digest_equal(&l->steps.items[i].image, image);
    return seen;
}

/* ------------------------------------------------------------------ the newest image */

/* Is `old` an ancestor of `image`? False for a chain longer than LINEAGE_MAX, or a circle. */
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

/* Is a newer than b? Times are whole seconds, so within one second an image is newer than its ancestors. Otherwise the
 * name decides, because the result must not depend on the order of the store's listing. */
static bool is_newer(const struct known_tags *tags, const struct known *a, const struct known *b)
{
    if (a->tag.created != b->tag.created || digest_equal(&a->tag.digest, &b->tag.digest))
        return a->tag.created > b->tag.created;
    bool a_upon_b = was_built_upon(tags, &a->tag.digest, &b->tag.digest);
    bool b_upon_a = was_built_upon(tags, &b->tag.digest, &a->tag.digest);
    return a_upon_b != b_upon_a ? a_upon_b : strcmp(a->name, b->name) > 0;
}

/* Prefer a tag that is signed, since a build may ask for that; then one that a user chose to a build tag. */
static bool is_better_name(const struct known *k, const struct known *than)
{
    bool is_signed = *k->tag.signature;
    if (is_signed != !!*than->tag.signature)
        return is_signed;
    return tag_is_build_name(than->name, &than->tag.digest) && !tag_is_build_name(k->name, &k->tag.digest);
}

/* Is this a tag of an image of the name? A tag copied from another name is not. */
static bool is_of_name(const struct known *k, const char *name)
{
    const struct tag *t = &k->tag;
    return !t->name[0] || (!strcmp(t->name, name) && !strcmp(t->tag, k->name));
}

/* Is this a tag of the image built from that source? */
static bool is_candidate(const struct known *k, const char *name, const struct digest *source)
{
    return digest_equal(&k->tag.source, source) && is_of_name(k, name);
}

int lineage_newest(struct store *s, const char *name, const struct digest *source, char out_tag[IMAGE_TAG_MAX + 1],
                   struct tag *out, bool *out_other_source)
{
    *out_other_source = false;
    struct known_tags tags CLEANUP(known_release) = {0};
    const struct known *newest = NULL;
    int rc = repository_tags(s, name, lineage_collect, &tags);
    if (rc)
        return rc;
    for (size_t i = 0; i < tags.list.len; i++) {
        const struct known *k = &tags.list.items[i];
        *out_other_source |= is_of_name(k, name);
        if (is_candidate(k, name, source) && (!newest || is_newer(&tags, k, newest)))
            newest = k;
    }
    *out_other_source &= !newest;
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
    /* The tag of an unchanged rebuild names the image itself; an older tag names the real parent. */
    if (digest_is_zero(&at) || digest_equal(&at, image))
        at = parent_of(&tags, image);
    while (!digest_is_zero(&at) && !was_seen(out, image, &at) && out->steps.len < LINEAGE_MAX) {
        struct lineage_step step = step_to(&tags, &at);
        if (vec_push(&out->steps, step))
            return -ENOMEM;
        at = parent_of(&tags, &at);
    }
    return 0;
}
