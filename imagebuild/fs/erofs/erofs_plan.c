/* The plan is made in two passes. The first walks the nodes and finds what each inode needs. A sort brings the inodes
 * into their order on disk, directory by directory, so that the children of a directory lie side by side. The second
 * pass gives each its place.
 *
 *   region:  | inode, attributes, tail | inode | inode, tail | ...    | blocks of directories and symbolic links |
 *            0                                                                                               end^
 *
 * An inode, its attributes and its inline tail share one block. If they do not fit, the tail becomes a block.
 * Attributes longer than a block continue in the next one, which erofs allows, but an inode itself never crosses a
 * block's end.
 *
 * Upon a parent, the first pass also finds where the parent has each path's inode and blocks. In the order of these
 * places, everything stays that still fits before what follows it. The rest, which is new or has grown, goes into gaps:
 * an inode into one close to its neighbour in path order, if there is one, or else with others of its directory into a
 * large one. What no gap takes goes to the end, as above. A directory that moved gets room, since it will grow again.
 *
 *   parent:  | a | b | c | d | blocks of b | blocks of d |
 *   plan:    | a | n |   | d |             | blocks of d | c, room |      b was removed, n is new, c outgrew its place
 *
 * If that leaves too much unused, or too many inodes apart from their neighbours, everything is laid out anew, with
 * room for directories.
 *
 * Memory: 4 bytes a node, upon a parent another bit; 8 for each hard-linked file and each inode with blocks; while the
 * plan is made a sorter, upon a parent two, and 8 MiB of gaps.
 */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/le.h"
#include "base/spill/sorter.h"
#include "base/vec.h"
#include "imagebuild/fs/erofs/erofs_internal.h"
#include "imagebuild/fs/fs.h"

enum {
    STEP_NODES = 1 << 15,
    GAPS_MAX = 1 << 20,                 /* more are not used */
    NEAR = (64 << 10) / EROFS_NID_UNIT, /* how far from its neighbour an inode may lie, */
    NEAR_GAPS = 16,                     /* and how many gaps there are tried */
};

/* Unused bytes between what stays, in units of EROFS_NID_UNIT. */
struct gap {
    uint32_t at, len;
};

/* State of a plan being made. */
struct planner {
    struct erofs_plan *plan;
    const struct fs_config *config;
    struct sorter *order; /* what gets a new place, by directory */
    /* Upon a parent; else NULL: */
    struct erofs_tree *parent;
    struct sorter *kept;            /* what has one in the parent, by position */
    bool roomy;                     /* there was a parent: directories get room to grow */
    uint64_t free;                  /* position after what stays and its room */
    VEC(struct gap) gaps;           /* ascending */
    size_t for_inodes, for_blocks;  /* the large gaps before are used up */
    uint64_t sorted;                /* records taken from the sorters */
    VEC(struct erofs_placed) after; /* blocks after all inodes, counted from there */
};

int erofs_too_large(void)
{
    return error_set(-EFBIG, "build: the image would pass " EROFS_LIMIT "; divide the dataset into several images");
}

int erofs_tally_add(struct erofs_tally *t, const struct erofs_inode *i, const struct fs_config *config)
{
    uint64_t said = (uint64_t)i->rank << 32 ^ (uint64_t)erofs_inode_need(i) << 24 ^ i->blocks;
    t->inodes++;
    t->sum += said * UINT64_C(0x9E3779B97F4A7C15) ^ said >> 29;
    return t->inodes % STEP_NODES ? 0 : step_take(&config->step);
}

/* ------------------------------------------------------------------ what each inode needs */

/* What is to be placed: an inode, blocks, or both of one. */
struct item {
    uint32_t parent, rank;
    uint32_t need, blocks; /* bytes of the inode in one piece; number of blocks. 0: not to be placed */
    uint32_t is_directory;
};

struct placing {
    uint32_t parent, rank; /* the sort key, big-endian */
};

/* Add what gets a new place. */
static int add_new(struct planner *w, const struct item *item)
{
    const struct placing key = {htobe32(item->parent), htobe32(item->rank)};
    w->plan->moved = true;
    return sorter_add(w->order, &key, sizeof key, item, sizeof *item);
}

/* Add what the parent has at a position. */
static int add_kept(struct planner *w, uint64_t position, const struct item *item)
{
    const uint64_t key = htobe64(position);
    return sorter_add(w->kept, &key, sizeof key, item, sizeof *item);
}

/* Decide whether a directory's tail becomes a block, because inode and tail have outgrown their place. Otherwise the
 * inode moves, and so changes the first block of every directory in it, which has its number: too many, if most
 * entries are directories. */
