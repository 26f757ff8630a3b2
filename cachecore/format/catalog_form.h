/* A catalog page's byte layout, shared by catalog_write.c and catalog_page.c. Internal to format/. */
#ifndef GRANARY_FORMAT_CATALOG_FORM_H
#define GRANARY_FORMAT_CATALOG_FORM_H

#include "format/catalog.h"

enum {
    CATALOG_HEADER = 32,
    CATALOG_VERSION = 1,

    /* Flags of an entry's record. */
    CATALOG_HAS_CONTENT = 1,
    CATALOG_HAS_TARGET = 2,
    CATALOG_HARD_LINK = 4,
    CATALOG_HAS_EXTENTS = 8,
    CATALOG_FLAGS = 15,

    /* Bytes that no record exceeds, with its path in full: path, target, validator, extents and the fixed fields. */
    CATALOG_RECORD_MAX = 2 * CATALOG_PATH_MAX + CATALOG_VALIDATOR_MAX + CATALOG_EXTENTS_MAX * 20 + 256,
};

#define CATALOG_MAGIC "GRCT"

/* The header, little-endian; one zstd frame follows it:
 *
 *    0  magic 4        8  count 4               16  length of all paths in full 4
 *    4  version 1     12  plain length 4        20  extents 4
 *    5  level 1                                 24  zero 8
 *    6  zero 2
 *
 * The plain length is that of all records before compression.
 */
struct catalog_header {
    unsigned level;
    uint32_t count, plain_len, paths_len, extents;
};

/* Return what is wrong with an entry or a child by itself, regardless of its place in the page; NULL: nothing. Writer
 * and reader apply the same rules. */
const char *catalog_entry_problem(const struct catalog_entry *e);
const char *catalog_child_problem(unsigned level, const struct catalog_child *c);

#endif
