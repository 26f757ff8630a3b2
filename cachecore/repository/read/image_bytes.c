/* Two small tables of slots with LRU replacement, one for index nodes and one for chunks. A slot's key is its level (0
 * for chunks) and number:
 *
 *   free -> loading -> filled -> loading (for another key, when least recently used) ...
 *              \-> free (failed)
 *
 * One lock guards the slots and is not held during a fetch. A thread that needs a key which another one is loading
 * waits for it, so nothing is fetched twice at the same time. */
#include "repository/read/chunk_read.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "repository/read/index_read.h"

enum { NODE_SLOTS = 16 };

/* A cached node or chunk; guarded by image_bytes.lock. Only the loading thread may fill a slot that is loading. */
struct slot {
    bool loading;
    unsigned level; /* 0 for chunks */
    uint64_t number;
    uint64_t used; /* time of the last use, by image_bytes.clock; 0: free */
    struct index_node *node;
    struct buf *chunk;
};

/* Searched linearly: a fetch takes far longer than 128 comparisons. */
struct table {
    struct slot slots[IMAGE_BYTES_CHUNKS];
    size_t count; /* slots in use */
};

/* store and manifest are constant; `lock` guards the rest. */
struct image_bytes {
    struct store *store;
    const struct manifest *manifest;
    pthread_mutex_t lock;
    pthread_cond_t loaded; /* a slot has stopped loading */
    uint64_t clock;
    struct table nodes, chunks;
};

int image_bytes_new(struct store *s, const struct manifest *m, struct image_bytes **out)
{
    struct image_bytes *b = calloc(1, sizeof *b);
    if (!b)
        return error_no_memory();
    b->store = s;
    b->manifest = m;
    b->nodes.count = NODE_SLOTS;
    b->chunks.count = GR_MIN(IMAGE_BYTES_MEMORY / m->chunk_size, (uint32_t)IMAGE_BYTES_CHUNKS);
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->loaded, NULL);
    *out = b;
    return 0;
}

static void empty_slot(struct slot *s)
{
    index_node_free(s->node);
    buf_unref(s->chunk);
    *s = (struct slot){.used = 0};
}

void image_bytes_free(struct image_bytes *b)
{
    if (!b)
        return;
    for (size_t i = 0; i < IMAGE_BYTES_CHUNKS; i++) {
        empty_slot(&b->nodes.slots[i]);
        empty_slot(&b->chunks.slots[i]);
    }
    pthread_mutex_destroy(&b->lock);
    pthread_cond_destroy(&b->loaded);
    free(b);
}

/* ------------------------------------------------------------------ slots */

static struct slot *look_up_locked(struct table *t, unsigned level, uint64_t number)
{
    for (size_t i = 0; i < t->count; i++) {
        struct slot *s = &t->slots[i];
        if ((s->used || s->loading) && s->level == level && s->number == number)
            return s;
    }
    return NULL;
}

/* Return the least recently used slot; NULL: all are loading. */
static struct slot *oldest_locked(struct table *t)
{
    struct slot *oldest = NULL;
    for (size_t i = 0; i < t->count; i++) {
        struct slot *s = &t->slots[i];
        if (!s->loading && (!oldest || s->used < oldest->used))
            oldest = s;
    }
    return oldest;
}

/* Return the slot of a key: filled, or with *out_load for the caller to load it and call end_load_locked. Called with
 * the lock held; waits while the key, or every slot, is being loaded. */
static struct slot *find_slot_locked(struct image_bytes *b, struct table *t, unsigned level, uint64_t number,
                                     bool *out_load)
{
    for (;;) {
        struct slot *s = look_up_locked(t, level, number);
        if (s && !s->loading) {
            s->used = ++b->clock;
            *out_load = false;
            return s;
        }
        if (!s && (s = oldest_locked(t))) {
            empty_slot(s);
            *s = (struct slot){.loading = true, .level = level, .number = number};
            *out_load = true;
            return s;
        }
        pthread_cond_wait(&b->loaded, &b->lock);
    }
}

/* End a load. Takes over node and chunk; both NULL: it failed, and a waiting thread tries for itself. */
static void end_load_locked(struct image_bytes *b, struct slot *s, struct index_node *node, struct buf *chunk)
{
    s->loading = false;
    s->node = node;
    s->chunk = chunk;
    s->used = node || chunk ? ++b->clock : 0;
    pthread_cond_broadcast(&b->loaded);
}

