/* Nodes of the chunk index: a tree of fixed fan-out whose root stands in the manifest
 * (docs/reference/format-store.md, "Index"). Leaf number i describes chunks [i * INDEX_FANOUT, (i+1) *
 * INDEX_FANOUT); an inner node's entry j its child j. An all-zero child digest stands for a subtree
 * of holes and has no object. A Merkle chain: the manifest names the root, a node names its
 * children with their digest, length and CRC.
 *
 * Beside the storage digest each inner entry carries the child's *content hash*: for a leaf SHA-256
 * over its chunks' plain digests (32 bytes each, holes zero, as many as the leaf describes), for an
 * inner node SHA-256 over its children's content hashes. A subtree of holes has an all-zero content
 * hash. The content root is SHA-256("granary content 1\n" || le64 image size || le32 chunk size ||
 * root content hash).
 */
#ifndef GRANARY_FORMAT_INDEX_H
#define GRANARY_FORMAT_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "format/chunk.h"

enum {
    INDEX_FANOUT = 1024,
    INDEX_NODE_MAX = 128 << 10, /* bytes: no node is longer */
    INDEX_LEVELS_MAX = 5,       /* 1024^5 chunks: beyond any image */
};

/* One child of an inner node. */
struct index_child {
    struct digest digest;  /* of the child's object; zero: holes */
    struct digest content; /* content hash; zero: holes */
    uint32_t len;          /* bytes of the child's object */
    uint32_t crc;          /* CRC-32C of it */
};

/* A decoded node. */
struct index_node {
    unsigned level; /* 0: leaf */
    uint32_t count; /* entries, 1..INDEX_FANOUT */
    union {
        struct chunk_ref *chunks;     /* level 0; kind OBJECT_PACK */
        struct index_child *children; /* level > 0 */
    };
};

/* Levels of the tree over chunk_count chunks (1 for up to INDEX_FANOUT). 0: more than
 * INDEX_LEVELS_MAX can hold. */
unsigned index_levels(uint64_t chunk_count);

/* Append the encoding of a leaf (chunks[0..count)) or inner node to *out and set *content to its
 * content hash. All chunks must have the plain length chunk_size but the image's last one; of a hole
 * only the zero digest counts (decoding gives zero in every field but kind). When all entries are
 * holes nothing is appended and *content is zero: such a node is not stored, its parent's entry is
 * all zero. -EINVAL with a sentence: an entry no node can hold. */
GR_MUST_CHECK int index_encode_leaf(const struct chunk_ref *chunks, uint32_t count, struct bytes *out,
                                    struct digest *content);
GR_MUST_CHECK int index_encode_inner(unsigned level, const struct index_child *children, uint32_t count,
                                     struct bytes *out, struct digest *content);

/* Decode a node. The caller has verified its digest where it came from outside; any bytes are safe
 * all the same. *out is owned: index_node_free. -EBADMSG with a sentence. */
GR_MUST_CHECK int index_decode(const void *data, size_t len, struct index_node **out);
void index_node_free(struct index_node *node);
DEFINE_CLEANUP(index_node, struct index_node *, index_node_free)

/* The content hash of a decoded node, as defined above. -ENOMEM. */
GR_MUST_CHECK int index_node_content(const struct index_node *node, struct digest *out);

/* Is this node the one that belongs at `level`, the `number`th of its level (both from 0), in an
 * image of this geometry: its level, how many entries it has, and each chunk's plain length?
 * -EBADMSG with a sentence. A reader calls it once for each node it fetched. */
GR_MUST_CHECK int index_node_check(const struct index_node *node, unsigned level, uint64_t number, uint64_t image_size,
                                   uint32_t chunk_size);

/* The reference by which the object of a child is fetched. */
struct chunk_ref index_child_ref(const struct index_child *child);

/* The content root, as defined above. */
struct digest index_content_root(uint64_t image_size, uint32_t chunk_size, const struct digest *root_content);

#endif
