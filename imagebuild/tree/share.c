/* Which share a path is in depends on nothing but the paths and sizes in the listing, so that every machine, and the
 * build of the next day, finds the same. Three things are wanted: shares of about the same size, neighbours together (a
 * directory that is read in order should not jump from pack to pack), and few files that change their share when
 * others come or go.
 *
 *   a0 a1 a2 | a3 ... a250 | a251 ... b7 | b8 ...
 *              ^ a path whose hash is a border begins a run, as in the catalog; its hash also chooses the share
 *
 * A path that comes or goes is a border in one of SHARE_RUN cases, and then moves at most the run that it begins. A
 * large file has chunks of its own, so it gains nothing by its neighbours, and its hash alone chooses its share: a
 * directory of large files is spread evenly. Runs do not end at a large file.
 */
#include "imagebuild/tree/share.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/le.h"

enum { SHARE_STEP = 4096 }; /* nodes between two steps */

struct sharing {
    const struct share *share;
    unsigned run;    /* the share of the current run */
    uint64_t *taken; /* a bit for each rank: a file's first name that is of the share */
};

static void sharing_release(struct sharing *s)
{
    free(s->taken);
}

/* Return the share that a path chooses. */
static unsigned choose(const struct sharing *s, const struct node *n)
{
    const struct digest digest = digest_of(n->path, n->path_len);
    return (unsigned)(le64_get(digest.b) % s->share->count);
}

/* Return whether a path begins a run. The multiplication spreads the CRC, which is linear. */
static bool begins_run(const struct node *n)
{
    return crc32c(n->path, n->path_len) * UINT32_C(2654435761) < UINT32_MAX / SHARE_RUN;
}

/* Return whether a node is of the share. Called for every node, in order. */
static bool takes(struct sharing *s, const struct node *n)
{
    if (S_ISDIR(n->mode))
        return true;
    if (n->link != n->rank)
        return s->taken[n->link / 64] >> n->link % 64 & 1;
    if (begins_run(n))
        s->run = choose(s, n);
    bool large = S_ISREG(n->mode) && n->size >= SHARE_LARGE;
    bool taken = (large ? choose(s, n) : s->run) == s->share->number;
    if (taken)
        s->taken[n->rank / 64] |= UINT64_C(1) << n->rank % 64;
    return taken;
}

int share_take(const struct share *share, const struct nodes *from, const struct scratch_config *scratch,
               const struct step *step, struct nodes **out, struct listing_stats *stats)
{
    CLEANUP(cleanup_nodes) struct nodes *to = NULL;
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *cursor = NULL;
    struct sharing s CLEANUP(sharing_release) = {.share = share};
    struct node n;
    uint64_t done = 0;
    s.taken = calloc(nodes_rank_end(from) / 64 + 1, sizeof *s.taken);
    if (!s.taken)
        return error_no_memory();
    stats->files = stats->directories = stats->symlinks = stats->hard_links = stats->others = stats->bytes = 0;
    int rc = nodes_new(scratch, &to);
    if (!rc)
        rc = nodes_cursor_new(from, &cursor);
    while (!rc && (rc = nodes_next(cursor, &n)) == 1) {
        bool taken = takes(&s, &n);
        rc = taken ? nodes_add(to, &n) : 0;
        if (taken)
            listing_stats_count(stats, &n);
        if (!rc && ++done % SHARE_STEP == 0)
            rc = step_take(step);
    }
    if (!rc)
        rc = nodes_end(to);
    if (!rc)
        *out = steal_ptr(&to);
    return rc;
}
