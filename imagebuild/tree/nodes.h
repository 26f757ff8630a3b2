/* Nodes: the paths of an image being built, as a sequence in the byte order of the full path ("a", "a-b", "a/x"). The
 * sequence is kept in a scratch, so memory does not grow with the number of paths. Each step of a build reads one
 * sequence and writes the next: as listed, planned (what to do with each file's data), final (where the data lies).
 *
 * One thread writes a sequence. After nodes_end any number of cursors may read it, each used by one thread at a time.
 */
#ifndef GRANARY_IMAGEBUILD_TREE_NODES_H
#define GRANARY_IMAGEBUILD_TREE_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "base/spill/scratch.h"

#define NODE_ROOT UINT32_C(0) /* rank of the root */

/* What a build does with the data of a regular file. */
enum node_plan {
    NODE_READ = 0, /* read it from the source */
    NODE_KEEP,     /* leave it: it is in the image at `address`, from the parent or written with the listing */
    NODE_MOVE,     /* read it from the parent's `address` and write it again (compaction) */
};

/* Bytes of extended attributes, in the form that struct source_entry has. */
enum { NODE_XATTRS_MAX = 64 << 10 };

/* One path. A hard-linked file has a node for each of its names. */
struct node {
    uint32_t rank; /* place of the path in the listing, from 0 (the root); ascending, with gaps where files vanished */
    uint32_t parent; /* rank of its directory; the root is its own parent */
    uint32_t link;   /* rank of the file's first name; differs from `rank` only for further names */
    bool linked;     /* the file has several names; set for the first one too */
    bool implicit;   /* a directory that was not listed: its mtime is that of the newest entry below it */
    enum node_plan plan;
    uint16_t mode; /* type and permissions */
    uint32_t uid, gid;
    uint32_t rdev; /* in the kernel's new_encode_dev form */
    int64_t mtime;
    uint32_t mtime_nsec;
    uint64_t size;         /* of a regular file, or of a symbolic link's text; else 0 */
    uint64_t address;      /* of the data in the image (NODE_MOVE: in the parent); 0: no data */
    struct digest content; /* SHA-256 of a regular file's bytes; zero: empty, or not known yet */
    /* Not NUL-terminated. From a cursor, valid until its next step. */
    const char *path; /* full, without a leading slash; empty for the root */
    size_t path_len;
    const char *name; /* the last component, inside path; nodes_add ignores it */
    size_t name_len;
    const char *validator;
    size_t validator_len;
    const char *target; /* text of a symbolic link; in the final sequence, path of the first name for a further name */
    size_t target_len;
    const void *xattrs;
    size_t xattrs_len;
};

struct nodes;

/* -ENOMEM; errors of scratch_new. */
GR_MUST_CHECK int nodes_new(const struct scratch_config *config, struct nodes **out);
void nodes_free(struct nodes *n); /* NULL is allowed; no cursor may exist */
DEFINE_CLEANUP(nodes, struct nodes *, nodes_free)

/* Append a copy of a node. Paths and ranks must ascend. -ENOMEM; errors of the scratch. */
GR_MUST_CHECK int nodes_add(struct nodes *n, const struct node *node);
/* Change a node that was added, before nodes_end. place: what nodes_place returned just before the node was added.
 * Only an implicit directory gets another mtime. */
uint64_t nodes_place(const struct nodes *n);
GR_MUST_CHECK int nodes_set_mtime(struct nodes *n, uint64_t place, int64_t mtime, uint32_t mtime_nsec);
GR_MUST_CHECK int nodes_set_linked(struct nodes *n, uint64_t place);
/* End the sequence: no more nodes, and cursors may be created. Errors of the scratch. */
GR_MUST_CHECK int nodes_end(struct nodes *n);
uint64_t nodes_count(const struct nodes *n);
/* Return one more than the last rank, which is the size of an array indexed by rank. */
uint32_t nodes_rank_end(const struct nodes *n);

struct nodes_cursor;
/* n outlives the cursor. -ENOMEM. */
GR_MUST_CHECK int nodes_cursor_new(const struct nodes *n, struct nodes_cursor **out);
void nodes_cursor_free(struct nodes_cursor *c); /* NULL is allowed */
DEFINE_CLEANUP(nodes_cursor, struct nodes_cursor *, nodes_cursor_free)
/* Read the next node. 1: *out is it; 0: the end; or -errno of the scratch. */
GR_MUST_CHECK int nodes_next(struct nodes_cursor *c, struct node *out);

/* ---- extended attributes ---- */

/* Iterate over a node's extended attributes, named as erofs and ext4 name them: by the number of a prefix and the
 * rest. */

enum { XATTR_ACL_ACCESS = 2, XATTR_ACL_DEFAULT = 3 };

struct xattr {
    uint8_t prefix;
    const char *name; /* after the prefix; not NUL-terminated */
    size_t name_len;
    const uint8_t *value;
    size_t value_len;
};

/* Take the next attribute off a sequence as struct node has it; false: its end. Pointers lead into the sequence.
 * Names without a known prefix are skipped; the listing lets none through. */
bool xattr_next(const uint8_t **p, const uint8_t *end, struct xattr *out);

/* Append an attribute to such a sequence. -EBADMSG: there is no prefix of this number; -EMSGSIZE, -ENOMEM. */
GR_MUST_CHECK int xattr_append(struct bytes *out, const struct xattr *x);

#endif
