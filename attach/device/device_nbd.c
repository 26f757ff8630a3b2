/* Kernel nbd, attached over netlink. The kernel chooses the free device, so two attaches at the same moment never get
 * the same one. An attachment is told from a later one of the same device by its mark, the pid file in sysfs; nothing
 * is detached whose mark is not ours. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/nbd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/attach_internal.h"
#include "attach/device/device_internal.h"
#include "attach/mount/mountinfo.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"

enum {
    MODPROBE_TIMEOUT_MS = 30000,
    ANSWER_TIMEOUT_S = 30, /* the server has just answered export_check */
    SIZE_WAIT_MS = 5000,
    DETACH_MS = 30000,
    CONNECTIONS_MAX = 64,
    NUMBER_MAX = 1 << 20 /* as many devices as the kernel has minor numbers */
};

/* The directory exists for a built-in driver too. */
static bool have_nbd(void)
{
    return !access("/sys/module/nbd", F_OK);
}

int device_nbd_available(void)
{
    if (have_nbd())
        return 0;
    const char *const argv[] = {"modprobe", "nbd", NULL};
    if (!process_run(argv, MODPROBE_TIMEOUT_MS) && have_nbd())
        return 0;
    char remedy[MODULE_REMEDY_MAX];
    return error_set(-ENODEV, "this kernel has no nbd module (%s)", module_remedy_here("nbd", remedy));
}

/* The name must be exactly /dev/nbdN: it is used in paths of sysfs. */
int device_nbd_number(const char *device, int *out)
{
    static const char prefix[] = "/dev/nbd";
    uint64_t n;
    if (strncmp(device, prefix, sizeof prefix - 1) ||
        text_parse_uint(device, device + sizeof prefix - 1, 0, NUMBER_MAX, &n))
        return error_set(-EINVAL, "%s is no nbd device; give one as /dev/nbd0", device);
    *out = (int)n;
    return 0;
}

/* The pid file holds the process that attached the device, and is absent for a free one. */
void device_nbd_mark(const char *device, char out[DEVICE_MARK_MAX])
{
    CLEANUP_BYTES text = BYTES_INIT(DEVICE_ATTRIBUTE_MAX);
    *out = 0;
    if (device_attribute(device, "pid", &text))
        snprintf(out, DEVICE_MARK_MAX, "%.*s", (int)strcspn((char *)text.data, "\n"), (char *)text.data);
}

char *device_nbd_backend(const struct digest *content_root, char out[DEVICE_BACKEND_MAX])
{
    char hex[DIGEST_HEX_SIZE];
    snprintf(out, DEVICE_BACKEND_MAX, "sha256:%s", digest_hex(content_root, hex));
    return out;
}

/* Wait until the device shows the image's size: the kernel sets it shortly after the attach. */
static int wait_for_size(const char *device, uint64_t want)
{
    uint64_t deadline = clock_now_ms() + SIZE_WAIT_MS, size = 0;
    do {
        CLEANUP_FD int fd = open(device, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && !ioctl(fd, BLKGETSIZE64, &size) && size == want)
            return 0;
        usleep(20000);
    } while (clock_now_ms() < deadline);
    return error_set(-EIO, "%s has %llu bytes after the attach, the image has %llu", device, (unsigned long long)size,
                     (unsigned long long)want);
}

/* ---- attaching ---- */

/* Make the connections. Each is checked, since the server may be replaced by one with another image in between. *count:
 * those to close, also after a failure. */
static int dial_all(const struct device_nbd *d, int fds[CONNECTIONS_MAX], size_t *count, uint16_t *out_flags)
{
    struct nbd_export got = {.flags = NBD_FLAG_CAN_MULTI_CONN};
    int rc = 0;
    for (*count = 0; !rc && *count < GR_MIN(d->connections, (unsigned)CONNECTIONS_MAX); ++*count) {
        if (*count && !(got.flags & NBD_FLAG_CAN_MULTI_CONN)) /* the kernel refuses more than one */
            break;
        rc = nbd_dial(d->address, d->export_name, ANSWER_TIMEOUT_S, &got, &fds[*count]);
        if (rc)
            break;
        rc = nbd_export_check(d->address, d->export_name, &got, d->size, &d->content_root);
    }
    *out_flags = got.flags | NBD_FLAG_HAS_FLAGS | NBD_FLAG_READ_ONLY;
    return rc;
}

