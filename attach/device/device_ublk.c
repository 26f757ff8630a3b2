/* The mount's side of the ublk front: a server makes the device, on request over its socket, and the program
 * granary-ublk removes it, whether the server lives or not. Here is nothing of the driver. docs/internals/ublk.md has
 * the words of the socket, and why a mounted device is never stopped. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <mntent.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "attach/device/device_internal.h"
#include "attach/server/server.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "net/listen.h"

#define CONTROL "/dev/ublk-control"

enum {
    MODPROBE_MS = 30000,
    PROBE_MS = 10000,
    REMOVE_MS = 30000,
    CONNECT_S = 5,
    STEP_MS = 100,
    REMOVING_MS = 5000, /* what a removal may take whose server answers */
    JOIN_MS = 30000,    /* as export_check */
    FAIL_MS = 15000,    /* a server that was just started recovers its devices first */
    ANSWER_MAX = 1024,
    NUMBER_MAX = 1 << 20 /* as UBLK_NUMBERS of ublk/kernel.h */
};

int device_ublk_available(void)
{
    const char *const argv[] = {"modprobe", "ublk_drv", NULL};
    char remedy[MODULE_REMEDY_MAX];
    if (!access(CONTROL, F_OK) || (!process_run(argv, MODPROBE_MS) && !access(CONTROL, F_OK)))
        return 0;
    return error_set(-ENODEV, "this kernel has no ublk (%s)", module_remedy_here("ublk_drv", remedy));
}

/* Since Linux 6.12 the driver survives a server that is killed while it takes over a device. */
static int check_kernel(void)
{
    enum { MAJOR = 6, MINOR = 12 };
    struct utsname kernel;
    if (!device_kernel_older(MAJOR, MINOR, &kernel))
        return 0;
    return error_set(-ENODEV, "this kernel (%s) is older than Linux %d.%d, which mounts by ublk need", kernel.release,
                     MAJOR, MINOR);
}

/* The kernel makes the nodes of new devices in devtmpfs. A container's own /dev has those of its start only. */
static int check_dev(void)
{
    bool fits = true;
    FILE *mounts = setmntent("/proc/self/mounts", "re");
    for (struct mntent *m; mounts && (m = getmntent(mounts));)
        if (!strcmp(m->mnt_dir, "/dev"))
            fits = !strcmp(m->mnt_type, "devtmpfs");
    if (mounts)
        endmntent(mounts);
    return fits ? 0
                : error_set(-ENOTSUP, "a new ublk device would not appear in this /dev; give the container that of the "
                                      "host (-v /dev:/dev)");
}

int device_ublk_probe(void)
{
    CLEANUP_FREE char *program = NULL;
    int rc = check_kernel();
    if (!rc)
        rc = device_ublk_available();
    if (!rc)
        rc = check_dev();
    if (!rc)
        rc = server_program(SERVER_UBLK, &program);
    const char *const argv[] = {program, "--probe", NULL};
    struct error why;
    if (rc || !(rc = process_run(argv, PROBE_MS)))
        return rc;
    error_take(&why, rc);
    return error_set(rc, "%s", server_program_sentence(why.text));
}

/* ---- the socket ---- */

static int send_line(int fd, const char *word, const char *rest)
{
    CLEANUP_BYTES line = BYTES_INIT(16 << 10);
    if (bytes_printf(&line, "%s%s\n", word, rest))
        return error_no_memory();
    ssize_t n = send(fd, line.data, line.len, MSG_NOSIGNAL);
    if (n != (ssize_t)line.len)
        return error_set(-EIO, "the server does not take the request '%.*s': %s", (int)strcspn(word, " "), word,
                         n < 0 ? strerror(errno) : "its socket is full");
    return 0;
}

/* Read an answer's line, for as long as export_check_still allows. The answer "failed SENTENCE" is -EIO with that
 * sentence. */
static int read_answer(int fd, const struct export_check *check, uint64_t deadline_ms, char out[ANSWER_MAX])
{
    for (size_t len = 0; len < ANSWER_MAX;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int rc = export_check_still(check, deadline_ms);
        if (rc)
            return rc;
        if (poll(&p, 1, STEP_MS) <= 0)
            continue;
        ssize_t n = recv(fd, out + len, 1, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n <= 0)
            return error_set(-EIO, "the server ended before it answered");
        if (out[len++] != '\n')
            continue;
        out[len - 1] = 0;
        return text_begins_with(out, "failed ") ? error_set(-EIO, "%s", out + strlen("failed ")) : 0;
    }
    return error_set(-EPROTO, "the server's answer is longer than %d bytes", ANSWER_MAX);
}

static int not_granary_ublk(const char *line)
{
    return error_set(-EPROTO, "the server on the socket is no granary-ublk: it answers '%.60s'", line);
}

/* Read the answer that is one word. */
static int read_word(int fd, const struct export_check *check, uint64_t deadline_ms, const char *word)
{
    char line[ANSWER_MAX];
    int rc = read_answer(fd, check, deadline_ms, line);
    return rc || !strcmp(line, word) ? rc : not_granary_ublk(line);
}

/* Take "device N DISKSEQ SIZE ROOT" apart. */
static int parse_device(const char *line, unsigned *out_number, uint64_t *out_diskseq, struct nbd_export *out)
{
    char number[24], diskseq[24], size[24], root[DIGEST_HEX_SIZE];
    uint64_t n;
    int end = 0;
    *out = (struct nbd_export){.rooted = true};
    if (sscanf(line, "device %23s %23s %23s %64s%n", number, diskseq, size, root, &end) != 4 || line[end] ||
        text_parse_uint("", number, 0, NUMBER_MAX - 1, &n) ||
        text_parse_uint("", diskseq, 1, UINT64_MAX, out_diskseq) ||
        text_parse_uint("", size, 0, INT64_MAX, &out->size) || digest_parse(root, strlen(root), &out->content_root))
        return not_granary_ublk(line);
    *out_number = (unsigned)n;
    return 0;
}

