/* Turn the entries of a source, which come in any order, into the nodes of an image: refuse bad names, make missing
 * parents (0755, mtime of the newest entry below), sort paths, resolve hard links. Memory is bounded for any number of
 * paths (sorter.h), plus about 40 bytes for each hard-linked file. One thread.
 */
#ifndef GRANARY_IMAGEBUILD_TREE_LISTING_H
#define GRANARY_IMAGEBUILD_TREE_LISTING_H

#include "imagebuild/source/source.h"
#include "imagebuild/tree/nodes.h"

/* Attributes of directories that were not listed. */
struct listing_directory {
    uint32_t uid, gid;
    uint32_t mode; /* permissions; 0: 0755 */
};

/* All pointers are the caller's; `dir` is copied. */
struct listing_options {
    bool skip_bad_names; /* count them and continue; else -EINVAL, naming the path */
    bool keep_special; /* else setuid and setgid bits are cleared; devices, FIFOs and sockets are skipped and counted */
    const char *dir;   /* for temporary files; as in struct scratch_config */
    struct listing_directory directory;
    struct source *source; /* names the origins of two entries with the same path, for messages; NULL: not named */
    const char *remedy;    /* what to do about a path that is refused; NULL: rename it, or skip_bad_names */
    size_t sort_memory;    /* bytes; 0: SORTER_MEMORY_DEFAULT */
};

/* What was listed. Skipped: left out. */
struct listing_stats {
    uint64_t names_skipped, special_skipped, xattrs_skipped;
    uint64_t files, directories, symlinks, hard_links, others, bytes; /* complete once sealed */
    uint64_t bytes_replaced; /* of files that lost to another entry of their path; complete once sealed */
};

/* Count a node by its kind. */
void listing_stats_count(struct listing_stats *stats, const struct node *n);

struct listing;

/* -ENOMEM; errors of sorter_new. */
GR_MUST_CHECK int listing_new(const struct listing_options *options, struct listing **out);
void listing_free(struct listing *l); /* NULL is allowed */
DEFINE_CLEANUP(listing, struct listing *, listing_free)

/* Add one listed path. These are refused (or skipped): an empty component, ".", "..", NUL, a component over 255
 * bytes, a path over CATALOG_PATH_MAX, a file with the name of a directory ("a" beside "a/b"), a file listed twice, a
 * symbolic link whose text is empty or over 4,095 bytes. The outcome of skipping does not depend on the order of
 * paths: a directory wins over a file, the newer of two files over the older. A directory may be listed twice ("a/"
 * and "a_$folder$"); the newer entry counts. Of two entries in one archive the later counts, as in unpacking. The
 * same place in an archive may be listed again as one of the file's several names (link_dev, link_ino).
 *
 * -EINVAL: see skip_bad_names, or the attributes are malformed; -ENOMEM; errors of the sorter. */
GR_MUST_CHECK int listing_add(struct listing *l, const struct source_entry *e);

/* Where file data lies that is in the image already: written while its path was listed, or taken over in a join. */
struct listing_written {
    uint64_t address;
    struct digest content;
};

/* As listing_add, for a regular file whose data was written: its node will be NODE_KEEP. address 0: it has none. */
GR_MUST_CHECK int listing_add_written(struct listing *l, const struct source_entry *e,
                                      const struct listing_written *written);
/* Return whether listing_add refuses this entry whatever else is listed, so that its data need not be written. */
bool listing_refuses(const struct source_entry *e);
/* Leave a path out for the reason `why`: -EINVAL without skip_bad_names, else it is counted, and the first few are
 * logged. */
GR_MUST_CHECK int listing_skip(struct listing *l, const char *path, size_t len, const char *why);
/* End the listing: *out becomes the sequence of nodes, the caller's. -EINVAL: paths that cannot be in one tree, or
 * too many; -ENOMEM; errors of sorter and scratch. */
GR_MUST_CHECK int listing_seal(struct listing *l, struct nodes **out);
struct listing_stats listing_stats(const struct listing *l);

#endif