static int choose_parts(struct planner *w, const struct erofs_inode *i, uint32_t nid, struct item *item)
{
    uint32_t had;
    const bool many = i->rank == NODE_ROOT || (i->nlink - 2) * UINT64_C(64) >= i->size;
    int rc = many && i->tail ? erofs_tree_need(w->parent, nid, &had) : 0;
    if (rc || !many || !i->tail || item->need <= GR_ALIGN_UP(had, (uint32_t)EROFS_NID_UNIT))
        return rc;
    item->need -= i->tail;
    item->blocks++;
    return vec_push(&w->plan->plain, i->rank);
}

/* Return the bytes that an inode takes in any layout: a block has room for only one of more than half of it. */
static uint32_t space_of(uint32_t need)
{
    return GR_ALIGN_UP(need, need > EROFS_BLOCK / 2 && need <= EROFS_BLOCK ? (uint32_t)EROFS_BLOCK : EROFS_NID_UNIT);
}

/* Return the bytes to leave free after a directory's inode that moves: it has grown and will grow again. */
static uint32_t room_of_inode(const struct planner *w, const struct item *item)
{
    const uint64_t room = item->need / 4 + (uint64_t)item->blocks * (EROFS_BLOCK / 16);
    if (!w->roomy || !item->is_directory || item->need >= EROFS_BLOCK)
        return 0;
    return (uint32_t)GR_MIN(room, (uint64_t)EROFS_BLOCK - item->need);
}

/* Return the blocks to leave free after a directory's blocks. */
static uint32_t room_of_blocks(const struct planner *w, const struct item *item)
{
    return w->roomy && item->is_directory && item->blocks ? item->blocks / 8 + 1 : 0;
}

/* Note what an inode needs. */
static int plan(struct planner *w, const struct erofs_inode *i)
{
    const uint32_t nid = w->plan->nids[i->rank];
    struct item inode = {i->parent, i->rank, erofs_inode_need(i), (uint32_t)i->blocks, S_ISDIR(i->mode)};
    uint64_t block = 0;
    if (i->blocks >= UINT32_MAX)
        return erofs_too_large();
    int rc = nid && S_ISDIR(i->mode) ? choose_parts(w, i, nid, &inode) : 0;
    w->plan->used += space_of(inode.need) + (uint64_t)inode.blocks * EROFS_BLOCK;
    w->plan->room += room_of_inode(w, &inode) + (uint64_t)room_of_blocks(w, &inode) * EROFS_BLOCK;
    w->plan->directories += inode.is_directory;
    if (rc || !nid)
        return rc ? rc : add_new(w, &inode);
    struct item blocks = inode;
    inode.blocks = blocks.need = 0;
    rc = add_kept(w, (uint64_t)nid * EROFS_NID_UNIT, &inode);
    if (rc || !blocks.blocks)
        return rc;
    rc = erofs_tree_blocks(w->parent, nid, &block);
    if (rc)
        return rc;
    return block ? add_kept(w, block * EROFS_BLOCK, &blocks) : add_new(w, &blocks);
}

/* Find the inode that the parent has for a node. */
static int find_kept(struct planner *w, const struct node *n)
{
    return w->parent ? erofs_tree_find(w->parent, n->path, n->path_len, &w->plan->nids[n->rank]) : 0;
}

/* Plan an inode that is not a directory; count the first name of a hard-linked file. */
static int plan_leaf(void *arg, struct erofs_inode *i, const struct node *n)
{
    struct planner *w = arg;
    struct erofs_linked link = {n->rank, 1};
    if (n->linked && vec_push(&w->plan->links, link))
        return -ENOMEM;
    int rc = erofs_tally_add(&w->plan->tally, i, w->config);
    if (!rc)
        rc = find_kept(w, n);
    return rc ? rc : plan(w, i);
}

