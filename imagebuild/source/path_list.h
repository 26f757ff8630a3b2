/* A list of paths, read line by line from a file or from standard input (--files-from). A path ends at a newline, or at
 * a NUL. "./a//b/" means a/b. Empty lines are ignored.
 *
 * If the source is a web server, a line may also have the file's size and SHA-256, each after a tab. The path may then
 * be an address below that of the source, and lines that begin with '#' are comments.
 *
 * One thread.
 */
#ifndef GRANARY_IMAGEBUILD_SOURCE_PATH_LIST_H
#define GRANARY_IMAGEBUILD_SOURCE_PATH_LIST_H

#include <sys/types.h>

#include "base/cleanup.h"
#include "imagebuild/source/source.h"

/* Remove empty components, ".", and slashes at either end, in place. Return the new length, or -EINVAL without a
 * sentence: the path has "..". */
GR_MUST_CHECK ssize_t path_clean(char *path, size_t len);

struct path_list;

struct path_list_config {
    const char *file;     /* "-": standard input */
    bool nul;             /* paths end with NUL, not with a newline */
    const char *web_base; /* the source's address, if it is a web server; NULL: lines are just paths */
};

/* Open the list. Strings of config must outlive it. -ENOMEM, or the errors of open(2). */
GR_MUST_CHECK int path_list_open(const struct path_list_config *config, struct path_list **out);
void path_list_close(struct path_list *l); /* NULL is allowed */
DEFINE_CLEANUP(path_list, struct path_list *, path_list_close)

/* Return in *out whether the first path begins with a slash, before any path is read. All others must then do the same,
 * or path_list_next fails. -EINVAL: the list is empty, or as from path_list_next. -EIO: a read failed. -ENOMEM. */
GR_MUST_CHECK int path_list_absolute(struct path_list *l, bool *out);
/* Read the next path into *out, valid until the next call. Return 1; 0: the end; -EINVAL: the line is malformed, and
 * the sentence names file and line; -EIO: a read failed; -ENOMEM. */
GR_MUST_CHECK int path_list_next(struct path_list *l, struct source_ask *out);
/* Return the file's name, or "standard input", for messages. */
const char *path_list_name(const struct path_list *l);

#endif
