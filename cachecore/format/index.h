/* Nodes of the chunk index (docs/reference/format-store.md, "Index"): a Merkle tree of fixed fan-out that says for
 * every chunk of an image its digest and its place in a pack.
 *
 *   manifest --digest--> root (level n) --digests--> ... --> leaf (level 0) --> chunks in packs
 *
 * Leaf number i describes the chunks [i * INDEX_FANOUT, (i + 1) * INDEX_FANOUT). Entry j of an inner node describes its
 * child j by digest, length and CRC. An all-zero child digest stands for a subtree of holes, which has no object.
 *
 * The digests depend on how chunks are packed. So that two images with the same bytes can be compared, each inner entry
 * also contains its child's *content hash*: for a leaf, the SHA-256 over the plain digests of its chunks (32 bytes
 * each, zeros for a hole); for an inner node, the SHA-256 over its children's content hashes; all zero for a subtree of
 * holes. The content root is SHA-256("granary content 1\n" || le64 image size || le32 chunk size || root content hash).
 *
 * A leaf with chunks that are deltas (chunk.h) has another version, which names their bases too. So the leaves name
 * every chunk that an image needs.
 *
 * No I/O, any thread.
 */
#ifndef GRANARY_FORMAT_INDEX_H
#define GRANARY_FORMAT_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "format/chunk.h"

enum {
    INDEX_FANOUT = 1024,        /* entries per node, at most */
    INDEX_NODE_MAX = 192 << 10, /* bytes that no encoded node exceeds; without deltas 128 KiB */
    INDEX_LEVELS_MAX = 5,       /* 1024^5 chunks: more than any image has */
};

/* One child of an inner node. */
struct index_child {
    struct digest digest;  /* of the child's object; zero: holes */
    struct digest content; /* content hash; zero: holes */
    uint32_t len;          /* bytes of the child's object */
    uint32_t crc;          /* CRC-32C of it */
};

/* A decoded node; immutable. */
struct index_node {
    unsigned level; /* 0: leaf */
    uint32_t count; /* entries, 1..INDEX_FANOUT */
    union {
        struct chunk_ref *chunks;     /* level 0; kind OBJECT_PACK */
        struct index_child *children; /* level > 0 */
    };
};

/* Return the number of levels of the tree over chunk_count chunks, 1 for up to INDEX_FANOUT; 0: INDEX_LEVELS_MAX levels
 * are not enough. */
unsigned index_levels(uint64_t chunk_count);

/* Append the encoding of a leaf or an inner node of `count` entries to *out, and set *content to its content hash. All
 * chunks of a leaf must have the same plain length, except that the last may be shorter. A hole needs only the zero
 * digest; decoding sets its other fields to zero, kind excepted. When all entries are holes, nothing is appended and
 * *content is zero: such a node is not stored, and its entry in the parent is all zero. -EINVAL: an entry that no node
 * can contain; -EMSGSIZE: out's maximum is too small; -ENOMEM; all with a sentence. */
GR_MUST_CHECK int index_encode_leaf(const struct chunk_ref *chunks, uint32_t count, struct bytes *out,
                                    struct digest *content);
GR_MUST_CHECK int index_encode_inner(unsigned level, const struct index_child *children, uint32_t count,
                                     struct bytes *out, struct digest *content);

/* Decode a node; the caller frees *out with index_node_free. The caller has verified the digest of bytes from outside,
 * but any bytes are safe. -EBADMSG or -ENOMEM, with a sentence. */
GR_MUST_CHECK int index_decode(const void *data, size_t len, struct index_node **out);
void index_node_free(struct index_node *node);
DEFINE_CLEANUP(index_node, struct index_node *, index_node_free)

/* Compute the content hash of a node, as defined above. -ENOMEM. */
GR_MUST_CHECK int index_node_content(const struct index_node *node, struct digest *out);

/* Check that a node fits its place in an image of this geometry: node `number` of level `level`, both from 0. Checks
 * the node's level, its number of entries and each chunk's plain length. -EBADMSG with a sentence. A reader calls it
 * once for each node that it fetched. */
GR_MUST_CHECK int index_node_check(const struct index_node *node, unsigned level, uint64_t number, uint64_t image_size,
                                   uint32_t chunk_size);

/* Return the reference by which a child's object is fetched. */
struct chunk_ref index_child_ref(const struct index_child *child);

/* Return the content root, as defined above. */
struct digest index_content_root(uint64_t image_size, uint32_t chunk_size, const struct digest *root_content);

#endif
