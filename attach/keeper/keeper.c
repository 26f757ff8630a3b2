/* Waits for news of a dead connection, then hands over new ones until the kernel takes no more. The kernel does not
 * tell how many are dead, and news may be lost or older than this process. So the daemon offers connections until the
 * kernel declines one.
 *
 *   whole --(LINK_DEAD)--> broken --(connected, checked, handed over until none is taken)--> whole
 *   broken --(no server, or another image)--> broken, tried again after a pause
 *   any --(the device is detached, or attached by another process)--> done
 *
 * The daemon starts in state broken, since connections may have died before it listened.
 */
#include "attach/keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attach/device/device_internal.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"

enum {
    LOOK_MS = 1000,      /* how often to check that the device is still ours */
    PAUSE_MIN_MS = 50,   /* between tries, doubling */
    PAUSE_MAX_MS = 1000, /* up to this */
    AT_ONCE_MAX = 64,    /* connections handed over without a pause, for a server whose connections die at once */
    ANSWER_TIMEOUT_S = 30,
    REPORT_MS = 30000, /* from one report to the server to the next, while the device is whole */
    START_MS = 60000,
    END_MS = 5000,
    STEP_US = 20000
};

/* The daemon's state; it has one thread. */
struct keeper {
    const struct keep_state *state;
    struct nbd_netlink *netlink;
    struct nbd_link link;
    char backend[DEVICE_BACKEND_MAX];
    bool broken;
    uint64_t broken_ms, pause_ms; /* since when (clock_now_ms); the next pause */
    uint64_t report_ms;           /* when the next report is due (clock_now_ms) */
    struct keep_figures figures;
    bool logged; /* figures.failure, since the device broke: each is logged once */
    struct log_limit limit;
};

static bool still_attached(const struct keep_state *s)
{
    char now[DEVICE_MARK_MAX];
    device_nbd_mark(s->device, now);
    return !strcmp(now, s->mark);
}

/* ---- healing ---- */

/* Connect once and offer the connection to the kernel. *out_taken false: the kernel needs no more. */
static int give_one(struct keeper *k, bool *out_taken)
{
    const struct keep_state *s = k->state;
    struct nbd_export got;
    CLEANUP_FD int fd = -1;
    *out_taken = false;
    int rc = nbd_dial(s->address, s->export_name, ANSWER_TIMEOUT_S, &got, &fd);
    if (!rc)
        rc = nbd_export_check(s->address, s->export_name, &got, s->size, &s->content_root);
    if (rc || !still_attached(s)) /* connecting takes time: the device may be attached by others now */
        return rc;
    return nbd_netlink_hand_over(k->netlink, &k->link, fd, out_taken);
}

/* Note why the device stays broken; log it unless it was logged last since the device broke. */
static void keeper_tell(struct keeper *k, int rc)
{
    char *failure = k->figures.failure;
    k->figures.failed_ms = clock_now_ms();
    if (k->logged && !strcmp(failure, error_text()))
        return;
    k->logged = true;
    snprintf(failure, sizeof k->figures.failure, "%s", error_text());
    if (rc == -ESTALE)
        log_error("%s: REFUSED: %s; reads wait for the image that is mounted", k->state->device, failure);
    else
        log_limited(&k->limit, LOG_LEVEL_WARNING, "%s: a connection is dead: %s; trying again", k->state->device,
                    failure);
}

/* Hand over connections until the kernel takes no more: whole again. Otherwise double the pause. */
static void heal(struct keeper *k)
{
    bool taken;
    unsigned count = 0;
    int rc;
    do {
        rc = give_one(k, &taken);
        count += taken;
    } while (!rc && taken && count < AT_ONCE_MAX);
    k->figures.reconnects += count;
    if (rc || taken) {
        if (rc)
            keeper_tell(k, rc);
        k->pause_ms = GR_MIN(k->pause_ms * 2, (uint64_t)PAUSE_MAX_MS);
        return;
    }
    k->broken = false;
    k->report_ms = 0; /* now */
    if (count)
        log_limited(&k->limit, LOG_LEVEL_INFO, "%s: %u new connections after %llu ms", k->state->device, count,
                    (unsigned long long)(clock_now_ms() - k->broken_ms));
}

/* Enter the state broken, or restart its pauses. */
static void break_(struct keeper *k)
{
    if (!k->broken) {
        k->broken_ms = clock_now_ms();
        k->logged = false;
    }
    k->broken = true;
    k->pause_ms = PAUSE_MIN_MS;
}

/* ---- the loop ---- */

