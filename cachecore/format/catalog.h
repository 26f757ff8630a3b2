/* Pages of the file catalog (docs/reference/format-store.md, "Catalog"). The catalog lists every path of an image with
 * the attributes that builds, ls, diff and warming need, in byte order of the full path ('/' is 0x2F). It is a tree:
 * pages of level 0 hold entries, pages above hold {first path, child page}. Each page is a zstd frame, stored as an
 * object.
 *
 * Page borders depend on paths alone: a hash of its path decides whether an entry ends its page. So an insertion
 * changes one page on each level, and a rebuild stores only the pages that changed.
 *
 * A page of entries may be a delta: compressed upon another page, its base, which a reader needs too. A base is never a
 * delta itself, and the page above names it. So the pages above the entries name every object of a catalog.
 *
 * No I/O. A writer or a page is used by one thread at a time; a decoded page does not change, so any number of threads
 * may read it.
 */
#ifndef GRANARY_FORMAT_CATALOG_H
#define GRANARY_FORMAT_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/digest.h"

enum {
    CATALOG_PAGE_ENTRIES = 1024,     /* mean entries per page: one path in 1024 ends its page */
    CATALOG_PAGE_ENTRIES_MAX = 8192, /* a page ends here regardless of the hash */
    CATALOG_PAGE_MAX = 4 << 20,      /* bytes of a page before compression, and with every path in full; a page ends
                                        before it would exceed this */
    CATALOG_OBJECT_MAX = CATALOG_PAGE_MAX + (64 << 10), /* bytes of a page's object */
    CATALOG_EXTENTS_MAX = 4096,                         /* of one entry */
    CATALOG_PATH_MAX = 65535,                           /* bytes; also of a target */
    CATALOG_VALIDATOR_MAX = 255,                        /* bytes */
    CATALOG_LEVELS_MAX = 8,
};

/* A contiguous part of a file's data in the image. An erofs file has at most one. */
struct catalog_extent {
    uint64_t offset; /* in the image */
    uint64_t len;
};

/* One path. Strings are bytes without a final NUL. Memory behind the pointers belongs to the page when decoded, to the
 * caller when encoded. */
struct catalog_entry {
    const char *path; /* full path without a leading slash; the root directory is the empty path */
    size_t path_len;
    uint32_t mode; /* type and permissions, as in stat */
    uint32_t uid, gid;
    uint64_t size;
    int64_t mtime;
    uint32_t mtime_nsec;
    const char *validator; /* identifies this version of the file at its source: an ETag, or times and size */
    size_t validator_len;
    struct digest content; /* SHA-256 of a regular file's bytes; zero for others and for empty files */
    const char *target;    /* symlink: its text; hard link: the path of the file's first name */
    size_t target_len;
    bool hard_link;
    const struct catalog_extent *extents;
    uint32_t extent_count;
};

/* One child of a page of level > 0. */
struct catalog_child {
    const char *first; /* path of the first entry below it */
    size_t first_len;
    struct digest digest; /* SHA-256 and name of the child's object */
    uint32_t len, crc;    /* bytes and CRC-32C of that object */
    uint64_t entries;     /* level-0 entries below it */
    struct digest base;   /* the child is a delta: name of its base's object; zero: it is none */
};

/* A page that a page of entries may be a delta of. The records are valid as long as the page that they are of. */
struct catalog_base {
    const void *records;
    size_t records_len, object_len; /* bytes, of the records and of the page's object */
    uint32_t object_crc;            /* CRC-32C of that object */
    struct digest name;             /* of it */
};

/* Writing: add entries in path order; when *out_full says so, finish the page and go on with the next. One writer per
 * level. */
struct catalog_page_writer;
struct catalog_page_writer *catalog_page_writer_new(unsigned level); /* NULL: out of memory */
void catalog_page_writer_free(struct catalog_page_writer *w);
DEFINE_CLEANUP(catalog_page_writer, struct catalog_page_writer *, catalog_page_writer_free)
/* Add an entry to a page of level 0, or a child to a higher page. *out_full: the page must be finished before the next
 * add. -EINVAL: out of order or over a limit; -ENOMEM; both with a sentence. */
GR_MUST_CHECK int catalog_page_add(struct catalog_page_writer *w, const struct catalog_entry *e, bool *out_full);
GR_MUST_CHECK int catalog_page_add_child(struct catalog_page_writer *w, const struct catalog_child *c, bool *out_full);
/* Append the page's object to *out, describe it in *out_child for the level above, and start the next page.
 * out_child->first is valid until the next finish. The page must not be empty: -EINVAL. -EMSGSIZE: out's maximum is too
 * small; -ENOMEM. On failure *out is unchanged. */
GR_MUST_CHECK int catalog_page_finish(struct catalog_page_writer *w, struct bytes *out,
                                      struct catalog_child *out_child);

/* The same for a page of level 0, as a delta if that takes at most a quarter of base's object: *out_child names base
 * then. If the page has the records of base, *out_child is that of base's object and nothing is appended to out. The
 * writer chooses the same for the same page and base, so a page that stays is the same object. */
GR_MUST_CHECK int catalog_page_finish_upon(struct catalog_page_writer *w, const struct catalog_base *base,
                                           struct bytes *out, struct catalog_child *out_child);
/* Return the path added last, for the length *out_len; valid until the next add. */
const char *catalog_page_last(const struct catalog_page_writer *w, size_t *out_len);

/* Reading. Decode a page; the caller frees *out. The caller has verified the object's digest, but any bytes are safe.
 * -EBADMSG or -ENOMEM, with a sentence; a delta is -EBADMSG. */
struct catalog_page;
GR_MUST_CHECK int catalog_page_decode(const void *data, size_t len, struct catalog_page **out);
/* The same for a delta; base is a page of level 0 and not a delta itself. base may be freed afterwards. -EBADMSG: also
 * if the page is not a delta. */
GR_MUST_CHECK int catalog_page_decode_upon(const struct catalog_page *base, const void *data, size_t len,
                                           struct catalog_page **out);
void catalog_page_free(struct catalog_page *p);
DEFINE_CLEANUP(catalog_page, struct catalog_page *, catalog_page_free)
unsigned catalog_page_level(const struct catalog_page *p);
uint32_t catalog_page_count(const struct catalog_page *p);
/* Describe a page of level 0 that is not a delta, whose object is `name`, as a base. */
struct catalog_base catalog_page_base(const struct catalog_page *p, const struct digest *name);
/* Return entry i of a page of level 0, or child i of a higher page. Valid as long as the page. */
const struct catalog_entry *catalog_page_entry(const struct catalog_page *p, uint32_t i);
const struct catalog_child *catalog_page_child(const struct catalog_page *p, uint32_t i);

/* Compare two full paths in byte order, as memcmp does; a prefix comes first. */
int catalog_path_compare(const char *a, size_t a_len, const char *b, size_t b_len);

#endif
