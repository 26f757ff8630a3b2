/* The program that a supervisor starts: its command line, its output, and its word on whether it may be killed.
 *
 * The command line is PROGRAM -tN [TLS] 3 KEY=VALUE..., where 3 is the descriptor that is passed on. The keys are the
 * plugin's; the first keys are the images.
 *
 * The output is split into lines of at most 511 bytes. While `holds` is set the last line is kept back, since a
 * supervisor that reports a failed start quotes it, and the log should not have it twice.
 *
 * quiesce_ask is one HTTP request by hand, without libcurl, since the supervisor must not wait for a server that hangs:
 * HTTP/1.0, so that the server closes the connection; only the status line is read. */
#include "attach/server/server_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "attach/server/service.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "net/listen.h"

enum {
    CHECK_MS = 60000, /* for a front end to check its parameters */
    ANSWER_S = 2,     /* for an answer to quiesce_ask */
    QUIET = 200,      /* HTTP status of that answer, */
    BUSY = 202        /* and while the cache is being written */
};

/* ---- the parts of Granary ---- */

/* Find a program: named by the environment variable, else the first of two places beside this program where it exists
 * (a build tree, an installation), else its bare name. free *out. */
static int find_part(const char *variable, const char *built, const char *installed, char **out)
{
    const char *chosen = getenv(variable), *const places[] = {built, installed};
    char program[PATH_MAX];
    if (!chosen || !*chosen) {
        chosen = strrchr(installed, '/') + 1;
        int rc = process_own_program(program);
        if (rc)
            return rc;
        int dir_len = (int)(strrchr(program, '/') - program);
        for (size_t i = 0; i < GR_ARRAY_SIZE(places); i++) {
            CLEANUP_FREE char *path = NULL;
            if (asprintf(&path, "%.*s/%s", dir_len, program, places[i]) < 0) {
                path = NULL;
                return error_no_memory();
            }
            if (!access(path, R_OK)) {
                *out = steal_ptr(&path);
                return 0;
            }
        }
    }
    *out = strdup(chosen);
    return *out ? 0 : error_no_memory();
}

int server_program(enum server_kind kind, char **out)
{
    static const struct part {
        const char *variable, *built, *installed;
    } parts[] = {
        [SERVER_NBD] = {"GRANARY_NBD", "../nbd/granary-nbd", GRANARY_LIBEXEC_FROM_BIN "/granary-nbd"},
        [SERVER_FUSE] = {"GRANARY_FUSE", "../fuse/granary-fuse", GRANARY_LIBEXEC_FROM_BIN "/granary-fuse"},
        [SERVER_UBLK] = {"GRANARY_UBLK", "../ublk/granary-ublk", GRANARY_LIBEXEC_FROM_BIN "/granary-ublk"},
    };
    const struct part *p = &parts[kind];
    return find_part(p->variable, p->built, p->installed, out);
}

enum server_kind server_kind_of(const struct server_config *c)
{
    return c->fuse ? SERVER_FUSE : c->ublk ? SERVER_UBLK : SERVER_NBD;
}

/* ---- the child's command line ---- */

/* Add a word made by format. */
static int add_word(server_child_words *argv, const char *format, const char *word)
{
    char *text = NULL;
    if (asprintf(&text, format, word) < 0)
        return error_no_memory();
    if (!vec_push(argv, text))
        return 0;
    free(text);
    return error_no_memory();
}

/* Secrets, TLS keys among them, never appear in the command line, which every user can read: only paths of files do. */
int server_child_argv(const struct server_config *c, server_child_words *out)
{
    CLEANUP_FREE char *path = NULL;
    char threads[16];
    snprintf(threads, sizeof threads, "-t%u", c->threads ? c->threads : (unsigned)SERVER_THREADS);
    int rc = server_program(server_kind_of(c), &path);
    if (!rc)
        rc = add_word(out, "%s", path);
    if (!rc)
        rc = add_word(out, "%s", threads);
    if (!rc && c->tls_certificates)
        rc = add_word(out, "-c%s", c->tls_certificates);
    if (!rc && c->tls_psk)
        rc = add_word(out, "-k%s", c->tls_psk);
    if (!rc && c->tls_verify_peer)
        rc = add_word(out, "%s", "-p");
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
    if (!rc)
        rc = vec_push(out, NULL);
    return rc;
}

