/* Which chunks a run wants. The metadata comes first in every case. A list of paths is looked up in the catalog's
 * order, which needs one pass, and is then sorted back into its own order by the numbers of its names. Globs keep the
 * catalog's order: they are matched one after the other. A hard link has no extents; it points to its first name. The
 * first names are collected, and looked up as paths at the end. */
#include "image/warm/warm_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TICKS = 256, FRONT_MIN = 4096 /* the superblock */, LINKS_MAX = 64 << 20 /* bytes of first names */ };

int warm_tick(struct warming *w, const struct warm_report *t)
{
    return w->ticks++ % TICKS ? 0 : w->c->tell(w->c->arg, t);
}

/* ---- names in the catalog ---- */

/* A walk over the catalog for a list of names. */
struct walk {
    catalog_find_visit *visit;
    void *arg;
    struct bytes links;       /* first names of hard links, each ended by NUL */
    struct catalog_path name; /* the current glob */
    uint64_t matched;         /* files that it matched */
    bool last;                /* the first names are being looked up: visit whatever is found */
};

/* Visit an entry, or keep a hard link's first name for later. */
static int visit_path(void *arg, const struct catalog_path *path, const struct catalog_entry *e)
{
    struct walk *w = arg;
    if (!e || !e->hard_link || w->last)
        return w->visit(w->arg, path, e);
    int rc = bytes_append(&w->links, e->target, e->target_len);
    if (!rc)
        rc = bytes_append(&w->links, "", 1);
    return rc ? error_set(rc == -EMSGSIZE ? -E2BIG : rc, "image: too many hard links; name their first names") : 0;
}

/* A visitor of select_files: a file that the current glob matches. */
static int visit_match(void *arg, const struct catalog_entry *file)
{
    struct walk *w = arg;
    w->matched++;
    return visit_path(w, &w->name, file);
}

/* Match the globs one after the other; one that matches nothing is visited without an entry. */
static int walk_globs(struct walk *w, struct image *img, struct store *store, const struct warm_names *names)
{
    int rc = 0;
    for (size_t at = 0; !rc && at < names->len; at += w->name.len + 1) {
        w->name.path = names->text + at;
        w->name.len = strnlen(w->name.path, names->len - at);
        w->matched = 0;
        CLEANUP_FREE char *glob = strndup(w->name.path, w->name.len);
        rc = glob ? select_files(img, store, glob, visit_match, w) : error_no_memory();
        if (!rc && !w->matched)
            rc = w->visit(w->arg, &w->name, NULL);
        w->name.number++;
    }
    return rc;
}

/* Look up a list of paths. number: that of the first. */
static int walk_paths(struct walk *w, struct image *img, struct store *store, const char *text, size_t len,
                      size_t number)
{
    catalog_paths paths = {0};
    int rc = catalog_paths_sort(text, len, &paths);
    for (size_t i = 0; i < paths.len; i++)
        paths.items[i].number += number;
    w->name.number = number + paths.len;
    if (!rc)
        rc = catalog_find(store, image_manifest(img), paths.items, paths.len, visit_path, w);
    vec_release(&paths);
    return rc;
}

/* The names first, then the first names of the hard links among them. */
int warm_files(struct image *img, struct store *store, const struct warm_names *names, catalog_find_visit *visit,
               void *arg)
{
    struct walk w = {.visit = visit, .arg = arg, .links = BYTES_INIT(LINKS_MAX)};
    int rc = names->globs ? walk_globs(&w, img, store, names) : walk_paths(&w, img, store, names->text, names->len, 0);
    w.last = true;
    if (!rc)
        rc = walk_paths(&w, img, store, (const char *)w.links.data, w.links.len, w.name.number);
    bytes_release(&w.links);
    return rc;
}

/* ---- the choice ---- */

/* A piece of a listed file, to be sorted into the list's order. */
struct listed {
    size_t number;
    uint64_t first, end;
    bool last; /* the last piece of its file */
};

/* The choice of listed files. */
struct choosing {
    struct warming *w;
    VEC(struct listed) listed;
};

/* Add a file's chunks to the plan. */
static int add_file(struct warming *w, const struct catalog_entry *e)
{
    int rc = 0;
    for (uint32_t i = 0; !rc && i < e->extent_count; i++) {
        uint64_t first, end;
        rc = select_extent(w->c->img, e, i, &first, &end);
        if (!rc)
            rc = warm_plan_add(&w->plan, first, end);
    }
    warm_plan_end_file(&w->plan);
    return rc;
}

/* Collect a listed file's pieces. A file without extents is one empty piece, so that it is counted. */
static int list_file(struct choosing *c, size_t number, const struct catalog_entry *e)
{
    struct listed piece = {.number = number, .last = !e->extent_count};
    int rc = piece.last ? vec_push(&c->listed, piece) : 0;
    for (uint32_t i = 0; !rc && i < e->extent_count; i++) {
        rc = select_extent(c->w->c->img, e, i, &piece.first, &piece.end);
        piece.last = i + 1 == e->extent_count;
        if (!rc)
            rc = vec_push(&c->listed, piece);
    }
    return rc;
}

