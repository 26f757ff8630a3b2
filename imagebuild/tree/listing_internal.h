/* The listing's records, shared by listing.c (taking paths) and listing_seal.c (merging them). Nobody else includes
 * this. */
#ifndef GRANARY_IMAGEBUILD_TREE_LISTING_INTERNAL_H
#define GRANARY_IMAGEBUILD_TREE_LISTING_INTERNAL_H

#include "base/spill/sorter.h"
#include "imagebuild/tree/listing.h"

/* What is sorted under a path: this, then validator, target and xattrs. A directory that nobody listed but that must be
 * there is a record of mode 0 and nothing else. Never outlives the process: native order. */
struct listing_record {
    uint64_t size, link_dev, link_ino, member;
    int64_t mtime;
    uint32_t mtime_nsec;
    uint32_t mode, uid, gid, rdev;
    uint32_t xattrs_len, archive;
    uint16_t validator_len, target_len;
    struct listing_written written; /* address 0: none was written */
};

enum { LISTING_KNOWN = 4096 };

/* A directory for which there is a record, and records for all above it. */
struct listing_known {
    char *path;
    size_t len;
};

struct listing {
    struct listing_options options;
    char *dir; /* what options.dir points at */
    struct listing_stats stats;
    struct sorter *sorter;
    struct bytes value;
    struct bytes
        last; /* the path added last (a directory's with a slash): there are records for all above its slashes */
    struct listing_known known[LISTING_KNOWN]; /* by a hash of the path: the last one */
    unsigned warnings;
};

#endif