void server_child_release(server_child_words *argv)
{
    for (size_t i = 0; i < argv->len; i++)
        free(argv->items[i]);
    vec_release(argv);
}

/* ---- the output of a child ---- */

/* Log the line that was kept back. */
void child_output_release(struct child_output *o)
{
    if (o->held)
        service_log_line(o->last);
    o->held = false;
}

/* A line is complete: log the one kept back, then log or keep this one. Empty lines do not replace the last. */
static void end_line(struct child_output *o)
{
    o->line[o->line_len] = 0;
    child_output_release(o);
    o->held = o->line_len && o->holds;
    if (o->line_len)
        memcpy(o->last, o->line, o->line_len + 1);
    if (!o->held)
        service_log_line(o->line);
    o->line_len = 0;
}

/* A line longer than the buffer is split; nothing is dropped. */
int child_output_take(struct child_output *o)
{
    char block[4096];
    ssize_t n = read(o->fd, block, sizeof block);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    for (ssize_t i = 0; i < n; i++) {
        if (block[i] == '\n' || o->line_len + 1 == sizeof o->line)
            end_line(o);
        if (block[i] != '\n')
            o->line[o->line_len++] = block[i];
    }
    return n > 0 ? 1 : -1;
}

/* Read what the program wrote before it died; a line without a newline counts as well. */
void child_output_end(struct child_output *o)
{
    while (o->fd >= 0 && child_output_take(o) > 0)
        ;
    if (o->line_len)
        end_line(o);
    if (o->fd >= 0)
        close(steal_fd(&o->fd));
}

const char *server_program_sentence(const char *line)
{
    static const char prefix[] = "granary: error: ";
    const char *at = strstr(line, prefix);
    return at ? at + strlen(prefix) : line;
}

const char *child_output_last(const struct child_output *o)
{
    return *o->last ? server_program_sentence(o->last) : "none";
}

int child_start(const char *const *argv, int listen_fd, struct child_output *output, pid_t *out)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return error_set(-errno, "cannot make a pipe: %s", strerror(errno));
    CLEANUP_FD int read_end = ends[0], write_end = ends[1];
    fcntl(read_end, F_SETFL, O_NONBLOCK);
    /* A separate session, so that ^C at the terminal reaches only the supervisor. */
    const struct process_spec spec = {
        .argv = argv, .output = write_end, .listen_fd = listen_fd, .session = true, .supervised = true};
    int rc = process_spawn(&spec, out);
    if (rc)
        return rc;
    output->fd = steal_fd(&read_end);
    *output->last = 0;
    return 0;
}

/* ---- requests ---- */

int quiesce_ask(const char *control, bool *out_quiet)
{
    static const char request[] = "POST /quiesce HTTP/1.0\r\nContent-Length: 0\r\n\r\n";
    char answer[sizeof "HTTP/1.1 200"] = "";
    CLEANUP_FD int fd = -1;
    unsigned status = 0;
    int rc = listen_connect_unix(control, ANSWER_S, &fd);
    if (rc)
        return rc;
    if (send(fd, request, sizeof request - 1, MSG_NOSIGNAL) < 0)
        return error_set(-errno, "cannot ask on %s: %s", control, strerror(errno));
    ssize_t n = io_read_full(fd, answer, sizeof answer - 1);
    if (n < 0 || sscanf(answer, "HTTP/%*u.%*u %u", &status) != 1 || (status != QUIET && status != BUSY))
        return error_set(n == -EAGAIN ? -ETIMEDOUT : -EIO, "the server on %s does not understand", control);
    *out_quiet = status == QUIET;
    return 0;
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
    return rc ? error_set(rc, "%s", server_program_sentence(e.text)) : 0;
}
