/* Commands go to /dev/ublk-control as io_uring commands in submissions of 128 bytes, one at a time. Each names the path
 * of /dev/ublkcN too: GET_DEV_INFO2 insists on it. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "ublk/abi.h"
#include "ublk/kernel.h"

#define CONTROL "/dev/ublk-control"
#define LIMIT "/sys/module/ublk_drv/parameters/ublks_max"

enum {
    RING_ENTRIES = 4,
    PAYLOAD_MAX = 256,
    SQE_BYTES = 128,
    BLOCK_SHIFT = 9,     /* logical blocks of 512 bytes */
    PHYSICAL_SHIFT = 12, /* physical ones of 4096 */
    REQUEST_SHIFT = 20,  /* log2 of UBLK_REQUEST_MAX: the readahead is made of it */
    PATH_SIZE = 32,
    LIMIT_DEFAULT = 64, /* ublk_drv's */
    LIMIT_RAISED = 4096,
    CLAIM_TRIES = 100, /* of CLAIM_STEP_US */
    CLAIM_STEP_US = 10000
};
_Static_assert(1 << REQUEST_SHIFT == UBLK_REQUEST_MAX, "io_opt is the largest request");

struct ublk_control {
    struct io_uring ring;
    int fd;
};

int ublk_control_open(struct ublk_control **out)
{
    CLEANUP_FD int fd = open(CONTROL, O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return error_set(-ENODEV, "this kernel has no ublk (" CONTROL " is missing): modprobe ublk_drv, or Linux 6.12 "
                                  "or later with CONFIG_BLK_DEV_UBLK");
    if (fd < 0)
        return error_set(-errno, "cannot open " CONTROL ": %s; that needs root", strerror(errno));
    struct ublk_control *c = calloc(1, sizeof *c);
    if (!c)
        return error_no_memory();
    int rc = io_uring_queue_init(RING_ENTRIES, &c->ring, IORING_SETUP_SQE128);
    if (rc) {
        free(c);
        return error_set(rc,
                         "cannot make the ring for " CONTROL ": %s; io_uring may be off (sysctl "
                         "kernel.io_uring_disabled)",
                         strerror(-rc));
    }
    c->fd = steal_fd(&fd);
    *out = c;
    return 0;
}

void ublk_control_close(struct ublk_control *c)
{
    io_uring_queue_exit(&c->ring);
    close(c->fd);
    free(c);
}

/* A command and its payload, which the kernel reads and writes. */
struct command {
    uint32_t op;
    uint32_t number;
    uint64_t data;
    void *payload;
    size_t len;
    bool named; /* with the path of /dev/ublkcN before the payload */
};

/* Put it into the ring. The buffer lives until the command has ended. */
static void prepare(struct ublk_control *c, const struct command *cmd, char buffer[PAYLOAD_MAX], size_t *out_path_len)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&c->ring);
    size_t path_len = cmd->named ? (size_t)snprintf(buffer, PAYLOAD_MAX, "/dev/ublkc%u", cmd->number) + 1 : 0;
    if (cmd->len)
        memcpy(buffer + path_len, cmd->payload, cmd->len);
    const struct ublk_ctrl_cmd ctrl = {.dev_id = cmd->number,
                                       .queue_id = UBLK_NO_QUEUE,
                                       .len = (uint16_t)(path_len + cmd->len),
                                       .addr = (uint64_t)(uintptr_t)buffer,
                                       .data = cmd->data,
                                       .dev_path_len = (uint16_t)path_len};
    char *bytes = (char *)sqe;
    memset(bytes, 0, SQE_BYTES);
    sqe->opcode = IORING_OP_URING_CMD;
    sqe->fd = c->fd;
    memcpy(bytes + offsetof(struct io_uring_sqe, off), &cmd->op, sizeof cmd->op); /* cmd_op */
    memcpy(bytes + offsetof(struct io_uring_sqe, addr3), &ctrl, sizeof ctrl);     /* cmd */
    *out_path_len = path_len;
}

