/* Encode and decode index nodes. The bytes of a node (little-endian; docs/reference/format-store.md, "Index"):
 *
 *   header (24 bytes) | bitmap of the entries that are not holes | [leaf: pack table] | entries
 *
 *   header:  magic 4 | version 1 | level 1 | count 2 | chunk size 4 | last length 4 | packs 2 | present 2 | zero 4
 *
 * A hole takes one bit. A leaf names each pack once, in the order of first use, and its entries refer to packs by
 * number.
 *
 * A node has exactly one encoding, so that equal nodes have equal digests and are stored once. The decoder therefore
 * refuses a pack table in another order or with unused packs, and any stray bit.
 */
#include "format/index.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/le.h"

/* Sizes in bytes. */
enum {
    HEADER = 24,
    LEAF_ENTRY = 47,  /* pack 2, offset 4, stored_len 4, crc 4, flags 1, digest 32 */
    INNER_ENTRY = 72, /* digest 32, content 32, len 4, crc 4 */
    VERSION = 1,
    VERSION_DELTA = 2, /* of a leaf with deltas: the bases follow the entries */
};
static const char magic[4] = {'G', 'R', 'I', 'X'};

/* A base has the form of an entry, and may have a pack of its own. */
static_assert(HEADER + INDEX_FANOUT / 8 + 2 * INDEX_FANOUT * (LEAF_ENTRY + DIGEST_SIZE) <= INDEX_NODE_MAX, "leaf");
static_assert(HEADER + INDEX_FANOUT / 8 + INDEX_FANOUT * INNER_ENTRY <= INDEX_NODE_MAX, "inner node");

struct header {
    unsigned level;
    uint32_t count, present, packs; /* entries; those that are not holes; leaf: packs in the table */
    uint32_t chunk_size, last_len;  /* leaf: plain length of every chunk but the last, and of the last */
    uint32_t deltas;                /* entries of a leaf that are deltas */
};

static size_t bitmap_size(uint32_t count)
{
    return (count + 7) / 8;
}

/* Return the exact length of the encoded node. */
static size_t node_size(const struct header *h)
{
    size_t entry = h->level ? INNER_ENTRY : LEAF_ENTRY;
    return HEADER + bitmap_size(h->count) + (size_t)h->packs * DIGEST_SIZE + (size_t)h->present * entry +
           (size_t)h->deltas * LEAF_ENTRY;
}

/* Write the header at p. */
static void header_put(uint8_t *p, const struct header *h)
{
    memcpy(p, magic, sizeof magic);
    p[4] = h->deltas ? VERSION_DELTA : VERSION;
    p[5] = (uint8_t)h->level;
    le16_put(p + 6, (uint16_t)h->count);
    le32_put(p + 8, h->chunk_size);
    le32_put(p + 12, h->last_len);
    le16_put(p + 16, (uint16_t)h->packs);
    le16_put(p + 18, (uint16_t)h->present);
    le32_put(p + 20, h->deltas);
}

unsigned index_levels(uint64_t chunk_count)
{
    uint64_t holds = INDEX_FANOUT;
    for (unsigned levels = 1; levels <= INDEX_LEVELS_MAX; levels++, holds *= INDEX_FANOUT)
        if (chunk_count <= holds)
            return levels;
    return 0;
}

struct chunk_ref index_child_ref(const struct index_child *child)
{
    return (struct chunk_ref){
        .digest = child->digest,
        .object = child->digest,
        .kind = OBJECT_INDEX,
        .stored_len = child->len,
        .stored_crc = child->crc,
        .plain_len = child->len,
    };
}

struct digest index_content_root(uint64_t image_size, uint32_t chunk_size, const struct digest *root_content)
{
    static const char label[] = "granary content 1\n";
    uint8_t text[sizeof label - 1 + 12 + DIGEST_SIZE], *p = text;
    memcpy(p, label, sizeof label - 1);
    p += sizeof label - 1;
    le64_put(p, image_size);
    le32_put(p + 8, chunk_size);
    memcpy(p + 12, root_content->b, DIGEST_SIZE);
    return digest_of(text, sizeof text);
}

