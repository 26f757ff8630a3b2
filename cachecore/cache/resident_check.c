/* Reads around the page cache, so that the disk's bytes are compared and the readers' pages stay. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/io.h"
#include "cache/resident_internal.h"
#include "format/chunk.h"
#include "format/content_root.h"

enum { ALIGN = 4096, PIECE = 4 << 20 };

/* Direct reads end at the end of the file only if that is aligned, too. */
static int open_checked(int dir_fd, const char *place, const struct resident_entry *e, int *out_fd)
{
    int direct = e->id.size % ALIGN ? 0 : O_DIRECT;
    int rc = resident_file_open(dir_fd, place, e->name, O_RDONLY | O_NOATIME | direct, out_fd);
    return rc == -EINVAL ? resident_file_open(dir_fd, place, e->name, O_RDONLY | O_NOATIME, out_fd) : rc;
}

/* Read the file and compute its content root. */
static int read_root(int fd, const struct resident_id *id, const struct resident_check *check, struct digest *out)
{
    CLEANUP(cleanup_content_root) struct content_root *root = NULL;
    size_t piece = GR_MAX((size_t)PIECE / id->chunk_size, (size_t)1) * id->chunk_size;
    CLEANUP_FREE uint8_t *data = aligned_alloc(ALIGN, (piece + ALIGN - 1) / ALIGN * ALIGN);
    int rc = content_root_new(id->size, id->chunk_size, &root);
    if (rc || !data)
        return rc ? rc : error_no_memory();
    for (uint64_t off = 0; off < id->size; off += piece) {
        size_t want = (size_t)GR_MIN(id->size - off, (uint64_t)piece);
        ssize_t got = io_pread_full(fd, data, (want + ALIGN - 1) / ALIGN * ALIGN, off);
        rc = cancel_check(check->cancel);
        if (rc)
            return rc;
        if (got < 0 || (size_t)got < want)
            return got < 0 ? (int)got : -EIO;
        for (size_t at = 0; at < want; at += id->chunk_size) {
            size_t len = GR_MIN(want - at, (size_t)id->chunk_size);
            const struct digest digest =
                chunk_all_zero(data + at, len) ? (struct digest){{0}} : digest_of(data + at, len);
            content_root_add(root, &digest);
        }
        if (check->progress)
            check->progress(check->arg, off + want, id->size);
    }
    *out = content_root_finish(root);
    return 0;
}

/* A disk that cannot read the file is as bad as one that reads other bytes. */
int resident_check(const char *dir, const struct resident_entry *e, const struct resident_check *check)
{
    char place[PATH_MAX];
    struct digest root;
    CLEANUP_FD int dir_fd = -1;
    CLEANUP_FD int fd = -1;
    int rc = resident_dir_open(dir, false, place, &dir_fd);
    if (!rc)
        rc = open_checked(dir_fd, place, e, &fd);
    if (rc)
        return rc;
    rc = read_root(fd, &e->id, check, &root);
    if (rc == -ECANCELED || rc == -ENOMEM || rc == -EINVAL || (!rc && digest_equal(&root, &e->id.content_root)))
        return rc;
    bool mounted = resident_in_use(fd);
    const char *why = rc ? strerror(-rc) : "its bytes are not those of its image";
    rc = resident_rename_bad(dir_fd, fd, e->name);
    if (rc)
        return error_set(-EBADMSG, "%s/%s: %s, and it cannot be taken out of use: %s", place, e->name, why,
                         strerror(-rc));
    return error_set(-EBADMSG, "%s/%s: %s; it is not mounted again%s", place, e->name, why,
                     mounted ? ", BUT IT IS MOUNTED NOW: umount it and mount it again" : "");
}
