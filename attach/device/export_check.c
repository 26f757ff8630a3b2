/* Over NBD: one connection by libnbd, polled in small steps, so that a dead server or an interrupt ends the wait. For a
 * server that shows files: a stat of the export's file, made by a child process, since stat hangs while the server does
 * not answer.
 *
 * A server that mounts started may take its time, as its store may; it is waited for as long as it lives. A server that
 * ran before must answer within JOIN_MS.
 */
#include "attach/device/device_internal.h"

#include <errno.h>
#include <libnbd.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "attach/attach_internal.h"
#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "net/listen.h"

enum {
    STEP_MS = 100,
    LOOK_MS = 3000,
    ENDING_MS = 10000,
    DESCRIPTION_MAX = 1024,
    JOIN_MS = 30000 /* a server that was there before answers at once, or hangs */
};

DEFINE_CLEANUP(nbd, struct nbd_handle *, nbd_close)

int export_check_still(const struct export_check *check, uint64_t deadline_ms)
{
    int rc = cancel_check(check->cancel);
    if (rc)
        return rc;
    if (check->server && !process_alive(check->server))
        return error_set(-EIO, "the server ended before it answered");
    if (!check->server && clock_now_ms() > deadline_ms)
        return error_set(-ETIMEDOUT, "the server on %s accepts connections but does not answer; is it stopped?",
                         check->socket);
    return 0;
}

int export_check_wait(const struct export_check *check, const char *socket)
{
    for (;;) {
        int rc = listen_answered(socket);
        if (rc)
            return rc < 0 ? rc : 0;
        if (!check->server)
            return error_set(-ECONNREFUSED, "no server listens on %s", socket);
        rc = export_check_still(check, UINT64_MAX);
        if (rc)
            return rc;
        usleep(STEP_MS * 1000 / 4);
    }
}

/* Connect and negotiate the export. */
static int connected(const struct export_check *check, struct nbd_handle *h)
{
    if (nbd_set_export_name(h, check->name) || nbd_set_full_info(h, true) || nbd_aio_connect_unix(h, check->socket))
        return error_set(-EIO, "cannot connect to the server: %s", nbd_get_error());
    uint64_t deadline = clock_now_ms() + JOIN_MS;
    while (nbd_aio_is_connecting(h)) {
        int rc = export_check_still(check, deadline);
        if (rc)
            return rc;
        if (nbd_poll(h, STEP_MS) < 0)
            break;
    }
    if (nbd_aio_is_ready(h))
        return 0;
    /* A server of ours that closed the connection writes the reason to its log before it ends. */
    deadline = clock_now_ms() + ENDING_MS;
    while (check->server && clock_now_ms() < deadline && !export_check_still(check, UINT64_MAX))
        usleep(STEP_MS * 1000 / 4);
    return error_set(-EIO, "the server refuses the export '%s': %s", check->name,
                     nbd_get_error() ? nbd_get_error() : "the connection was closed");
}

/* Stat the file, only to see whether that returns; the caller stats it again. */
static int export_check_look_at(void *path)
{
    struct stat st;
    (void)stat(path, &st);
    return 0;
}

/* Read the export's size and description from its file. A stat hangs while the server does not answer, so a child
 * process tries one until it returns. */
static int ask_file(const struct export_check *check, struct nbd_export *out)
{
    char path[PATH_MAX], description[DESCRIPTION_MAX] = "";
    struct stat st;
    snprintf(path, sizeof path, "%.*s/%.*s", PATH_MAX / 2, check->socket, NAME_MAX, check->name);
    uint64_t deadline = clock_now_ms() + JOIN_MS;
    int rc;
    while ((rc = deadline_call(export_check_look_at, path, LOOK_MS)) == -ETIMEDOUT) {
        rc = export_check_still(check, deadline);
        if (rc)
            return rc;
    }
    if (rc)
        return rc;
    if (stat(path, &st))
        return error_set(-errno, "the server has no export '%s': %s: %s", check->name, path, strerror(errno));
    if (getxattr(path, "user.granary", description, sizeof description - 1) < 0 && errno != ENODATA)
        return error_set(-errno, "%s: %s", path, strerror(errno));
    *out = (struct nbd_export){.size = (uint64_t)st.st_size};
    out->rooted = !nbd_content_root(description, &out->content_root);
    return 0;
}

/* The name, size and content root are compared before any device exists, so a wrong image changes nothing. */
int export_check(const struct export_check *check)
{
    if (check->control) { /* it shows files */
        struct nbd_export file;
        int rc = export_check_wait(check, check->control);
        if (!rc)
            rc = ask_file(check, &file);
        return rc ? rc : nbd_export_check(check->socket, check->name, &file, check->size, &check->content_root);
    }
    CLEANUP(cleanup_nbd) struct nbd_handle *h = nbd_create();
    if (!h)
        return error_no_memory();
    int rc = export_check_wait(check, check->socket);
    if (!rc)
        rc = connected(check, h);
    if (rc)
        return rc;
    struct nbd_export got = {.size = (uint64_t)nbd_get_size(h)};
    CLEANUP_FREE char *description = nbd_get_export_description(h);
    got.rooted = !nbd_content_root(description, &got.content_root);
    rc = nbd_export_check(check->socket, check->name, &got, check->size, &check->content_root);
    if (rc)
        return rc;
    nbd_shutdown(h, 0);
    return 0;
}
