/* The plan, and compaction (below). The plan is a merge of two sorted sequences: the listing's nodes, and the parent's
 * catalog entries, of which `theirs` has the next one.
 *
 *   listing:  a  b     d  e          entry only in the listing:     added
 *   catalog:  a     c  d  e          only in the catalog:           removed
 *                                    in both: same version? kept : changed
 *
 * A parent of several images has as many catalogs, each with its own next entry. All that have the path of a node move
 * on together.
 */
#include "imagebuild/rebuild/rebuild_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "repository/read/catalog_read.h"

/* An image of the parent. */
struct theirs {
    const struct parent_image *image;
    struct catalog_cursor *catalog;
    const struct catalog_entry *entry; /* the next one; NULL: after the last */
};

struct plan {
    const struct plan_config *config;
    struct plan_counts *counts;
    struct theirs *theirs; /* by number of the image */
};

static void plan_release(struct plan *p)
{
    for (size_t i = 0; p->theirs && i < p->config->image_count; i++)
        catalog_cursor_free(p->theirs[i].catalog);
    free(p->theirs);
}

/* Open the catalogs. They share what one pass may fetch ahead. */
static int plan_open(struct plan *p)
{
    const struct plan_config *c = p->config;
    const unsigned ahead = (unsigned)(CATALOG_CURSOR_AHEAD / c->image_count);
    p->theirs = calloc(c->image_count, sizeof *p->theirs);
    if (!p->theirs)
        return error_no_memory();
    int rc = 0;
    for (size_t i = 0; i < c->image_count && !rc; i++) {
        p->theirs[i].image = &c->images[i];
        rc = catalog_cursor_new(c->store, &c->images[i].manifest, NULL, 0, ahead, &p->theirs[i].catalog);
    }
    return rc;
}

/* Advance to an image's next entry. */
static int next_theirs(struct theirs *t)
{
    int rc = catalog_cursor_next(t->catalog, &t->entry);
    if (rc < 0)
        return rc == -ECANCELED ? rc : parent_failed(rc);
    if (!rc)
        t->entry = NULL;
    return 0;
}

/* Return whether an entry is a file's first name, not a further one. */
static bool counts_as_file(const struct catalog_entry *e)
{
    return S_ISREG(e->mode) && !e->hard_link;
}

/* Return how an image's next path compares with n's. */
static int compare_path(const struct theirs *t, const struct node *n)
{
    return catalog_path_compare(t->entry->path, t->entry->path_len, n->path, n->path_len);
}

/* Skip an image's paths before n's, which are removed ones. n NULL: skip all. */
static int skip_removed(struct plan *p, struct theirs *t, const struct node *n)
{
    int rc = 0;
    while (!rc && t->entry && (!n || compare_path(t, n) < 0)) {
        p->counts->removed += counts_as_file(t->entry);
        rc = next_theirs(t);
    }
    return rc;
}

/* Return the entry's only extent, in the parent's address space; len 0: it lies outside its image. */
static struct catalog_extent extent_of(const struct theirs *t)
{
    struct catalog_extent at = t->entry->extents[0];
    const uint64_t size = t->image->manifest.size;
    if (at.offset >= size || at.len > size - at.offset)
        return (struct catalog_extent){0};
    at.offset += t->image->begin;
    return at;
}

/* Return whether a file is unchanged. A file without a validator never is. */
static bool same_version(const struct node *n, const struct catalog_entry *e)
{
    return n->size == e->size && n->validator_len && n->validator_len == e->validator_len &&
           !memcmp(n->validator, e->validator, n->validator_len);
}

/* Return whether an unchanged file is read because of damage: it lies in a damaged pack, or was written with a shard
 * of which some part does. An extent outside the image is plan_keep's to report. */
