/* Decide which listed names, links and attributes a filesystem can hold. */
#ifndef GRANARY_IMAGEBUILD_TREE_LISTING_JUDGE_H
#define GRANARY_IMAGEBUILD_TREE_LISTING_JUDGE_H

#include "base/bytes.h"
#include "imagebuild/source/source.h"

/* Return why no filesystem can hold the entry's path, or the symbolic link's text; NULL: it can. Not for the root. */
const char *listing_fault(const struct source_entry *e);

/* Append e's attributes, without those that cannot be kept (added to *skipped), sorted by name, because the kernel
 * lists them in any order. security.selinux is left out and not counted: it belongs to the machine. -EINVAL:
 * malformed; -ENOMEM. */
GR_MUST_CHECK int listing_filter_xattrs(const struct source_entry *e, struct bytes *out, uint64_t *skipped);

/* Return a dev_t in the kernel's new_encode_dev form. */
uint32_t listing_encode_rdev(uint64_t rdev);

#endif
