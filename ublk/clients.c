/* A connection has one request. The line that makes a device is answered, and then the device hangs on the connection
 * until the client says `keep`: a client that was killed in between leaves nothing. */
#include "ublk/clients.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "ublk/record.h"

enum {
    LINE_MAX_BYTES = RECORD_NAME_MAX + 64,
    REQUEST_MS = 10000, /* for the request to arrive */
    KEEP_MS = 10000,    /* for `keep`: the client writes a file */
    RETRY_US = 100000
};

/* Read a line without its newline, byte by byte: they are short and rare. Returns 0, or -errno without a sentence. */
static int read_line(int fd, uint64_t within_ms, char out[LINE_MAX_BYTES])
{
    uint64_t deadline = clock_now_ms() + within_ms, now;
    for (size_t len = 0; len < LINE_MAX_BYTES; len++) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        while ((now = clock_now_ms()) < deadline && poll(&p, 1, (int)(deadline - now)) < 0 && errno == EINTR)
            ;
        ssize_t n = p.revents ? recv(fd, out + len, 1, MSG_DONTWAIT) : -1;
        if (n != 1)
            return !p.revents ? -ETIMEDOUT : n ? -errno : -ECONNRESET;
        if (out[len] == '\n') {
            out[len] = 0;
            return 0;
        }
    }
    return -EMSGSIZE;
}

/* A client that is gone gets no answer. */
static void answer(int fd, const char *line)
{
    char text[ERROR_TEXT_MAX + 64];
    int n = snprintf(text, sizeof text - 1, "%s", line);
    n = GR_MIN(n, (int)sizeof text - 2);
    for (int i = 0; i < n; i++)
        if (text[i] == '\n')
            text[i] = ' ';
    text[n] = '\n';
    if (send(fd, text, (size_t)n + 1, MSG_NOSIGNAL) < 0)
        log_debug("a client went away before its answer");
}

static void answer_failed(int fd)
{
    char text[ERROR_TEXT_MAX + 16];
    snprintf(text, sizeof text, "failed %s", error_text());
    answer(fd, text);
}

/* The device is removed again unless the client keeps it. */
static void client_attach(struct devices *d, struct ublk_control *c, int fd, const char *name)
{
    struct device_made made;
    char line[LINE_MAX_BYTES], root[DIGEST_HEX_SIZE];
    if (devices_attach(d, c, name, &made)) {
        answer_failed(fd);
        return;
    }
    snprintf(line, sizeof line, "device %u %" PRIu64 " %" PRIu64 " %s", made.number, made.diskseq, made.size,
             digest_hex(&made.content_root, root));
    answer(fd, line);
    int rc = read_line(fd, KEEP_MS, line);
    if (!rc && !strcmp(line, "keep")) {
        rc = devices_keep(d, made.number);
        if (!rc)
            answer(fd, "kept");
        else
            answer_failed(fd);
    } else
        rc = -ECANCELED;
    if (!rc)
        return;
    log_info("ublk device %u is removed again, since its client did not keep it", made.number);
    if (ublk_remove(c, made.number, made.tag))
        log_warning("%s", error_text());
}

static void client_fail(struct devices *d, int fd, const char *number)
{
    uint64_t n;
    int rc = text_parse_uint("the device", number, 0, UBLK_NUMBERS - 1, &n);
    if (!rc)
        rc = devices_fail(d, (unsigned)n);
    if (rc)
        answer_failed(fd);
    else
        answer(fd, "failing");
}

/* The socket's mode may admit users that read images. Only root, or the server's own user, may make devices. */
static bool is_allowed(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) && (!peer.uid || peer.uid == geteuid());
}

void client_serve(struct devices *d, struct ublk_control *c, int fd)
{
    char line[LINE_MAX_BYTES];
    CLEANUP_FD int owned = fd;
    if (!is_allowed(fd)) {
        answer(fd, "failed only root may ask for devices");
        return;
    }
    if (read_line(fd, REQUEST_MS, line))
        return;
    if (text_begins_with(line, "attach "))
        client_attach(d, c, fd, line + strlen("attach "));
    else if (text_begins_with(line, "fail "))
        client_fail(d, fd, line + strlen("fail "));
    else
        answer(fd, "failed this is no request");
}

/* What a thread needs. It never ends, nor do these. */
struct client_thread {
    struct devices *devices;
    struct ublk_control *control;
    int listen_fd;
};

static void *clients_run(void *arg)
{
    const struct client_thread *t = arg;
    for (;;) {
        struct pollfd p = {.fd = t->listen_fd, .events = POLLIN};
        if (poll(&p, 1, -1) < 0)
            continue;
        int fd = accept4(t->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            client_serve(t->devices, t->control, fd);
        else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            usleep(RETRY_US); /* no descriptors or memory: that may pass */
    }
    return NULL;
}

int clients_start(struct devices *d, int listen_fd)
{
    for (int i = 0; i < CLIENTS_THREADS; i++) {
        pthread_t id;
        struct client_thread *t = calloc(1, sizeof *t);
        if (!t)
            return error_no_memory();
        *t = (struct client_thread){.devices = d, .listen_fd = listen_fd};
        int rc = ublk_control_open(&t->control);
        if (!rc)
            rc = thread_start(&id, clients_run, t);
        if (rc) {
            if (t->control)
                ublk_control_close(t->control);
            free(t);
            return rc;
        }
        pthread_detach(id);
    }
    return 0;
}
