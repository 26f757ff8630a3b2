/* The exports of a server as the files of one directory. */
#ifndef GRANARY_FUSE_FILES_H
#define GRANARY_FUSE_FILES_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "base/compiler.h"
#include "fuse/shown.h"
#include "server/serving.h"

/* What a client's request may ask for at most; the mount option max_read says it to the kernel. */
enum { FILES_READ_MAX = 1 << 20 };

struct files {
    struct serving *serving; /* not owned */
    struct shown shown;
    unsigned requests;          /* reads that the kernel has in the air at most */
    _Atomic size_t reply_bytes; /* that reads under way hold */
};

/* A session that answers for f's exports, not mounted yet. f outlives it. *out: fuse_session_destroy. Its callbacks may
 * run in any number of threads. */
GR_MUST_CHECK int files_session(struct files *f, struct fuse_session **out);

#endif
