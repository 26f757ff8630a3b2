/* What the formats share: zstd frames, and a catalog page's byte layout. */
#ifndef GRANARY_FORMAT_FORMAT_INTERNAL_H
#define GRANARY_FORMAT_FORMAT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "format/catalog.h"

/* ---- zstd frames (zstd_frame.c) ----
 *
 * Single zstd frames of known plain length, the stored form of chunks and catalog pages. Any thread; each keeps its
 * zstd contexts until it ends. */

/* Append one frame of at most limit bytes that contains the len bytes of plain. -EMSGSIZE: the frame would be longer;
 * the sentence may be missing, and *out is unchanged. -ENOMEM. The same input, level and limit give the same bytes for
 * one version of libzstd. */
GR_MUST_CHECK int zstd_frame_encode(const void *plain, size_t len, int level, size_t limit, struct bytes *out);

/* Decode the stored_len bytes at stored into dst. They must be exactly one frame that announces and contains exactly
 * plain_len bytes; dst has room for those and is never overrun. -EBADMSG: no sentence is set, *why says what is wrong;
 * -ENOMEM with a sentence. */
GR_MUST_CHECK int zstd_frame_decode(const void *stored, size_t stored_len, void *dst, size_t plain_len,
                                    const char **why);

enum {
    ZSTD_UPON_MAX = 5 << 20, /* 4 MiB, and some more for the split form of a chunk of 4 MiB */
    ZSTD_UPON_LEVEL = 9,     /* below it zstd finds few of the short matches that a frame upon another consists of */
};

/* Bytes that writer and reader of a frame both have: the frame refers to them as if they came before its own. Borrowed;
 * len 0: none. */
struct zstd_prefix {
    const void *data;
    size_t len;
};

/* Return the number of bytes that a frame announces; SIZE_MAX: none. */
size_t zstd_frame_announced(const void *stored, size_t stored_len);

/* The same two with a prefix; len is at most ZSTD_UPON_MAX. Other bytes as prefix decode to other bytes or to -EBADMSG.
 */
GR_MUST_CHECK int zstd_frame_encode_upon(struct zstd_prefix prefix, const void *plain, size_t len, int level,
                                         size_t limit, struct bytes *out);
GR_MUST_CHECK int zstd_frame_decode_upon(struct zstd_prefix prefix, const void *stored, size_t stored_len, void *dst,
                                         size_t plain_len, const char **why);

/* ---- the split form of chunks (chunk_split.c) ----
 *
 * Chunks of erofs' metadata take little upon each other in this form. Any bytes are safe, and come back as they were.
 */

/* Return how many bytes the split form of len bytes may have. */
size_t chunk_split_max(size_t len);
/* Write the split form of the len bytes at plain; return its length. */
size_t chunk_split(const uint8_t *plain, size_t len, uint8_t *out);
/* Write the len bytes whose split form this is; false: it is not the split form of len bytes. */
GR_MUST_CHECK bool chunk_join(const uint8_t *split, size_t split_len, uint8_t *plain, size_t len);

/* ---- catalog pages (catalog_write.c, catalog_page.c) ---- */

enum {
    CATALOG_HEADER = 32,
    CATALOG_VERSION = 1,
    CATALOG_VERSION_DELTA = 2, /* level 0: a delta; level 1: of a page that has deltas as children */

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

/* The header, little-endian; one zstd frame follows it, of a delta with the base's records as prefix:
 *
 *    0  magic 4        8  count 4               16  length of all paths in full 4
 *    4  version 1     12  plain length 4        20  extents 4
 *    5  level 1                                 24  zero 8
 *    6  zero 2
 *
 * The plain length is that of all records before compression.
 */
struct catalog_header {
    unsigned version, level;
    uint32_t count, plain_len, paths_len, extents;
};

/* Return what is wrong with an entry or a child by itself, regardless of its place in the page; NULL: nothing. Writer
 * and reader apply the same rules. */
const char *catalog_entry_problem(const struct catalog_entry *e);
const char *catalog_child_problem(unsigned level, const struct catalog_child *c);

#endif