/* The kernel takes references of its sockets, so ours are closed in any case. */
int device_nbd_attach(const struct device_nbd *d, char out[DEVICE_NAME_MAX])
{
    CLEANUP(cleanup_nbd_netlink) struct nbd_netlink *netlink = NULL;
    char backend[DEVICE_BACKEND_MAX];
    int fds[CONNECTIONS_MAX], index = 0;
    size_t count = 0;
    uint16_t flags;
    const struct nbd_link link = {
        .backend = device_nbd_backend(&d->content_root, backend), .timeout_s = d->timeout_s, .dead_s = d->dead_s};
    int rc = nbd_netlink_open(&netlink);
    if (!rc)
        rc = dial_all(d, fds, &count, &flags);
    if (!rc)
        rc = nbd_netlink_connect(netlink, &link, d->size, flags, fds, count, &index);
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
    if (rc)
        return rc;
    snprintf(out, DEVICE_NAME_MAX, "/dev/nbd%d", index);
    rc = wait_for_size(out, d->size);
    if (!rc)
        return 0;
    struct error first;
    char mark[DEVICE_MARK_MAX];
    error_take(&first, rc);
    device_nbd_mark(out, mark);
    if (device_nbd_detach(out, mark, false))
        log_warning("%s", error_text());
    return error_restore(&first);
}

/* ---- detaching ---- */

/* Whether a device's file in sysfs holds exactly this line. */
static bool sysfs_says(const char *device, const char *file, const char *text)
{
    CLEANUP_BYTES got = BYTES_INIT(DEVICE_ATTRIBUTE_MAX);
    if (!device_attribute(device, file, &got))
        return false;
    size_t len = strcspn((char *)got.data, "\n");
    return len == strlen(text) && !memcmp(got.data, text, len);
}

/* Both must match: a pid is reused, and other processes attach the same image. */
int device_nbd_find(pid_t maker, const struct digest *content_root, char out[DEVICE_NAME_MAX])
{
    char pid[32], backend[DEVICE_BACKEND_MAX];
    int rc = -ENOENT;
    snprintf(pid, sizeof pid, "%d", (int)maker);
    device_nbd_backend(content_root, backend);
    DIR *block = opendir("/sys/block");
    for (struct dirent *e; block && rc && (e = readdir(block));) {
        char device[DEVICE_NAME_MAX];
        snprintf(device, sizeof device, "/dev/%.20s", e->d_name);
        if (strncmp(e->d_name, "nbd", 3) || !sysfs_says(device, "pid", pid) || !sysfs_says(device, "backend", backend))
            continue;
        memcpy(out, device, sizeof device);
        rc = 0;
    }
    if (block)
        closedir(block);
    return rc;
}

/* The work of deadline_call: the kernel may wait for requests that are stuck. */
static int call_disconnect(void *arg)
{
    CLEANUP(cleanup_nbd_netlink) struct nbd_netlink *netlink = NULL;
    const int *number = arg;
    int rc = nbd_netlink_open(&netlink);
    return rc ? rc : nbd_netlink_disconnect(netlink, *number);
}

/* A device with another mark, or none, was detached already; that is success. `cut` also detaches a mounted device,
 * whose readers get EIO. */
int device_nbd_detach(const char *device, const char *mark, bool cut)
{
    char now[DEVICE_MARK_MAX];
    int number;
    struct stat st;
    device_nbd_mark(device, now);
    if (!*now || strcmp(now, mark))
        return 0;
    if (!cut && !stat(device, &st) && S_ISBLK(st.st_mode)) {
        int mounted = mountinfo_lists(&(struct mountinfo){.id = -1, .device = st.st_rdev});
        if (mounted)
            return mounted < 0 ? mounted : error_set(-EBUSY, "%s is still mounted", device);
    }
    int rc = device_nbd_number(device, &number);
    if (!rc)
        rc = deadline_call(call_disconnect, &number, DETACH_MS);
    if (rc == -ETIMEDOUT)
        return error_set(rc, "the kernel does not detach %s within %d s ('dmesg' may say why); try again", device,
                         DETACH_MS / 1000);
    return rc;
}