int index_node_content(const struct index_node *node, struct digest *out)
{
    CLEANUP(cleanup_hasher) struct hasher *hash = hasher_new();
    if (!hash)
        return error_no_memory();
    bool holes = true; /* a node of holes alone has a content hash of zeros, as its entry in the parent says */
    for (uint32_t i = 0; i < node->count; i++) {
        const struct digest *d = node->level ? &node->children[i].content : &node->chunks[i].digest;
        hasher_update(hash, d->b, DIGEST_SIZE);
        holes = holes && digest_is_zero(d);
    }
    *out = holes ? (struct digest){{0}} : hasher_finish(hash);
    return 0;
}

/* May a leaf contain this chunk, or a delta have it as its base? The same rule for encoding and decoding. A compressed
 * chunk must be smaller than its plain bytes. */
static bool plain_entry_valid(const struct chunk_ref *ref)
{
    if (ref->flags & ~CHUNK_ZSTD || digest_is_zero(&ref->object) || chunk_is_hole(ref))
        return false;
    if (ref->plain_len == 0 || ref->plain_len > CHUNK_SIZE_MAX || ref->offset > UINT32_MAX - ref->stored_len)
        return false;
    if (ref->flags & CHUNK_ZSTD)
        return ref->stored_len > 0 && ref->stored_len < ref->plain_len;
    return ref->stored_len == ref->plain_len;
}

/* The same for an entry that may be a delta, whose base is valid by itself. */
static bool leaf_entry_valid(const struct chunk_ref *ref)
{
    struct chunk_ref entry = *ref;
    if ((ref->flags & ~CHUNK_SPLIT) == CHUNK_DELTA)
        entry.flags = CHUNK_ZSTD;
    return plain_entry_valid(&entry);
}

static bool base_valid(const struct chunk_ref *delta)
{
    const struct chunk_ref base = chunk_base_ref(delta);
    return plain_entry_valid(&base);
}

/* What the entries of a leaf need beside its header: its packs, and the place of each entry's and each base's pack
 * among them. */
struct leaf_packs {
    struct digest table[2 * INDEX_FANOUT];
    uint16_t of_entry[INDEX_FANOUT], of_base[INDEX_FANOUT];
};

/* Return a pack's place in the table, and add it if it is new. */
static uint16_t leaf_pack(struct header *h, struct leaf_packs *packs, const struct digest *pack)
{
    /* Neighbouring chunks are mostly in the same pack, so search from the newest pack back. */
    uint32_t k = h->packs;
    while (k > 0 && !digest_equal(&packs->table[k - 1], pack))
        k--;
    if (k == 0) {
        packs->table[h->packs] = *pack;
        k = ++h->packs;
    }
    return (uint16_t)(k - 1);
}

/* Take one entry into the header and the table. */
static int survey_entry(const struct chunk_ref *ref, uint32_t i, struct header *h, struct leaf_packs *packs)
{
    if (!leaf_entry_valid(ref) || ref->kind != OBJECT_PACK || (chunk_is_delta(ref) && !base_valid(ref)))
        return error_set(-EINVAL, "index: entry %u of a leaf is out of bounds", i);
    const bool last = i + 1 == h->count;
    h->present++;
    h->deltas += chunk_is_delta(ref);
    if (last)
        h->last_len = ref->plain_len;
    /* Only the last chunk may differ, and the chunk size is that of any other; with a single chunk, its own. */
    if (!last && h->chunk_size && ref->plain_len != h->chunk_size)
        return error_set(-EINVAL, "index: entry %u of a leaf has a length of its own", i);
    if (!last || !h->chunk_size)
        h->chunk_size = ref->plain_len;
    packs->of_entry[i] = leaf_pack(h, packs, &ref->object);
    return 0;
}

/* Fill in the header, the pack table and the places in that table. -EINVAL: a chunk that no leaf can contain. */
static int leaf_survey(const struct chunk_ref *chunks, struct header *h, struct leaf_packs *packs)
{
    for (uint32_t i = 0; i < h->count; i++) {
        int rc = chunk_is_hole(&chunks[i]) ? 0 : survey_entry(&chunks[i], i, h, packs);
        if (rc)
            return rc;
    }
    for (uint32_t i = 0; h->deltas && i < h->count; i++)
        if (!chunk_is_hole(&chunks[i]) && chunk_is_delta(&chunks[i]))
            packs->of_base[i] = leaf_pack(h, packs, &chunks[i].base.object);
    if (!h->last_len) /* the last entry is a hole */
        h->last_len = h->chunk_size;
    if (h->last_len > h->chunk_size)
        return error_set(-EINVAL, "index: the last chunk of a leaf is longer than the others");
    return 0;
}

