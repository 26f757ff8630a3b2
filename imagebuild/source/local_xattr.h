/* Extended attributes of a path, without opening it and without following a link. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_LOCAL_XATTR_H
#define GRANARY_IMAGEBUILD_SOURCE_LOCAL_XATTR_H

#include "base/bytes.h"
#include "base/compiler.h"

enum { LOCAL_XATTRS_MAX = 256 << 10 }; /* of one path; the kernel's lists end at 64 KiB of names */

/* 0, or -ENOENT with a sentence: /proc is not mounted. */
GR_MUST_CHECK int local_xattrs_possible(void);

/* Replace *out by the attributes of `name` in the directory dir ("." is the directory itself), in
 * the form of source_entry.xattrs; empty where the file system has none. -ENOENT: it is gone. No
 * sentence. */
GR_MUST_CHECK int local_xattrs_read(int dir, const char *name, struct bytes *out);

#endif
