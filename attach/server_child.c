#include "attach/server_child.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/process.h"
#include "base/cleanup.h"
#include "base/error.h"

enum { CHECK_MS = 60000 /* loading a plugin takes no longer */ };

/* ---- the plugin, the front ---- */

static int beside_program(const char *relative, char **out)
{
    char program[PATH_MAX];
    int rc = process_own_program(program);
    if (rc)
        return rc;
    char *slash = strrchr(program, '/');
    if (slash)
        *slash = 0;
    if (asprintf(out, "%s/%s", program, relative) >= 0)
        return 0;
    *out = NULL;
    return error_set(-ENOMEM, "out of memory");
}

/* A part of Granary: what the environment says, else the first of two places beside the program that is there, else
 * its bare name. *out: free. */
static int find_part(const char *variable, const char *const places[2], const char *name, char **out)
{
    const char *chosen = getenv(variable);
    for (size_t i = 0; (!chosen || !*chosen) && i < 2; i++) {
        CLEANUP_FREE char *path = NULL;
        int rc = beside_program(places[i], &path);
        if (rc)
            return rc;
        if (!access(path, R_OK)) {
            *out = steal_ptr(&path);
            return 0;
        }
    }
    *out = strdup(chosen && *chosen ? chosen : name);
    return *out ? 0 : error_set(-ENOMEM, "out of memory");
}

static int find_plugin(char **out)
{
    static const char *const places[] = {"../plugin/nbdkit-granary-plugin.so", /* a build tree */
                                         GRANARY_PLUGIN_FROM_BIN "/nbdkit-granary-plugin.so"};
    return find_part("GRANARY_PLUGIN", places, "granary", out);
}

static int find_fuse(char **out)
{
    static const char *const places[] = {"../fuse/granary-fuse", GRANARY_FUSE_FROM_BIN "/granary-fuse"};
    return find_part("GRANARY_FUSE", places, "granary-fuse", out);
}

/* ---- the child's command line ---- */

static int add_word(server_child_words *argv, const char *format, const char *word)
{
    char *text = NULL;
    if (asprintf(&text, format, word) < 0)
        return error_set(-ENOMEM, "out of memory");
    int rc = vec_push(argv, text);
    if (rc)
        free(text);
    return rc ? error_set(rc, "out of memory") : 0;
}

static int add_tls(const struct server_config *c, server_child_words *argv)
{
    if (!c->tls_certificates && !c->tls_psk)
        return 0;
    int rc = add_word(argv, "%s", "--tls=require");
    if (!rc && c->tls_certificates)
        rc = add_word(argv, "--tls-certificates=%s", c->tls_certificates);
    if (!rc && c->tls_psk)
        rc = add_word(argv, "--tls-psk=%s", c->tls_psk);
    return !rc && c->tls_verify_peer ? add_word(argv, "%s", "--tls-verify-peer") : rc;
}

int server_child_argv(const struct server_config *c, enum server_child_mode mode, server_child_words *out)
{
    char threads[32];
    CLEANUP_FREE char *path = NULL;
    int rc = c->fuse ? find_fuse(&path) : find_plugin(&path);
    snprintf(threads, sizeof threads, "%u", c->threads ? c->threads : (unsigned)SERVER_THREADS);
    /* with -s there is no socket */
    const char *const nbdkit[] = {"nbdkit", mode == SERVER_CHILD_CHECKS ? "-s" : "-f", "-r", "-t", threads, NULL};
    const char *const fuse[] = {path, "-t", threads, PROCESS_PASSED_FD, NULL};
    for (const char *const *word = c->fuse ? fuse : nbdkit; !rc && *word; word++)
        rc = add_word(out, "%s", *word);
    if (!rc && !c->fuse)
        rc = add_tls(c, out);
    if (!rc && !c->fuse)
        rc = add_word(out, "%s", path);
    for (size_t i = 0; !rc && i < c->image_count; i++)
        rc = add_word(out, "image=%s", c->images[i]);
    for (size_t i = 0; !rc && i < c->parameter_count; i++)
        rc = add_word(out, "%s", c->parameters[i]);
    if (!rc)
        rc = add_word(out, "control=%s", c->control);
    if (!rc)
        rc = add_word(out, "exports=%s.exports", c->control);
    if (!rc && vec_push(out, NULL))
        rc = error_set(-ENOMEM, "out of memory");
    return rc;
}

void server_child_release(server_child_words *argv)
{
    for (size_t i = 0; i < argv->len; i++)
        free(argv->items[i]);
    vec_release(argv);
}

const char *server_child_name(const struct server_config *config)
{
    return config->fuse ? "granary-fuse" : "nbdkit";
}

/* ---- a check ---- */

/* It ends where it would open caches (GRANARY_CHECK). */
int server_check(const struct server_config *config)
{
    static const char own[] = "nbdkit: error: ";
    server_child_words argv = {0};
    struct error e = {0};
    int rc = server_child_argv(config, SERVER_CHILD_CHECKS, &argv);
    if (!rc && setenv("GRANARY_CHECK", "1", 1))
        rc = error_set(-errno, "setenv: %s", strerror(errno));
    if (!rc)
        rc = process_run((const char *const *)argv.items, CHECK_MS);
    server_child_release(&argv);
    error_take(&e, rc);
    const char *why = rc ? strstr(e.text, own) : NULL;
    return why ? error_set(rc, "%s", why + sizeof own - 1) : rc ? error_restore(&e) : 0;
}
