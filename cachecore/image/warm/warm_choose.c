/* Which chunks a run wants. The metadata comes first in every case. A list of paths is looked up in the catalog's
 * order, which needs one pass, and is then sorted back into its own order by the numbers of its names. Globs keep the
 * catalog's order. */
#include <errno.h>
#include <stdlib.h>

#include "image/image_internal.h"
#include "image/warm/warm_internal.h"
#include "image/warm/warm_trace.h"

enum { TICKS = 256, FRONT_MIN = 4096 /* the superblock */ };

int warm_tick(struct warming *w, const struct warm_report *t)
{
    return w->ticks++ % TICKS ? 0 : w->c->tell(w->c->arg, t);
}

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
    int rc = piece.last && vec_push(&c->listed, piece) ? -ENOMEM : 0;
    for (uint32_t i = 0; !rc && i < e->extent_count; i++) {
        rc = select_extent(c->w->c->img, e, i, &piece.first, &piece.end);
        piece.last = i + 1 == e->extent_count;
        if (!rc && vec_push(&c->listed, piece))
            rc = -ENOMEM;
    }
    return rc == -ENOMEM ? error_set(rc, "image: out of memory") : rc;
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
        return x->last - y->last; /* the last piece comes behind all others of its file */
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
    case WARM_TRACE:
        return choose_traced(w);
    case WARM_FILES:
    case WARM_GLOBS:
        return choose_files(w);
    }
    return 0;
}
