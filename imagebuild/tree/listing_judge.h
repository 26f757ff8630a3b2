/* Which listed names, links and attributes a filesystem can hold. */
#ifndef GRANARY_IMAGEBUILD_TREE_LISTING_JUDGE_H
#define GRANARY_IMAGEBUILD_TREE_LISTING_JUDGE_H

#include "base/bytes.h"
#include "imagebuild/source/source.h"

/* Why the entry's path (or a symbolic link's text) cannot stand in a file system; NULL: it can. The root is judged by
 * the caller. */
const char *listing_fault(const struct source_entry *e);

/* Append e's attributes without those that cannot be kept (added to *skipped), sorted by name: the kernel's order is
 * the file system's whim. security.selinux is left out and not counted. -EINVAL: malformed. */
GR_MUST_CHECK int listing_filter_xattrs(const struct source_entry *e, struct bytes *out, uint64_t *skipped);

/* The kernel's new_encode_dev form of a dev_t. */
uint32_t listing_encode_rdev(uint64_t rdev);

#endif
