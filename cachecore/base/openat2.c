/* O_NOFOLLOW protects the last component only. openat2 with RESOLVE_NO_SYMLINKS protects all of them in one call,
 * and RESOLVE_BENEATH refuses "..". Where the kernel has no openat2, each component takes an openat call.
 *
 * A path is opened in pieces: with openat2 as long as PATH_MAX allows, without it a component each. All pieces but
 * the last are opened with O_PATH, which needs no permission to read the directory.
 */
#include "base/openat2.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

/* Open one piece below dir. Return its descriptor or -errno. */
static int open_piece(int dir, bool openat2, const char *piece, int flags)
{
    struct open_how how = {.flags = (unsigned)(flags | O_CLOEXEC | O_NOFOLLOW),
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    int fd = openat2 ? (int)syscall(SYS_openat2, dir, piece, &how, sizeof how)
                     : openat(dir, piece, flags | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

bool openat2_is_supported(int root)
{
    /* the call is the test: a header or a version number does not know about seccomp filters */
    CLEANUP_FD int fd = open_piece(root, true, ".", O_PATH | O_DIRECTORY);
    return fd >= 0;
}

/* Return the length of the longest piece at the beginning of path: up to a slash, not included, or the end. */
static size_t piece_length(const char *path, size_t len, bool openat2)
{
    if (openat2 && len < PATH_MAX)
        return len;
    const char *slash = openat2 ? memrchr(path, '/', PATH_MAX - 1) : memchr(path, '/', len);
    return slash ? (size_t)(slash - path) : len;
}

int openat2_beneath(int root, bool openat2, const char *path, size_t path_len, int flags)
{
    char piece[PATH_MAX];
    CLEANUP_FD int held = -1; /* the directory of the piece before; root is the caller's and stays open */
    int dir = root;
    if (!path_len)
        return open_piece(root, false, ".", flags);
    for (;;) {
        size_t len = piece_length(path, path_len, openat2);
        if (len >= sizeof piece)
            return -ENAMETOOLONG;
        memcpy(piece, path, len);
        piece[len] = 0;
        bool last = len == path_len;
        int fd = open_piece(dir, openat2, piece, last ? flags : O_PATH | O_DIRECTORY);
        if (fd < 0 || last)
            return fd;
        if (held >= 0)
            close(held);
        dir = held = fd;
        path += len + 1;
        path_len -= len + 1;
    }
}
