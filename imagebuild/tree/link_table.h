/* The files of which several names may have been listed: the first name of each. 32 bytes a file in a table at most
 * three quarters full. One thread. */
#ifndef GRANARY_IMAGEBUILD_TREE_LINK_TABLE_H
#define GRANARY_IMAGEBUILD_TREE_LINK_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct link_file {
    uint64_t dev, ino; /* ino 0: an empty slot */
    uint64_t place;    /* of the first name (nodes_place) */
    uint32_t rank;     /* of the first name */
    uint16_t type;     /* S_IFMT of it: a file that became another while it was listed is two files */
    bool linked;       /* a second name has been met */
};

struct link_table {
    struct link_file *files;
    size_t count, slots; /* slots: a power of two */
    uint64_t seed;
};

/* Begins as {0}. */
void link_table_release(struct link_table *t);
/* The file of that identity in *out, made of *first when it is new: then *out_new. Valid until the next call. -ENOMEM.
 */
GR_MUST_CHECK int link_table_get(struct link_table *t, const struct link_file *first, struct link_file **out,
                                 bool *out_new);

#endif
