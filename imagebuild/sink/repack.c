/* Pass 1 over the parent's leaves counts the live bytes of each pack; a listing of the store adds each pack's size;
 * then packs are chosen. Pass 2 copies their chunks. Packs that the parent does not use must not count: the store may
 * hold others when the build runs again.
 *
 *   packs:  digest -> live bytes, or CHOSEN
 *
 * A chunk that cannot be read ends the copying, not the build: it stays where it is, as without repacking. With
 * `erase` it ends the build, which otherwise would claim an erasure that did not happen.
 */
#include "imagebuild/sink/sink_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/map.h"
#include "base/vec.h"
#include "imagebuild/rebuild/parent.h"
#include "repository/read/chunk_read.h"

#define CHOSEN INT64_C(-1)

/* A pack that is dead enough to be chosen; bytes. */
struct candidate {
    struct digest pack;
    uint64_t live, size;
};

/* A chunk to be copied. */
struct moved {
    const struct chunk_ref *ref;
    uint64_t number;
};

struct repack {
    const struct repack_config *config;
    struct repack_counts counts;
    struct digest_map packs;
    VEC(struct candidate) candidates;
    uint64_t live, size;              /* of all packs in the map */
    struct moved moved[INDEX_FANOUT]; /* of the current leaf */
    const struct moved *run;          /* chunks of one pack, being read */
    int rc;                           /* first error of the packer, or with erase of a read */
    bool read_failed;
    struct bytes stored;
};

/* ------------------------------------------------------------------ choosing */

typedef int leaf_visit(struct repack *r, uint64_t first, uint32_t count, const struct chunk_ref *chunks);

/* Visit the parent's leaves in order, until an error or a failed read. */
static int each_leaf(struct repack *r, leaf_visit *visit)
{
    CLEANUP(cleanup_parent_leaves) struct parent_leaves *leaves = NULL;
    const uint64_t chunks = manifest_chunk_count(r->config->parent->manifest);
    int rc = parent_leaves_new(r->config->index, NULL, NULL, &leaves);
    for (uint64_t first = 0; first < chunks && !rc && !r->read_failed; first += INDEX_FANOUT) {
        const struct chunk_ref *refs;
        rc = upload_step(r->config->upload);
        if (!rc)
            rc = parent_leaves_get(leaves, first / INDEX_FANOUT, &refs);
        if (!rc && refs)
            rc = visit(r, first, (uint32_t)GR_MIN(chunks - first, (uint64_t)INDEX_FANOUT), refs);
    }
    return rc;
}

/* Return whether a chunk of the parent stays. */
static bool stays(const struct repack *r, uint64_t number, const struct chunk_ref *ref)
{
    const struct sink_parent *p = r->config->parent;
    return !chunk_is_hole(ref) && p->kept(p->arg, number);
}

/* Add the kept chunks of a leaf to their packs' live bytes. */
static int count_live(struct repack *r, uint64_t first, uint32_t count, const struct chunk_ref *chunks)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct chunk_ref *ref = &chunks[i];
        if (!stays(r, first + i, ref))
            continue;
        int rc = digest_map_add(&r->packs, &ref->object, 0);
        if (rc < 0)
            return rc;
        digest_map_find(&r->packs, &ref->object)->value += ref->stored_len;
        r->live += ref->stored_len;
    }
    return 0;
}

/* Return whether a pack may give up its chunks. */
static bool is_dead_enough(const struct repack *r, const struct candidate *c)
{
    return r->config->erase ? c->live < c->size : c->live * 100 <= c->size * REPACK_LIVE_PERCENT;
}

/* Take a pack from the listing, if the parent uses it. */
static int note_pack(void *arg, const struct store_item *item)
{
    struct repack *r = arg;
    enum object_kind kind;
    struct digest name;
    if (object_key_parse(item->key, &kind, &name) || kind != OBJECT_PACK || digest_is_zero(&name))
        return 0;
    const struct digest_slot *slot = digest_map_find(&r->packs, &name);
    if (!slot)
        return 0;
    const struct candidate c = {.pack = name, .live = (uint64_t)slot->value, .size = item->size};
    r->size += c.size;
    if (digest_map_find(r->config->needed, &name) || !is_dead_enough(r, &c))
        return 0;
    return vec_push(&r->candidates, c);
}

