/* Quotas that exports bring along. Such a quota is of an image, by its store and name: all its versions and exports
 * share it. It is there as long as an export that brought it:
 *
 *   stack_link    --> quota_claim (one size only) --> quota_apply --> the cache, every export of the image
 *   stack_remove                                  --> quota_apply
 *
 * A quota of the configuration is by name alone, of all stores, and is never changed. Everything is under the stack's
 * lock; the cache's is taken inside it. */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "stack_internal.h"

/* What the cache calls an image whose quota an export brings. A name has no slash, so it is no name. */
struct quota_key {
    char text[IMAGE_STORE_MAX + IMAGE_NAME_MAX + 2];
};

static const char *key_of(const struct image_ref *ref, struct quota_key *out)
{
    snprintf(out->text, sizeof out->text, "%s/%s", ref->store, ref->name);
    return out->text;
}

static bool same_image(const struct image_ref *a, const struct image_ref *b)
{
    return !strcmp(a->name, b->name) && !strcmp(a->store, b->store);
}

/* Return the configuration's quota of the name in bytes; 0: none. */
static uint64_t quota_given(const struct stack *s, const char *name)
{
    const struct cache_config *c = &s->config.cache;
    for (size_t i = 0; i < c->quota_count; i++)
        if (!strcmp(c->quotas[i].name, name))
            return c->quotas[i].size;
    return 0;
}

/* Return the quota that an export in the table has brought for the image, in bytes; 0: none. */
static uint64_t quota_brought(const struct stack *s, const struct image_ref *ref)
{
    for (size_t i = 0; i < s->exports.len; i++)
        if (s->exports.items[i]->quota && same_image(&s->exports.items[i]->ref, ref))
            return s->exports.items[i]->quota;
    return 0;
}

int stack_quota_claim_locked(const struct stack *s, const struct stack_export *e)
{
    char text[TEXT_SIZE_MAX];
    uint64_t given = quota_given(s, e->ref.name), now = given ? given : quota_brought(s, &e->ref);
    if (!e->quota || !now || now == e->quota)
        return 0;
    return error_set(-EDQUOT,
                     "the image '%s' has a quota of %s here already, %s, and can have one only; give it the same%s",
                     e->ref.name, text_format_size(now, text), given ? "since the server's start" : "by another export",
                     given ? "" : ", or unmount or remove what has the other first");
}

int stack_quota_apply_locked(struct stack *s, const struct image_ref *ref)
{
    struct quota_key key;
    if (!s->cache || quota_given(s, ref->name)) /* the image is opened with the configuration's */
        return 0;
    int rc = cache_set_quota(s->cache, key_of(ref, &key), quota_brought(s, ref));
    unsigned quota = cache_quota(s->cache, key.text);
    for (size_t i = 0; i < s->exports.len; i++)
        if (same_image(&s->exports.items[i]->ref, ref))
            image_set_quota(s->exports.items[i]->image, quota);
    return rc;
}

struct cache_quota_use stack_export_quota_use(const struct stack_export *e)
{
    struct quota_key key;
    bool given = quota_given(e->stack, e->ref.name);
    return cache_quota_use(e->stack->cache, given ? e->ref.name : key_of(&e->ref, &key));
}
