/* What a node needs: a kernel with ublk or nbd (or FUSE and loop devices) and erofs, and Granary's programs in one
 * version. And its mounts: each needs its device, a server that answers, and with kernel nbd a reconnect daemon.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "cli/doctor/doctor.h"
#include "cli/servers.h"
#include "cli/verbs/verbs.h"

enum {
    PROGRAM_MS = 10000, /* for a program to tell its version */
    STEP_US = 5000      /* between two looks */
};

/* ---- the kernel ---- */

static bool is_loaded(const char *filesystem)
{
    CLEANUP_BYTES text = BYTES_INIT(64 << 10);
    char word[32];
    snprintf(word, sizeof word, "\t%s\n", filesystem);
    return !io_read_file("/proc/filesystems", &text) && !bytes_append(&text, "", 1) &&
           strstr((const char *)text.data, word);
}

/* Whether the kernel has a filesystem, or a module for it, which is loaded then. */
static bool has_filesystem(const char *name)
{
    const char *const argv[] = {"modprobe", name, NULL};
    return is_loaded(name) || (!process_run(argv, PROGRAM_MS) && is_loaded(name));
}

/* Mounts by FUSE need both. */
static bool check_fuse_device(struct doctor_report *r, const char *module, const char *device)
{
    char module_remedy[MODULE_REMEDY_MAX], remedy[MODULE_REMEDY_MAX + 64];
    if (!access(device, F_OK))
        return true;
    snprintf(remedy, sizeof remedy, "%s; a container needs to be given the device",
             module_remedy_here(module, module_remedy));
    doctor_add(r, DOCTOR_WARN, "fuse", remedy, "no %s: no mounts by FUSE", device);
    return false;
}

static void check_kernel(struct doctor_report *r)
{
    bool fuse = check_fuse_device(r, "fuse", "/dev/fuse");
    fuse = check_fuse_device(r, "loop", "/dev/loop-control") && fuse;
    char remedy[MODULE_REMEDY_MAX];
    bool ublk = !device_ublk_probe();
    if (ublk)
        doctor_add(r, DOCTOR_OK, "ublk", NULL, "the kernel has ublk: mounts use it, unless they are told otherwise");
    else
        doctor_add(r, DOCTOR_OK, "ublk", NULL, "%s; mounts do not need it%s", error_text(),
                   geteuid() ? ", and only root can tell whether they use it" : "");
    if (!device_nbd_available())
        doctor_add(r, DOCTOR_OK, "kernel-nbd", NULL,
                   ublk        ? "the kernel has nbd, for mounts that do not use ublk"
                   : geteuid() ? "the kernel has nbd"
                               : "the kernel has nbd: mounts use kernel nbd");
    else if (ublk)
        doctor_add(r, DOCTOR_OK, "kernel-nbd", NULL, "%s; mounts use ublk", error_text());
    else
        doctor_add(r, fuse ? DOCTOR_WARN : DOCTOR_FAIL, "kernel-nbd", NULL, "%s%s", error_text(),
                   fuse ? "; mounts use FUSE, which is slower, and fail when granary serve ends" : "");
    if (fuse)
        doctor_add(r, DOCTOR_OK, "fuse", NULL, "/dev/fuse and /dev/loop-control are there");
    if (has_filesystem("erofs") && !mount_erofs_fits())
        doctor_add(r, DOCTOR_WARN, "erofs", "build with --fs ext4 for this node, or boot a kernel with pages of 4 KiB",
                   "the kernel's pages have %ld bytes, and its erofs cannot mount images before Linux 6.4",
                   sysconf(_SC_PAGESIZE));
    else if (has_filesystem("erofs"))
        doctor_add(r, DOCTOR_OK, "erofs", NULL, "the kernel has erofs%s",
                   mount_erofs_large_fits() ? "" : ", for images of up to 16 TiB: above, it takes Linux 6.15");
    else if (geteuid())
        doctor_add(r, DOCTOR_WARN, "erofs", "run granary doctor as root", "erofs is not loaded, and only root can try");
    else if (has_filesystem("ext4"))
        doctor_add(r, DOCTOR_WARN, "erofs", "get the module, or build with --fs ext4 for this node",
                   "the kernel has no erofs (%s), but ext4", module_remedy_here("erofs", remedy));
    else
        doctor_add(r, DOCTOR_FAIL, "erofs", "get the module of one of them",
                   "the kernel has neither erofs (%s) nor ext4", module_remedy_here("erofs", remedy));
}

