/* Finding the parent's images, and planning the new image with it.
 *
 * What an error means depends on how the parent was found. A parent that the user names, or that the tag already refers
 * to, must be usable: its errors end the build. The newest image of the name is only a guess: if it cannot be used, the
 * build does without a parent and reads everything. So it does, from the beginning (build_run), if a parent that the
 * user did not name is damaged. */
#include "imagebuild/rebuild/parent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "imagebuild/rebuild/rebuild_internal.h"
#include "repository/gc_marks.h"
#include "repository/read/chunk_read.h"
#include "repository/repository.h"

/* As parent_refused, for an image's tag and manifest. A join has no --parent that could be left out. */
static int image_refused(const struct parent *p, const struct parent_image *image, int code)
{
    if (!p->config.whole)
        return parent_refused(code);
    char name[PARENT_IMAGE_NAME_MAX];
    return error_prefix(code, "join: %s", parent_image_name(image, name));
}

/* Check that files of the new image can stay where the parent has them: same filesystem and chunk size. */
static int check_geometry(const struct parent *p, const struct parent_image *image, bool *out_other)
{
    const struct parent_config *c = &p->config;
    const enum manifest_fs fs = c->whole ? p->images->manifest.fs : c->fs;
    const struct manifest *m = &image->manifest;
    const uint32_t chunk_size = c->chunk_size ? c->chunk_size : p->images->manifest.chunk_size;
    char name[PARENT_IMAGE_NAME_MAX];
    *out_other = m->fs != fs || m->chunk_size != chunk_size;
    if (!*out_other || !c->must_be)
        return 0;
    if (c->whole)
        return error_set(
            -EINVAL,
            "join: %s is %s with chunks of %u bytes, the first image is %s with chunks of %u; build one of "
            "them anew like the other",
            parent_image_name(image, name), manifest_fs_name(m->fs), m->chunk_size, manifest_fs_name(fs), chunk_size);
    return error_set(-EINVAL,
                     "build: the parent image is %s with chunks of %u bytes, to be built is %s with chunks of %u: give "
                     "the same, or --parent none",
                     manifest_fs_name(m->fs), m->chunk_size, manifest_fs_name(fs), chunk_size);
}

/* Log that the newest image cannot be used as the parent. */
static void do_without(const struct parent *p)
{
    log_warning("build: the newest image of %s cannot be built upon, so everything is read: %s", p->images->found.name,
                error_text());
}

/* Return whether an error means that an undamaged image cannot be used, rather than that the store failed. */
static bool is_unusable(int rc)
{
    return rc == -EACCES || rc == -ENOTSUP || rc == -EKEYREJECTED;
}

/* The requested tag does not exist yet, or its image is of another source: find the newest image of the name and the
 * source. A store that may not be listed counts as having none, and so does one with a damaged tag of the name. 1:
 * there is none. */
static int find_newest(struct parent *p, bool *out_other_source)
{
    struct parent_image *image = p->images;
    int rc = lineage_newest(p->config.store, image->found.name, &p->config.source, image->found.tag, &p->tag,
                            out_other_source);
    image->digest = p->tag.digest;
    p->is_newest = true;
    bool without = is_unusable(rc) || rc == -EBADMSG;
    if (without)
        do_without(p);
    return without || rc == -ENOENT ? 1 : rc;
}

/* Check the signature of the tag by which the image was found. */
static int check_signature(const struct parent *p, const struct parent_image *image)
{
    const struct trust *trust = p->config.trust;
    struct image_ref ref = image->found;
    struct tag tag = p->tag;
    ref.digest = image->digest;
    if (!trust)
        return 0;
    int rc = repository_tag_beside(p->config.store, &ref, &tag);
    if (!rc)
        rc = trust_check_tag(trust, &ref, &tag.digest);
    return rc ? rc : trust_check(trust, &ref, tag.signature);
}

/* Find the image that the requested tag names, or the newest one instead. Equal versions of two sources may be of
 * different bytes, so only the user can say that an image of another source has the same ones: by naming it, or by
 * giving the tag to an image whose source is not known. 1: the build does without. */
static int find_unnamed(struct parent *p, struct parent_image *image, bool *out_other_source)
{
    int rc = repository_resolve(p->config.store, &image->found, &image->digest, &p->tag);
    bool other = !rc && !digest_is_zero(&p->tag.source) && !digest_equal(&p->tag.source, &p->config.source);
    if (rc != -ENOENT && !other)
        return rc;
    rc = find_newest(p, out_other_source);
    *out_other_source |= other && rc == 1;
    return rc;
}

