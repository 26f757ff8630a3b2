/* Sources around other sources: filtered and changed, joined, or cut down to a list of paths. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_SOURCE_WRAPPERS_H
#define GRANARY_IMAGEBUILD_SOURCE_SOURCE_WRAPPERS_H

#include <sys/types.h>

#include "base/cleanup.h"
#include "imagebuild/source/rules.h"
#include "imagebuild/source/source.h"

/* ---- filtered and changed (source_shape.c) ---- */

/* A source around another one that decides what goes into the image: it filters paths by rules, strips a prefix from
 * them, and replaces owners, modes and times. */

/* Attributes that replace those of the source, each if its `have_` is set. */
struct source_overrides {
    bool have_uid, have_gid, have_file_mode, have_directory_mode, have_mtime;
    uint32_t uid, gid;
    uint32_t file_mode, directory_mode; /* permissions of regular files, of directories */
    int64_t mtime;                      /* seconds since 1970; of every entry */
};

struct source_shape {
    const struct rules *rules;        /* must outlive the source; NULL: take everything */
    const char *strip;                /* a directory whose contents become the image's root; the listing fails with
                                         -EINVAL if a path that is taken lies elsewhere. NULL: strip nothing */
    struct source_overrides override; /* {0}: none */
};

/* Wrap `inner`, which belongs to the new source from now on; on failure it is closed. -ENOMEM. `strip` is copied. */
GR_MUST_CHECK int source_shape_open(struct source *inner, const struct source_shape *shape, struct source **out);

/* ---- several sources in one image (source_join.c) ---- */

/* A source made of several others, each below its own directory of the image (--add). */

struct source_part {
    const char *dir; /* the image's directory for its root; slashes around it are ignored; "": the image's root */
    struct source *source;
};

/* Join at least one part. Their sources belong to the new source from now on; on failure they are closed. They are
 * listed in the order given. Directories may nest, as data and data/train. The outer part may then list a directory at
 * data/train, which is ignored, but anything else at or below it fails the listing with -EINVAL.
 *
 * -EINVAL: two parts have the same directory, or a directory has a component that no filesystem can hold. -ENOMEM. */
GR_MUST_CHECK int source_join_open(const struct source_part *parts, size_t count, struct source **out);

/* ---- a list of paths (source_listed.c) ---- */

/* A list of paths, read line by line from a file or from standard input (--files-from). A path ends at a newline, or at
 * a NUL. "./a//b/" means a/b. Empty lines are ignored.
 *
 * If the source is a web server, a line may also have the file's size and SHA-256, each after a tab. The path may then
 * be an address below that of the source, and lines that begin with '#' are comments.
 *
 * One thread.
 */

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

/* Begin the list again. -ESPIPE: it is no regular file. */
GR_MUST_CHECK int path_list_again(struct path_list *l);

/* Return in *out whether the first path begins with a slash, before any path is read. All others must then do the same,
 * or path_list_next fails. -EINVAL: the list is empty, or as from path_list_next. -EIO: a read failed. -ENOMEM. */
GR_MUST_CHECK int path_list_absolute(struct path_list *l, bool *out);
/* Read the next path into *out, valid until the next call. Return 1; 0: the end; -EINVAL: the line is malformed, and
 * the sentence names file and line; -EIO: a read failed; -ENOMEM. */
GR_MUST_CHECK int path_list_next(struct path_list *l, struct source_ask *out);
/* Return the file's name, or "standard input", for messages. */
const char *path_list_name(const struct path_list *l);

/* ---- only the paths of a list (source_listed.c) ---- */

/* A source that has only the paths that a list names (--files-from). Each path is looked up by itself, several at a
 * time: the inner source is not listed, and the list is not held in memory. A directory in the list stands for itself,
 * not for its contents. */

struct source_listed_config {
    unsigned threads;    /* concurrent lookups; 0: 8 */
    bool ignore_missing; /* leave out paths that the source does not have; otherwise the listing fails with -ENOENT
                            after all lookups, with warnings that name the first twenty */
    const volatile int *cancel; /* as in struct source_options; may be NULL */
};

/* Wrap `inner` and `list`, which belong to the new source from now on; on failure both are closed. It can be
 * listed again only if the list is a regular file (path_list_again). -ENOTSUP: `inner` has no source_look. -ENOMEM. */
GR_MUST_CHECK int source_listed_open(struct source *inner, struct path_list *list,
                                     const struct source_listed_config *config, struct source **out);

#endif