/* Run one command. Returns 0 or -errno, without a sentence. */
static int run(struct ublk_control *c, const struct command *cmd)
{
    char buffer[PAYLOAD_MAX] = "";
    size_t path_len;
    struct io_uring_cqe *cqe;
    prepare(c, cmd, buffer, &path_len);
    int rc = io_uring_submit(&c->ring);
    while (rc >= 0 && (rc = io_uring_wait_cqe(&c->ring, &cqe)) == -EINTR)
        rc = 0;
    if (rc) {
        log_error("io_uring fails on " CONTROL ": %s", strerror(-rc));
        abort(); /* the ring would still have the command, and its buffer is this stack's */
    }
    rc = cqe->res;
    io_uring_cqe_seen(&c->ring, cqe);
    if (rc >= 0 && cmd->len)
        memcpy(cmd->payload, buffer + path_len, cmd->len);
    return rc < 0 ? rc : 0;
}

/* Run a command without a payload. */
static int tell(struct ublk_control *c, uint32_t op, unsigned number, uint64_t data)
{
    return run(c, &(struct command){.op = op, .number = number, .data = data});
}

static int control_failed(int rc, const char *what, unsigned number)
{
    return error_set(rc, "the kernel does not %s ublk device %u: %s; 'dmesg' may say why", what, number, strerror(-rc));
}

/* Without both flags a killed server would be an error for its readers. */
static int check_flags(uint64_t flags)
{
    const uint64_t needed = UBLK_USER_RECOVERY | UBLK_USER_RECOVERY_REISSUE | UBLK_CMD_IOCTL_ENCODE;
    return (flags & needed) == needed
               ? 0
               : error_set(-EOPNOTSUPP, "this kernel's ublk lets no device outlive its server; Linux 6.12 does");
}

int ublk_probe(struct ublk_control *c)
{
    uint64_t features = 0;
    int rc = run(c, &(struct command){
                        .op = UBLK_GET_FEATURES, .number = UINT32_MAX, .payload = &features, .len = sizeof features});
    return rc ? error_set(rc, "the kernel does not tell what its ublk can do: %s", strerror(-rc))
              : check_flags(features);
}

static int set_params(struct ublk_control *c, unsigned number, uint64_t size)
{
    struct ublk_params p = {.len = sizeof p,
                            .types = UBLK_PARAM_BASIC,
                            .attrs = UBLK_ATTR_READ_ONLY,
                            .logical_bs_shift = BLOCK_SHIFT,
                            .physical_bs_shift = PHYSICAL_SHIFT,
                            .io_min_shift = PHYSICAL_SHIFT,
                            .io_opt_shift = REQUEST_SHIFT,
                            .max_sectors = UBLK_REQUEST_MAX / UBLK_SECTOR,
                            .dev_sectors = size / UBLK_SECTOR};
    int rc = run(c, &(struct command){.op = UBLK_SET_PARAMS, .number = number, .payload = &p, .len = sizeof p});
    return rc ? control_failed(rc, "take the size of", number) : 0;
}

/* A machine may have more mounts than ublk_drv allows by itself; another limit is its administrator's. Returns whether
 * there may be room now. */
static bool raise_limit(void)
{
    enum { TEXT_MAX = 64 };
    CLEANUP_BYTES text = BYTES_INIT(TEXT_MAX);
    CLEANUP_FD int fd = open(LIMIT, O_WRONLY | O_CLOEXEC);
    uint64_t limit;
    if (fd < 0 || io_read_file(LIMIT, &text) || !bytes_string(&text))
        return false;
    text.data[strcspn((char *)text.data, "\n")] = 0;
    if (text_parse_uint(LIMIT, (const char *)text.data, 0, UINT32_MAX, &limit))
        return false;
    if (limit == LIMIT_RAISED) /* by another thread, perhaps */
        return true;
    if (limit != LIMIT_DEFAULT || dprintf(fd, "%d", LIMIT_RAISED) < 0)
        return false;
    log_info("ublk_drv allowed %d devices, and allows %d now", LIMIT_DEFAULT, LIMIT_RAISED);
    return true;
}

