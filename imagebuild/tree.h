/* The tree of an image being built, in memory: a node of about 110 bytes plus its name a path.
 * Takes paths in any order, makes missing parents (0755, mtime of the newest child below), judges
 * names, then orders children and hands nodes on in the byte order of the full path. Used from one
 * thread; sealed trees may be read from many.
 */
#ifndef GRANARY_IMAGEBUILD_TREE_H
#define GRANARY_IMAGEBUILD_TREE_H

#include "base/bytes.h"
#include "base/digest.h"
#include "imagebuild/source.h"

typedef uint32_t node_id;
#define NODE_ROOT ((node_id)0)
#define NODE_NONE UINT32_MAX

struct node {
    uint64_t name;    /* arena offset of name_len bytes */
    uint64_t blob;    /* arena offset of what tree_target/validator/xattrs read; 0: none */
    uint64_t size;    /* listing's, then the version's actually read */
    uint64_t address; /* of the body in the image; set by the layout, 0: none */
    int64_t mtime;
    struct digest content; /* SHA-256 of a regular file's bytes; zero: empty or not a file */
    node_id parent;
    node_id link;          /* the node that holds body and inode: itself, or the first name (in path order)
                              of a hard link */
    uint32_t first, count; /* children in the sealed order array (directories) */
    uint32_t mtime_nsec, uid, gid;
    uint32_t nlink; /* of node->link: names; directories: 2 + subdirectories */
    uint32_t rdev;  /* kernel's new_encode_dev form */
    uint16_t mode;
    uint8_t name_len;
    uint8_t flags;
};

struct tree;

struct tree_options {
    bool skip_bad_names; /* count and go on; else tree_add fails with -EINVAL naming the key */
    bool keep_special;   /* else setuid/setgid bits are cleared, device nodes, fifos and sockets
                            skipped and counted */
};

struct tree_stats {
    uint64_t names_skipped, special_skipped, xattrs_skipped;
    uint64_t files, directories, symlinks, hard_links, others, bytes;
};

GR_MUST_CHECK int tree_new(const struct tree_options *options, struct tree **out);
void tree_free(struct tree *t);
DEFINE_CLEANUP(tree, struct tree *, tree_free)

/* A node keeps so many bytes of extended attributes (in the sequence of source_entry), sorted by
 * name; what is beyond, and what neither filesystem can hold, is counted as skipped. */
enum { TREE_XATTRS_MAX = 64 << 10 };

/* Take one listed path. Refused (or skipped): empty component, ".", "..", NUL, a component over 255
 * bytes, a path over CATALOG_PATH_MAX, a file of the name of a directory ("a" beside "a/b"), a file
 * listed twice, a symbolic link's text that is empty or over 4,095 bytes. When such paths are
 * skipped, the outcome is the same in whatever order they come: the directory wins over the file,
 * the newer of two files over the older. A directory may be listed twice ("a/" and "a_$folder$"):
 * the newer entry counts. */
GR_MUST_CHECK int tree_add(struct tree *t, const struct source_entry *e);

/* No more paths: order children by bytes, resolve hard links, count. */
GR_MUST_CHECK int tree_seal(struct tree *t);

uint32_t tree_count(const struct tree *t); /* ids are 0..count-1 */
struct node *tree_node(const struct tree *t, node_id id);
const char *tree_name(const struct tree *t, const struct node *n); /* n->name_len bytes */
/* Children of a directory in byte order of names; dropped ones left out. */
const node_id *tree_children(const struct tree *t, node_id dir, uint32_t *out_count);
/* Replace *out by the full path (no leading slash). */
GR_MUST_CHECK int tree_path(const struct tree *t, node_id id, struct bytes *out);
const char *tree_target(const struct tree *t, const struct node *n, size_t *out_len); /* symlink text */
const char *tree_validator(const struct tree *t, const struct node *n, size_t *out_len);
const void *tree_xattrs(const struct tree *t, const struct node *n, size_t *out_len);

/* A regular file turned out to be another version: its size, mtime, validator (and mode and owner
 * when have_owner); its extended attributes stay the listing's. */
GR_MUST_CHECK int tree_set_version(struct tree *t, node_id id, const struct source_version *v);
/* It vanished: leave it out (of its hard link's other names too). Not a directory. */
void tree_drop(struct tree *t, node_id id);
bool tree_dropped(const struct tree *t, const struct node *n);

/* Visit every node (not dropped), the root first, in the byte order of the full path: "a", "a-b",
 * "a/x". Non-zero ends the walk and is returned. */
typedef int tree_visit(void *arg, struct tree *t, node_id id);
GR_MUST_CHECK int tree_walk(struct tree *t, tree_visit *visit, void *arg);

/* An iterator of the same order, for a reader that runs ahead of the writer. */
struct tree_cursor;
GR_MUST_CHECK int tree_cursor_new(struct tree *t, struct tree_cursor **out);
void tree_cursor_free(struct tree_cursor *c);
node_id tree_cursor_next(struct tree_cursor *c); /* NODE_NONE: the end */

struct tree_stats tree_stats(const struct tree *t);

#endif