/* Compare items that begin with their rank, or such an item with a rank. */
static int compare_ranks(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static struct erofs_linked *find_link(const struct erofs_plan *p, uint32_t rank)
{
    return p->links.len ? bsearch(&rank, p->links.items, p->links.len, sizeof *p->links.items, compare_ranks) : NULL;
}

/* Count a further name. */
static int plan_again(void *arg, const struct node *n)
{
    struct planner *w = arg;
    struct erofs_linked *link = find_link(w->plan, n->link);
    if (!link)
        return error_set(-EIO, "erofs: a hard link without its first name: a bug, nothing was published");
    link->names++;
    return 0;
}

static int plan_enter(void *arg, const struct erofs_inode *dir, const struct node *n)
{
    return find_kept(arg, n);
}

/* A directory's needs are known only now. */
static int plan_leave(void *arg, const struct erofs_inode *dir, const uint8_t *last)
{
    struct planner *w = arg;
    int rc = erofs_tally_add(&w->plan->tally, dir, w->config);
    return rc ? rc : plan(w, dir);
}

static const struct erofs_walk_ops planning = {
    .leaf = plan_leaf, .again = plan_again, .enter = plan_enter, .leave = plan_leave};

/* ------------------------------------------------------------------ gaps */

/* Note what is unused up to this position. */
static int note_gap(struct planner *w, uint64_t end)
{
    const uint64_t at = GR_ALIGN_UP(w->free, (uint64_t)EROFS_NID_UNIT) / EROFS_NID_UNIT;
    const uint64_t len = end / EROFS_NID_UNIT - GR_MIN(at, end / EROFS_NID_UNIT);
    if (len < EROFS_INODE_SIZE / EROFS_NID_UNIT || at + len > UINT32_MAX || w->gaps.len == GAPS_MAX)
        return 0;
    return vec_push(&w->gaps, ((struct gap){(uint32_t)at, (uint32_t)len}));
}

/* Return whether bytes of an inode can be together at this position. One that fits into a block lies in one; others
 * need 64 bytes there. */
static bool inode_fits(uint64_t position, uint32_t need)
{
    const uint32_t room = EROFS_BLOCK - (uint32_t)(position % EROFS_BLOCK);
    return room >= (need <= EROFS_BLOCK ? need : EROFS_INODE_SIZE);
}

/* Return the first position from this one on where an inode can be. */
static uint64_t inode_position_from(uint64_t at, uint32_t need)
{
    at = GR_ALIGN_UP(at, (uint64_t)EROFS_NID_UNIT);
    return inode_fits(at, need) ? at : GR_ALIGN_UP(at, (uint64_t)EROFS_BLOCK);
}

/* Take bytes at the start of a gap, for an inode or (blocks) for blocks; false: it is too small. */
static bool take_gap(struct gap *g, uint64_t len, bool blocks, uint64_t *out)
{
    const uint64_t from = (uint64_t)g->at * EROFS_NID_UNIT, end = from + (uint64_t)g->len * EROFS_NID_UNIT;
    const uint64_t at = blocks ? GR_ALIGN_UP(from, (uint64_t)EROFS_BLOCK) : inode_position_from(from, (uint32_t)len);
    if (at + len > end)
        return false;
    *out = at;
    g->at = (uint32_t)(GR_ALIGN_UP(at + len, (uint64_t)EROFS_NID_UNIT) / EROFS_NID_UNIT);
    g->len = (uint32_t)(end / EROFS_NID_UNIT - g->at);
    return true;
}

/* Take bytes in the next large gap. A gap that is too small is not tried again. */
static bool take_large(struct planner *w, size_t *next, uint64_t len, bool blocks, uint64_t *out)
{
    for (; *next < w->gaps.len; ++*next) {
        struct gap *g = &w->gaps.items[*next];
        if (g->len >= EROFS_BLOCK / EROFS_NID_UNIT && take_gap(g, len, blocks, out))
            return true;
    }
    return false;
}

/* Take bytes for an inode in a gap close to another inode: after it, or else before it. */
static bool take_near(struct planner *w, uint32_t nid, uint64_t len, uint64_t *out)
{
    struct gap *gaps = w->gaps.items;
    size_t from = 0, to = w->gaps.len;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (gaps[middle].at < nid)
            from = middle + 1;
        else
            to = middle;
    }
    for (size_t i = from; i < w->gaps.len && i < from + NEAR_GAPS && gaps[i].at - nid <= NEAR; i++)
        if (take_gap(&gaps[i], len, false, out))
            return true;
    for (size_t i = from; i > 0 && from - i < NEAR_GAPS && nid - gaps[i - 1].at <= NEAR; i--)
        if (take_gap(&gaps[i - 1], len, false, out))
            return true;
    return false;
}

/* ------------------------------------------------------------------ what stays */

/* Leave an item where the parent has it, before `limit`, or give it a new place. The root stays in any case, since the
 * superblock has 16 bits for its number. */