int ublk_add(struct ublk_control *c, uint64_t size, uint64_t tag, unsigned *out)
{
    struct ublk_dev_info info = {
        .nr_hw_queues = 1,
        .queue_depth = UBLK_DEPTH,
        .max_io_buf_bytes = UBLK_REQUEST_MAX,
        .dev_id = UINT32_MAX, /* the kernel chooses */
        .flags = UBLK_USER_RECOVERY | UBLK_USER_RECOVERY_REISSUE | UBLK_CMD_IOCTL_ENCODE,
        .ublksrv_flags = tag,
        .owner_uid = geteuid(),
        .owner_gid = getegid(),
    };
    const struct command add = {.op = UBLK_ADD_DEV, .number = UINT32_MAX, .payload = &info, .len = sizeof info};
    int rc = run(c, &add);
    if (rc == -EACCES && raise_limit())
        rc = run(c, &add);
    if (rc == -EACCES)
        return error_set(-ENOSPC, "there are as many ublk devices as ublk_drv allows; unmount something, or load it "
                                  "with a larger ublks_max");
    if (rc)
        return error_set(rc, "the kernel makes no ublk device: %s; Granary needs root and Linux 6.12", strerror(-rc));
    rc = check_flags(info.flags);
    if (!rc)
        rc = set_params(c, info.dev_id, size);
    if (rc)
        (void)tell(c, UBLK_DEL_DEV_ASYNC, info.dev_id, 0);
    *out = info.dev_id;
    return rc;
}

static void disk_path(unsigned number, char out[PATH_SIZE])
{
    snprintf(out, PATH_SIZE, "/dev/ublkb%u", number);
}

/* devtmpfs makes the node before START_DEV returns. */
int ublk_start(struct ublk_control *c, unsigned number, uint64_t *out_diskseq)
{
    char path[PATH_SIZE];
    int rc = tell(c, UBLK_START_DEV, number, (uint64_t)getpid());
    if (rc)
        return control_failed(rc, "start", number);
    disk_path(number, path);
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, BLKGETDISKSEQ, out_diskseq))
        return error_set(-errno, "cannot tell %s from other disks: %s%s", path, strerror(errno),
                         errno == ENOENT ? "; /dev must be the host's devtmpfs, or mount with --ublk=no" : "");
    return 0;
}

int ublk_info(struct ublk_control *c, unsigned number, struct ublk_info *out)
{
    struct ublk_dev_info info = {0};
    int rc =
        run(c, &(struct command){
                   .op = UBLK_GET_DEV_INFO2, .number = number, .payload = &info, .len = sizeof info, .named = true});
    char sys[PATH_SIZE];
    snprintf(sys, sizeof sys, "/sys/class/ublk-char/ublkc%u", number);
    if (rc == -ENODEV || (rc == -ENOENT && access(sys, F_OK)))
        return error_set(-ENODEV, "there is no ublk device %u", number);
    if (rc == -ENOENT)
        return error_set(-ENOENT, "/dev/ublkc%u is missing, but the device is there; /dev must be the host's devtmpfs",
                         number);
    if (rc)
        return control_failed(rc, "tell about", number);
    *out = (struct ublk_info){.tag = info.ublksrv_flags,
                              .dead = info.state == UBLK_DEAD,
                              .depth = info.queue_depth,
                              .bytes_max = info.max_io_buf_bytes};
    return 0;
}

/* EINVAL: a process that was killed had begun, and had not fetched yet. */
int ublk_recover(struct ublk_control *c, unsigned number)
{
    int rc = tell(c, UBLK_START_USER_RECOVERY, number, 0);
    if (!rc || rc == -EINVAL)
        return 0;
    return rc == -EBUSY ? rc : control_failed(rc, "let another server take over", number);
}

