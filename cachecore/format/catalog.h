/* Pages of the file catalog (docs/reference/format-store.md, "Catalog"): every path of an image in the byte
 * order of the full path ('/' is 0x2F), with what builds, ls, diff and warming need. A tree:
 * level-0 pages hold entries, higher pages hold {first path, child page}. Page borders depend only
 * on the entries' paths (a hash of the path ends a page), so that an insertion changes one page a
 * level. Pages are zstd frames.
 */
#ifndef GRANARY_FORMAT_CATALOG_H
#define GRANARY_FORMAT_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/digest.h"

enum {
    CATALOG_PAGE_ENTRIES = 1024,     /* mean entries a page: one path in so many ends its page */
    CATALOG_PAGE_ENTRIES_MAX = 8192, /* a page ends here whatever the hash says */
    CATALOG_PAGE_MAX = 4 << 20,      /* plain bytes, also counted with every path in full; a page ends before it
                                        would pass this */
    CATALOG_OBJECT_MAX = CATALOG_PAGE_MAX + (64 << 10), /* bytes of a page's object */
    CATALOG_EXTENTS_MAX = 4096,                         /* of one entry */
    CATALOG_PATH_MAX = 65535,
    CATALOG_VALIDATOR_MAX = 255,
    CATALOG_LEVELS_MAX = 8,
};

/* A file's bytes: contiguous in both filesystems for erofs (one extent or none). */
struct catalog_extent {
    uint64_t offset; /* in the image */
    uint64_t len;
};

/* One path. Strings are bytes, not NUL-terminated; what they point at belongs to the page (decode)
 * or caller (encode). */
struct catalog_entry {
    const char *path; /* full path without a leading slash; the root directory is the empty path */
    size_t path_len;
    uint32_t mode; /* type and permissions, as in stat */
    uint32_t uid, gid;
    uint64_t size;
    int64_t mtime;
    uint32_t mtime_nsec;
    const char *validator; /* what the source identifies this version by (ETag, or times and size) */
    size_t validator_len;
    struct digest content; /* SHA-256 of a regular file's bytes; zero for others and for empty files */
    const char *target;    /* symlink: its text; hard link: the path of the first name */
    size_t target_len;
    bool hard_link;
    const struct catalog_extent *extents;
    uint32_t extent_count;
};

/* One child of a page of level > 0. */
struct catalog_child {
    const char *first; /* path of the first entry below */
    size_t first_len;
    struct digest digest; /* object name */
    uint32_t len, crc;    /* of the object */
    uint64_t entries;     /* level-0 entries below it */
};

/* Writing: add entries in order, take the page when it is due. */
struct catalog_page_writer;
struct catalog_page_writer *catalog_page_writer_new(unsigned level); /* NULL: out of memory */
void catalog_page_writer_free(struct catalog_page_writer *w);
DEFINE_CLEANUP(catalog_page_writer, struct catalog_page_writer *, catalog_page_writer_free)
/* *out_full: the page must be finished before the next add. -EINVAL: out of order or over a limit,
 * with a sentence. */
GR_MUST_CHECK int catalog_page_add(struct catalog_page_writer *w, const struct catalog_entry *e, bool *out_full);
GR_MUST_CHECK int catalog_page_add_child(struct catalog_page_writer *w, const struct catalog_child *c, bool *out_full);
/* Append the page's object to *out, describe it as a child of the next level (first: valid until
 * the next finish) and start the next page. *out_child->entries counts the level-0 entries at or
 * below this page. Must not be empty. */
GR_MUST_CHECK int catalog_page_finish(struct catalog_page_writer *w, struct bytes *out,
                                      struct catalog_child *out_child);

/* Reading. The caller verified the object's digest; any bytes are safe all the same. -EBADMSG with
 * a sentence. */
struct catalog_page;
GR_MUST_CHECK int catalog_page_decode(const void *data, size_t len, struct catalog_page **out);
void catalog_page_free(struct catalog_page *p);
DEFINE_CLEANUP(catalog_page, struct catalog_page *, catalog_page_free)
unsigned catalog_page_level(const struct catalog_page *p);
uint32_t catalog_page_count(const struct catalog_page *p);
/* Entry i (level 0) or child i (level > 0); pointers live as long as the page. */
const struct catalog_entry *catalog_page_entry(const struct catalog_page *p, uint32_t i);
const struct catalog_child *catalog_page_child(const struct catalog_page *p, uint32_t i);

/* Byte order of full paths. */
int catalog_path_compare(const char *a, size_t a_len, const char *b, size_t b_len);

#endif