/* Tell the server, if that is due. Never while the device is broken: a server that does not answer costs 2 s. */
static void report(struct keeper *k)
{
    if (k->broken || clock_now_ms() < k->report_ms)
        return;
    k->report_ms = clock_now_ms() + REPORT_MS;
    keep_report(k->state, &k->figures);
}

/* Run until the device is detached (0), or netlink fails. Whether the device is still ours is checked after each wait,
 * since no news tells of a detach. */
static int loop(struct keeper *k)
{
    break_(k); /* no news came of connections that died before nbd_netlink_watch */
    for (;;) {
        bool dead = false;
        if (k->broken)
            heal(k);
        if (!still_attached(k->state))
            return 0;
        report(k);
        int rc = nbd_netlink_wait_dead(k->netlink, k->link.index, k->broken ? (int)k->pause_ms : LOOK_MS, &dead);
        if (rc)
            return rc;
        if (dead)
            break_(k);
    }
}

/* Keep only CAP_SYS_ADMIN, to configure nbd, and CAP_DAC_OVERRIDE, since the server's sockets may belong to another
 * user: an attacker who takes this process over gains little. Three ways to regain privileges are closed: the bounding
 * set, so that a started program with file capabilities gets none; no_new_privs, so that setuid programs grant none;
 * and the process's own sets. */
static int give_up_privileges(void)
{
    const uint64_t keep = UINT64_C(1) << CAP_SYS_ADMIN | UINT64_C(1) << CAP_DAC_OVERRIDE;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2];
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_capget, &header, sets))
        return error_set(-errno, "cannot give privileges away: %s", strerror(errno));
    /* Without CAP_SETPCAP this fails, which is harmless: nothing is inheritable, and no_new_privs is set. */
    for (int c = 0; c < 64 && prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
        if (!(keep >> c & 1))
            (void)prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
    for (int i = 0; i < 2; i++) {
        sets[i].permitted &= (uint32_t)(keep >> (32 * i));
        sets[i].effective = sets[i].permitted;
        sets[i].inheritable = 0;
    }
    if (syscall(SYS_capset, &header, sets))
        return error_set(-errno, "cannot give privileges away: %s", strerror(errno));
    return 0;
}

int keeper_run(const struct keep_state *s, void (*ready)(void *arg), void *arg)
{
    struct keeper k = {.state = s, .limit = LOG_LIMIT_INIT};
    k.link = (struct nbd_link){.backend = s->tagged ? device_nbd_backend(&s->content_root, k.backend) : NULL,
                               .timeout_s = s->timeout_s,
                               .dead_s = s->dead_s};
    CLEANUP_FD int claim = -1;
    int rc = keep_claim(s->device, &claim);
    if (!rc)
        rc = give_up_privileges();
    if (!rc)
        rc = device_nbd_number(s->device, &k.link.index);
    if (!rc)
        rc = nbd_netlink_open(&k.netlink);
    if (!rc) /* listen for news before the times are set: nothing that dies in between is missed */
        rc = nbd_netlink_watch(k.netlink);
    if (!rc)
        rc = nbd_netlink_policy(k.netlink, &k.link);
    if (!rc && ready)
        ready(arg);
    if (!rc)
        rc = loop(&k);
    if (!rc) {
        log_info("%s was detached", s->device);
        keep_release(s->device, claim);
        keep_report_end(s->device, s->address);
    }
    nbd_netlink_close(k.netlink);
    return rc;
}

/* ---- as a process ---- */

/* Wait until the started process holds the device's lock. */
static int wait_until_kept(const struct keep_state *s, pid_t pid)
{
    const struct process keeper = process_identify(pid);
    uint64_t deadline = clock_now_ms() + START_MS;
    while (keep_holder(s->device) != pid) {
        if (!process_alive(&keeper))
            return error_set(-EIO, "the reconnect daemon of %s ended at once", s->device);
        if (clock_now_ms() > deadline)
            return error_set(-ETIMEDOUT, "the reconnect daemon of %s did not start within %d s", s->device,
                             START_MS / 1000);
        usleep(STEP_US);
    }
    return 0;
}

/* Where systemd runs and has the device's unit installed, start that: systemd then restarts a daemon that dies. */
int keeper_start(const struct keep_state *s, int output)
{
    char program[PATH_MAX], unit[64];
    snprintf(unit, sizeof unit, "granary-keep@%s.service", s->device + strlen("/dev/"));
    const char *const unit_argv[] = {"systemctl", "start", unit, NULL}, *const argv[] = {program, "keep", s->device,
                                                                                         NULL};
    const struct process_spec spec = {.argv = argv, .output = output, .listen_fd = -1, .session = true};
    pid_t pid;
    int rc = process_own_program(program);
    if (!rc)
        rc = keep_state_save(s);
    if (rc)
        return rc;
    if (!access("/run/systemd/system", F_OK) && !process_run(unit_argv, START_MS) && keep_holder(s->device))
        return 0;
    rc = process_spawn(&spec, &pid);
    return rc ? rc : wait_until_kept(s, pid);
}

