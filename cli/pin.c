#include "cli/pin.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "format/cache_spec.h"

int pinner_init(struct pinner *p, const struct option_list *caches, const char *endpoint)
{
    *p = (struct pinner){.config.store.endpoint = endpoint};
    for (size_t i = 0; i < caches->count; i++) {
        struct cache_spec spec;
        if (cache_spec_parse("--cache ", caches->items[i], &spec))
            return CLI_USAGE;
        CLEANUP_FREE char *dir = strndup(caches->items[i], spec.dir_len);
        if (!dir || vec_push(&p->dirs, dir))
            return error_set(-ENOMEM, "out of memory");
        (void)steal_ptr(&dir);
    }
    p->config.dirs = (const char *const *)p->dirs.items;
    p->config.dir_count = p->dirs.len;
    return resolver_new(&p->config, &p->resolver);
}

void pinner_release(struct pinner *p)
{
    cleanup_resolver(&p->resolver);
    for (size_t i = 0; i < p->dirs.len; i++)
        free(p->dirs.items[i]);
    vec_release(&p->dirs);
}

int pin_resolve(struct pinner *p, const char *given, struct pin *out)
{
    if (image_ref_parse(given, &out->ref))
        return CLI_USAGE;
    out->given = given;
    int rc = resolver_resolve(p->resolver, &out->ref);
    if (!rc)
        image_ref_text(&out->ref, out->text);
    return rc;
}
