/* What catalog_write.c and catalog_page.c share of a page's byte layout. Internal to format/. */
#ifndef GRANARY_FORMAT_CATALOG_FORM_H
#define GRANARY_FORMAT_CATALOG_FORM_H

#include "format/catalog.h"

enum {
    CATALOG_HEADER = 32,
    CATALOG_VERSION = 1,

    CATALOG_HAS_CONTENT = 1,
    CATALOG_HAS_TARGET = 2,
    CATALOG_HARD_LINK = 4,
    CATALOG_HAS_EXTENTS = 8,
    CATALOG_FLAGS = 15,

    /* No record is longer, its path in full: path, target, validator, extents and the fixed fields. */
    CATALOG_RECORD_MAX = 2 * CATALOG_PATH_MAX + CATALOG_VALIDATOR_MAX + CATALOG_EXTENTS_MAX * 20 + 256,
};

#define CATALOG_MAGIC "GRCT"

/* Header: magic 4, version 1, level 1, zero 2, count 4, plain length 4, length of all paths in full
 * 4, extents 4, zero 8. Then one zstd frame. */
struct catalog_header {
    unsigned level;
    uint32_t count, plain_len, paths_len, extents;
};

/* What is wrong with an entry (not with its place among others); NULL: nothing. */
const char *catalog_entry_problem(const struct catalog_entry *e);
const char *catalog_child_problem(unsigned level, const struct catalog_child *c);

#endif