static bool is_damaged(const struct plan *p, const struct theirs *t, bool written)
{
    const struct parent_damage *damage = p->config->damage;
    if (!damage || !damage->chunks || written)
        return written && damage && damage->chunks;
    if (t->entry->extent_count != 1)
        return false;
    const struct catalog_extent at = extent_of(t);
    return at.len && live_map_fits(p->config->live, at.offset, at.len) &&
           parent_damage_touches(damage, at.offset, at.len);
}

/* Keep the bytes of an unchanged file. */
static int plan_keep(struct plan *p, struct node *n, const struct theirs *t)
{
    const struct catalog_entry *e = t->entry;
    if (!n->size)
        return 0;
    if (e->extent_count != 1 || digest_is_zero(&e->content)) {
        n->plan = NODE_READ; /* no build of this program writes such an entry */
        return 0;
    }
    const struct catalog_extent at = extent_of(t);
    if (at.len != n->size || !live_map_fits(p->config->live, at.offset, at.len))
        return error_set(PARENT_DAMAGED, "build: the parent's catalog places '%.*s' where no file can be",
                         (int)GR_MIN(e->path_len, (size_t)200), e->path);
    n->plan = NODE_KEEP;
    n->address = at.offset;
    n->content = e->content;
    live_map_add(p->config->live, at.offset, at.len);
    return 0;
}

/* Plan one node and count it. t: the image whose next entry has the same path; NULL: there is none. */
static int plan_judge(struct plan *p, struct node *n, const struct theirs *t)
{
    struct plan_counts *counts = p->counts;
    const struct catalog_entry *e = t ? t->entry : NULL;
    bool file = S_ISREG(n->mode) && n->link == n->rank;
    bool was_file = e && S_ISREG(e->mode);
    if (!file) {
        counts->removed += e && counts_as_file(e) && !S_ISREG(n->mode);
        return 0;
    }
    bool written = n->plan == NODE_KEEP; /* with the listing */
    bool same = was_file && same_version(n, e), healed = same && n->size && is_damaged(p, t, written);
    int rc = !written && same && !healed ? plan_keep(p, n, t) : 0;
    bool unchanged = (!written && n->plan == NODE_KEEP) || (was_file && !n->size && !e->size);
    if (unchanged)
        counts->unchanged++;
    else if (healed)
        counts->healed++;
    else if (was_file)
        counts->changed++;
    else
        counts->added++;
    *(unchanged ? &counts->bytes_kept : &counts->bytes_read) += n->size;
    counts->bytes_healed += healed ? n->size : 0;
    return rc;
}

/* Return whether the file's data can stay where the image has it. */
static bool is_usable(const struct plan *p, const struct node *n, const struct theirs *t)
{
    return S_ISREG(t->entry->mode) && same_version(n, t->entry) && !is_damaged(p, t, false);
}

/* Plan a node with its counterpart in the parent, if there is one. */
static int plan_node(struct plan *p, struct node *n)
{
    struct theirs *chosen = NULL, *end = p->theirs + p->config->image_count;
    int rc = 0;
    for (struct theirs *t = p->theirs; t < end && !rc; t++) {
        rc = skip_removed(p, t, n);
        if (rc || !t->entry || compare_path(t, n))
            continue;
        if (!chosen || (!is_usable(p, n, chosen) && is_usable(p, n, t)))
            chosen = t;
    }
    if (!rc)
        rc = plan_judge(p, n, chosen);
    for (struct theirs *t = p->theirs; t < end && !rc; t++)
        if (t->entry && !compare_path(t, n))
            rc = next_theirs(t);
    return rc;
}

static int plan_all(struct plan *p, struct nodes *to)
{
    const struct plan_config *config = p->config;
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *from = NULL;
    struct node n;
    uint64_t done = 0;
    int rc = nodes_cursor_new(config->listed, &from);
    for (size_t i = 0; i < config->image_count && !rc; i++)
        rc = next_theirs(&p->theirs[i]);
    while (!rc && (rc = nodes_next(from, &n)) == 1) {
        rc = plan_node(p, &n);
        if (!rc)
            rc = nodes_add(to, &n);
        if (!rc && ++done % PLAN_STEP == 0)
            rc = step_take(&config->step);
    }
    for (size_t i = 0; i < config->image_count && !rc; i++)
        rc = skip_removed(p, &p->theirs[i], NULL);
    return rc ? rc : nodes_end(to);
}