/* ---- programs ---- */

int doctor_run(const char *const *argv, int *out_fd, int *out_status)
{
    CLEANUP_FD int output = memfd_create("output", MFD_CLOEXEC);
    const struct process_spec spec = {.argv = argv, .output = output, .listen_fd = -1, .untranslated = true};
    uint64_t deadline = clock_now_ms() + PROGRAM_MS;
    pid_t pid, ended = 0;
    int rc = output < 0 ? error_set(-errno, "memfd: %s", strerror(errno)) : process_spawn(&spec, &pid);
    while (!rc && !(ended = waitpid(pid, out_status, WNOHANG)) && clock_now_ms() < deadline)
        usleep(STEP_US);
    if (!rc && !ended) {
        kill(pid, SIGKILL);
        waitpid(pid, out_status, 0);
        rc = error_set(-ETIMEDOUT, "%s %s does not end", argv[0], argv[1]);
    }
    if (!rc)
        *out_fd = steal_fd(&output);
    return rc;
}

/* Run a program and return the beginning of its output. -EIO: it failed; -ENOENT: there is none. */
static int output_of(const char *const *argv, char *out, size_t size)
{
    CLEANUP_FD int output = -1;
    int status, rc = doctor_run(argv, &output, &status);
    if (rc)
        return rc;
    ssize_t n = io_pread_full(output, out, size - 1, 0);
    out[n > 0 ? n : 0] = 0;
    return status || n <= 0 ? error_set(-EIO, "%s %s fails", argv[0], argv[1]) : 0;
}

static void check_program(struct doctor_report *r, const char *check, enum server_kind kind)
{
    CLEANUP_FREE char *program = NULL;
    char version[128];
    const bool fuse = kind == SERVER_FUSE;
    int rc = server_program(kind, &program);
    const char *const argv[] = {program, "--version", NULL};
    if (!rc)
        rc = output_of(argv, version, sizeof version);
    if (!rc)
        version[strcspn(version, "\n")] = 0;
    if (rc)
        doctor_add(r, fuse ? DOCTOR_WARN : DOCTOR_FAIL, check,
                   fuse ? "install the package granary-fuse, unless this node mounts by kernel nbd only"
                        : "install the package granary again",
                   "%s", error_text());
    else if (strcmp(version, "granary " GRANARY_VERSION) != 0)
        doctor_add(r, DOCTOR_FAIL, check, "install all packages of Granary in one version",
                   "%s says '%s', and this is granary " GRANARY_VERSION, program, version);
    else
        doctor_add(r, DOCTOR_OK, check, NULL, "%s, %s", program, version);
}

/* The plugin is for those who serve by nbdkit; mounts do not need it. */
static void check_plugin(struct doctor_report *r)
{
    const char *const argv[] = {"nbdkit", "--dump-plugin", "granary", NULL};
    char text[16 << 10];
    int rc = output_of(argv, text, sizeof text);
    char *version = rc ? NULL : strstr(text, "\nversion=");
    if (rc == -ENOENT || rc == -EIO) {
        doctor_add(r, DOCTOR_OK, "nbdkit-plugin", NULL, "%s; mounts do not need it",
                   rc == -EIO ? "nbdkit has no plugin granary" : "nbdkit is not installed");
        return;
    }
    if (version) {
        version += strlen("\nversion=");
        version[strcspn(version, "\n")] = 0;
    }
    if (rc || !version)
        doctor_add(r, DOCTOR_WARN, "nbdkit-plugin", "install nbdkit and nbdkit-plugin-granary again", "%s",
                   rc ? error_text() : "nbdkit does not tell the version of its plugin granary");
    else if (strcmp(version, GRANARY_VERSION) != 0)
        doctor_add(r, DOCTOR_WARN, "nbdkit-plugin", "install all packages of Granary in one version",
                   "nbdkit loads plugin granary %s, and this is granary " GRANARY_VERSION, version);
    else
        doctor_add(r, DOCTOR_OK, "nbdkit-plugin", NULL, "nbdkit loads plugin granary %s", version);
}

