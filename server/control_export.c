/* A name is looked up among all exports, not by stack_get: a request may name the image too, and "" is a name here. */
#include "server/control_internal.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

/* Is "sha256:<hex>" the image's digest? */
static bool has_digest(const struct image *img, const char *digest)
{
    char hex[DIGEST_HEX_SIZE];
    return !strncmp(digest, "sha256:", 7) && !strcmp(digest + 7, digest_hex(image_digest(img), hex));
}

int control_export_find(struct stack *stack, const char *name, const char *digest, struct stack_export **out)
{
    size_t count = stack_count(stack);
    if (!name && !digest && count > 1)
        return error_set(-EINVAL, "this server has %zu exports; say which (granary status names them)", count);
    for (struct stack_export *e = NULL; (e = stack_next(stack, e));)
        if ((!name || !strcmp(name, stack_export_name(e))) && (!digest || has_digest(stack_export_image(e), digest))) {
            *out = e;
            return 0;
        }
    return error_set(-ENOENT, "there is no export '%.100s' here", name ? name : digest ? digest : "");
}