int plan_make(const struct plan_config *config, struct nodes **out, struct plan_counts *counts)
{
    CLEANUP(cleanup_nodes) struct nodes *nodes = NULL;
    struct plan p CLEANUP(plan_release) = {.config = config, .counts = counts};
    *counts = (struct plan_counts){0};
    int rc = plan_open(&p);
    if (!rc)
        rc = nodes_new(&config->scratch, &nodes);
    if (!rc)
        rc = plan_all(&p, nodes);
    if (rc)
        return rc;
    *out = steal_ptr(&nodes);
    return 0;
}

/* ------------------------------------------------------------------ compaction */

/* The ratio of a chunk tells how much emptying it is worth: its dead blocks, over the blocks of all files that would
 * have to move. Chunks are not sorted but counted by ratio, in classes of a power of two and an eighth.
 *
 *   classes:    low ratio ...  [lowest]  [ .. ][ .. ][ .. ]  high ratio
 *                                |         all chunks are taken
 *                                chunks in ascending order, until the budget or the need is used up
 *
 * So memory is one bit for each chunk: chosen or not.
 *
 * The sum of costs is at least what is moved, since a file that lies in two chosen chunks is counted twice and moved
 * once.
 */

enum { CLASSES = 64 * 8 };

/* The chosen chunks. */
struct compact {
    uint32_t chunk_size;
    uint64_t words;   /* of `chosen` */
    uint64_t chunks;  /* chosen */
    uint64_t *chosen; /* a bit a chunk */
};

/* A chunk that may be emptied, or the sum of a class. */
struct chunk {
    uint64_t dead, cost; /* blocks */
    unsigned class;      /* higher is better */
};

/* The rest of the budget, and the dead blocks that must still go; in blocks. */
struct limits {
    uint64_t budget, need;
};

void compact_free(struct compact *c)
{
    if (!c)
        return;
    free(c->chosen);
    free(c);
}

/* Rate a chunk. Returns false if it has nothing dead beside something live, or would cost too much to count. */
static bool compact_look_at(const struct live_map *l, uint64_t number, struct chunk *out)
{
    uint32_t live = live_map_blocks(l, number), all = live_map_chunk_size(l) / LIVE_BLOCK;
    if (!live || live == all)
        return false;
    *out = (struct chunk){.dead = all - live, .cost = live_map_cost(l, number)};
    if (out->cost == UINT32_MAX)
        return false;
    /* dead < 2^10, cost < 2^32: the quotient has at most 42 bits */
    uint64_t ratio = (out->dead << 32) / out->cost;
    unsigned bits = ratio ? 63 - (unsigned)__builtin_clzll(ratio) : 0;
    unsigned eighths = bits >= 3 ? (unsigned)(ratio >> (bits - 3)) & 7 : 0;
    out->class = bits * 8 + eighths;
    return true;
}

/* Spend the cost of a chunk or class, if the budget allows. */
static bool compact_take(struct limits *limits, const struct chunk *c)
{
    if (c->cost > limits->budget)
        return false;
    limits->budget -= c->cost;
    limits->need -= GR_MIN(limits->need, c->dead);
    return true;
}

/* Return the lowest class from which chunks are taken; all classes above it are taken whole. *limits becomes the
 * rest for that class. */
static unsigned lowest_class(const struct chunk sums[CLASSES], struct limits *limits)
{
    unsigned class = CLASSES;
    while (class > 0) {
        const struct chunk *sum = &sums[--class];
        if (sum->dead >= limits->need || !compact_take(limits, sum))
            break;
    }
    return class;
}

