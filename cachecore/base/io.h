/* Whole-length file I/O: short reads and EINTR are handled once, here. */
#ifndef GRANARY_BASE_IO_H
#define GRANARY_BASE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/bytes.h"
#include "base/compiler.h"

/* Read up to len bytes at off; the bytes read (less than len only at the end of the file) or
 * -errno. Sets no sentence: the caller knows the name. */
GR_MUST_CHECK ssize_t io_pread_full(int fd, void *out, size_t len, uint64_t off);

/* The same from the current position. */
GR_MUST_CHECK ssize_t io_read_full(int fd, void *out, size_t len);

/* Write all of len bytes; 0 or -errno. */
GR_MUST_CHECK int io_pwrite_full(int fd, const void *data, size_t len, uint64_t off);
GR_MUST_CHECK int io_write_full(int fd, const void *data, size_t len);

/* Read a whole file into out (appended). -EMSGSIZE when it is larger than out's maximum allows;
 * -ENOENT absent. */
GR_MUST_CHECK int io_read_file(const char *path, struct bytes *out);

/* The same of an open file, from its present position, called path in sentences. */
GR_MUST_CHECK int io_read_rest(int fd, const char *path, struct bytes *out);

/* Replace path by data so that a reader sees the old or the new contents, never a mixture: a
 * temporary file in the same directory, renamed. sync: fsync file and directory first (survives
 * power loss). Directories must exist. */
GR_MUST_CHECK int io_write_file_atomic(const char *path, const void *data, size_t len, bool sync);

/* The same, synced, for the only writer there is: the temporary file is PATH.new, so that writers who
 * die leave one behind at most. What is left there is removed, never written to: it may be a link. */
GR_MUST_CHECK int io_write_file_owned(const char *path, const void *data, size_t len);

/* Make every missing directory of path (mode 0755); path itself included. 0 or -errno with a
 * sentence. */
GR_MUST_CHECK int io_mkdirs(const char *path);

#endif