static int keep(struct planner *w, uint64_t position, const struct item *item, uint64_t limit)
{
    struct erofs_plan *p = w->plan;
    const uint64_t end = position + item->need + (uint64_t)item->blocks * EROFS_BLOCK;
    const bool root = item->need && item->rank == NODE_ROOT;
    const struct erofs_placed placed = {item->rank, (uint32_t)(position / EROFS_BLOCK)};
    if (position < p->end || (!root && end > limit) || (item->need && !inode_fits(position, item->need))) {
        if (item->need)
            p->nids[item->rank] = 0;
        return add_new(w, item);
    }
    int rc = note_gap(w, position);
    if (item->need)
        p->kept[item->rank / 64] |= UINT64_C(1) << item->rank % 64;
    if (!rc && item->blocks)
        rc = vec_push(&p->blocks, placed);
    p->end = w->free = end;
    if (item->is_directory)
        w->free = GR_ALIGN_UP(end, (uint64_t)EROFS_BLOCK) + (uint64_t)room_of_blocks(w, item) * EROFS_BLOCK;
    return rc;
}

/* Take the next record of a sorter; result as sorter_next. Now and then calls config->step. */
static int next_sorted(struct planner *w, struct sorter *from, struct sorter_record *out)
{
    const int rc = ++w->sorted % STEP_NODES ? 0 : step_take(&w->config->step);
    return rc ? rc : sorter_next(from, out);
}

/* Decide what stays, in the order of positions. */
static int keep_all(struct planner *w)
{
    struct sorter_record r = {0};
    struct item last;
    uint64_t at = 0, next;
    bool some = false;
    int rc = sorter_sort(w->kept);
    if (rc)
        return rc;
    while ((rc = next_sorted(w, w->kept, &r)) > 0) {
        memcpy(&next, r.key, sizeof next);
        next = be64toh(next);
        rc = some ? keep(w, at, &last, next) : 0;
        if (rc)
            return rc;
        memcpy(&last, r.value, sizeof last);
        at = next;
        some = true;
    }
    if (!rc && some)
        rc = keep(w, at, &last, UINT64_MAX);
    /* room at the end counts if the parent has it */
    w->plan->end = GR_MAX(w->plan->end, GR_MIN(w->free, erofs_tree_len(w->parent)));
    return rc;
}

/* ------------------------------------------------------------------ what gets a new place */

/* Give an inode a position: close to its neighbour in path order, or with others of its directory in a large gap, or at
 * the end. */
static int place_inode(struct planner *w, const struct item *item)
{
    struct erofs_plan *p = w->plan;
    const uint32_t need = item->need + room_of_inode(w, item), beside = item->rank ? p->nids[item->rank - 1] : 0;
    uint64_t at;
    if (!(beside && take_near(w, beside, need, &at)) && !take_large(w, &w->for_inodes, need, false, &at)) {
        at = inode_position_from(p->end, need);
        p->end = at + need;
    }
    if (at / EROFS_NID_UNIT > UINT32_MAX)
        return error_set(-EFBIG, "build: more than 128 GiB of inodes; divide the dataset into several images");
    p->nids[item->rank] = (uint32_t)(at / EROFS_NID_UNIT);
    return 0;
}

/* Give blocks a place, in a large gap or after all inodes. blocks: number of those there. */
static int place_blocks(struct planner *w, const struct item *item, uint64_t *blocks)
{
    const uint64_t need = item->blocks + (uint64_t)room_of_blocks(w, item);
    uint64_t at;
    if (take_large(w, &w->for_blocks, need * EROFS_BLOCK, true, &at))
        return vec_push(&w->plan->blocks, ((struct erofs_placed){item->rank, (uint32_t)(at / EROFS_BLOCK)}));
    int rc = vec_push(&w->after, ((struct erofs_placed){item->rank, (uint32_t)*blocks}));
    *blocks += need;
    return !rc && *blocks > UINT32_MAX ? erofs_too_large() : rc;
}

/* Number the blocks that come after the inodes. */
static int place_after(struct planner *w, uint64_t blocks)
{
    struct erofs_plan *p = w->plan;
    p->end = GR_ALIGN_UP(p->end, (uint64_t)EROFS_BLOCK);
    const uint64_t first = p->end / EROFS_BLOCK;
    if (first + blocks > UINT32_MAX)
        return erofs_too_large();
    int rc = vec_reserve(&p->blocks, w->after.len);
    for (size_t i = 0; i < w->after.len && !rc; i++) {
        const struct erofs_placed *b = &w->after.items[i];
        p->blocks.items[p->blocks.len++] = (struct erofs_placed){b->rank, b->block + (uint32_t)first};
    }
    if (p->blocks.len)
        qsort(p->blocks.items, p->blocks.len, sizeof *p->blocks.items, compare_ranks);
    p->end += blocks * EROFS_BLOCK;
    return rc;
}

