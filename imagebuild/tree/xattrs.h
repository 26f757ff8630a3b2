/* Iterate over a node's extended attributes, named as erofs and ext4 name them: by the number of a prefix and the
 * rest. */
#ifndef GRANARY_IMAGEBUILD_TREE_XATTRS_H
#define GRANARY_IMAGEBUILD_TREE_XATTRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { XATTR_ACL_ACCESS = 2, XATTR_ACL_DEFAULT = 3 };

struct xattr {
    uint8_t prefix;
    const char *name; /* behind the prefix; not NUL-terminated */
    size_t name_len;
    const uint8_t *value;
    size_t value_len;
};

/* Take the next attribute off a sequence as struct node has it; false: its end. Pointers lead into the sequence.
 * Names without a known prefix are skipped; the listing lets none through. */
bool xattr_next(const uint8_t **p, const uint8_t *end, struct xattr *out);

#endif
