/* granary-ublk: shows exports as block devices of the kernel's ublk. `granary serve --ublk` makes the socket by which
 * mounts ask for devices, passes it on as descriptor FD, and starts this program again when it dies; the devices
 * outlive it.
 *
 *   granary-ublk [-t THREADS] [-v] FD KEY=VALUE...
 *   granary-ublk --probe              can this machine have such devices?
 *   granary-ublk --remove N DISKSEQ   stop and delete /dev/ublkbN, if it is that disk and nothing has mounted it
 *   granary-ublk --clear PATH         the same for all devices of the server that was at the socket PATH
 *
 * It never ends a device by itself, since a mount would read zeros: SIGTERM ends it at once, like SIGKILL, and readers
 * wait for the next one. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "server/front_end.h"
#include "ublk/clients.h"

enum { SOON_US = 50000, SOON_ROUNDS = 200, LATER_US = 1000000, EXIT_USAGE = 2 };

/* The path of the listening socket, beside which the records of devices are. */
static int socket_path(int fd, char out[PATH_MAX])
{
    struct sockaddr_un address = {0};
    socklen_t len = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &len) || address.sun_family != AF_UNIX || !*address.sun_path)
        return error_set(-EINVAL, "descriptor %d is no listening unix socket", fd);
    snprintf(out, PATH_MAX, "%.*s", (int)sizeof address.sun_path, address.sun_path);
    return 0;
}

/* What recovers the devices of the previous server. It never ends. */
struct recovery {
    struct devices *devices;
    struct ublk_control *control;
};

/* Try until nothing waits any more: soon at first, while the old process ends and the exports are opened. */
static void *recover(void *arg)
{
    const struct recovery *r = arg;
    for (unsigned rounds = 0; devices_recover(r->devices, r->control); rounds++)
        usleep(rounds < SOON_ROUNDS ? SOON_US : LATER_US);
    return NULL;
}

/* Start what needs no export first: `granary umount --force` must work while the store is down. */
static int begin(struct serving *s, const struct front_end_arguments *w, struct devices **out)
{
    static struct recovery r;
    pthread_t id;
    char socket[PATH_MAX];
    int rc = socket_path(w->fd, socket);
    if (!rc)
        rc = ublk_control_open(&r.control);
    if (!rc)
        rc = devices_new(s, socket, w->threads, &r.devices);
    if (!rc)
        rc = clients_start(r.devices, w->fd);
    if (!rc)
        rc = thread_start(&id, recover, &r);
    if (!rc)
        pthread_detach(id);
    *out = r.devices;
    return rc;
}

/* front_end.serve: serve until killed. An error leaves the threads as they are: the process ends at once, and the next
 * one recovers what they have begun. */
static int ublk_serve(void *arg, struct serving *s, const struct front_end_arguments *w)
{
    struct devices *devices = NULL;
    int rc = getenv("GRANARY_CHECK") ? 0 : begin(s, w, &devices); /* serving_open exits then; there is no socket */
    if (!rc)
        rc = serving_refuse_follow(s);
    if (!rc)
        rc = serving_open(s);
    if (!rc)
        rc = serving_start(s);
    if (!rc) {
        devices_open(devices);
        for (;;)
            pause();
    }
    log_error("%s", error_text());
    _exit(EXIT_FAILURE);
}

static int probe(void)
{
    CLEANUP(cleanup_ublk_control) struct ublk_control *control = NULL;
    int rc = ublk_control_open(&control);
    if (!rc)
        rc = ublk_probe(control);
    if (rc)
        log_error("%s", error_text());
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int remove_device(const char *word, const char *disk)
{
    CLEANUP(cleanup_ublk_control) struct ublk_control *control = NULL;
    uint64_t number, diskseq;
    if (text_parse_uint("--remove", word, 0, UBLK_NUMBERS - 1, &number) ||
        text_parse_uint("the number of the disk", disk, 0, UINT64_MAX, &diskseq)) {
        log_error("%s", error_text());
        return EXIT_USAGE;
    }
    int rc = ublk_control_open(&control);
    if (!rc)
        rc = ublk_remove_disk(control, (unsigned)number, diskseq);
    if (rc)
        log_error("%s", error_text());
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int clear_devices(const char *socket)
{
    CLEANUP(cleanup_ublk_control) struct ublk_control *control = NULL;
    int rc = ublk_control_open(&control);
    if (!rc)
        rc = devices_clear(control, socket);
    if (rc)
        log_error("%s", error_text());
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    const struct front_end front_end = {.threads = DEVICES_THREADS, .own = "", .own_help = "", .serve = ublk_serve};
    signal(SIGPIPE, SIG_IGN);
    if (argc == 2 && !strcmp(argv[1], "--probe"))
        return probe();
    if (argc == 4 && !strcmp(argv[1], "--remove"))
        return remove_device(argv[2], argv[3]);
    if (argc == 3 && !strcmp(argv[1], "--clear"))
        return clear_devices(argv[2]);
    return front_end_main(argc, argv, &front_end);
}
