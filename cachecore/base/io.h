/* Whole-length file I/O: short reads, short writes and EINTR are handled here, once for all callers. Also random bytes.
 * Any thread. */
#ifndef GRANARY_BASE_IO_H
#define GRANARY_BASE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/bytes.h"
#include "base/compiler.h"

/* Read len bytes at off. Returns the number of bytes read, less than len only at the end of the file, or -errno without
 * a sentence: the caller knows the file's name. */
GR_MUST_CHECK ssize_t io_pread_full(int fd, void *out, size_t len, uint64_t off);

/* The same from the current position. */
GR_MUST_CHECK ssize_t io_read_full(int fd, void *out, size_t len);

/* Write len bytes, at off or at the current position. 0 or -errno without a sentence; then part may be written. */
GR_MUST_CHECK int io_pwrite_full(int fd, const void *data, size_t len, uint64_t off);
GR_MUST_CHECK int io_write_full(int fd, const void *data, size_t len);

/* Append a whole file to out. 0 or -errno with a sentence: -ENOENT: absent; -EMSGSIZE: out's maximum is too small;
 * other errors of open and read. */
GR_MUST_CHECK int io_read_file(const char *path, struct bytes *out);

/* The same for an open file, from its current position. path is its name in sentences. */
GR_MUST_CHECK int io_read_rest(int fd, const char *path, struct bytes *out);

/* Replace the file at path by data, with mode 0644. A reader sees the old or the new contents, never a mixture: data
 * goes to a temporary file in the same directory, which is renamed. sync: fsync the file before the rename and the
 * directory after it, so that the new contents survive power loss. The directory must exist. 0 or -errno with a
 * sentence. */
GR_MUST_CHECK int io_write_file_atomic(const char *path, const void *data, size_t len, bool sync);

/* The same, synced, for a path with a single writer. The temporary file is always PATH.new, so writers that crash leave
 * at most one behind. A PATH.new that exists is removed and never opened, since it may be a link. */
GR_MUST_CHECK int io_write_file_owned(const char *path, const void *data, size_t len);

/* Make every missing directory of path, path itself included, with mode 0755. 0 or -errno with a sentence. */
GR_MUST_CHECK int io_mkdirs(const char *path);

/* Fill out with up to 256 random bytes. -EIO: the system has none. */
GR_MUST_CHECK int io_random(void *out, size_t len);

#endif