int device_ublk_attach(const struct export_check *check, char out[DEVICE_NAME_MAX], char out_mark[DEVICE_MARK_MAX],
                       int *out_fd)
{
    char line[ANSWER_MAX];
    CLEANUP_FD int fd = -1;
    struct nbd_export got;
    unsigned number = 0;
    uint64_t diskseq = 0;
    int rc = listen_connect_unix(check->socket, CONNECT_S, &fd);
    if (!rc)
        rc = send_line(fd, "attach ", check->name);
    if (!rc)
        rc = read_answer(fd, check, clock_now_ms() + JOIN_MS, line);
    if (!rc)
        rc = parse_device(line, &number, &diskseq, &got);
    if (!rc)
        rc = nbd_export_check(check->socket, check->name, &got, check->size, &check->content_root);
    if (rc)
        return rc;
    snprintf(out, DEVICE_NAME_MAX, "/dev/ublkb%u", number);
    snprintf(out_mark, DEVICE_MARK_MAX, "%" PRIu64, diskseq);
    *out_fd = steal_fd(&fd);
    return 0;
}

int device_ublk_keep(const struct export_check *check, int fd)
{
    int rc = send_line(fd, "keep", "");
    return rc ? rc : read_word(fd, check, clock_now_ms() + JOIN_MS, "kept");
}

/* ---- the device ---- */

/* Return the N of /dev/ublkbN, as text and as a number. out_number: NULL if it is not wanted. */
static int device_ublk_number(const char *device, const char **out, uint64_t *out_number)
{
    static const char prefix[] = "/dev/ublkb";
    uint64_t n;
    *out = device + strlen(prefix);
    if (!text_begins_with(device, prefix) || text_parse_uint(device, *out, 0, NUMBER_MAX - 1, &n))
        return error_set(-EINVAL, "%s is no ublk device", device);
    if (out_number)
        *out_number = n;
    return 0;
}

/* The kernel gives each disk a number that no other gets; a recovery keeps it. */
void device_ublk_mark(const char *device, char out[DEVICE_MARK_MAX])
{
    CLEANUP_BYTES text = BYTES_INIT(DEVICE_ATTRIBUTE_MAX);
    const char *number;
    *out = 0;
    if (!device_ublk_number(device, &number, NULL) && device_attribute(device, "diskseq", &text))
        snprintf(out, DEVICE_MARK_MAX, "%.*s", (int)strcspn((char *)text.data, "\n"), (char *)text.data);
}

int device_ublk_fail(const char *socket, const char *device, uint64_t wait_ms)
{
    uint64_t deadline = clock_now_ms() + wait_ms;
    const char *number;
    CLEANUP_FD int fd = -1;
    const struct export_check check = {.socket = socket};
    int rc = device_ublk_number(device, &number, NULL);
    while (!rc && fd < 0) {
        rc = listen_connect_unix(socket, CONNECT_S, &fd);
        if (rc && clock_now_ms() < deadline) {
            usleep(STEP_MS * 1000);
            rc = 0;
        }
    }
    if (!rc)
        rc = send_line(fd, "fail ", number);
    return rc ? rc : read_word(fd, &check, clock_now_ms() + FAIL_MS, "failing");
}

/* Whether a process removes a device: it has a lock on the byte of that number (ublk/control.c). */
static bool is_being_removed(int control, uint64_t number)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)number, .l_len = 1};
    return !fcntl(control, F_OFD_GETLK, &lock) && lock.l_type != F_UNLCK;
}

int device_ublk_await_removal(const char *device)
{
    const uint64_t deadline = clock_now_ms() + REMOVING_MS;
    const char *name;
    uint64_t number;
    int rc = device_ublk_number(device, &name, &number);
    CLEANUP_FD int control = rc ? -1 : open(CONTROL, O_RDWR | O_CLOEXEC);
    while (control >= 0 && is_being_removed(control, number)) {
        if (clock_now_ms() >= deadline)
            return error_set(-EBUSY,
                             "%s is being removed already, which ends when its server, which is stopped, goes on, or "
                             "what has it open closes it ('fuser %s' shows it)",
                             device, device);
        usleep(STEP_MS * 1000);
    }
    return rc;
}

int device_ublk_remove(const char *device, const char *mark)
{
    char now[DEVICE_MARK_MAX];
    const char *number;
    CLEANUP_FREE char *program = NULL;
    int rc = device_ublk_number(device, &number, NULL);
    if (!rc) /* a further one would only wait for it */
        rc = device_ublk_await_removal(device);
    if (rc)
        return rc;
    device_ublk_mark(device, now);
    if (!*now || strcmp(now, mark) != 0)
        return 0;
    if (device_claimed(device)) /* the program looks, too, and then nobody can mount it any more */
        return error_set(-EBUSY, "%s is still mounted, here or elsewhere", device);
    rc = server_program(SERVER_UBLK, &program);
    const char *const argv[] = {program, "--remove", number, mark, NULL};
    if (!rc)
        rc = process_run_sparing(argv, REMOVE_MS);
    return rc == -ETIMEDOUT
               ? error_set(rc,
                           "%s is not removed in time: its server is stopped, or a process has it open ('fuser %s' "
                           "shows it); the removal goes on, and ends with that",
                           device, device)
               : rc;
}
