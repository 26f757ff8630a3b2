/* A list of paths in a file or on standard input, read as it comes: one a line, or ended by NUL. "./a//b/" is a/b; an
 * empty line counts for nothing.
 *
 * For a source that is a web server, a line may go on with the file's size and its SHA-256, behind tabs; the path may
 * be an address below the source's, and lines that begin with '#' are comments.
 *
 * One thread.
 */
#ifndef GRANARY_IMAGEBUILD_SOURCE_PATH_LIST_H
#define GRANARY_IMAGEBUILD_SOURCE_PATH_LIST_H

#include <sys/types.h>

#include "base/cleanup.h"
#include "imagebuild/source/source.h"

/* Without empty components, ".", and a slash at either end, in place; the new length. -EINVAL, without a sentence:
 * "..". */
GR_MUST_CHECK ssize_t path_clean(char *path, size_t len);

struct path_list;

struct path_list_config {
    const char *file;     /* "-": standard input */
    bool nul;             /* paths end with NUL, not with a newline */
    const char *web_base; /* the address of a web server's source; NULL: lines are paths and nothing else */
};

/* -ENOENT and other errors of the file. */
GR_MUST_CHECK int path_list_open(const struct path_list_config *config, struct path_list **out);
void path_list_close(struct path_list *l); /* NULL is allowed */
DEFINE_CLEANUP(path_list, struct path_list *, path_list_close)

/* Does the first path begin with a slash? Further ones must then be like it: a mixture is an error, where this was
 * asked. -EINVAL: the list is empty. */
GR_MUST_CHECK int path_list_absolute(struct path_list *l, bool *out);
/* The next line: 1, the end: 0, or -EINVAL naming file and line. *out is valid until the next call. */
GR_MUST_CHECK int path_list_next(struct path_list *l, struct source_ask *out);
/* For messages. */
const char *path_list_name(const struct path_list *l);

#endif