static uint8_t *leaf_entry_put(uint8_t *p, const struct chunk_ref *ref, uint16_t pack)
{
    le16_put(p, pack);
    le32_put(p + 2, ref->offset);
    le32_put(p + 6, ref->stored_len);
    le32_put(p + 10, ref->stored_crc);
    p[14] = ref->flags;
    memcpy(p + 15, ref->digest.b, DIGEST_SIZE);
    return p + LEAF_ENTRY;
}

/* Write everything behind the header. */
static void leaf_put(uint8_t *bitmap, const struct chunk_ref *chunks, const struct header *h,
                     const struct leaf_packs *packs)
{
    uint8_t *p = bitmap + bitmap_size(h->count);
    memcpy(p, packs->table, h->packs * sizeof *packs->table);
    p += h->packs * sizeof *packs->table;
    for (uint32_t i = 0; i < h->count; i++) {
        if (chunk_is_hole(&chunks[i]))
            continue;
        bitmap[i / 8] |= (uint8_t)(1u << i % 8);
        p = leaf_entry_put(p, &chunks[i], packs->of_entry[i]);
    }
    for (uint32_t i = 0; h->deltas && i < h->count; i++) {
        if (chunk_is_hole(&chunks[i]) || !chunk_is_delta(&chunks[i]))
            continue;
        const struct chunk_ref base = chunk_base_ref(&chunks[i]);
        p = leaf_entry_put(p, &base, packs->of_base[i]);
    }
}

int index_encode_leaf(const struct chunk_ref *chunks, uint32_t count, struct bytes *out, struct digest *content)
{
    if (count == 0 || count > INDEX_FANOUT)
        return error_set(-EINVAL, "index: a leaf of %u entries", count);
    CLEANUP_FREE struct leaf_packs *packs = calloc(1, sizeof *packs);
    if (!packs)
        return error_no_memory();
    struct header h = {.count = count};
    int rc = leaf_survey(chunks, &h, packs);
    if (rc)
        return rc;
    /* A node for the content hash alone. The cast drops const, but nothing writes through it. */
    struct index_node node = {.level = 0, .count = count, .chunks = (struct chunk_ref *)chunks};
    rc = index_node_content(&node, content);
    if (rc || h.present == 0)
        return rc;
    uint8_t *p;
    rc = bytes_extend(out, node_size(&h), &p);
    if (rc)
        return error_set(rc, "index: no room for a leaf of %zu bytes", node_size(&h));
    header_put(p, &h);
    leaf_put(p + HEADER, chunks, &h, packs);
    return 0;
}

/* Is the entry a hole with every field zero, or a node with digest, content hash and length? */
static bool inner_entry_valid(const struct index_child *c)
{
    if (digest_is_zero(&c->digest))
        return digest_is_zero(&c->content) && c->len == 0 && c->crc == 0;
    return !digest_is_zero(&c->content) && c->len > 0 && c->len <= INDEX_NODE_MAX;
}

static void inner_entry_put(uint8_t *p, const struct index_child *c)
{
    memcpy(p, c->digest.b, DIGEST_SIZE);
    memcpy(p + 32, c->content.b, DIGEST_SIZE);
    le32_put(p + 64, c->len);
    le32_put(p + 68, c->crc);
}

int index_encode_inner(unsigned level, const struct index_child *children, uint32_t count, struct bytes *out,
                       struct digest *content)
{
    if (count == 0 || count > INDEX_FANOUT || level == 0 || level >= INDEX_LEVELS_MAX)
        return error_set(-EINVAL, "index: a node of level %u with %u entries", level, count);
    struct header h = {.level = level, .count = count};
    for (uint32_t i = 0; i < count; i++) {
        if (!inner_entry_valid(&children[i]))
            return error_set(-EINVAL, "index: entry %u of a node of level %u is out of bounds", i, level);
        h.present += !digest_is_zero(&children[i].digest);
    }
    struct index_node node = {.level = level, .count = count, .children = (struct index_child *)children};
    int rc = index_node_content(&node, content);
    if (rc || h.present == 0)
        return rc;
    uint8_t *p;
    rc = bytes_extend(out, node_size(&h), &p);
    if (rc)
        return error_set(rc, "index: no room for a node of %zu bytes", node_size(&h));
    header_put(p, &h);
    uint8_t *bitmap = p + HEADER;
    p = bitmap + bitmap_size(count);
    for (uint32_t i = 0; i < count; i++) {
        if (digest_is_zero(&children[i].digest))
            continue;
        bitmap[i / 8] |= (uint8_t)(1u << i % 8);
        inner_entry_put(p, &children[i]);
        p += INNER_ENTRY;
    }
    return 0;
}

