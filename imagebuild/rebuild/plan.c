/* A merge of two sorted sequences: the listing's nodes, and the parent's catalog entries. `theirs` is the next entry
 * of the parent.
 *
 *   listing:  a  b     d  e          entry only in the listing:     added
 *   catalog:  a     c  d  e          only in the catalog:           removed
 *                                    in both: same version? kept : changed
 */
#include "imagebuild/rebuild/plan.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "repository/read/catalog_read.h"

struct plan {
    const struct plan_config *config;
    struct plan_counts *counts;
    struct catalog_cursor *catalog;
    const struct catalog_entry *theirs; /* NULL: behind the last */
};

/* Advance to the parent's next entry. */
static int next_theirs(struct plan *p)
{
    int rc = catalog_cursor_next(p->catalog, &p->theirs);
    if (rc < 0)
        return rc == -ECANCELED ? rc : parent_failed(rc);
    if (!rc)
        p->theirs = NULL;
    return 0;
}

/* Return whether an entry is a file's first name, not a further one. */
static bool counts_as_file(const struct catalog_entry *e)
{
    return S_ISREG(e->mode) && !e->hard_link;
}

/* Skip the parent's paths before n's, which are removed ones. n NULL: skip all. */
static int skip_removed(struct plan *p, const struct node *n)
{
    int rc = 0;
    while (!rc && p->theirs &&
           (!n || catalog_path_compare(p->theirs->path, p->theirs->path_len, n->path, n->path_len) < 0)) {
        p->counts->removed += counts_as_file(p->theirs);
        rc = next_theirs(p);
    }
    return rc;
}

/* Return whether a file is unchanged. A file without a validator never is. */
static bool same_version(const struct node *n, const struct catalog_entry *e)
{
    return n->size == e->size && n->validator_len && n->validator_len == e->validator_len &&
           !memcmp(n->validator, e->validator, n->validator_len);
}

/* Return whether an unchanged file is read because of damage: it lies in a damaged pack, or was written with a shard
 * of which some part does. An extent outside the image is plan_keep's to report. */
static bool is_damaged(const struct plan *p, const struct catalog_entry *e, bool written)
{
    const struct parent_damage *damage = p->config->damage;
    const struct catalog_extent *at = e->extents;
    if (!damage || !damage->chunks || written)
        return written && damage && damage->chunks;
    return e->extent_count == 1 && live_map_fits(p->config->live, at->offset, at->len) &&
           parent_damage_touches(damage, at->offset, at->len);
}

/* Keep the bytes of an unchanged file. */
static int plan_keep(struct plan *p, struct node *n, const struct catalog_entry *e)
{
    if (!n->size)
        return 0;
    if (e->extent_count != 1 || digest_is_zero(&e->content)) {
        n->plan = NODE_READ; /* no build of this program writes such an entry */
        return 0;
    }
    const struct catalog_extent *at = e->extents;
    if (at->len != n->size || !live_map_fits(p->config->live, at->offset, at->len)) {
        (void)error_set(-EBADMSG, "build: the parent's catalog places '%.*s' where no file can be",
                        (int)GR_MIN(e->path_len, (size_t)200), e->path);
        return parent_failed(-EBADMSG);
    }
    n->plan = NODE_KEEP;
    n->address = at->offset;
    n->content = e->content;
    live_map_add(p->config->live, at->offset, at->len);
    return 0;
}

/* Plan one node and count it. e: the parent's entry of the same path; NULL: there is none. */
static int plan_judge(struct plan *p, struct node *n, const struct catalog_entry *e)
{
    struct plan_counts *counts = p->counts;
    bool file = S_ISREG(n->mode) && n->link == n->rank;
    bool was_file = e && S_ISREG(e->mode);
    if (!file) {
        counts->removed += e && counts_as_file(e) && !S_ISREG(n->mode);
        return 0;
    }
    bool written = n->plan == NODE_KEEP; /* with the listing */
    bool same = was_file && same_version(n, e), healed = same && n->size && is_damaged(p, e, written);
    int rc = !written && same && !healed ? plan_keep(p, n, e) : 0;
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

/* Plan a node with its counterpart in the parent, if there is one. */
static int plan_node(struct plan *p, struct node *n)
{
    int rc = skip_removed(p, n);
    if (rc)
        return rc;
    const struct catalog_entry *e = p->theirs;
    bool both = e && !catalog_path_compare(e->path, e->path_len, n->path, n->path_len);
    rc = plan_judge(p, n, both ? e : NULL);
    return rc || !both ? rc : next_theirs(p);
}

static int plan_all(struct plan *p, struct nodes *to)
{
    const struct plan_config *config = p->config;
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *from = NULL;
    struct node n;
    uint64_t done = 0;
    int rc = nodes_cursor_new(config->listed, &from);
    if (!rc)
        rc = next_theirs(p);
    while (!rc && (rc = nodes_next(from, &n)) == 1) {
        rc = plan_node(p, &n);
        if (!rc)
            rc = nodes_add(to, &n);
        if (!rc && ++done % PLAN_STEP == 0 && config->step)
            rc = config->step(config->step_arg);
    }
    if (!rc)
        rc = skip_removed(p, NULL);
    return rc ? rc : nodes_end(to);
}

int plan_make(const struct plan_config *config, struct nodes **out, struct plan_counts *counts)
{
    CLEANUP(cleanup_nodes) struct nodes *nodes = NULL;
    CLEANUP(cleanup_catalog_cursor) struct catalog_cursor *catalog = NULL;
    *counts = (struct plan_counts){0};
    int rc = catalog_cursor_new(config->store, config->parent, NULL, 0, CATALOG_CURSOR_AHEAD, &catalog);
    if (!rc)
        rc = nodes_new(&config->scratch, &nodes);
    struct plan p = {.config = config, .counts = counts, .catalog = catalog};
    if (!rc)
        rc = plan_all(&p, nodes);
    if (rc)
        return rc;
    *out = steal_ptr(&nodes);
    return 0;
}