/* Place all that has no place yet. */
static int place_all(struct planner *w)
{
    uint64_t blocks = 0;
    struct sorter_record r = {0};
    struct item item;
    int rc = sorter_sort(w->order);
    while (!rc && (rc = next_sorted(w, w->order, &r)) > 0) {
        memcpy(&item, r.value, sizeof item);
        rc = item.need ? place_inode(w, &item) : 0;
        if (!rc && item.blocks)
            rc = place_blocks(w, &item, &blocks);
    }
    return rc ? rc : place_after(w, blocks);
}

/* ------------------------------------------------------------------ whether it is worth it */

enum { APART = 128 << 10, SMALL = 64 << 10 }; /* bytes */

/* Return whether little of the region is unused but for room that a new layout has too, and few inodes lie apart from
 * their neighbours in path order. In a new layout those do whose directory ends or begins between them. */
static bool is_dense(const struct erofs_plan *p, const struct nodes *nodes)
{
    const uint32_t ranks = nodes_rank_end(nodes);
    uint64_t apart = 0, last = p->nids[NODE_ROOT];
    for (uint32_t rank = 1; rank < ranks; rank++) {
        const uint64_t nid = p->nids[rank];
        apart += nid && (nid > last ? nid - last : last - nid) > APART / EROFS_NID_UNIT;
        last = nid ? nid : last;
    }
    return p->nids[NODE_ROOT] <= UINT16_MAX && p->end <= p->used + p->used / 2 + p->room + SMALL &&
           apart <= 2 * p->directories + p->tally.inodes / 4;
}

/* ------------------------------------------------------------------ both passes */

static void planner_release(struct planner *w)
{
    sorter_free(w->order);
    sorter_free(w->kept);
    vec_release(&w->gaps);
    vec_release(&w->after);
}

/* Make the plan, upon a parent unless that is NULL. */
static int plan_pass(struct erofs_plan *p, const struct nodes *nodes, struct erofs_tree *parent, bool roomy,
                     const struct fs_config *config)
{
    const struct sorter_config sorter = {.dir = config->dir, .memory = config->memory};
    struct planner w CLEANUP(planner_release) = {.plan = p, .config = config, .parent = parent, .roomy = roomy};
    p->nids = calloc(nodes_rank_end(nodes), sizeof *p->nids);
    if (parent)
        p->kept = calloc(nodes_rank_end(nodes) / 64 + 1, sizeof *p->kept);
    if (!p->nids || (parent && !p->kept))
        return error_no_memory();
    int rc = sorter_new(&sorter, &w.order);
    if (!rc && parent)
        rc = sorter_new(&sorter, &w.kept);
    if (!rc)
        rc = erofs_walk(nodes, (struct erofs_nids){.by_rank = NULL}, &planning, &w);
    p->end = w.free = EROFS_NID_ROOT * EROFS_NID_UNIT;
    if (p->plain.len)
        qsort(p->plain.items, p->plain.len, sizeof *p->plain.items, compare_ranks);
    if (!rc && parent)
        rc = keep_all(&w);
    return rc ? rc : place_all(&w);
}

int erofs_plan_make(struct erofs_plan *p, const struct nodes *nodes, struct erofs_tree *parent,
                    const struct fs_config *config)
{
    int rc = parent ? plan_pass(p, nodes, parent, true, config) : 0;
    p->upon = parent && !rc && is_dense(p, nodes);
    if ((rc && rc != -EFBIG) || p->upon) /* what is too large with gaps may fit without */
        return rc;
    erofs_plan_release(p);
    return plan_pass(p, nodes, NULL, parent != NULL, config);
}

uint32_t erofs_plan_names(const struct erofs_plan *p, uint32_t rank)
{
    const struct erofs_linked *link = find_link(p, rank);
    return link ? link->names : 1;
}

uint64_t erofs_plan_block(const struct erofs_plan *p, uint32_t rank)
{
    const struct erofs_placed *placed =
        bsearch(&rank, p->blocks.items, p->blocks.len, sizeof *p->blocks.items, compare_ranks);
    assert(placed); /* the plan counted its blocks */
    return placed->block;
}

bool erofs_plan_is_plain(const struct erofs_plan *p, uint32_t rank)
{
    return p->plain.len && bsearch(&rank, p->plain.items, p->plain.len, sizeof *p->plain.items, compare_ranks);
}

bool erofs_plan_is_kept(const struct erofs_plan *p, uint32_t rank)
{
    return p->upon && p->kept[rank / 64] >> rank % 64 & 1;
}

void erofs_plan_release(struct erofs_plan *p)
{
    vec_release(&p->links);
    free(p->nids);
    vec_release(&p->blocks);
    vec_release(&p->plain);
    free(p->kept);
    *p = (struct erofs_plan){.nids = NULL};
}
