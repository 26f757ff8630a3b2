/* From a path glob to files, and from files to chunks.
 *
 * The catalog's pages are read from the store directly: the cache holds none. */
#include "image/warm/select.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "image/image_internal.h"
#include "repository/read/catalog_glob.h"
#include "repository/read/catalog_read.h"

/* ---- files ---- */

/* A walk over the catalog with a glob. */
struct walk {
    select_visit *visit;
    void *arg;
    struct catalog_glob glob;
    char path[CATALOG_PATH_MAX + 1]; /* the current path, with the NUL that a match needs */
};

/* Visit a regular file that the glob matches. */
static int visit_entry(void *arg, const struct catalog_entry *e)
{
    struct walk *w = arg;
    if (!S_ISREG(e->mode))
        return 0;
    memcpy(w->path, e->path, e->path_len);
    w->path[e->path_len] = 0;
    return catalog_glob_matches(&w->glob, w->path) ? w->visit(w->arg, e) : 0;
}

int select_files(struct image *img, struct store *store, const char *glob, select_visit *visit, void *arg)
{
    CLEANUP_FREE struct walk *w = malloc(sizeof *w);
    if (!w)
        return error_no_memory();
    w->visit = visit;
    w->arg = arg;
    int rc = catalog_glob_parse(glob, &w->glob);
    return rc ? rc : catalog_walk(store, &img->manifest, w->glob.text, w->glob.fixed, visit_entry, w);
}

/* A catalog comes from a store, so its offsets are checked against the image. */
int select_extent(const struct image *img, const struct catalog_entry *file, uint32_t i, uint64_t *out_first,
                  uint64_t *out_end)
{
    const struct catalog_extent *e = &file->extents[i];
    const struct manifest *m = &img->manifest;
    if (!e->len || e->offset > m->size || e->len > m->size - e->offset)
        return error_set(-EBADMSG, "image: the catalog places '%.*s' outside of the image",
                         (int)GR_MIN(file->path_len, (size_t)200), file->path);
    *out_first = e->offset / m->chunk_size;
    *out_end = (e->offset + e->len - 1) / m->chunk_size + 1;
    return 0;
}

/* ---- sets ---- */

int chunk_set_init(struct chunk_set *set, const struct image *img)
{
    set->count = manifest_chunk_count(&img->manifest);
    set->bits = calloc(set->count / 64 + 1, sizeof *set->bits);
    return set->bits ? 0 : error_no_memory();
}

void chunk_set_release(struct chunk_set *set)
{
    free(set->bits);
    *set = (struct chunk_set){0};
}

bool chunk_set_add(struct chunk_set *set, uint64_t chunk)
{
    uint64_t *word = &set->bits[chunk / 64], bit = UINT64_C(1) << chunk % 64;
    bool fresh = !(*word & bit);
    *word |= bit;
    return fresh;
}

/* Skips 64 chunks at a time where none is set. */
uint64_t chunk_set_next(const struct chunk_set *set, uint64_t from)
{
    for (uint64_t word; from < set->count; from = (from / 64 + 1) * 64) {
        word = set->bits[from / 64] >> from % 64;
        if (word)
            return from + (uint64_t)__builtin_ctzll(word);
    }
    return UINT64_MAX;
}

bool chunk_set_meets(const struct chunk_set *set, uint64_t first, uint64_t end)
{
    const struct chunk_set part = {.bits = set->bits, .count = GR_MIN(set->count, end)};
    return chunk_set_next(&part, first) < end;
}

/* ---- chunks ---- */

void image_cursor_init(struct image_cursor *c, struct image *img, struct store *store)
{
    *c = (struct image_cursor){.img = img, .store = store};
}

void image_cursor_release(struct image_cursor *c)
{
    node_unref(c->leaf);
    c->leaf = NULL;
}

/* Get a node. 1: it is not available, and the cursor keeps the store's error; 0; -ENOMEM. */
static int select_get_node(struct image_cursor *c, const struct index_child *child, struct node_place place,
                           struct node **out)
{
    struct store *store = c->store_error.code ? NULL : c->store;
    int rc = node_cache_peek(c->img->nodes, child, place, store, out);
    if (!rc || rc == -ENOMEM)
        return rc;
    if (store)
        error_take(&c->store_error, rc);
    return 1;
}

/* Count a node that is not cached, once. */
static void count_missing(struct image_cursor *c, const struct index_child *child, struct node_place place)
{
    if (c->passed[place.level] == place.number + 1)
        return;
    c->passed[place.level] = place.number + 1;
    if (!cache_has(c->img->config.cache, &child->digest))
        c->missing_bytes += child->len;
}

/* Move the cursor to the leaf that covers the chunk, or to the subtree that is a hole or unknown. */
static int move(struct image_cursor *c, uint64_t chunk)
{
    const struct manifest *m = &c->img->manifest;
    struct index_child child = m->index_root;
    image_cursor_release(c);
    c->unknown = false;
    for (unsigned level = m->index_levels; level-- > 0;) {
        uint64_t below = image_chunks_below(level + 1);
        struct node_place place = {.level = level, .number = chunk / below};
        c->first = place.number * below;
        c->end = GR_MIN(c->first + below, manifest_chunk_count(m));
        if (digest_is_zero(&child.digest))
            return 0;
        CLEANUP(cleanup_node) struct node *node = NULL;
        count_missing(c, &child, place);
        int rc = select_get_node(c, &child, place, &node);
        c->unknown = rc > 0;
        if (rc)
            return rc > 0 ? 0 : rc;
        if (level)
            child = node_index(node)->children[chunk / image_chunks_below(level) % INDEX_FANOUT];
        else
            c->leaf = steal_ptr(&node);
    }
    return 0;
}

/* Moves only when the chunk lies outside of the current range, so ascending walks fetch each node once. */
int image_cursor_at(struct image_cursor *c, uint64_t chunk, const struct chunk_ref **out, uint64_t *out_run)
{
    if (chunk < c->first || chunk >= c->end) {
        int rc = move(c, chunk);
        if (rc) {
            c->end = 0;
            return rc;
        }
    }
    *out = c->leaf && node_chunk(c->leaf, (uint32_t)(chunk - c->first), &c->chunk) ? &c->chunk : NULL;
    *out_run = c->leaf ? 1 : c->end - chunk;
    return 0;
}
