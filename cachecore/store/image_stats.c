#include "store/image_stats.h"

#include "store/index_read.h"
#include "store/pack_set.h"

struct counting {
    struct image_stats *stats;
    struct pack_set packs;
};

static int count_node(void *arg, const struct index_child *node, unsigned level)
{
    struct counting *c = arg;
    c->stats->index_nodes++;
    c->stats->index_bytes += node->len;
    return 0;
}

static int count_chunks(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    struct counting *c = arg;
    c->stats->chunks += count;
    c->stats->holes += chunks ? 0 : count;
    for (uint64_t i = 0; chunks && i < count; i++) {
        const struct chunk_ref *ref = &chunks[i];
        if (chunk_is_hole(ref)) {
            c->stats->holes++;
            continue;
        }
        c->stats->zstd_chunks += !!(ref->flags & CHUNK_ZSTD);
        c->stats->plain_bytes += ref->plain_len;
        c->stats->stored_bytes += ref->stored_len;
        int rc = pack_set_add(&c->packs, ref);
        if (rc)
            return rc;
    }
    return 0;
}

int image_stats(struct store *s, const struct manifest *m, struct image_stats *out)
{
    *out = (struct image_stats){0};
    struct counting c = {.stats = out};
    const struct index_walk_ops ops = {.node = count_node, .chunks = count_chunks};
    int rc = index_walk(s, m, &ops, &c);
    pack_set_finish(&c.packs);
    out->packs = c.packs.needs.len;
    for (size_t i = 0; i < c.packs.needs.len; i++)
        out->pack_bytes += c.packs.needs.items[i].len;
    pack_set_release(&c.packs);
    return rc;
}
