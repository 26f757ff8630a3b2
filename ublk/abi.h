/* The part of the kernel's ublk interface (include/uapi/linux/ublk_cmd.h) that Granary uses, as of Linux 6.12. Spelled
 * out, since the header of Debian 12 is older and has no encoded commands. Numbers are the machine's. */
#ifndef GRANARY_UBLK_ABI_H
#define GRANARY_UBLK_ABI_H

#include <linux/ioctl.h>
#include <stdint.h>

/* ---- commands to /dev/ublk-control, in a submission of 128 bytes ---- */

struct ublk_ctrl_cmd {
    uint32_t dev_id;
    uint16_t queue_id; /* UBLK_NO_QUEUE */
    uint16_t len;      /* of what addr points to, with the path */
    uint64_t addr;
    uint64_t data;
    uint16_t dev_path_len; /* the path of /dev/ublkcN, with its NUL, stands first at addr */
    uint16_t pad;
    uint32_t reserved;
};

struct ublk_dev_info {
    uint16_t nr_hw_queues, queue_depth, state, pad0;
    uint32_t max_io_buf_bytes, dev_id;
    int32_t ublksrv_pid;
    uint32_t pad1;
    uint64_t flags;
    uint64_t ublksrv_flags; /* the server's own; the driver keeps it */
    uint32_t owner_uid, owner_gid;
    uint64_t reserved1, reserved2;
};

struct ublk_params {
    uint32_t len, types; /* UBLK_PARAM_BASIC */
    uint32_t attrs;
    uint8_t logical_bs_shift, physical_bs_shift, io_opt_shift, io_min_shift;
    uint32_t max_sectors, chunk_sectors;
    uint64_t dev_sectors;
    uint64_t virt_boundary_mask;
};

#define UBLK_CTRL(dir, nr) _IOC(dir, 'u', nr, sizeof(struct ublk_ctrl_cmd))
#define UBLK_ADD_DEV UBLK_CTRL(_IOC_READ | _IOC_WRITE, 0x04)
#define UBLK_START_DEV UBLK_CTRL(_IOC_READ | _IOC_WRITE, 0x06)
#define UBLK_STOP_DEV UBLK_CTRL(_IOC_READ | _IOC_WRITE, 0x07)
#define UBLK_SET_PARAMS UBLK_CTRL(_IOC_READ | _IOC_WRITE, 0x08)
#define UBLK_GET_FEATURES UBLK_CTRL(_IOC_READ, 0x13)  /* the flags that the driver knows */
#define UBLK_DEL_DEV_ASYNC UBLK_CTRL(_IOC_READ, 0x14) /* does not wait until nothing has it open */
#define UBLK_START_USER_RECOVERY UBLK_CTRL(_IOC_READ | _IOC_WRITE, 0x10)
#define UBLK_END_USER_RECOVERY UBLK_CTRL(_IOC_READ | _IOC_WRITE, 0x11)
#define UBLK_GET_DEV_INFO2 UBLK_CTRL(_IOC_READ, 0x12)

enum { UBLK_NO_QUEUE = 0xffff, UBLK_PARAM_BASIC = 1, UBLK_ATTR_READ_ONLY = 1 };

/* Flags of a device. The driver drops one that it does not know, without an error. */
enum {
    UBLK_USER_RECOVERY = 1 << 3,         /* the device outlives its server */
    UBLK_USER_RECOVERY_REISSUE = 1 << 4, /* and requests that the server had taken are given again */
    UBLK_CMD_IOCTL_ENCODE = 1 << 6       /* commands are numbered as above */
};

enum ublk_state { UBLK_DEAD, UBLK_LIVE, UBLK_QUIESCED };

/* ---- commands to /dev/ublkcN ---- */

struct ublk_io_cmd {
    uint16_t q_id, tag;
    int32_t result; /* of the request before: its bytes, or a negative errno */
    uint64_t addr;  /* the buffer for the next one */
};

/* A request, in memory that the driver shares; the array of queue 0 begins at offset 0 of /dev/ublkcN. */
struct ublk_io_desc {
    uint32_t op_flags; /* the lowest byte: the operation */
    uint32_t nr_sectors;
    uint64_t start_sector;
    uint64_t addr;
};

#define UBLK_FETCH_REQ _IOC(_IOC_READ | _IOC_WRITE, 'u', 0x20, sizeof(struct ublk_io_cmd))
#define UBLK_COMMIT_AND_FETCH_REQ _IOC(_IOC_READ | _IOC_WRITE, 'u', 0x21, sizeof(struct ublk_io_cmd))

enum { UBLK_OP_READ = 0, UBLK_SECTOR = 512 };

#endif
