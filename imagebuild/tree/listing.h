/* What a source lists, in any order, made into the nodes of an image: names are judged, missing parents made (0755,
 * mtime of the newest child below), paths sorted, hard links resolved. Memory is bounded whatever the number of paths
 * (sorter.h), but for names of hard-linked files: about 40 bytes each. One thread.
 */
#ifndef GRANARY_IMAGEBUILD_TREE_LISTING_H
#define GRANARY_IMAGEBUILD_TREE_LISTING_H

#include "imagebuild/source/source.h"
#include "imagebuild/tree/nodes.h"

/* Of directories that nobody listed. */
struct listing_directory {
    uint32_t uid, gid;
    uint32_t mode; /* permissions; 0: 0755 */
};

struct listing_options {
    bool skip_bad_names; /* count and go on; else listing_add or listing_seal fails with -EINVAL naming the key */
    bool keep_special;   /* else setuid/setgid bits are cleared, device nodes, fifos and sockets skipped and counted */
    const char *dir;     /* for temporary files; as in struct scratch_config */
    struct listing_directory directory;
    struct source *source; /* asked which shards two entries of one path are of; NULL: nobody */
    size_t sort_memory;    /* 0: SORTER_MEMORY_DEFAULT */
};

struct listing_stats {
    uint64_t names_skipped, special_skipped, xattrs_skipped;
    uint64_t files, directories, symlinks, hard_links, others, bytes; /* complete once sealed */
    uint64_t bytes_replaced; /* of files that gave way to another entry of their path; likewise */
};

struct listing;

GR_MUST_CHECK int listing_new(const struct listing_options *options, struct listing **out);
void listing_free(struct listing *l); /* NULL is allowed */
DEFINE_CLEANUP(listing, struct listing *, listing_free)

/* Take one listed path. Refused (or skipped): empty component, ".", "..", NUL, a component over 255 bytes, a path over
 * CATALOG_PATH_MAX, a file of the name of a directory ("a" beside "a/b"), a file listed twice, a symbolic link's text
 * that is empty or over 4,095 bytes. When such paths are skipped, the outcome is the same in whatever order they come:
 * the directory wins over the file, the newer of two files over the older. A directory may be listed twice ("a/" and
 * "a_$folder$"): the newer entry counts. Of two in one archive the later counts, as when it is unpacked; one place of
 * an archive may be listed again with the file it is a name of (link_dev, link_ino). */
GR_MUST_CHECK int listing_add(struct listing *l, const struct source_entry *e);

/* Where a body lies that was written into the image while it was listed. */
struct listing_written {
    uint64_t address;
    struct digest content;
};

/* The same for a regular file with such a body: its node will be NODE_KEEP. */
GR_MUST_CHECK int listing_add_written(struct listing *l, const struct source_entry *e,
                                      const struct listing_written *written);
/* Will this path be left out, or refused, for what it is? So that its body need not be written. */
bool listing_refuses(const struct source_entry *e);
/* One path is left out: an error without skip_bad_names, else counted, the first few with a line. */
GR_MUST_CHECK int listing_skip(struct listing *l, const char *path, size_t len, const char *why);
/* No more paths. *out is the caller's. */
GR_MUST_CHECK int listing_seal(struct listing *l, struct nodes **out);
struct listing_stats listing_stats(const struct listing *l);

#endif