/* Mark the chosen chunks: a pass that sums up the classes, and a pass that chooses. */
static int compact_choose_chunks(struct compact *c, const struct live_map *l, struct limits limits)
{
    struct chunk *sums = calloc(CLASSES, sizeof *sums), chunk;
    uint64_t begin = live_map_begin(l) / c->chunk_size, end = live_map_chunk_end(l);
    if (!sums)
        return error_no_memory();
    for (uint64_t i = begin; i < end; i++) {
        if (!compact_look_at(l, i, &chunk))
            continue;
        sums[chunk.class].dead += chunk.dead;
        sums[chunk.class].cost += chunk.cost;
    }
    unsigned lowest = lowest_class(sums, &limits);
    free(sums);
    for (uint64_t i = begin; i < end; i++) {
        if (!compact_look_at(l, i, &chunk) || chunk.class < lowest)
            continue;
        if (chunk.class == lowest && (!limits.need || !compact_take(&limits, &chunk)))
            continue;
        c->chosen[i / 64] |= UINT64_C(1) << i % 64;
        c->chunks++;
    }
    return 0;
}

int compact_choose(const struct live_map *live, bool gaps, uint64_t budget, struct compact **out)
{
    const unsigned percent = COMPACT_DEAD_PERCENT + (gaps ? COMPACT_GAP_PERCENT : 0);
    uint64_t allowed = live_map_bytes(live) / 100 * percent, dead = live_map_dead_bytes(live);
    *out = NULL;
    if (dead <= allowed)
        return 0;
    CLEANUP(cleanup_compact) struct compact *c = calloc(1, sizeof *c);
    if (!c)
        return error_no_memory();
    c->chunk_size = live_map_chunk_size(live);
    c->words = live_map_chunk_end(live) / 64 + 1;
    c->chosen = calloc(c->words, sizeof *c->chosen);
    if (!c->chosen)
        return error_no_memory();
    struct limits limits = {.budget = budget / LIVE_BLOCK, .need = (dead - allowed) / LIVE_BLOCK};
    int rc = compact_choose_chunks(c, live, limits);
    if (!rc && c->chunks)
        *out = steal_ptr(&c);
    return rc;
}

static bool is_chosen(const struct compact *c, uint64_t chunk)
{
    return chunk / 64 < c->words && c->chosen[chunk / 64] >> chunk % 64 & 1;
}

/* Return whether a file must move. Chunks between its first and last are full of it and never chosen. Files written
 * with the listing lie in free chunks or after all that is kept, where nothing is chosen. */
static bool lies_in_chosen(const struct compact *c, uint64_t address, uint64_t len)
{
    return is_chosen(c, address / c->chunk_size) || is_chosen(c, (address + len - 1) / c->chunk_size);
}

int compact_apply(const struct compact *c, const struct compact_config *config, struct nodes **out,
                  struct compact_counts *counts)
{
    CLEANUP(cleanup_nodes) struct nodes *to = NULL;
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *from = NULL;
    struct node n;
    uint64_t done = 0;
    *counts = (struct compact_counts){.chunks = c->chunks};
    int rc = nodes_new(&config->scratch, &to);
    if (!rc)
        rc = nodes_cursor_new(config->planned, &from);
    while (!rc && (rc = nodes_next(from, &n)) == 1) {
        if (n.plan == NODE_KEEP && lies_in_chosen(c, n.address, n.size)) {
            n.plan = NODE_MOVE;
            live_map_remove(config->live, n.address, n.size);
            counts->files++;
            counts->bytes += n.size;
        }
        rc = nodes_add(to, &n);
        if (!rc && ++done % PLAN_STEP == 0)
            rc = step_take(&config->step);
    }
    if (!rc)
        rc = nodes_end(to);
    if (rc)
        return rc;
    *out = steal_ptr(&to);
    return 0;
}
