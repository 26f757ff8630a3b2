/* The listing's records, shared by listing.c (adds paths) and listing_seal.c (merges them); private to these two. */
#ifndef GRANARY_IMAGEBUILD_TREE_LISTING_INTERNAL_H
#define GRANARY_IMAGEBUILD_TREE_LISTING_INTERNAL_H

#include "base/spill/sorter.h"
#include "imagebuild/tree/listing.h"

/* The value that the sorter has for a path: this struct, then validator, target and xattrs. A directory that must exist
 * but was not listed has a record of mode 0 and nothing else. Records never outlive the process, so they are in native
 * byte order. */
struct listing_record {
    uint64_t size, link_dev, link_ino, member;
    int64_t mtime;
    uint32_t mtime_nsec;
    uint32_t mode, uid, gid, rdev;
    uint32_t xattrs_len, archive;
    uint16_t validator_len, target_len;
    struct listing_written written; /* address 0: no data was written */
};

enum { LISTING_KNOWN = 4096 }; /* slots of the table of recent directories */

/* A directory that has a record, and so have all directories above it. */
struct listing_known {
    char *path;
    size_t len;
};

/* Used from one thread. */
struct listing {
    struct listing_options options;
    char *dir; /* copy of options.dir */
    struct listing_stats stats;
    struct sorter *sorter;
    struct bytes value; /* the value in progress */
    /* The path added last, a directory's with a slash: all directories above its slashes have records. */
    struct bytes last;
    struct listing_known known[LISTING_KNOWN]; /* recent directories by hash; a newer one replaces an older one */
    unsigned warnings;
};

#endif
