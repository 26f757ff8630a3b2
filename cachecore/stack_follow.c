/* What a server does for an image whose tag is followed: ask for the tag, and have its name lead to a version
 * (stack_names.c). */
#include <errno.h>

#include "base/error.h"
#include "stack_internal.h"

static bool is_listed_locked(const struct stack *s, const struct stack_export *e)
{
    for (size_t i = 0; i < s->exports.len; i++)
        if (s->exports.items[i] == e)
            return true;
    return false;
}

/* The reference before is dropped without the lock: it may be the last one. */
int stack_show(struct stack *s, size_t i, struct stack_export *e)
{
    struct stack_export *before;
    {
        SCOPED_LOCK(&s->lock);
        if (!is_listed_locked(s, e))
            return error_set(-ENOENT, "the export '%s' has just been removed", e->name);
        before = s->followed.items[i].to;
        s->followed.items[i].to = stack_ref(e);
    }
    stack_put(before);
    return 0;
}

int stack_ask(struct stack *s, const struct stack_image *image, const volatile int *cancel, struct digest *out,
              bool *out_from_store)
{
    CLEANUP(cleanup_resolver) struct resolver *resolver = NULL;
    struct stack_resolving resolving;
    struct image_ref ref;
    int rc = image_ref_parse(image->ref, &ref);
    if (!rc)
        rc = resolver_new(stack_resolving(s, NULL, cancel, &resolving), &resolver);
    if (!rc)
        rc = resolver_resolve(resolver, &ref);
    if (rc)
        return rc;
    *out = ref.digest;
    *out_from_store = *ref.tag;
    return 0;
}

int stack_note_tag(struct stack *s, const struct stack_image *image, const struct digest *digest)
{
    CLEANUP(cleanup_resolver) struct resolver *resolver = NULL;
    struct stack_resolving resolving;
    struct manifest manifest;
    struct image_ref ref;
    int rc = s->config.cache.dir_count ? image_ref_parse(image->ref, &ref) : 0;
    if (rc || !s->config.cache.dir_count)
        return rc;
    ref.by_digest = true;
    ref.digest = *digest;
    (void)stack_resolving(s, NULL, NULL, &resolving);
    resolving.config.resolved = 0; /* now, and not when the supervisor started */
    rc = resolver_new(&resolving.config, &resolver);
    if (!rc)
        rc = resolver_manifest(resolver, &ref, &manifest);
    if (rc)
        return rc;
    SCOPED_LOCK(&s->noting);
    resolver_reread(resolver);
    resolver_save(resolver);
    return 0;
}
