/* Storage of the tree: nodes and bytes in chunks that never move (a million files cost no copy of
 * the whole), names found by a hash over (parent, name) until the tree is sealed.
 *
 * What only some nodes have lies in one blob in the arena:
 *   u8 validator length, u8 parts (1 target, 2 xattrs), [le16 target length], [le32 xattrs length],
 *   validator, target, xattrs
 */
#include "imagebuild/tree.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/le.h"
#include "format/catalog.h"
#include "imagebuild/tree_internal.h"

enum { BLOB_TARGET = 1, BLOB_XATTRS = 2, BLOB_HEADER_MAX = 8, SLOTS_FIRST = 1024 };

int tree_out_of_memory(void)
{
    return error_set(-ENOMEM,
                     "tree: out of memory for the list of files; give the build more (about 200 bytes a file)");
}

/* ------------------------------------------------------------------ bytes */

/* Room for n bytes in one piece; *out_at is never 0. */
static uint8_t *arena_take(struct tree *t, size_t n, uint64_t *out_at)
{
    assert(n <= ARENA_CHUNK - 1);
    if (!t->arena.len || t->arena_used + n > ARENA_CHUNK) {
        uint8_t *chunk = malloc(ARENA_CHUNK);
        if (!chunk || vec_push(&t->arena, chunk)) {
            free(chunk);
            return NULL;
        }
        t->arena_used = t->arena.len == 1; /* offset 0 means none */
    }
    *out_at = (uint64_t)(t->arena.len - 1) << ARENA_CHUNK_BITS | t->arena_used;
    uint8_t *p = t->arena.items[t->arena.len - 1] + t->arena_used;
    t->arena_used += n;
    return p;
}

static const uint8_t *arena_at(const struct tree *t, uint64_t at)
{
    return t->arena.items[at >> ARENA_CHUNK_BITS] + (at & (ARENA_CHUNK - 1));
}

int tree_store_blob(struct tree *t, struct node *n, const struct source_entry *e)
{
    size_t target_len = S_ISLNK(e->mode) ? e->target_len : 0;
    n->blob = 0;
    if (!e->validator_len && !target_len && !e->xattrs_len)
        return 0;
    if (e->validator_len > CATALOG_VALIDATOR_MAX || target_len > UINT16_MAX || e->xattrs_len > ARENA_CHUNK / 2)
        return error_set(-EINVAL, "tree: what the source says of '%.*s' is too long", (int)e->path_len, e->path);
    uint64_t at;
    uint8_t *p = arena_take(t, BLOB_HEADER_MAX + e->validator_len + target_len + e->xattrs_len, &at);
    if (!p)
        return tree_out_of_memory();
    const uint8_t *start = p;
    *p++ = (uint8_t)e->validator_len;
    *p++ = (uint8_t)((target_len ? BLOB_TARGET : 0) | (e->xattrs_len ? BLOB_XATTRS : 0));
    if (target_len) {
        le16_put(p, (uint16_t)target_len);
        p += 2;
    }
    if (e->xattrs_len) {
        le32_put(p, (uint32_t)e->xattrs_len);
        p += 4;
    }
    if (e->validator_len)
        p = mempcpy(p, e->validator, e->validator_len);
    if (target_len)
        p = mempcpy(p, e->target, target_len);
    if (e->xattrs_len)
        p = mempcpy(p, e->xattrs, e->xattrs_len);
    t->arena_used -= BLOB_HEADER_MAX + e->validator_len + target_len + e->xattrs_len - (size_t)(p - start);
    n->blob = at;
    return 0;
}

struct blob {
    const uint8_t *validator, *target, *xattrs;
    size_t validator_len, target_len, xattrs_len;
};