static int bad(const char *what)
{
    return error_set(-EBADMSG, "index node: %s", what);
}

/* Decode the header and check it against the node's length and its bitmap. */
static int decode_header(const uint8_t *p, size_t len, struct header *h)
{
    if (len < HEADER || memcmp(p, magic, sizeof magic))
        return bad("not an index node");
    if (p[4] != VERSION && p[4] != VERSION_DELTA)
        return error_set(-EBADMSG, "index node: version %u is newer than this program reads (%d): use a newer granary",
                         p[4], VERSION_DELTA);
    h->level = p[5];
    h->count = le16_get(p + 6);
    h->chunk_size = le32_get(p + 8);
    h->last_len = le32_get(p + 12);
    h->packs = le16_get(p + 16);
    h->present = le16_get(p + 18);
    h->deltas = le32_get(p + 20);
    if (h->level >= INDEX_LEVELS_MAX || h->count == 0 || h->count > INDEX_FANOUT)
        return bad("level or count out of bounds");
    if (h->present == 0 || h->present > h->count || h->deltas > h->present || h->packs > h->present + h->deltas)
        return bad("more entries than it has room for, or none");
    if (!h->deltas != (p[4] == VERSION) || (h->level && h->deltas))
        return bad("deltas where its version or level has none, or none where it has some");
    /* an inner node has no packs and lengths, a leaf has both */
    if (h->level ? h->packs || h->chunk_size || h->last_len
                 : !h->packs || h->chunk_size > CHUNK_SIZE_MAX || !h->last_len || h->last_len > h->chunk_size)
        return bad("packs or lengths out of bounds");
    if (len != node_size(h))
        return bad("length differs from what its header says");
    uint32_t set = 0;
    for (uint32_t i = 0; i < bitmap_size(h->count) * 8; i++)
        if (p[HEADER + i / 8] >> i % 8 & 1) {
            if (i >= h->count)
                return bad("an entry after the last");
            set++;
        }
    return set == h->present ? 0 : bad("bitmap and count of entries differ");
}

/* The entries of a leaf, while they are decoded. */
struct leaf_reader {
    const uint8_t *packs, *p; /* the table; the next entry or base */
    uint32_t used, count;     /* packs of the table: used so far; all */
};

/* Decode one entry, but for its kind and plain length. */
static int leaf_entry_get(struct leaf_reader *r, struct chunk_ref *ref)
{
    uint32_t pack = le16_get(r->p);
    /* an entry may refer to a pack used before, or to the next one in the table */
    if (pack > r->used || pack >= r->count)
        return bad("an entry's pack is not in the table, or not in its order");
    r->used += pack == r->used;
    memcpy(ref->object.b, r->packs + (size_t)pack * DIGEST_SIZE, DIGEST_SIZE);
    ref->offset = le32_get(r->p + 2);
    ref->stored_len = le32_get(r->p + 6);
    ref->stored_crc = le32_get(r->p + 10);
    ref->flags = r->p[14];
    memcpy(ref->digest.b, r->p + 15, DIGEST_SIZE);
    r->p += LEAF_ENTRY;
    return 0;
}

/* Decode the bases, which follow the entries. */
static int decode_bases(const struct header *h, struct leaf_reader *r, struct chunk_ref *chunks)
{
    uint32_t deltas = 0;
    for (uint32_t i = 0; i < h->count; i++)
        deltas += chunk_is_delta(&chunks[i]);
    if (deltas != h->deltas)
        return bad("deltas and the count of them differ");
    for (uint32_t i = 0; deltas && i < h->count; i++) {
        struct chunk_ref base;
        if (!chunk_is_delta(&chunks[i]))
            continue;
        int rc = leaf_entry_get(r, &base);
        if (rc)
            return rc;
        chunks[i].base = chunk_as_base(&base);
        if (!base_valid(&chunks[i]))
            return bad("a base is out of bounds, or a delta itself");
    }
    return 0;
}

