/* A device that nbd-client attached has nothing that identifies its content. So samples of its bytes are compared with
 * the export's, from the beginning, where the filesystem's superblock is, to the end, where erofs has its metadata,
 * which differs between any two images. A device that we attached has its content root as backend identifier, and only
 * that is compared.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "attach/device/nbd_dial.h"
#include "attach/keeper/keeper.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/io.h"

enum {
    ANSWER_TIMEOUT_S = 30,
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

/* Compare len bytes at off of the device and the server. two: room for both. */
static int compare_at(const struct keep_state *s, int device, int connection, uint64_t off, size_t len, uint8_t *two)
{
    ssize_t n = io_pread_full(device, two, len, off);
    if (n < 0 || (size_t)n < len)
        return error_set(n < 0 ? (int)n : -EIO, "cannot read %s: %s; a device whose server is gone cannot be adopted",
                         s->device, n < 0 ? strerror((int)-n) : "it ends early");
    int rc = nbd_read(connection, off, two + SAMPLE, (uint32_t)len);
    if (rc)
        return error_prefix(rc, "the server on %s", s->address);
    return memcmp(two, two + SAMPLE, len) ? not_the_image(s, "their bytes differ") : 0;
}

/* Compare SAMPLES samples, evenly spaced from the first block to the last. device is opened for direct I/O, so that it
 * is the server that answers and not the page cache. */
static int compare(const struct keep_state *s, int device, int connection)
{
    uint64_t last = s->size > SAMPLE ? (s->size - SAMPLE) / BLOCK * BLOCK : 0;
    CLEANUP_FREE void *two = NULL;
    int rc = posix_memalign(&two, BLOCK, (size_t)2 * SAMPLE) ? error_no_memory() : 0;
    for (uint64_t i = 0; !rc && i < SAMPLES; i++) {
        uint64_t off = last / (SAMPLES - 1) * i / BLOCK * BLOCK;
        if (i == SAMPLES - 1)
            off = last;
        rc = compare_at(s, device, connection, off, GR_MIN(s->size - off, (uint64_t)SAMPLE) / SECTOR * SECTOR, two);
    }
    return rc;
}

/* Read the content root that the kernel has for our own attachments. Returns false for others. */
static bool backend_root(const char *device, struct digest *out)
{
    static const char prefix[] = "sha256:";
    char path[64];
    CLEANUP_BYTES text = BYTES_INIT(256);
    snprintf(path, sizeof path, "/sys/block/%.20s/backend", device + strlen("/dev/"));
    if (io_read_file(path, &text) || !bytes_string(&text) || text.len < sizeof prefix - 1 + DIGEST_HEX_SIZE - 1 ||
        memcmp(text.data, prefix, sizeof prefix - 1))
        return false;
    return !digest_parse((char *)text.data + sizeof prefix - 1, DIGEST_HEX_SIZE - 1, out);
}

/* Compare the device with the export, by the backend identifier if the kernel has one, else by samples. Fills in the
 * state. */
static int keep_adopt_check(struct keep_state *s, int device, uint64_t device_size, const struct nbd_export *got,
                            int connection)
{
    struct digest root;
    s->tagged = backend_root(s->device, &root);
    if (!s->tagged)
        root = got->content_root;
    int rc = nbd_export_check(s->address, s->export_name, got, got->size, &root);
    if (rc)
        return rc;
    s->content_root = root;
    s->size = got->size;
    if (s->size / SECTOR * SECTOR != device_size)
        return not_the_image(s, "their sizes differ");
    return s->tagged ? 0 : compare(s, device, connection);
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
    return rc ? rc : keep_adopt_check(s, device, size, &got, connection);
}