/* A visitor of warm_files: add or collect a file, or report a name that is not in the image. */
static int choose_file(void *arg, const struct catalog_path *name, const struct catalog_entry *e)
{
    struct choosing *c = arg;
    struct warming *w = c->w;
    bool globs = w->c->what == WARM_GLOBS;
    if (!e) {
        w->out->absent++;
        return w->c->failed(w->c->arg, name->path, name->len,
                            globs ? "no file in the image matches" : "not in the image");
    }
    int rc = warm_tick(w, &(struct warm_report){.phase = "catalog", .files_done = w->plan.files + c->listed.len});
    if (rc)
        return rc;
    return globs ? add_file(w, e) : list_file(c, name->number, e);
}

/* Order of the list; of one file, by position in the image. */
static int by_number(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    if (x->last != y->last)
        return x->last - y->last; /* the last piece comes after all others of its file */
    return x->first < y->first ? -1 : x->first > y->first;
}

struct warm_names warm_names_of(const struct warming *w)
{
    return (struct warm_names){
        .text = (const char *)w->c->list->data, .len = w->c->list->len, .globs = w->c->what == WARM_GLOBS};
}

/* Choose the files of a list. */
static int choose_files(struct warming *w)
{
    const struct warm_names names = warm_names_of(w);
    struct choosing c = {.w = w};
    int rc = warm_files(w->c->img, w->c->store, &names, choose_file, &c);
    if (c.listed.len)
        qsort(c.listed.items, c.listed.len, sizeof *c.listed.items, by_number);
    for (size_t i = 0; !rc && i < c.listed.len; i++) {
        rc = warm_plan_add(&w->plan, c.listed.items[i].first, c.listed.items[i].end);
        if (c.listed.items[i].last)
            warm_plan_end_file(&w->plan);
    }
    vec_release(&c.listed);
    return rc;
}

/* The superblock is at offset 0 in every filesystem, even if the manifest states no front. */
void warm_metadata_parts(const struct manifest *m, struct warm_part out[2])
{
    uint64_t front = GR_MIN(GR_MAX(m->front_len, (uint64_t)FRONT_MIN), m->size);
    uint64_t end = m->metadata_len ? (m->metadata_offset + m->metadata_len - 1) / m->chunk_size + 1 : 0;
    out[0] = (struct warm_part){0, (front + m->chunk_size - 1) / m->chunk_size};
    out[1] = (struct warm_part){m->metadata_offset / m->chunk_size, GR_MIN(end, manifest_chunk_count(m))};
}

bool warm_is_metadata(const struct manifest *m, uint64_t chunk)
{
    struct warm_part parts[2];
    warm_metadata_parts(m, parts);
    return chunk < parts[0].end || (chunk >= parts[1].first && chunk < parts[1].end);
}

/* Metadata is planned first: opening any file reads it. */
static int choose_metadata(struct warming *w)
{
    struct warm_part parts[2];
    warm_metadata_parts(&w->c->img->manifest, parts);
    int rc = warm_plan_add(&w->plan, parts[0].first, parts[0].end);
    return rc ? rc : warm_plan_add(&w->plan, parts[1].first, parts[1].end);
}

/* Progress of a walk over the index, by the offset it has reached. */
int warm_on_look(void *arg, uint64_t chunk)
{
    struct warming *w = arg;
    const struct manifest *m = &w->c->img->manifest;
    return warm_tick(w, &(struct warm_report){"looking", .bytes_done = chunk * m->chunk_size, .bytes_total = m->size});
}

/* Plan the chunks of a trace, in the order in which they were read. */
static int choose_traced(struct warming *w)
{
    struct trace trace;
    int rc = trace_decode(w->c->list->data, w->c->list->len, &trace);
    if (rc)
        return rc;
    w->out->traced = trace.count;
    return warm_trace(w->c->img, w->c->store, &trace, warm_on_look, w, &w->plan, &w->out->traced_absent);
}

/* For WARM_ALL the plan is the whole image, and files are only counted. */
int warm_choose(struct warming *w)
{
    int rc = choose_metadata(w);
    if (rc)
        return rc;
    switch (w->c->what) {
    case WARM_METADATA:
        return 0;
    case WARM_ALL:
        w->plan.files = w->c->img->manifest.counts.files;
        return warm_plan_add(&w->plan, 0, manifest_chunk_count(&w->c->img->manifest));
    case WARM_CHANGES:
        return warm_changes(w, warm_on_look);
    case WARM_TRACE:
        return choose_traced(w);
    case WARM_FILES:
    case WARM_GLOBS:
        return choose_files(w);
    }
    return 0;
}
