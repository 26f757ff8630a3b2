#include "plugin/control_export.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

static bool has_digest(const struct image *img, const char *digest)
{
    char hex[DIGEST_HEX_SIZE];
    return !strncmp(digest, "sha256:", 7) && !strcmp(digest + 7, digest_hex(image_digest(img), hex));
}

int control_export_find(const struct stack *stack, const char *name, const char *digest, size_t *out)
{
    size_t count = stack_image_count(stack);
    if (!name && !digest && count > 1)
        return error_set(-EINVAL, "this server has %zu exports; say which (granary status names them)", count);
    for (*out = 0; *out < count; (*out)++)
        if ((!name || !strcmp(name, stack_export_name(stack, *out))) &&
            (!digest || has_digest(stack_image_at(stack, *out), digest)))
            return 0;
    return error_set(-ENOENT, "there is no export '%.100s' here", name ? name : digest ? digest : "");
}