static struct blob blob_of(const struct tree *t, const struct node *n)
{
    struct blob b = {0};
    if (!n->blob)
        return b;
    const uint8_t *p = arena_at(t, n->blob);
    b.validator_len = *p++;
    uint8_t parts = *p++;
    if (parts & BLOB_TARGET) {
        b.target_len = le16_get(p);
        p += 2;
    }
    if (parts & BLOB_XATTRS) {
        b.xattrs_len = le32_get(p);
        p += 4;
    }
    b.validator = p;
    b.target = b.validator + b.validator_len;
    b.xattrs = b.target + b.target_len;
    return b;
}

const char *tree_name(const struct tree *t, const struct node *n)
{
    return n->name_len ? (const char *)arena_at(t, n->name) : "";
}

const char *tree_target(const struct tree *t, const struct node *n, size_t *out_len)
{
    struct blob b = blob_of(t, n);
    *out_len = b.target_len;
    return b.target_len ? (const char *)b.target : NULL;
}

const char *tree_validator(const struct tree *t, const struct node *n, size_t *out_len)
{
    struct blob b = blob_of(t, n);
    *out_len = b.validator_len;
    return b.validator_len ? (const char *)b.validator : NULL;
}

const void *tree_xattrs(const struct tree *t, const struct node *n, size_t *out_len)
{
    struct blob b = blob_of(t, n);
    *out_len = b.xattrs_len;
    return b.xattrs_len ? b.xattrs : NULL;
}

/* ------------------------------------------------------------------ nodes */

uint32_t tree_count(const struct tree *t)
{
    return t->count;
}

struct node *tree_node(const struct tree *t, node_id id)
{
    assert(id < t->count);
    return &t->nodes.items[id >> NODE_CHUNK_BITS][id & (NODE_CHUNK - 1)];
}

/* The seed differs from run to run, so that no listing can be made to collide on purpose; nothing
 * in an image depends on it. */
static size_t hash_of(const struct tree *t, node_id parent, const char *name, size_t len)
{
    uint64_t h = t->seed ^ parent * 0x9E3779B97F4A7C15u;
    for (; len; len -= GR_MIN(len, 8u), name += 8) {
        uint64_t word = 0;
        memcpy(&word, name, GR_MIN(len, 8u));
        h = (h ^ word ^ (uint64_t)len << 56) * 0xFF51AFD7ED558CCDu;
        h ^= h >> 29;
    }
    return (size_t)(h ^ h >> 32);
}

/* The slot that holds the name, or the empty one where it belongs. */
static size_t slot_of(const struct tree *t, node_id parent, const char *name, size_t len)
{
    size_t mask = t->slot_count - 1;
    size_t i = hash_of(t, parent, name, len) & mask;
    for (; t->slots[i]; i = (i + 1) & mask) {
        const struct node *n = tree_node(t, t->slots[i] - 1);
        if (n->parent == parent && n->name_len == len && !memcmp(tree_name(t, n), name, len))
            break;
    }
    return i;
}

node_id tree_lookup(const struct tree *t, node_id parent, const char *name, size_t len)
{
    uint32_t slot = t->slots[slot_of(t, parent, name, len)];
    return slot ? slot - 1 : NODE_NONE;
}

static int grow_slots(struct tree *t)
{
    if (t->count + 1 < t->slot_count / 4 * 3)
        return 0;
    uint32_t *fresh = calloc(t->slot_count * 2, sizeof *fresh);
    if (!fresh)
        return tree_out_of_memory();
    free(t->slots);
    t->slots = fresh;
    t->slot_count *= 2;
    for (node_id id = 1; id < t->count; id++) {
        const struct node *n = tree_node(t, id);
        t->slots[slot_of(t, n->parent, tree_name(t, n), n->name_len)] = id + 1;
    }
    return 0;
}