int keeper_stop(const char *device, const char *address)
{
    const struct process keeper = process_identify(keep_holder(device));
    int rc = process_end(&keeper, END_MS);
    if (rc)
        return rc;
    keep_report_end(device, address);
    keep_state_remove(device);
    return 0;
}

/* ---- a device that another program attached ----
 *
 * A device that nbd-client attached has nothing that identifies its content. So samples of its bytes are compared with
 * the export's, from the beginning, where the filesystem's superblock is, to the end, where erofs has its metadata,
 * which differs between any two images. A device that we attached has its content root as backend identifier, and only
 * that is compared. */

enum {
    SAMPLES = 16,      /* evenly spaced */
    SAMPLE = 64 << 10, /* bytes */
    BLOCK = 4096,
    SECTOR = 512
};

static int not_the_image(const struct keep_state *s, const char *how)
{
    return error_set(-ESTALE, "%s shows another image than the export '%s' of the server on %s: %s", s->device,
                     s->export_name, s->address, how);
}

/* Compare SAMPLES samples, evenly spaced from the first block to the last. device is opened for direct I/O, so that it
 * is the server that answers and not the page cache. */
static int compare_samples(const struct keep_state *s, int device, int connection)
{
    uint64_t last = s->size > SAMPLE ? (s->size - SAMPLE) / BLOCK * BLOCK : 0;
    CLEANUP_FREE void *two = NULL; /* room for the device's and the server's bytes */
    if (posix_memalign(&two, BLOCK, (size_t)2 * SAMPLE))
        return error_no_memory();
    uint8_t *ours = two, *theirs = ours + SAMPLE;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        uint64_t off = i < SAMPLES - 1 ? last / (SAMPLES - 1) * i / BLOCK * BLOCK : last;
        size_t len = GR_MIN(s->size - off, (uint64_t)SAMPLE) / SECTOR * SECTOR;
        ssize_t n = io_pread_full(device, ours, len, off);
        if (n < 0 || (size_t)n < len)
            return error_set(n < 0 ? (int)n : -EIO,
                             "cannot read %s: %s; a device whose server is gone cannot be adopted", s->device,
                             n < 0 ? strerror((int)-n) : "it ends early");
        int rc = nbd_read(connection, off, theirs, (uint32_t)len);
        if (rc)
            return error_prefix(rc, "the server on %s", s->address);
        if (memcmp(ours, theirs, len))
            return not_the_image(s, "their bytes differ");
    }
    return 0;
}

/* Read the content root that the kernel has for our own attachments. Returns false for others. */
static bool backend_root(const char *device, struct digest *out)
{
    static const char prefix[] = "sha256:";
    CLEANUP_BYTES text = BYTES_INIT(DEVICE_ATTRIBUTE_MAX);
    if (!device_attribute(device, "backend", &text) || text.len < sizeof prefix - 1 + DIGEST_HEX_SIZE - 1 ||
        memcmp(text.data, prefix, sizeof prefix - 1))
        return false;
    return !digest_parse((char *)text.data + sizeof prefix - 1, DIGEST_HEX_SIZE - 1, out);
}

/* The mark is read before anything is compared: if the device is attached anew meanwhile, the state is void. */
int keeper_adopt(struct keep_state *s)
{
    struct nbd_export got;
    uint64_t size = 0;
    CLEANUP_FD int connection = -1;
    device_nbd_mark(s->device, s->mark);
    if (!*s->mark)
        return error_set(-EINVAL, "%s is not attached; 'granary mount' attaches one and keeps it", s->device);
    CLEANUP_FD int device = open(s->device, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (device < 0 || ioctl(device, BLKGETSIZE64, &size))
        return error_set(-errno, "cannot open %s: %s", s->device, strerror(errno));
    int rc = nbd_dial(s->address, s->export_name, ANSWER_TIMEOUT_S, &got, &connection);
    if (rc)
        return rc;
    s->tagged = backend_root(s->device, &s->content_root);
    if (!s->tagged)
        s->content_root = got.content_root;
    s->size = got.size;
    rc = nbd_export_check(s->address, s->export_name, &got, got.size, &s->content_root);
    if (rc)
        return rc;
    if (s->size / SECTOR * SECTOR != size)
        return not_the_image(s, "their sizes differ");
    return s->tagged ? 0 : compare_samples(s, device, connection);
}