/* Order by live share, the smallest first; equal shares by name. */
static int candidate_order(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    const double left = (double)x->live / (double)x->size, right = (double)y->live / (double)y->size;
    if (left != right)
        return left < right ? -1 : 1;
    return memcmp(x->pack.b, y->pack.b, DIGEST_SIZE);
}

/* Choose packs within the budget, and mark them in the map. */
static int repack_choose(struct repack *r)
{
    struct store *s = r->config->parent->store;
    const bool erase = r->config->erase;
    uint64_t left = erase ? UINT64_MAX : r->config->budget;
    int rc = each_leaf(r, count_live);
    if (!rc)
        rc = store_list(s, "packs/", note_pack, r);
    if (rc || !r->candidates.len || (!erase && r->size <= r->live + r->live / 100 * REPACK_DEAD_PERCENT))
        return rc;
    qsort(r->candidates.items, r->candidates.len, sizeof *r->candidates.items, candidate_order);
    for (size_t i = 0; i < r->candidates.len; i++) {
        if (r->candidates.items[i].live > left)
            continue;
        left -= r->candidates.items[i].live;
        digest_map_find(&r->packs, &r->candidates.items[i].pack)->value = CHOSEN;
        r->counts.packs++;
    }
    return 0;
}

/* ------------------------------------------------------------------ copying */

/* Order by pack and offset, so that neighbours are read together. */
static int by_place(const void *a, const void *b)
{
    const struct moved *x = a, *y = b;
    int order = memcmp(x->ref->object.b, y->ref->object.b, DIGEST_SIZE);
    return order ? order : x->ref->offset < y->ref->offset ? -1 : x->ref->offset > y->ref->offset;
}

/* Take one chunk that was read, and hand it to the packer. */
static void take_chunk(void *arg, size_t i, int rc, struct buf *plain, const void *stored)
{
    struct repack *r = arg;
    const struct moved *m = &r->run[i];
    buf_unref(plain);
    if (rc && r->config->erase && !r->rc)
        r->rc = rc == -ECANCELED ? rc : parent_refused(rc);
    else if (rc && !r->read_failed)
        log_warning("build: repacking ends, since a chunk of the parent cannot be read: %s", error_text());
    r->read_failed |= rc != 0;
    if (r->read_failed || r->rc)
        return;
    bytes_clear(&r->stored);
    r->rc = bytes_append(&r->stored, stored, m->ref->stored_len);
    if (!r->rc)
        r->rc = packer_add(r->config->packer, m->number, m->ref, &r->stored);
    r->counts.chunks++;
    r->counts.bytes += m->ref->stored_len;
}

/* Copy the leaf's chunks that lie in chosen packs, pack by pack. */
static int copy_leaf(struct repack *r, uint64_t first, uint32_t count, const struct chunk_ref *chunks)
{
    const struct chunk_ref *refs[INDEX_FANOUT];
    size_t moved = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct chunk_ref *ref = &chunks[i];
        if (stays(r, first + i, ref) && digest_map_find(&r->packs, &ref->object)->value == CHOSEN)
            r->moved[moved++] = (struct moved){ref, first + i};
    }
    qsort(r->moved, moved, sizeof *r->moved, by_place);
    for (size_t i = 0; i < moved; i++)
        refs[i] = r->moved[i].ref;
    for (size_t begin = 0, end; begin < moved && !r->rc && !r->read_failed; begin = end) {
        for (end = begin; end < moved && digest_equal(&refs[end]->object, &refs[begin]->object); end++)
            ;
        r->run = &r->moved[begin];
        /* take_chunk gets each chunk's result */
        (void)chunk_read_run(r->config->parent->store, &refs[begin], end - begin, take_chunk, r);
    }
    return r->rc;
}

int repack_run(const struct repack_config *config, struct repack_counts *out)
{
    struct repack *r = calloc(1, sizeof *r);
    *out = (struct repack_counts){0};
    if (!r)
        return error_no_memory();
    r->config = config;
    r->stored = (struct bytes)BYTES_INIT(CHUNK_SIZE_MAX);
    int rc = repack_choose(r);
    if (!rc && r->counts.packs)
        rc = each_leaf(r, copy_leaf);
    *out = r->counts;
    digest_map_release(&r->packs);
    vec_release(&r->candidates);
    bytes_release(&r->stored);
    free(r);
    return rc;
}
