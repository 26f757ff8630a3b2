/* Whole images beside the slots of a cache directory: DIR/resident has a sparse file with an image's bytes, which the
 * kernel's erofs mounts as it is, without a server. docs/internals/direct.md has the reasons.
 *
 *   ROOT-SIZE.filling   is being written; its writer has a lock on it; left by a killed one, it is never read
 *   ROOT-SIZE           complete, and on disk; mode 0400, or 01400 when it is pinned; immutable
 *   ROOT-SIZE.bad.INODE a check found other bytes in it; never mounted again
 *
 * ROOT is the image's content root, SIZE the size of its chunks: both together check every byte of the file without the
 * store. A file that somebody has open, a mount of any namespace included, is not removed: the kernel refuses a lease
 * on it. All functions may be called from any thread, and block for the disk. Errors have a sentence unless they say
 * otherwise.
 */
#ifndef GRANARY_CACHE_RESIDENT_H
#define GRANARY_CACHE_RESIDENT_H

#include <limits.h>
#include <stdbool.h>

#include "base/cleanup.h"
#include "base/digest.h"

#define RESIDENT_DIR "resident"
/* Whole images take at most this percentage of a cache directory's budget, as pins do. */
enum { RESIDENT_SHARE_PERCENT = 75 };

/* Which image. */
struct resident_id {
    struct digest content_root;
    uint64_t size; /* of the image, and the file */
    uint32_t chunk_size;
};

/* Whether the kernel can mount files of that cache directory's filesystem. -ENOTSUP: it cannot: tmpfs, overlay and the
 * like. 0 also where the directory is missing. */
GR_MUST_CHECK int resident_check_place(const char *dir);

/* Open the complete file of an image below the cache directory dir. *out_fd keeps it from being removed until it is
 * mounted; the caller closes it. out_path: the file's path, for mount(2). -ENOENT, without a sentence: the image is not
 * there; -EPERM: another user could have written it; -EBADMSG: it has another size than the image. */
GR_MUST_CHECK int resident_open(const char *dir, const struct resident_id *id, char out_path[PATH_MAX], int *out_fd);

/* ---- filling ---- */

/* A file that is being written. */
struct resident_filling {
    int dir_fd, fd;
    int from;      /* the file whose ranges it may share; -1: none */
    uint64_t size; /* of the image */
    char name[NAME_MAX + 1], dir[PATH_MAX];
};
#define RESIDENT_FILLING_NONE                                                                                          \
    {                                                                                                                  \
        .dir_fd = -1, .fd = -1, .from = -1                                                                             \
    }

/* Begin an empty file of the image's size; what a killed writer left is removed. -EBUSY: another process writes it, or
 * it is mounted by others; -EEXIST: it is complete already; -ENOTSUP; -EPERM; -ENOSPC and the like. */
GR_MUST_CHECK int resident_begin(const char *dir, const struct resident_id *id, struct resident_filling *out);
/* Write bytes, which the caller has checked. Several threads may write different ranges at the same time. */
GR_MUST_CHECK int resident_write(const struct resident_filling *f, uint64_t off, const void *data, size_t len);
/* Choose a complete file of another image there, whose ranges this one may share, where the filesystem can do that.
 * likes: what percentage of a file, open as fd, the image has; the file with most is taken, none with half or less.
 * Call it before anything is written; without such a file all is written. Errors: the file is not empty any more. */
typedef unsigned resident_likes(void *arg, int fd);
GR_MUST_CHECK int resident_share_from(struct resident_filling *f, const char *dir, const struct resident_id *id,
                                      resident_likes *likes, void *arg);
/* Read a range of such a file from its disk, which the caller compares with what the new one is to have there. false:
 * it has none. */
bool resident_share_peek(int from, uint64_t off, void *dst, size_t len);
/* Take the range from it instead of writing it. -errno, without a sentence: it cannot be taken; write it. */
GR_MUST_CHECK int resident_share(const struct resident_filling *f, uint64_t off, size_t len);
/* Everything is written: sync the file, and only then give it its name. */
GR_MUST_CHECK int resident_finish(struct resident_filling *f);
/* Close it; what is not finished is removed. */
void resident_release(struct resident_filling *f);
#define CLEANUP_RESIDENT_FILLING CLEANUP(resident_release) struct resident_filling

/* ---- what is there ---- */

enum resident_state { RESIDENT_COMPLETE, RESIDENT_FILLING, RESIDENT_BAD };

struct resident_entry {
    char name[NAME_MAX + 1];
    struct resident_id id;
    enum resident_state state;
    uint64_t inode;
    uint64_t bytes; /* on disk */
    int64_t used_s; /* when it was mounted or read last, or was complete; seconds since 1970; to the day, perhaps */
    bool in_use;    /* somebody has it open: a mount, a check, or its writer */
    bool pinned;    /* it stays until it is unpinned, unless a check finds it bad */
};

/* Visit the files of dir in no order; names of others are passed over. Returns the visitor's non-zero result. No
 * directory: nothing is visited. -EPERM and errors of opening it. */
typedef int resident_visit(void *arg, const struct resident_entry *e);
GR_MUST_CHECK int resident_each(const char *dir, resident_visit *visit, void *arg);

/* Bytes on disk of all files there, whatever their names; 0 where there are none or they cannot be listed. No
 * sentence. */
uint64_t resident_bytes(const char *dir);

/* How many files there are; those in use are complete ones, or bad ones that are mounted still. */
struct resident_counts {
    uint64_t complete, in_use, pinned, bad;
};
/* Count them; nothing is counted where they cannot be listed. No sentence. */
struct resident_counts resident_count(const char *dir);

/* Remove a file. -EBUSY: it stays, as it is in use or pinned; -ENOENT: it is gone; -EPERM: this process may not remove
 * it, without CAP_LINUX_IMMUTABLE for example; errors of unlink. */
GR_MUST_CHECK int resident_evict(const char *dir, const char *name);

/* Pin a complete file, or undo that. -ENOENT: there is none of that name. */
GR_MUST_CHECK int resident_pin(const char *dir, const char *name, bool on);

/* Remove files that are neither in use nor pinned, until all together take at most `most` bytes: what is not complete,
 * or bad, first, then the one that was mounted the longest ago. `but`: one that stays. *out_left: what they take then.
 * Ends at the first file that cannot be removed, with the errors of resident_evict. */
GR_MUST_CHECK int resident_make_room(const char *dir, uint64_t most, const struct digest *but, uint64_t *out_left);

/* Remove what killed writers have left. The caller owns the cache directory, so that no other process writes there.
 * What cannot be removed stays. */
void resident_sweep(const char *dir);

/* Read a complete file from its disk and compare it with its content root. 0: it is good; -EBADMSG: it is not, or
 * cannot be read, and is never mounted again from now on; -ECANCELED; -ENOENT, -EPERM. progress may be NULL. */
struct resident_check {
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
    const volatile int *cancel; /* may be NULL */
};
GR_MUST_CHECK int resident_check(const char *dir, const struct resident_entry *e, const struct resident_check *check);

#endif