int tree_create(struct tree *t, node_id parent, const char *name, size_t len, node_id *out)
{
    assert(len <= UINT8_MAX);
    if (t->count >= NODE_NONE - 1)
        return error_set(-EINVAL, "tree: more than %u paths", NODE_NONE - 1);
    int rc = grow_slots(t);
    if (rc)
        return rc;
    if (!(t->count & (NODE_CHUNK - 1))) {
        struct node *chunk = calloc(NODE_CHUNK, sizeof *chunk);
        if (!chunk || vec_push(&t->nodes, chunk)) {
            free(chunk);
            return tree_out_of_memory();
        }
    }
    uint64_t at = 0;
    uint8_t *copy = arena_take(t, len, &at);
    if (!copy)
        return tree_out_of_memory();
    memcpy(copy, name, len);
    size_t slot = slot_of(t, parent, name, len);
    node_id id = t->count++;
    struct node *n = tree_node(t, id);
    n->name = at;
    n->name_len = (uint8_t)len;
    n->parent = parent;
    n->link = id;
    if (id != NODE_ROOT)
        t->slots[slot] = id + 1;
    *out = id;
    return 0;
}

uint16_t tree_mode(const struct tree *t, uint32_t mode)
{
    return (uint16_t)(t->options.keep_special ? mode : mode & ~(uint32_t)(S_ISUID | S_ISGID));
}

void tree_count_node(struct tree *t, const struct node *n, bool in)
{
    uint64_t one = in ? 1 : -(uint64_t)1;
    bool alias = tree_node(t, n->link) != n;
    if (S_ISDIR(n->mode))
        t->stats.directories += one;
    else if (alias)
        t->stats.hard_links += one;
    else if (S_ISREG(n->mode))
        t->stats.files += one;
    else if (S_ISLNK(n->mode))
        t->stats.symlinks += one;
    else
        t->stats.others += one;
    if (S_ISREG(n->mode) && !alias)
        t->stats.bytes += in ? n->size : -n->size;
}

/* ------------------------------------------------------------------ life */

int tree_new(const struct tree_options *options, struct tree **out)
{
    CLEANUP(cleanup_tree) struct tree *t = calloc(1, sizeof *t);
    if (!t)
        return tree_out_of_memory();
    t->options = *options;
    t->slot_count = SLOTS_FIRST;
    t->slots = calloc(t->slot_count, sizeof *t->slots);
    if (!t->slots)
        return tree_out_of_memory();
    if (getrandom(&t->seed, sizeof t->seed, GRND_NONBLOCK) != sizeof t->seed)
        t->seed = 0x2545F4914F6CDD1Du;
    node_id root;
    int rc = tree_create(t, NODE_NONE, "", 0, &root);
    if (rc)
        return rc;
    struct node *n = tree_node(t, root);
    n->parent = NODE_ROOT;
    n->mode = S_IFDIR | 0755;
    n->flags = NODE_IMPLICIT;
    n->mtime = INT64_MIN;
    t->stats.directories = 1;
    *out = steal_ptr(&t);
    return 0;
}

void tree_free(struct tree *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->nodes.len; i++)
        free(t->nodes.items[i]);
    for (size_t i = 0; i < t->arena.len; i++)
        free(t->arena.items[i]);
    vec_release(&t->nodes);
    vec_release(&t->arena);
    vec_release(&t->links);
    vec_release(&t->aliases);
    free(t->slots);
    free(t->order);
    free(t->walk);
    free(t);
}

int tree_path(const struct tree *t, node_id id, struct bytes *out)
{
    size_t len = 0;
    for (node_id i = id; i != NODE_ROOT; i = tree_node(t, i)->parent)
        len += tree_node(t, i)->name_len + (len > 0);
    bytes_clear(out);
    uint8_t *p;
    int rc = bytes_extend(out, len, &p);
    if (rc)
        return rc;
    for (node_id i = id; i != NODE_ROOT;) {
        const struct node *n = tree_node(t, i);
        len -= n->name_len;
        memcpy(p + len, tree_name(t, n), n->name_len);
        i = n->parent;
        if (i != NODE_ROOT)
            p[--len] = '/';
    }
    return 0;
}

struct tree_stats tree_stats(const struct tree *t)
{
    return t->stats;
}