/* Decode a leaf. The bitmap and the exact length are checked already, so no read can leave the node. */
static int decode_leaf(const struct header *h, const uint8_t *bitmap, struct chunk_ref *chunks)
{
    const uint8_t *packs = bitmap + bitmap_size(h->count);
    struct leaf_reader r = {.packs = packs, .p = packs + (size_t)h->packs * DIGEST_SIZE, .count = h->packs};
    for (uint32_t i = 0; i < h->count; i++) {
        struct chunk_ref *ref = &chunks[i];
        ref->kind = OBJECT_PACK;
        if (!(bitmap[i / 8] >> i % 8 & 1))
            continue;
        int rc = leaf_entry_get(&r, ref);
        if (rc)
            return rc;
        ref->plain_len = i + 1 == h->count ? h->last_len : h->chunk_size;
        if (!leaf_entry_valid(ref))
            return bad("an entry is out of bounds");
    }
    int rc = decode_bases(h, &r, chunks);
    if (rc)
        return rc;
    return r.used == r.count ? 0 : bad("a pack of the table is not used");
}

/* Decode the entries of an inner node; entries that are holes stay zero. */
static int decode_inner(const struct header *h, const uint8_t *bitmap, struct index_child *children)
{
    const uint8_t *p = bitmap + bitmap_size(h->count);
    for (uint32_t i = 0; i < h->count; i++) {
        struct index_child *c = &children[i];
        if (!(bitmap[i / 8] >> i % 8 & 1))
            continue;
        memcpy(c->digest.b, p, DIGEST_SIZE);
        memcpy(c->content.b, p + 32, DIGEST_SIZE);
        c->len = le32_get(p + 64);
        c->crc = le32_get(p + 68);
        if (digest_is_zero(&c->digest) || !inner_entry_valid(c))
            return bad("an entry is out of bounds");
        p += INNER_ENTRY;
    }
    return 0;
}

int index_decode(const void *data, size_t len, struct index_node **out)
{
    struct header h = {.level = 0};
    int rc = decode_header(data, len, &h);
    if (rc)
        return rc;
    CLEANUP(cleanup_index_node) struct index_node *node = calloc(1, sizeof *node);
    if (!node)
        return error_no_memory();
    node->level = h.level;
    node->count = h.count;
    const uint8_t *bitmap = (const uint8_t *)data + HEADER;
    if (h.level == 0) {
        node->chunks = calloc(h.count, sizeof *node->chunks);
        rc = node->chunks ? decode_leaf(&h, bitmap, node->chunks) : error_no_memory();
    } else {
        node->children = calloc(h.count, sizeof *node->children);
        rc = node->children ? decode_inner(&h, bitmap, node->children) : error_no_memory();
    }
    if (!rc)
        *out = steal_ptr(&node);
    return rc;
}

int index_node_check(const struct index_node *node, unsigned level, uint64_t number, uint64_t image_size,
                     uint32_t chunk_size)
{
    uint64_t entries = (image_size + chunk_size - 1) / chunk_size;
    /* entries of the whole level: chunks at level 0, nodes of the level below above that */
    for (unsigned l = 0; l < level; l++)
        entries = (entries + INDEX_FANOUT - 1) / INDEX_FANOUT;
    if (number > entries / INDEX_FANOUT || node->level != level ||
        node->count != GR_MIN(entries - number * INDEX_FANOUT, (uint64_t)INDEX_FANOUT))
        return bad("its level or count is not what the image's size asks for");
    if (level > 0)
        return 0;
    for (uint32_t i = 0; i < node->count; i++) {
        uint64_t offset = (number * INDEX_FANOUT + i) * chunk_size;
        if (!chunk_is_hole(&node->chunks[i]) &&
            node->chunks[i].plain_len != GR_MIN((uint64_t)chunk_size, image_size - offset))
            return bad("a chunk's length is not what the image's size asks for");
    }
    return 0;
}

void index_node_free(struct index_node *node)
{
    if (!node)
        return;
    if (node->level == 0)
        free(node->chunks);
    else
        free(node->children);
    free(node);
}
