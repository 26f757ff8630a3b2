/* Names that lead to one export after the other: those of followed images (server/followed_exports.c). The versions are
 * ordinary exports, NAME@sha256:HEX, so a client that must not get another version asks for that name. The names
 * themselves are kept from the start, before any export is added; so no export takes one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "stack_internal.h"

/* Between an export's name and the digest that it always has. */
static const char key[] = "@sha256:";

/* Add a name that nobody has yet. */
static int keep_name(struct stack *s, const struct stack_image *image)
{
    struct image_ref ref;
    struct stack_name n = {0};
    int rc = image_ref_parse(image->ref, &ref);
    if (rc)
        return rc;
    if (ref.by_digest)
        return error_set(-EINVAL, "follow=%s: give a tag, e.g. %s:latest; a digest always names the same image",
                         image->ref, ref.name);
    const char *name = image->export_name ? image->export_name : ref.name;
    if (strlen(name) > STACK_EXPORT_NAME_MAX - sizeof key - DIGEST_HEX_SIZE)
        return error_set(-EINVAL,
                         "follow: the name '%.100s...' is too long for NAME@sha256:DIGEST; choose a shorter one", name);
    for (size_t i = 0; i < s->followed.len; i++)
        if (!strcmp(s->followed.items[i].name, name))
            return error_set(-EINVAL,
                             "follow: two images would be exported as '%s'; give one of them another name "
                             "with follow=NAME=STORE/IMAGE:TAG",
                             name);
    n.name = strdup(name);
    if (n.name && !vec_push(&s->followed, n))
        return 0;
    free(n.name);
    return error_no_memory();
}

int stack_keep_names(struct stack *s)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < s->config.followed_count; i++)
        rc = keep_name(s, &s->config.followed[i]);
    return rc;
}

/* Return the followed name that a client means; NULL: none. */
static struct stack_name *stack_names_meant(const struct stack *s, const char *name)
{
    if (!*name)
        return s->followed.len == 1 && !s->config.image_count ? &s->followed.items[0] : NULL;
    for (size_t i = 0; i < s->followed.len; i++)
        if (!strcmp(s->followed.items[i].name, name))
            return &s->followed.items[i];
    return NULL;
}

struct stack_export *stack_names_find_locked(struct stack *s, const char *name)
{
    const struct stack_name *meant = stack_names_meant(s, name);
    return meant ? meant->to : NULL;
}

const char *stack_followed_as(const struct stack *s, const char *name)
{
    const struct stack_name *meant = stack_names_meant(s, name);
    return meant ? meant->name : NULL;
}

int stack_names_check(const struct stack_export *e)
{
    const char *at = NULL;
    struct digest digest;
    for (const char *p = e->name; (p = strstr(p, key)); p++)
        at = p;
    if (!at || digest_parse(at + sizeof key - 1, strlen(at + sizeof key - 1), &digest) ||
        digest_equal(&digest, &e->ref.digest))
        return 0;
    char hex[DIGEST_HEX_SIZE];
    return error_set(-ESTALE, "the export '%.200s' would be another image, sha256:%s: its tag has moved", e->name,
                     digest_hex(&e->ref.digest, hex));
}

const char *stack_followed(const struct stack *s, size_t i)
{
    return i < s->followed.len ? s->followed.items[i].name : NULL;
}