void doctor_check_node(struct doctor_report *r)
{
    check_kernel(r);
    check_program(r, "granary-nbd", SERVER_NBD);
    check_program(r, "granary-ublk", SERVER_UBLK);
    check_program(r, "granary-fuse", SERVER_FUSE);
    check_plugin(r);
    doctor_check_limits(r, "");
}

/* ---- mounts ---- */

/* What visits of states count. */
struct mounts {
    struct doctor_report *report;
    unsigned sound;
};

static int check_mount(void *arg, const struct mount_state *s)
{
    struct mounts *m = arg;
    json_t *status = NULL;
    if (!s->mounted && process_alive(&s->mounter))
        return 0; /* in progress */
    if (s->mounted && !mount_is_there(s)) {
        char remedy[PATH_MAX + 192];
        snprintf(
            remedy, sizeof remedy,
            "granary umount that directory, unless it is mounted in another mount namespace (of the processes that "
            "grep -lF '%s' /proc/*/mountinfo names)",
            s->dir);
        doctor_add(m->report, DOCTOR_WARN, "mounts", remedy, "%s: it is not mounted any more, and %s left", s->dir,
                   mount_is_direct(s) ? "its state is" : "its device or server is");
        return 0;
    }
    if (!s->mounted || (!mount_is_direct(s) && !mount_device_attached(s))) {
        doctor_add(m->report, DOCTOR_FAIL, "mounts", "granary umount that directory, then mount it again", "%s: %s",
                   s->dir, s->mounted ? "its device is gone" : "a killed mount has left parts");
        return 0;
    }
    if (*s->control && control_status(s->control, &status)) { /* empty: a server without a control socket */
        doctor_add(m->report, DOCTOR_FAIL, "mounts",
                   "start it again: granary serve, or another granary mount; its log says why",
                   "%s: its server does not answer", s->dir);
        return 0;
    }
    const char *health = server_status_text(status, "health");
    if (status && !strcmp(health, "failing"))
        doctor_add(m->report, DOCTOR_FAIL, "mounts", "granary status says what fails", "%s: its server is failing",
                   s->dir);
    else if (status && !strcmp(health, "degraded"))
        doctor_add(m->report, DOCTOR_WARN, "mounts", "granary status says why", "%s: its server is degraded", s->dir);
    else if (!strcmp(s->method, "nbd") && !keep_holder(s->device))
        doctor_add(m->report, DOCTOR_FAIL, "mounts", "granary keep DEVICE",
                   "%s: nothing reconnects %s when its server ends", s->dir, s->device);
    else
        m->sound++;
    json_decref(status);
    return 0;
}

void doctor_check_mounts(struct doctor_report *r)
{
    struct mounts m = {.report = r};
    unsigned before = r->counts[DOCTOR_FAIL] + r->counts[DOCTOR_WARN];
    if (geteuid()) {
        doctor_add(r, DOCTOR_WARN, "mounts", "run granary doctor as root", "only root sees the mounts of this node");
        return;
    }
    if (state_each(check_mount, &m))
        doctor_add(r, DOCTOR_WARN, "mounts", NULL, "%s", error_text());
    else if (!m.sound && before == r->counts[DOCTOR_FAIL] + r->counts[DOCTOR_WARN])
        doctor_add(r, DOCTOR_OK, "mounts", NULL, "there are none");
    else if (m.sound)
        doctor_add(r, DOCTOR_OK, "mounts", NULL, "%u with device and server", m.sound);
}
