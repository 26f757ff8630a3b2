/* The paths of an image being built, as a sequence of nodes in the byte order of the full path ("a", "a-b", "a/x"),
 * kept in a scratch: memory does not grow with their number. Each step of a build reads one such sequence and writes
 * the next: as listed, with what is to be done with each body, with what was done.
 *
 * One thread writes; then any number of cursors read, each used by one thread at a time.
 */
#ifndef GRANARY_IMAGEBUILD_TREE_NODES_H
#define GRANARY_IMAGEBUILD_TREE_NODES_H

#include "base/digest.h"
#include "base/spill/scratch.h"

#define NODE_ROOT UINT32_C(0)

/* What becomes of a regular file's bytes. */
enum node_plan {
    NODE_READ = 0, /* read from the source */
    NODE_KEEP,     /* in the image already, at `address`, by way of the parent */
    NODE_MOVE,     /* in the parent at `address`: read from there, written anew (compaction) */
};

/* Extended attributes, in the sequence of struct source_entry. */
enum { NODE_XATTRS_MAX = 64 << 10 };

struct node {
    uint32_t rank;   /* the path's place in the listing, from 0 (the root); ascending, gaps where files vanished */
    uint32_t parent; /* rank of the directory it stands in; the root is its own */
    uint32_t link;   /* rank of the first name of the file: its own, but for further names of a hard-linked file */
    bool linked;     /* the file has several names (set for the first one too) */
    bool implicit;   /* a directory that nobody listed: its mtime is that of the newest entry below */
    enum node_plan plan;
    uint16_t mode; /* type and permissions */
    uint32_t uid, gid;
    uint32_t rdev; /* the kernel's new_encode_dev form */
    int64_t mtime;
    uint32_t mtime_nsec;
    uint64_t size;         /* of a regular file; a symbolic link's text; else 0 */
    uint64_t address;      /* of the body in the image (or, NODE_MOVE, in the parent); 0: none */
    struct digest content; /* SHA-256 of a regular file's bytes; zero: empty, or not known yet */
    /* Bytes; a cursor's are valid until its next step. */
    const char *path; /* full, without a leading slash; the root is empty */
    size_t path_len;
    const char *name; /* the last component, within path; nodes_add does not read it */
    size_t name_len;
    const char *validator;
    size_t validator_len;
    const char *target; /* symbolic link's text; in the final sequence a further name has the first one's path here */
    size_t target_len;
    const void *xattrs;
    size_t xattrs_len;
};

struct nodes;

GR_MUST_CHECK int nodes_new(const struct scratch_config *config, struct nodes **out);
void nodes_free(struct nodes *n); /* NULL is allowed; no cursor may be left */
DEFINE_CLEANUP(nodes, struct nodes *, nodes_free)

/* Append a copy; paths and ranks ascend. */
GR_MUST_CHECK int nodes_add(struct nodes *n, const struct node *node);
/* What becomes known of a node only after nodes further on, before nodes_end: `place` is what nodes_place said just
 * before the node was added. */
uint64_t nodes_place(const struct nodes *n);
GR_MUST_CHECK int nodes_set_mtime(struct nodes *n, uint64_t place, int64_t mtime, uint32_t mtime_nsec);
GR_MUST_CHECK int nodes_set_linked(struct nodes *n, uint64_t place);
/* Nothing more comes; cursors may be made. */
GR_MUST_CHECK int nodes_end(struct nodes *n);
uint64_t nodes_count(const struct nodes *n);
/* One more than the last rank: arrays indexed by rank have so many places. */
uint32_t nodes_rank_end(const struct nodes *n);

struct nodes_cursor;
GR_MUST_CHECK int nodes_cursor_new(const struct nodes *n, struct nodes_cursor **out);
void nodes_cursor_free(struct nodes_cursor *c); /* NULL is allowed */
DEFINE_CLEANUP(nodes_cursor, struct nodes_cursor *, nodes_cursor_free)
/* The next node: 1, the end: 0, or -errno. */
GR_MUST_CHECK int nodes_next(struct nodes_cursor *c, struct node *out);

#endif
