/* Finding the parent image, and planning the new image with it.
 *
 * What an error means depends on how the parent was found. A parent that the user names, or that the tag already refers
 * to, must be readable: its errors end the build. The newest image of the name is only a guess: if it cannot be used,
 * the build does without a parent and reads everything. */
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

/* Check that files of the new image can stay where the parent has them: same filesystem and chunk size. */
static int check_geometry(const struct parent *p, bool *out_other)
{
    const struct parent_config *c = &p->config;
    const uint32_t chunk_size = c->chunk_size ? c->chunk_size : p->manifest.chunk_size;
    *out_other = p->manifest.fs != c->fs || p->manifest.chunk_size != chunk_size;
    if (!*out_other || !c->must_be)
        return 0;
    return error_set(-EINVAL,
                     "build: the parent image is %s with chunks of %u bytes, to be built is %s with chunks of %u: give "
                     "the same, or --parent none",
                     manifest_fs_name(p->manifest.fs), p->manifest.chunk_size, manifest_fs_name(c->fs), chunk_size);
}

/* Log that the newest image cannot be used as the parent. */
static int do_without(const struct parent *p)
{
    log_warning("build: the newest image of %s cannot be built upon, so everything is read: %s", p->found.name,
                error_text());
    return -ENOENT;
}

/* Return whether an error means that the image cannot be used, rather than that the store failed. */
static bool is_unusable(int rc)
{
    return rc == -EACCES || rc == -ENOTSUP || rc == -EBADMSG || rc == -EKEYREJECTED;
}

/* The requested tag does not exist yet: find the newest image of the name. A store that may not be listed counts as
 * having none. */
static int find_newest(struct parent *p)
{
    int rc = lineage_newest(p->config.store, p->found.name, &p->config.source, p->found.tag, &p->tag);
    p->digest = p->tag.digest;
    p->is_newest = true;
    return is_unusable(rc) ? do_without(p) : rc;
}

/* Find the image of the tag or digest, or the newest one instead. */
static int find_image(struct parent *p)
{
    const struct parent_config *c = &p->config;
    p->found = *c->image;
    int rc = repository_resolve(c->store, c->image, &p->digest, &p->tag);
    return rc == -ENOENT && !c->must_be ? find_newest(p) : rc;
}

/* Check the signature of the tag by which the image was found. */
static int check_signature(const struct parent *p)
{
    const struct trust *trust = p->config.trust;
    struct image_ref ref = p->found;
    struct tag tag = p->tag;
    ref.digest = p->digest;
    if (!trust)
        return 0;
    int rc = repository_tag_beside(p->config.store, &ref, &tag);
    if (!rc)
        rc = trust_check_tag(trust, &ref, &tag.digest);
    return rc ? rc : trust_check(trust, &ref, tag.signature);
}

int parent_open(const struct parent_config *config, struct parent **out, bool *out_other)
{
    CLEANUP(cleanup_parent) struct parent *p = calloc(1, sizeof *p);
    *out = NULL;
    *out_other = false;
    if (!p)
        return error_no_memory();
    p->config = *config;
    int rc = find_image(p);
    if (rc == -ENOENT && !config->must_be)
        return 0;
    if (rc)
        return rc == -EBADMSG ? parent_failed(rc) : rc;
    rc = check_signature(p);
    if (!rc)
        rc = repository_manifest(config->store, &p->digest, &p->manifest);
    if (p->is_newest && (rc == -ENOENT || is_unusable(rc))) {
        (void)do_without(p);
        return 0;
    }
    if (rc)
        return rc == -ECANCELED ? rc : parent_failed(rc);
    rc = check_geometry(p, out_other);
    if (rc || *out_other)
        return rc;
    rc = live_map_new(p->manifest.size, p->manifest.chunk_size, &p->live);
    if (rc)
        return rc;
    *out = steal_ptr(&p);
    return 0;
}

int parent_resume(const struct parent_config *config, const struct manifest *left, struct parent **out)
{
    CLEANUP(cleanup_parent) struct parent *p = calloc(1, sizeof *p);
    if (!p)
        return error_no_memory();
    p->config = *config;
    /* moving would make the image depend on where the earlier run was interrupted */
    p->config.compact_percent = 0;
    p->config.compact_bytes = 0;
    p->manifest = *left;
    int rc = live_map_new(left->size, left->chunk_size, &p->live);
    if (rc)
        return rc;
    *out = steal_ptr(&p);
    return 0;
}

int parent_look(struct parent **parent)
{
    struct parent *p = *parent;
    const struct parent_check_config config = {
        .store = p->config.store, .manifest = &p->manifest, .step = p->config.step};
    int rc = parent_check(&config, &p->damage);
    if (!p->is_newest || (rc != -ENOENT && !is_unusable(rc)))
        return rc;
    (void)do_without(p);
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
    free(p);
}