/* Find image i and read its manifest. 1: the build does without. */
static int find_image(struct parent *p, size_t i, bool *out_other_source)
{
    const struct parent_config *c = &p->config;
    struct parent_image *image = &p->images[i];
    image->found = c->images[i];
    int rc = c->must_be ? repository_resolve(c->store, &image->found, &image->digest, &p->tag)
                        : find_unnamed(p, image, out_other_source);
    if (rc)
        return rc == -EBADMSG ? image_refused(p, image, rc) : rc;
    rc = check_signature(p, image);
    if (rc == -EBADMSG || rc == -ENOENT) /* about the tag */
        return image_refused(p, image, rc);
    if (!rc)
        rc = repository_manifest(c->store, &image->digest, &image->manifest);
    if (p->is_newest && is_unusable(rc)) {
        do_without(p);
        return 1;
    }
    if (rc && c->whole)
        return image_refused(p, image, rc);
    return rc && rc != -ECANCELED ? parent_failed(rc) : rc;
}

/* Lay the images end to end, and describe them as one. */
static int lay_out(struct parent *p)
{
    const uint64_t leaf = (uint64_t)p->images->manifest.chunk_size * INDEX_FANOUT;
    p->manifest = p->images->manifest;
    if (p->image_count == 1)
        return 0;
    if (p->manifest.fs != MANIFEST_EROFS && !p->config.whole)
        return error_set(-ENOTSUP, "build: an image of %s cannot be built upon several parents, only one of erofs can",
                         manifest_fs_name(p->manifest.fs));
    for (size_t i = 1; i < p->image_count; i++) {
        p->images[i].begin = GR_ALIGN_UP(p->manifest.size, leaf);
        p->manifest.size = p->images[i].begin + p->images[i].manifest.size;
        p->manifest.stored_bytes += p->images[i].manifest.stored_bytes;
        p->manifest.deltas |= p->images[i].manifest.deltas;
    }
    return 0;
}

/* Make a parent of image_count images without anything but its settings. -ENOMEM. */
static int parent_new(const struct parent_config *config, size_t image_count, struct parent **out)
{
    CLEANUP(cleanup_parent) struct parent *p = calloc(1, sizeof *p);
    if (!p)
        return error_no_memory();
    p->config = *config;
    p->images = calloc(image_count, sizeof *p->images);
    if (!p->images)
        return error_no_memory();
    p->image_count = image_count;
    *out = steal_ptr(&p);
    return 0;
}

int parent_open(const struct parent_config *config, struct parent **out, struct parent_unused *unused)
{
    CLEANUP(cleanup_parent) struct parent *p = NULL;
    *out = NULL;
    *unused = (struct parent_unused){.differs = false};
    int rc = parent_new(config, config->image_count, &p);
    for (size_t i = 0; i < config->image_count && !rc && !unused->differs; i++) {
        rc = find_image(p, i, &unused->other_source);
        if (!rc)
            rc = check_geometry(p, &p->images[i], &unused->differs);
    }
    if (rc == PARENT_DAMAGED)
        *out = steal_ptr(&p);
    if (rc || unused->differs)
        return GR_MIN(rc, 0);
    rc = lay_out(p);
    if (!rc && !config->whole)
        rc = live_map_new(p->manifest.size, p->manifest.chunk_size, &p->live);
    if (!rc)
        *out = steal_ptr(&p);
    return rc;
}

int parent_resume(const struct parent_config *config, const struct manifest *left, struct parent **out)
{
    CLEANUP(cleanup_parent) struct parent *p = NULL;
    int rc = parent_new(config, 1, &p);
    if (rc)
        return rc;
    /* moving would make the image depend on where the earlier run was interrupted */
    p->config.compact_percent = 0;
    p->config.compact_bytes = 0;
    p->manifest = p->images->manifest = *left;
    rc = live_map_new(left->size, left->chunk_size, &p->live);
    if (!rc)
        *out = steal_ptr(&p);
    return rc;
}

int parent_look(struct parent **parent)
{
    struct parent *p = *parent;
    const struct parent_check_config config = {.store = p->config.store,
                                               .images = p->images,
                                               .image_count = p->image_count,
                                               .size = p->manifest.size,
                                               .step = p->config.step};
    int rc = parent_check(&config, &p->damage);
    if (!p->is_newest || !is_unusable(rc))
        return rc;
    do_without(p);
    parent_free(steal_ptr(parent));
    return 0;
}

void parent_free(struct parent *p)
{
    if (!p)
        return;
    source_close(p->source);
    live_map_free(p->live);
    parent_damage_release(&p->damage);
    free(p->images);
    free(p);
}

