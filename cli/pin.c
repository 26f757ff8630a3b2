/* Resolves the operands of `granary serve` and `granary mount` to digests. The resolver also uses the export tables in
 * the cache directories that the server will use, so that a server can start while its store is down. */
#include "cli/pin.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/error.h"
#include "format/cache_spec.h"

/* Add a cache directory. */
static int add_dir(struct pinner *p, const char *text, size_t len)
{
    CLEANUP_FREE char *dir = strndup(text, len);
    if (!dir || vec_push(&p->dirs, dir))
        return error_no_memory();
    (void)steal_ptr(&dir);
    return 0;
}

/* Add the directory of DIR:SIZE. what: the option, for a sentence. */
static int add_cache(struct pinner *p, const char *what, const char *text)
{
    struct cache_spec spec;
    if (cache_spec_parse(what, text, &spec))
        return CLI_USAGE;
    return add_dir(p, text, spec.dir_len);
}

/* Add every cache directory that the server will use. */
static int add_caches(struct pinner *p, const struct server_values *server)
{
    char standard[PATH_MAX];
    const char *text = default_cache_environment();
    if (server_options_no_cache(server))
        return 0;
    if (!server->caches.count && text)
        return add_cache(p, "GRANARY_CACHE=", text);
    if (!server->caches.count)
        return default_cache_dir(standard) ? add_dir(p, standard, strlen(standard)) : 0;
    int rc = 0;
    for (size_t i = 0; !rc && i < server->caches.count; i++)
        rc = add_cache(p, "--cache ", server->caches.items[i]);
    return rc;
}

/* The directories are needed before the options are complete, so the default cache is named here but not created. */
int pinner_init(struct pinner *p, const struct server_values *server)
{
    *p = (struct pinner){.config.store.endpoint = server->endpoint};
    int rc = add_caches(p, server);
    if (rc)
        return rc;
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
