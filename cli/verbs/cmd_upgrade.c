/* granary upgrade [TARGET]: has a server's supervisor become this very program, while its clients wait.
 *
 *   this program --"upgrade /path/of/this/program"--> supervisor's socket, PATH.upgrade beside the control socket
 *                                                     checks the options with the new program, execs it
 *   this program <--"done ...", or "failed ..."------ the new program, once it serves
 *
 * See attach/server/upgrade.c for the other side.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>

#include "attach/attach.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "cli/servers.h"
#include "cli/verbs/verbs.h"
#include "net/listen.h"

struct upgrade_values {
    bool json;
};

static const struct option_row rows[] = {
    {OPTION_FLAG, 0, "json", NULL, offsetof(struct upgrade_values, json), 0, 0, "print one JSON object"},
    {0},
};

enum { CONNECT_S = 10, ANSWER_MAX = 4096 };

/* Is there a socket at target followed by suffix? Its path is written to out. */
static bool is_at(const char *target, const char *suffix, char out[PATH_MAX])
{
    struct stat st;
    snprintf(out, PATH_MAX, "%.*s%s", PATH_MAX - 32, target, suffix);
    return !stat(out, &st) && S_ISSOCK(st.st_mode);
}

/* Find the supervisor's socket. It exists while the server is down, so the paths beside the target are tried before the
 * control socket is. */
static int cmd_upgrade_find(const char *target, char out[PATH_MAX])
{
    char control[PATH_MAX];
    if (!target && is_at(SERVE_CONTROL, UPGRADE_SUFFIX, out))
        return 0;
    if (target && (is_at(target, ".control" UPGRADE_SUFFIX, out) || is_at(target, UPGRADE_SUFFIX, out)))
        return 0;
    int rc = control_target_find(target, control, sizeof control);
    if (rc || is_at(control, UPGRADE_SUFFIX, out))
        return rc;
    json_t *status = NULL;
    rc = control_status(control, &status); /* only of a server one can say that it has no supervisor */
    json_decref(status);
    if (rc)
        return rc;
    return error_set(-ENOENT,
                     "the server at %s has no supervisor that can be replaced (%s): it was not started by 'granary "
                     "serve', or by an earlier version; stop it and start it again",
                     target ? target : control, out);
}

/* Connect, without a timeout for the answer: a check of the options may take long. */
static int cmd_upgrade_connect_to(const char *path, int *out_fd)
{
    static const struct timeval none;
    int rc = listen_connect_unix(path, CONNECT_S, out_fd);
    if (rc == -EACCES || rc == -EPERM)
        return error_set(
            rc, "the server may not be replaced by this user (%s); ask as the user that it runs as, or as root", path);
    if (rc == -ECONNREFUSED)
        return error_set(rc, "the supervisor that listened on %s is gone; start the server again", path);
    if (!rc && setsockopt(*out_fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none))
        return error_set(-errno, "cannot wait for an answer on %s: %s", path, strerror(errno));
    return rc;
}

/* Send the request and read the one line of the answer. */
static int cmd_upgrade_ask(const char *path, struct bytes *answer)
{
    char program[PATH_MAX], request[PATH_MAX + 16];
    CLEANUP_FD int fd = -1;
    int rc = process_own_program(program);
    if (!rc)
        rc = cmd_upgrade_connect_to(path, &fd);
    if (rc)
        return rc;
    int len = snprintf(request, sizeof request, UPGRADE_REQUEST "%s\n", program);
    if (send(fd, request, (size_t)len, MSG_NOSIGNAL) != len)
        return error_set(-errno, "cannot ask on %s: %s", path, strerror(errno));
    char block[ANSWER_MAX];
    ssize_t n = io_read_full(fd, block, sizeof block);
    if (n <= 0 || block[n - 1] != '\n')
        return error_set(-ECONNRESET, "the server on %s ended in the middle of it; its log says why", path);
    return bytes_append(answer, block, (size_t)n - 1) || !bytes_string(answer) ? error_no_memory() : 0;
}

/* Report the answer. */
static int cmd_upgrade_tell(const struct upgrade_values *v, const char *path, const char *answer)
{
    char from[UPGRADE_VERSION_MAX], to[UPGRADE_VERSION_MAX];
    unsigned long long ms;
    if (!strncmp(answer, UPGRADE_FAILED, strlen(UPGRADE_FAILED)))
        return error_set(-EIO, "%s", answer + strlen(UPGRADE_FAILED));
    if (sscanf(answer, UPGRADE_DONE "%63s %63s %llu", from, to, &ms) != 3)
        return error_set(-EPROTO, "the server on %s does not answer as one of Granary's", path);
    if (v->json)
        return print_json(
            json_pack("{s:o,s:o,s:I}", "from", json_lossy(from), "to", json_lossy(to), "outage_ms", (json_int_t)ms));
    printf("granary %s serves in the place of %s; there was no server for %.1f s\n", to, from, (double)ms / 1000);
    return 0;
}

/* The new program is this one: `granary upgrade` is run from the new version. */
static int cmd_upgrade_run(const struct invocation *inv)
{
    char path[PATH_MAX];
    CLEANUP_BYTES answer = BYTES_INIT(ANSWER_MAX + 1);
    int rc = cmd_upgrade_find(inv->operand_count ? inv->operands[0] : NULL, path);
    if (!rc)
        rc = cmd_upgrade_ask(path, &answer);
    return rc ? rc : cmd_upgrade_tell(inv->values, path, (const char *)answer.data);
}

const struct verb verb_upgrade = {
    .name = "upgrade",
    .operands = "[TARGET]",
    .max_operands = 1,
    .summary = "Replace a running server by this version of Granary",
    .details =
        "TARGET is a server's socket, its control socket, the directory of 'granary serve --fuse' or a mount point\n"
        "(default: that of 'granary serve', else the only one). Its supervisor becomes this program, on the same\n"
        "socket, and starts this program's server. Mounts wait meanwhile. Nothing is changed where this program does\n"
        "not take the server's options.",
    .options = rows,
    .values_size = sizeof(struct upgrade_values),
    .run = cmd_upgrade_run,
};