/* ------------------------------------------------------------------ the source of moved files */

/* The parent's images as a source, from which compaction reads the files that it moves. source_read.address says where
 * in the parent a file lies. The data is read through image_bytes, which fetches and verifies the chunks. There is
 * neither list nor stat: the content reader calls only source_read. */
struct parent_source {
    struct source base;
    const struct parent *parent;
    struct image_bytes **bytes; /* by number of the image */
};

static int parent_read(struct source *s, const struct source_read *read)
{
    struct parent_source *p = (struct parent_source *)s;
    size_t i = p->parent->image_count - 1;
    while (i && read->address < p->parent->images[i].begin)
        i--;
    const uint64_t at = read->address - p->parent->images[i].begin;
    return image_bytes_read(p->bytes[i], at + read->offset, read->len, read->dst);
}

static void parent_close(struct source *s)
{
    struct parent_source *p = (struct parent_source *)s;
    for (size_t i = 0; i < p->parent->image_count; i++)
        image_bytes_free(p->bytes[i]);
    free(p->bytes);
    free(p);
}

static const struct source_ops parent_ops = {.read = parent_read, .close = parent_close};

/* Open p->source. -ENOMEM; errors of image_bytes_new. */
static int open_source(struct parent *p)
{
    struct store *store = p->config.store;
    struct parent_source *s = calloc(1, sizeof *s);
    struct image_bytes **bytes = calloc(p->image_count, sizeof *bytes);
    if (!s || !bytes) {
        free(s);
        free(bytes);
        return error_no_memory();
    }
    /* errors of moved files name the store */
    *s = (struct parent_source){.base = {.ops = &parent_ops, .url = store->url}, .parent = p, .bytes = bytes};
    p->source = &s->base;
    int rc = 0;
    for (size_t i = 0; i < p->image_count && !rc; i++)
        rc = image_bytes_new(store, &p->images[i].manifest, &bytes[i]);
    return rc;
}

/* ------------------------------------------------------------------ planning */

/* Return whether the source changed. If not, nothing is moved, so that the build gives the parent again. */
static bool is_changed(const struct plan_counts *c)
{
    return c->added || c->changed || c->removed || c->healed;
}

/* Compact: choose chunks to be emptied, and turn the files in them into NODE_MOVE. */
static int move_files(struct parent *p, struct nodes **nodes)
{
    const struct parent_config *config = &p->config;
    CLEANUP(cleanup_compact) struct compact *compact = NULL;
    CLEANUP(cleanup_nodes) struct nodes *moved = NULL;
    /* live bytes are counted before anything is moved */
    uint64_t budget = live_map_bytes(p->live) / 100 * config->compact_percent + config->compact_bytes;
    p->budget_left = budget;
    int rc = compact_choose(p->live, config->gaps, budget, &compact);
    if (rc || !compact)
        return rc;
    const struct compact_config apply = {
        .planned = *nodes, .live = p->live, .scratch = {.dir = config->dir}, .step = config->step};
    rc = compact_apply(compact, &apply, &moved, &p->moved);
    if (!rc && p->moved.files)
        rc = open_source(p);
    if (rc)
        return rc;
    p->budget_left = budget - GR_MIN(budget, p->moved.bytes);
    nodes_free(*nodes);
    *nodes = steal_ptr(&moved);
    return 0;
}

int parent_plan(struct parent *p, struct nodes **nodes)
{
    const struct parent_config *config = &p->config;
    struct nodes *planned = NULL;
    const struct plan_config plan = {.listed = *nodes,
                                     .store = config->store,
                                     .images = p->images,
                                     .image_count = p->image_count,
                                     .live = p->live,
                                     .damage = &p->damage,
                                     .scratch = {.dir = config->dir},
                                     .step = config->step};
    int rc = plan_make(&plan, &planned, &p->plan);
    if (rc)
        return rc;
    nodes_free(*nodes);
    *nodes = planned;
    if (is_changed(&p->plan))
        rc = move_files(p, nodes);
    p->dead_bytes = live_map_dead_bytes(p->live);
    return rc;
}

/* ------------------------------------------------------------------ building */

struct sink_parent parent_sink(struct parent *p)
{
    struct sink_parent sink = {.store = p->config.store,
                               .manifest = &p->manifest,
                               .images = p->images,
                               .image_count = p->image_count,
                               .kept = live_map_kept,
                               .kept_all = live_map_kept_all,
                               .arg = p->live,
                               .damaged = &p->damage.packs};
    if (!p->config.whole)
        return sink;
    sink.kept = parent_whole_kept;
    sink.kept_all = parent_whole_kept_all;
    sink.arg = p;
    return sink;
}

