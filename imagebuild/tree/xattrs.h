/* Extended attributes of a node, one after the other, named as erofs and ext4 both name them: by the number of a prefix
 * and the rest. */
#ifndef GRANARY_IMAGEBUILD_TREE_XATTRS_H
#define GRANARY_IMAGEBUILD_TREE_XATTRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { XATTR_ACL_ACCESS = 2, XATTR_ACL_DEFAULT = 3 };

struct xattr {
    uint8_t prefix;
    const char *name; /* behind the prefix */
    size_t name_len;
    const uint8_t *value;
    size_t value_len;
};

/* Take the next attribute off a sequence as in struct node; false at its end. Names that begin with none of the
 * prefixes do not occur (the listing leaves them out), and are passed over. */
bool xattr_next(const uint8_t **p, const uint8_t *end, struct xattr *out);

#endif