/* ------------------------------------------------------------------ index */

/* Entry i of a node: a child of an inner node, or a chunk of a leaf. */
struct found {
    struct index_child child;
    struct chunk_ref chunk;
};

static void image_bytes_take_entry(const struct index_node *node, uint32_t i, struct found *out)
{
    if (node->level)
        out->child = node->children[i];
    else
        out->chunk = node->chunks[i];
}

/* Get entry i of the `number`th node of `level`, which `child` refers to. Entries are copied out under the lock,
 * because the slot may be reused at any time. */
static int find_in_node(struct image_bytes *b, const struct index_child *child, unsigned level, uint64_t number,
                        uint32_t i, struct found *out)
{
    struct index_node *node = NULL;
    struct slot *s;
    {
        SCOPED_LOCK(&b->lock);
        bool load;
        s = find_slot_locked(b, &b->nodes, level, number, &load);
        if (!load) {
            image_bytes_take_entry(s->node, i, out);
            return 0;
        }
    }
    int rc = index_read_node(b->store, b->manifest, child, level, number, &node);
    if (!rc)
        image_bytes_take_entry(node, i, out);
    SCOPED_LOCK(&b->lock);
    end_load_locked(b, s, node, NULL);
    return rc;
}

/* Find where chunk `number` is stored, from the root down; a zero digest: a hole. */
static int find_chunk(struct image_bytes *b, uint64_t number, struct chunk_ref *out)
{
    struct found found = {.child = b->manifest->index_root};
    for (unsigned level = b->manifest->index_levels; level-- > 0;) {
        /* The node of this level on the path to the chunk, and the entry in it. */
        uint64_t node = number / INDEX_FANOUT;
        uint32_t i = (uint32_t)(number % INDEX_FANOUT);
        for (unsigned l = 0; l < level; l++) {
            i = (uint32_t)(node % INDEX_FANOUT);
            node /= INDEX_FANOUT;
        }
        if (digest_is_zero(&found.child.digest))
            break;
        const struct index_child child = found.child;
        int rc = find_in_node(b, &child, level, node, i, &found);
        if (rc)
            return rc;
    }
    *out = found.chunk;
    return 0;
}

/* ------------------------------------------------------------------ bytes */

/* Find and fetch a chunk; a hole becomes zeros. */
static int load_chunk(struct image_bytes *b, uint64_t number, struct buf **out)
{
    struct chunk_ref ref;
    int rc = find_chunk(b, number, &ref);
    if (rc)
        return rc;
    if (!chunk_is_hole(&ref))
        return chunk_read_one(b->store, &ref, out);
    *out = buf_new(b->manifest->chunk_size);
    if (!*out)
        return error_no_memory();
    memset((*out)->data, 0, (*out)->len);
    return 0;
}

/* Get a chunk; the caller drops the reference *out. */
static int get_chunk(struct image_bytes *b, uint64_t number, struct buf **out)
{
    struct buf *chunk = NULL;
    struct slot *s;
    {
        SCOPED_LOCK(&b->lock);
        bool load;
        s = find_slot_locked(b, &b->chunks, 0, number, &load);
        if (!load) {
            *out = buf_ref(s->chunk);
            return 0;
        }
    }
    int rc = load_chunk(b, number, &chunk);
    SCOPED_LOCK(&b->lock);
    end_load_locked(b, s, NULL, chunk);
    if (!rc)
        *out = buf_ref(chunk);
    return rc;
}

int image_bytes_read(struct image_bytes *b, uint64_t address, uint64_t len, uint8_t *dst)
{
    const uint64_t size = b->manifest->chunk_size;
    if (address > b->manifest->size || len > b->manifest->size - address)
        return error_set(-EINVAL, "image: %llu bytes at %llu lie beyond its end", (unsigned long long)len,
                         (unsigned long long)address);
    while (len) {
        CLEANUP_BUF struct buf *chunk = NULL;
        int rc = get_chunk(b, address / size, &chunk);
        if (rc)
            return rc;
        uint64_t off = address % size, n = GR_MIN(len, size - off);
        memcpy(dst, chunk->data + off, n);
        address += n;
        dst += n;
        len -= n;
    }
    return 0;
}