/* ------------------------------------------------------------------ scrubbing */

/* One pass over the parent's chunks in address order. Only chunks with dead blocks beside live ones are fetched, by
 * several threads ahead of this one. */
struct scrub {
    struct parent *parent;
    struct sink *sink;
    uint64_t first; /* number of the first chunk of the image that is read */
    uint8_t *chunk; /* copy of the current chunk */
};

/* Return whether a chunk has both dead and live blocks. */
static bool has_dead(void *arg, uint64_t number)
{
    const struct scrub *s = arg;
    const struct live_map *l = s->parent->live;
    uint32_t live = live_map_blocks(l, s->first + number);
    return live && live < live_map_chunk_size(l) / LIVE_BLOCK;
}

/* Zero the dead blocks of the copy, and return how many bytes were not zero. */
static uint64_t erase_dead(struct scrub *s, uint64_t number, uint32_t len)
{
    uint64_t erased = 0, first = number * (live_map_chunk_size(s->parent->live) / LIVE_BLOCK);
    for (uint32_t off = 0; off < len; off += LIVE_BLOCK) {
        if (live_map_is_block(s->parent->live, first + off / LIVE_BLOCK))
            continue;
        uint32_t n = GR_MIN(len - off, (uint32_t)LIVE_BLOCK);
        for (uint32_t i = 0; i < n; i++)
            erased += s->chunk[off + i] != 0;
        memset(s->chunk + off, 0, n);
    }
    return erased;
}

/* Erase the dead blocks of one fetched chunk and write it. The stream's buffer is shared, hence the copy. */
static int clean_chunk(void *arg, const struct chunk_item *item)
{
    struct scrub *s = arg;
    struct parent *p = s->parent;
    const uint64_t number = s->first + item->number;
    /* a chunk must not be left out: the build would report an erasure that did not happen */
    if (item->rc)
        return parent_refused(item->rc);
    memcpy(s->chunk, item->data, item->ref->plain_len);
    uint64_t erased = erase_dead(s, number, item->ref->plain_len);
    p->scrubbed.chunks += erased > 0;
    p->scrubbed.bytes += erased;
    int rc = sink_write(s->sink, SINK_SCRUB, number * p->manifest.chunk_size, s->chunk, item->ref->plain_len);
    return rc ? rc : step_take(&p->config.step);
}

int parent_scrub(struct parent *p, struct sink *sink)
{
    struct scrub s = {.parent = p, .sink = sink, .chunk = malloc(p->manifest.chunk_size)};
    const struct chunk_stream_options options = {.cancel = p->config.cancel, .wanted = has_dead};
    p->scrubbed = (struct scrub_counts){0};
    if (!s.chunk)
        return error_no_memory();
    int rc = 0;
    for (size_t i = 0; i < p->image_count && !rc; i++) {
        s.first = p->images[i].begin / p->manifest.chunk_size;
        rc = chunk_stream(p->config.store, &p->images[i].manifest, &options, clean_chunk, &s);
    }
    free(s.chunk);
    return rc;
}

/* ------------------------------------------------------------------ the end */

/* Set *out to whether the tag by which an image was found names it still. */
static int is_tagged(struct store *store, const struct parent_image *image, bool *out)
{
    struct digest named;
    *out = false;
    if (image->found.by_digest)
        return 0;
    int rc = repository_resolve(store, &image->found, &named, NULL);
    *out = !rc && digest_equal(&named, &image->digest);
    return rc == -ENOENT || rc == -EBADMSG ? 0 : rc;
}

/* The manifest's mark alone does not tell whether gc has found the parent unneeded: gc marks packs first, and marks no
 * manifest that is younger than the grace period, though the packs under it may be old. */
int parent_hold(struct parent *p, bool lapsed)
{
    struct store *store = p->config.store;
    int rc = 0;
    for (size_t i = 0; i < p->image_count && !rc; i++) {
        bool tagged;
        rc = is_tagged(store, &p->images[i], &tagged);
        if (!rc)
            rc = gc_hold_parent(store, &p->images[i].digest, lapsed || !tagged, &p->config.step);
    }
    return rc;
}

struct digest parent_of_tag(const struct parent *p, const struct digest *image)
{
    if (p->image_count > 1)
        return (struct digest){0};
    return digest_equal(&p->images->digest, image) ? p->tag.parent : p->images->digest;
}