/* ------------------------------------------------------------------ the source of moved files */

/* The parent's image as a source, from which compaction reads the files that it moves. source_read.address says where
 * in the image a file lies. The data is read through image_bytes, which fetches and verifies the chunks. There is
 * neither list nor stat: the content reader calls only source_read. */
struct parent_source {
    struct source base;
    struct image_bytes *bytes;
};

static int parent_read(struct source *s, const struct source_read *read)
{
    struct parent_source *p = (struct parent_source *)s;
    return image_bytes_read(p->bytes, read->address + read->offset, read->len, read->dst);
}

static void parent_close(struct source *s)
{
    struct parent_source *p = (struct parent_source *)s;
    image_bytes_free(p->bytes);
    free(p);
}

static const struct source_ops parent_ops = {.read = parent_read, .close = parent_close};

/* Open the parent's image as a source. Store and manifest outlive it. -ENOMEM; errors of image_bytes_new. */
static int parent_source_new(struct store *store, const struct manifest *parent, struct source **out)
{
    struct parent_source *p = calloc(1, sizeof *p);
    if (!p)
        return error_no_memory();
    /* errors of moved files name the store */
    p->base = (struct source){.ops = &parent_ops, .url = store->url};
    int rc = image_bytes_new(store, parent, &p->bytes);
    if (rc) {
        free(p);
        return rc;
    }
    *out = &p->base;
    return 0;
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
    int rc = compact_choose(p->live, budget, &compact);
    if (rc || !compact)
        return rc;
    const struct compact_config apply = {
        .planned = *nodes, .live = p->live, .scratch = {.dir = config->dir}, .step = config->step};
    rc = compact_apply(compact, &apply, &moved, &p->moved);
    if (!rc && p->moved.files)
        rc = parent_source_new(config->store, &p->manifest, &p->source);
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
                                     .parent = &p->manifest,
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
    return (struct sink_parent){.store = p->config.store,
                                .manifest = &p->manifest,
                                .kept = live_map_kept,
                                .kept_all = live_map_kept_all,
                                .arg = p->live,
                                .damaged = &p->damage.packs};
}

/* ------------------------------------------------------------------ scrubbing */

/* One pass over the parent's chunks in address order. Only chunks with dead blocks beside live ones are fetched, by
 * several threads ahead of this one. */
struct scrub {
    struct parent *parent;
    struct sink *sink;
    uint8_t *chunk; /* copy of the current chunk */
};

/* Return whether a chunk has both dead and live blocks. */
static bool has_dead(void *arg, uint64_t number)
{
    const struct live_map *l = ((struct scrub *)arg)->parent->live;
    uint32_t live = live_map_blocks(l, number);
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
    /* a chunk must not be left out: the build would report an erasure that did not happen */
    if (item->rc)
        return parent_failed(item->rc);
    memcpy(s->chunk, item->data, item->ref->plain_len);
    uint64_t erased = erase_dead(s, item->number, item->ref->plain_len);
    p->scrubbed.chunks += erased > 0;
    p->scrubbed.bytes += erased;
    int rc = sink_write(s->sink, SINK_SCRUB, item->number * p->manifest.chunk_size, s->chunk, item->ref->plain_len);
    return rc ? rc : step_take(&p->config.step);
}

int parent_scrub(struct parent *p, struct sink *sink)
{
    struct scrub s = {.parent = p, .sink = sink, .chunk = malloc(p->manifest.chunk_size)};
    const struct chunk_stream_options options = {.cancel = p->config.cancel, .wanted = has_dead};
    p->scrubbed = (struct scrub_counts){0};
    if (!s.chunk)
        return error_no_memory();
    int rc = chunk_stream(p->config.store, &p->manifest, &options, clean_chunk, &s);
    free(s.chunk);
    return rc;
}

/* ------------------------------------------------------------------ the end */

/* Set *out to whether the tag by which the parent was found names it still. */
static int parent_is_tagged(const struct parent *p, bool *out)
{
    struct digest named;
    *out = false;
    if (p->found.by_digest)
        return 0;
    int rc = repository_resolve(p->config.store, &p->found, &named, NULL);
    *out = !rc && digest_equal(&named, &p->digest);
    return rc == -ENOENT || rc == -EBADMSG ? 0 : rc;
}

/* The manifest's mark alone does not tell whether gc has found the parent unneeded: gc marks packs first, and marks no
 * manifest that is younger than the grace period, though the packs under it may be old. */
int parent_hold(struct parent *p, bool lapsed)
{
    bool tagged;
    int rc = parent_is_tagged(p, &tagged);
    return rc ? rc : gc_hold_parent(p->config.store, &p->digest, lapsed || !tagged, &p->config.step);
}

struct digest parent_of_tag(const struct parent *p, const struct digest *image)
{
    return digest_equal(&p->digest, image) ? p->tag.parent : p->digest;
}