int ublk_recovered(struct ublk_control *c, unsigned number)
{
    int rc = tell(c, UBLK_END_USER_RECOVERY, number, (uint64_t)getpid());
    return rc ? control_failed(rc, "go on with", number) : 0;
}

/* ---- removal ----
 *
 * STOP_DEV and DEL_DEV take a number, so it must be known whose that is, and that nothing mounts it meanwhile. The disk
 * is open exclusively from the look until it is deleted, which keeps others from mounting it. A number is free only
 * after a removal, and removals of one number exclude each other by a lock, in all processes: a byte of
 * /dev/ublk-control for each number. */

static int lock_number(const struct ublk_control *c, unsigned number, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = number, .l_len = 1};
    while (fcntl(c->fd, F_OFD_SETLKW, &lock))
        if (errno != EINTR)
            return error_set(-errno, "cannot lock " CONTROL ": %s", strerror(errno));
    return 0;
}

/* Open the disk so that nobody can mount it. *out -1: the device has none. An agent may look at it for a moment. */
static int claim_disk(unsigned number, int *out)
{
    char path[PATH_SIZE], sys[PATH_SIZE];
    disk_path(number, path);
    snprintf(sys, sizeof sys, "/sys/block/ublkb%u", number);
    for (int i = 0;; i++) {
        *out = open(path, O_RDONLY | O_EXCL | O_CLOEXEC);
        if (*out >= 0 || (errno != EBUSY && access(sys, F_OK)))
            return 0;
        if (errno != EBUSY)
            return error_set(-errno, "cannot see whether %s is mounted: %s", path, strerror(errno));
        if (i == CLAIM_TRIES)
            return error_set(-EBUSY, "%s is still mounted, here or elsewhere", path);
        usleep(CLAIM_STEP_US);
    }
}

/* The device to remove: by the tag, or by its disk. */
struct target {
    unsigned number;
    bool by_disk;
    uint64_t mark;
    uint64_t tag; /* out */
};

static int remove_locked(struct ublk_control *c, struct target *t)
{
    struct ublk_info info;
    CLEANUP_FD int fd = -1;
    uint64_t diskseq = 0;
    int known = ublk_info(c, t->number, &info);
    if (!known && !t->by_disk && t->mark != info.tag)
        return 0; /* another server's: its disk is not to be claimed, not even for a moment */
    int rc = claim_disk(t->number, &fd);
    if (rc || known)
        return rc ? rc : known == -ENODEV && fd < 0 ? 0 : known;
    if (t->by_disk && (fd < 0 || ioctl(fd, BLKGETDISKSEQ, &diskseq) || t->mark != diskseq))
        return 0;
    t->tag = info.tag;
    rc = tell(c, UBLK_STOP_DEV, t->number, 0);
    if (!rc)
        rc = tell(c, UBLK_DEL_DEV_ASYNC, t->number, 0);
    return rc && rc != -ENODEV ? control_failed(rc, "remove", t->number) : 0;
}

static int remove_target(struct ublk_control *c, struct target *t)
{
    int rc = lock_number(c, t->number, F_WRLCK);
    if (rc)
        return rc;
    rc = remove_locked(c, t);
    int unlocked = lock_number(c, t->number, F_UNLCK);
    return rc ? rc : unlocked;
}

int ublk_remove(struct ublk_control *c, unsigned number, uint64_t tag)
{
    return remove_target(c, &(struct target){.number = number, .mark = tag});
}

int ublk_remove_disk(struct ublk_control *c, unsigned number, uint64_t diskseq)
{
    struct target t = {.number = number, .by_disk = true, .mark = diskseq};
    struct ublk_info info;
    int rc = remove_target(c, &t);
    while (!rc && t.tag && !ublk_info(c, number, &info) && info.tag == t.tag)
        usleep(CLAIM_STEP_US);
    return rc;
}
