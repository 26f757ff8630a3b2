/* Replaces a file by one that is written bit by bit: into a temporary file beside it, which takes its name when it is
 * whole. A reader sees the old or the new contents; a failure or an interrupt leaves what was there. For contents that
 * are in memory there is io_write_file_atomic. One thread.
 *
 *     CLEANUP_REPLACEMENT r = REPLACEMENT_NONE;
 *     rc = replacement_begin(path, &r);
 *     ... write to r.fd ...
 *     rc = replacement_finish(&r);
 */
#ifndef GRANARY_BASE_REPLACE_H
#define GRANARY_BASE_REPLACE_H

#include "base/cleanup.h"
#include "base/compiler.h"

struct replacement {
    const char *path; /* borrowed */
    char *temporary;  /* NULL: begun not yet, or finished */
    int fd;           /* the temporary file, for writing; closed by replacement_release */
};
#define REPLACEMENT_NONE                                                                                               \
    {                                                                                                                  \
        .fd = -1                                                                                                       \
    }

/* Make the temporary file. -EINVAL: something at path is no regular file, which a rename would replace; -ENOENT and
 * other errors of open; all with a sentence. */
GR_MUST_CHECK int replacement_begin(const char *path, struct replacement *out);
/* Sync the temporary file and give it its name, with mode 0644. -errno with a sentence. */
GR_MUST_CHECK int replacement_finish(struct replacement *r);
/* Close it, and remove what is not finished. */
void replacement_release(struct replacement *r);
#define CLEANUP_REPLACEMENT CLEANUP(replacement_release) struct replacement

#endif
