/* Finds the front end's program and makes its command line: PROGRAM -tN [TLS] 3 KEY=VALUE..., where 3 is the descriptor
 * that is passed on. The keys are the plugin's; the first keys are the images. */
#include "attach/server/server_child.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/process.h"
#include "attach/server/child_output.h"
#include "base/cleanup.h"
#include "base/error.h"

enum { CHECK_MS = 60000 }; /* for a front end to check its parameters */

/* ---- the parts of Granary ---- */

/* Return a path relative to the directory of the running program. */
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
    return error_no_memory();
}

/* Find a program: named by the environment variable, else the first of two places beside this program where it exists,
 * else its bare name. free *out. */
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
    return *out ? 0 : error_no_memory();
}

static int find_fuse(char **out)
{
    static const char *const places[] = {"../fuse/granary-fuse", /* a build tree */
                                         GRANARY_LIBEXEC_FROM_BIN "/granary-fuse"};
    return find_part("GRANARY_FUSE", places, "granary-fuse", out);
}

static int find_nbd(char **out)
{
    static const char *const places[] = {"../nbd/granary-nbd", GRANARY_LIBEXEC_FROM_BIN "/granary-nbd"};
    return find_part("GRANARY_NBD", places, "granary-nbd", out);
}

/* ---- the child's command line ---- */

/* Add a word made by format. */
static int add_word(server_child_words *argv, const char *format, const char *word)
{
    char *text = NULL;
    if (asprintf(&text, format, word) < 0)
        return error_no_memory();
    int rc = vec_push(argv, text);
    if (rc)
        free(text);
    return rc ? error_set(rc, "out of memory") : 0;
}

/* Add where the keys are; the keys themselves never stand on a command line. */
static int add_tls(const struct server_config *c, server_child_words *argv)
{
    int rc = c->tls_certificates ? add_word(argv, "-c%s", c->tls_certificates) : 0;
    if (!rc && c->tls_psk)
        rc = add_word(argv, "-k%s", c->tls_psk);
    return !rc && c->tls_verify_peer ? add_word(argv, "%s", "-p") : rc;
}

/* Secrets never appear in the command line, which every user can read: only paths of files do. */
int server_child_argv(const struct server_config *c, server_child_words *out)
{
    CLEANUP_FREE char *path = NULL, *threads = NULL;
    int rc = c->fuse ? find_fuse(&path) : find_nbd(&path);
    if (!rc)
        rc = add_word(out, "%s", path);
    if (!rc && asprintf(&threads, "-t%u", c->threads ? c->threads : (unsigned)SERVER_THREADS) < 0) {
        threads = NULL;
        rc = error_no_memory();
    }
    if (!rc)
        rc = add_word(out, "%s", threads);
    if (!rc)
        rc = add_tls(c, out);
    if (!rc)
        rc = add_word(out, "%s", PROCESS_PASSED_FD);
    for (size_t i = 0; !rc && i < c->image_count; i++)
        rc = add_word(out, "image=%s", c->images[i]);
    for (size_t i = 0; !rc && i < c->parameter_count; i++)
        rc = add_word(out, "%s", c->parameters[i]);
    if (!rc)
        rc = add_word(out, "control=%s", c->control);
    if (!rc)
        rc = add_word(out, "exports=%s.exports", c->control);
    if (!rc && vec_push(out, NULL))
        rc = error_no_memory();
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
    return config->fuse ? "granary-fuse" : "granary-nbd";
}

/* ---- a check ---- */

/* Run the child with GRANARY_CHECK, which makes it exit before it opens anything. */
int server_check(const struct server_config *config)
{
    server_child_words argv = {0};
    struct error e = {0};
    int rc = server_child_argv(config, &argv);
    if (!rc && setenv("GRANARY_CHECK", "1", 1))
        rc = error_set(-errno, "setenv: %s", strerror(errno));
    if (!rc)
        rc = process_run((const char *const *)argv.items, CHECK_MS);
    server_child_release(&argv);
    error_take(&e, rc);
    return rc ? error_set(rc, "%s", child_output_sentence(e.text)) : 0;
}
