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
#include <sys/utsname.h>
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
    OS_RELEASE_MAX = 64 << 10,
    NUMBER_MAX = 1 << 20 /* as many devices as the kernel has minor numbers */
};

/* ---- where to get the module ----
 *
 * A distribution is recognised by ID and ID_LIKE of os-release(5), which is passed in, so that tests need no machine of
 * each kind. */

enum { VALUE_MAX = 128 };

/* Return the value of KEY= without its quotes; "" when it is not there. */
static void value_of(const char *text, const char *key, char out[VALUE_MAX])
{
    size_t len = strlen(key);
    *out = 0;
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) != 0 || line[len] != '=')
            continue;
        const char *value = line + len + 1;
        value += *value == '"' || *value == '\'';
        snprintf(out, VALUE_MAX, "%.*s", (int)strcspn(value, "\"'\n"), value);
        return;
    }
}

/* Whether a list separated by spaces has that word. */
static bool has_word(const char *words, const char *word)
{
    size_t len = strlen(word);
    for (const char *p = words; *p;) {
        size_t n = strcspn(p, " ");
        if (n == len && !memcmp(p, word, len))
            return true;
        p += n + (p[n] != 0);
    }
    return false;
}

const char *nbd_remedy(const char *os_release, const char *release, char out[NBD_REMEDY_MAX])
{
    /* The first match counts, so a derived distribution stands before the one it is like. %s: the kernel's release. */
    static const struct {
        const char *id, *text;
    } table[] = {
        {"ubuntu", "Ubuntu: apt install linux-modules-%s, then modprobe nbd"},
        {"debian",
         "Debian: modprobe nbd; where that fails, apt install linux-image-amd64 or -arm64 and boot it: kernel %s "
         "has no nbd"},
        {"fedora", "Fedora: dnf install kernel-modules-%s, then modprobe nbd"},
        {"rhel", "RHEL and its relatives have no nbd in their kernels, nor has %s"},
        {"suse",
         "SUSE: zypper install kernel-default in place of kernel-default-base (%s is running), then modprobe nbd"},
    };
    char id[VALUE_MAX], like[VALUE_MAX];
    value_of(os_release, "ID", id);
    value_of(os_release, "ID_LIKE", like);
    bool rhel = !strcmp(id, "centos") || has_word(like, "rhel");
    for (size_t i = 0; i < GR_ARRAY_SIZE(table); i++) {
        bool fits = !strcmp(id, table[i].id) || has_word(like, table[i].id);
        if (!strcmp(table[i].id, "fedora"))
            fits = !strcmp(id, "fedora"); /* RHEL is like it, and has no such package */
        if (!strcmp(table[i].id, "rhel"))
            fits = fits || rhel;
        if (fits) {
            snprintf(out, NBD_REMEDY_MAX, table[i].text, release);
            return out;
        }
    }
    snprintf(out, NBD_REMEDY_MAX, "modprobe nbd, or a kernel with CONFIG_BLK_DEV_NBD in place of %s", release);
    return out;
}

/* The directory exists for a built-in driver too. */
static bool have_nbd(void)
{
    return !access("/sys/module/nbd", F_OK);
}

/* The sentence names the package to install on this distribution (nbd_remedy). */
int device_nbd_available(void)
{
    if (have_nbd())
        return 0;
    const char *const argv[] = {"modprobe", "nbd", NULL};
    if (!process_run(argv, MODPROBE_TIMEOUT_MS) && have_nbd())
        return 0;
    CLEANUP_BYTES os = BYTES_INIT(OS_RELEASE_MAX);
    struct utsname kernel = {.release = ""};
    char remedy[NBD_REMEDY_MAX];
    if (io_read_file("/etc/os-release", &os) || !bytes_string(&os))
        os.len = 0;
    uname(&kernel);
    nbd_remedy(os.len ? (const char *)os.data : "", kernel.release, remedy);
    return error_set(-ENODEV, "this kernel has no nbd module (%s)", remedy);
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
