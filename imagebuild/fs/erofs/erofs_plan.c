/* The plan is made in two passes. The first walks the nodes and finds what each inode needs. A sort brings the inodes
 * into their order on disk, directory by directory, so that the children of a directory lie side by side. The second
 * pass gives each its place.
 *
 *   region:  | inode, attributes, tail | inode | inode, tail | ...    | blocks of directories and symbolic links |
 *            0                                            inodes_end^                                       end^
 *
 * An inode, its attributes and its inline tail share one block. If they do not fit, the tail becomes a block.
 * Attributes longer than a block continue in the next one, which erofs allows, but an inode itself never crosses a
 * block's end.
 *
 * Memory: 4 bytes a node, 8 for each hard-linked file and each inode with blocks, and while the plan is made a sorter.
 */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/le.h"
#include "base/spill/sorter.h"
#include "base/vec.h"
#include "imagebuild/fs/erofs/erofs_internal.h"
#include "imagebuild/fs/fs.h"

enum { STEP_NODES = 1 << 15 };

/* State of a plan being made. */
struct planner {
    struct erofs_plan *plan;
    const struct fs_config *config;
    struct sorter *order;
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

struct placing {
    uint32_t parent, rank; /* the sort key, big-endian */
};

/* Note what an inode needs: bytes in one piece, and blocks. */
static int plan(struct planner *w, const struct erofs_inode *i)
{
    struct placing key = {htobe32(i->parent), htobe32(i->rank)};
    uint8_t value[8];
    if (i->blocks > UINT32_MAX)
        return erofs_too_large();
    le32_put(value, erofs_inode_need(i));
    le32_put(value + 4, (uint32_t)i->blocks);
    return sorter_add(w->order, &key, sizeof key, value, sizeof value);
}

/* Plan an inode that is not a directory; count the first name of a hard-linked file. */
static int plan_leaf(void *arg, struct erofs_inode *i, const struct node *n)
{
    struct planner *w = arg;
    struct erofs_linked link = {n->rank, 1};
    if (n->linked && vec_push(&w->plan->links, link))
        return -ENOMEM;
    int rc = erofs_tally_add(&w->plan->tally, i, w->config);
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
    return 0;
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

/* ------------------------------------------------------------------ where it goes */

/* Give an inode the next position. One that fits into a block lies in one; others need 64 bytes there. */
static int place_inode(struct planner *w, uint32_t rank, uint32_t need)
{
    uint64_t at = GR_ALIGN_UP(w->plan->end, (uint64_t)EROFS_NID_UNIT);
    uint32_t room = EROFS_BLOCK - (uint32_t)(at % EROFS_BLOCK);
    if (room < (need <= EROFS_BLOCK ? need : EROFS_INODE_SIZE))
        at += room;
    if (at / EROFS_NID_UNIT > UINT32_MAX)
        return error_set(-EFBIG, "build: more than 128 GiB of inodes; divide the dataset into several images");
    w->plan->nids[rank] = (uint32_t)(at / EROFS_NID_UNIT);
    w->plan->end = at + need;
    return 0;
}

/* Place all inodes, and number their blocks after them. */
static int erofs_plan_place(struct planner *w)
{
    uint64_t blocks = 0;
    struct sorter_record r;
    struct placing key;
    int rc = sorter_sort(w->order);
    if (rc)
        return rc;
    w->plan->end = EROFS_NID_ROOT * EROFS_NID_UNIT;
    while ((rc = sorter_next(w->order, &r)) > 0) {
        memcpy(&key, r.key, sizeof key);
        uint32_t rank = be32toh(key.rank);
        rc = place_inode(w, rank, le32_get(r.value));
        if (rc)
            return rc;
        if (le32_get(r.value + 4) &&
            vec_push(&w->plan->blocks, ((struct erofs_placed){.rank = rank, .block = (uint32_t)blocks})))
            return error_no_memory();
        blocks += le32_get(r.value + 4);
        if (blocks > UINT32_MAX)
            return erofs_too_large();
    }
    if (w->plan->blocks.len)
        qsort(w->plan->blocks.items, w->plan->blocks.len, sizeof *w->plan->blocks.items, compare_ranks);
    w->plan->inodes_end = GR_ALIGN_UP(w->plan->end, (uint64_t)EROFS_BLOCK);
    w->plan->end = w->plan->inodes_end + blocks * EROFS_BLOCK;
    return rc;
}

/* ------------------------------------------------------------------ both passes */

int erofs_plan_make(struct erofs_plan *p, const struct nodes *nodes, const struct fs_config *config)
{
    const struct sorter_config order = {.dir = config->dir, .memory = config->memory};
    CLEANUP(cleanup_sorter) struct sorter *sorter = NULL;
    uint32_t ranks = nodes_rank_end(nodes);
    p->nids = calloc(ranks, sizeof *p->nids);
    if (!p->nids)
        return error_no_memory();
    int rc = sorter_new(&order, &sorter);
    struct planner w = {.plan = p, .config = config, .order = sorter};
    if (!rc)
        rc = erofs_walk(nodes, (struct erofs_nids){.by_rank = NULL}, &planning, &w);
    return rc ? rc : erofs_plan_place(&w);
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
    return p->inodes_end / EROFS_BLOCK + placed->block;
}

void erofs_plan_release(struct erofs_plan *p)
{
    vec_release(&p->links);
    free(steal_ptr(&p->nids));
    vec_release(&p->blocks);
}
