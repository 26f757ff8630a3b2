/* What a build builds upon: the parent image, or else the checkpoint of an earlier run of the same build. A
 * checkpoint is planned upon like a parent, but it is not compacted, scrubbed or named in the tags.
 *
 *    find -> [know shards] -> plan -> scrub -> [checkpoints while reading] -> catalog -> hold -> forget checkpoint
 *
 * A damaged parent is an error if the user names it; otherwise build_run begins again without one. A damaged
 * checkpoint, or a parent that was only found as the newest image, is dropped with a warning, since the build can do
 * without it.
 */
#include "imagebuild/build_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "format/chunk.h"
#include "imagebuild/fs/fs.h"
#include "imagebuild/join/join.h"
#include "repository/gc_marks.h"

/* ------------------------------------------------------------------ the parent */

/* Return the settings for the requested parent. A checkpoint is opened with the same ones. */
static struct parent_config parent_config(struct build *b)
{
    const struct build_options *o = &b->options;
    return (struct parent_config){.store = b->store,
                                  .images = o->parent_count ? o->parents : b->ref,
                                  .image_count = GR_MAX(o->parent_count, (size_t)1),
                                  .source = digest_of(b->identity, strlen(b->identity)),
                                  .trust = o->trust,
                                  .must_be = o->parent_count,
                                  .whole = o->join_at,
                                  .fs = o->fs,
                                  .chunk_size = o->chunk_size,
                                  .compact_percent = o->compact_percent,
                                  .gaps = build_leaves_gaps(b),
                                  .compact_bytes = o->compact_bytes,
                                  .dir = o->tmpdir,
                                  .cancel = o->cancel,
                                  .step = {.call = build_same_step, .arg = b}};
}

int build_parent_find(struct build *b)
{
    struct build_options *o = &b->options;
    const struct parent_config config = parent_config(b);
    struct parent_unused unused = {.differs = false};
    int rc = o->no_parent ? 0 : parent_open(&config, &b->parent, &unused);
    b->result->rebuild.parent_differs = unused.differs;
    b->result->rebuild.parent_other_source = unused.other_source;
    if (!rc && o->join_at) { /* all is taken over, damaged or not, so nothing is looked at */
        o->fs = b->parent->manifest.fs;
        o->chunk_size = b->parent->manifest.chunk_size;
        return 0;
    }
    if (!rc && b->parent)
        rc = build_step(b, "checking the parent");
    if (!rc && b->parent)
        rc = parent_look(&b->parent);
    if (!o->chunk_size) /* keep the parent's: a new default must not end rebuilding upon it */
        o->chunk_size = b->parent ? b->parent->manifest.chunk_size : CHUNK_SIZE_DEFAULT;
    return rc;
}

int build_parent_know_shards(struct build *b)
{
    if (!b->parent)
        return 0;
    /* a catalog lacks device numbers and skipped names, which these options need */
    if (b->options.keep_special || b->options.skip_bad_names || !source_can_know(b->source)) {
        parent_free(steal_ptr(&b->parent));
        return 0;
    }
    const struct known_shards_config config = {.store = b->store,
                                               .images = b->parent->images,
                                               .image_count = b->parent->image_count,
                                               .size = b->parent->manifest.size,
                                               .damage = &b->parent->damage,
                                               .step = {.call = build_same_step, .arg = b}};
    int rc = known_shards_new(&config, &b->known);
    if (rc)
        return rc;
    const struct source_known known = {.has = known_shards_has, .suffice = known_shards_suffice, .arg = b->known};
    return source_set_known(b->source, &known);
}

int build_parent_forget_shards(struct build *b)
{
    const struct source_known none = {0};
    if (!b->known)
        return 0;
    known_shards_free(steal_ptr(&b->known));
    return source_set_known(b->source, &none);
}

/* ------------------------------------------------------------------ the checkpoint of an earlier run */

/* Return the settings that must agree for another run to use this build's checkpoint. chunk_size is settled by now. */
static struct checkpoint_identity identity(const struct build *b)
{
    const struct build_options *o = &b->options;
    return (struct checkpoint_identity){.name = b->ref->name,
                                        .tag = b->ref->tag,
                                        .source = b->identity,
                                        .fs = o->fs,
                                        .chunk_size = o->chunk_size,
                                        .zstd_level = o->zstd_level,
                                        .pack_size = o->pack_size,
                                        .bytes = o->checkpoint_bytes};
}

/* Return whether this build writes and resumes checkpoints. A build that streams does not: its data is written
 * before the listing is complete, so no final node describes it yet. */
static bool checkpoints(const struct build *b)
{
    return b->options.checkpoint_bytes && !b->options.dry_run && !b->streams;
}

/* Without a parent, resume where an earlier run of this build stopped. A damaged checkpoint counts as none: starting
 * again costs little more than reading a part again, and gives the same image. */
static int resume(struct build *b)
{
    const struct checkpoint_identity id = identity(b);
    const struct parent_config config = parent_config(b);
    struct manifest left;
    int rc = checkpoint_find(b->store, &id, b->fs->data_begin, &left);
    if (rc <= 0)
        return rc;
    rc = parent_resume(&config, &left, &b->parent);
    if (!rc)
        rc = parent_look(&b->parent); /* cannot become NULL: only a parent found by name does */
    if (!rc && b->parent->damage.packs.map.count)
        rc = error_set(-EBADMSG, "packs of it are missing or damaged");
    if (!rc)
        rc = parent_plan(b->parent, &b->planned);
    if (rc == -EBADMSG || rc == PARENT_DAMAGED) {
        log_warning("build: starts over, since what an earlier run left is damaged: %s", error_text());
        parent_free(steal_ptr(&b->parent));
        return 0;
    }
    if (rc)
        return rc;
    b->resumed = true;
    b->result->files_resumed = b->parent->plan.unchanged;
    b->result->bytes_resumed = b->parent->plan.bytes_kept;
    b->progress.bytes_total = b->parent->plan.bytes_read;
    return 0;
}

/* ------------------------------------------------------------------ planning */

/* Copy the plan's counts into the result. */
static void take_plan(struct build *b)
{
    const struct parent *p = b->parent;
    const struct parent_image *image = p->images;
    b->result->rebuild = (struct build_rebuild){.parents = p->image_count,
                                                .unchanged = p->plan.unchanged,
                                                .added = p->plan.added,
                                                .changed = p->plan.changed,
                                                .removed = p->plan.removed,
                                                .packs_damaged = p->damage.packs.map.count,
                                                .healed = p->plan.healed,
                                                .bytes_healed = p->plan.bytes_healed,
                                                .bytes_to_read = p->plan.bytes_read,
                                                .bytes_kept = p->plan.bytes_kept - p->moved.bytes,
                                                .bytes_moved = p->moved.bytes,
                                                .files_moved = p->moved.files,
                                                .dead_bytes = p->dead_bytes};
    struct build_rebuild *r = &b->result->rebuild;
    if (p->image_count == 1)
        r->parent = image->digest;
    if (p->image_count == 1 && !image->found.by_digest)
        snprintf(r->parent_name, sizeof r->parent_name, "%s:%s", image->found.name, image->found.tag);
    b->progress.bytes_total = p->plan.bytes_read + p->moved.bytes;
}

int build_parent_plan(struct build *b)
{
    if (!b->parent) /* a checkpoint may hold bytes that --scrub must erase, and nobody signs it */
        return checkpoints(b) && !b->options.scrub && !b->options.trust ? resume(b) : 0;
    int rc = parent_plan(b->parent, &b->planned);
    if (!rc)
        take_plan(b);
    return rc;
}

/* ------------------------------------------------------------------ on the way */

/* Return whether this build's metadata may be laid out and stored upon an image's. Several parents divide their paths
 * among them. A checkpoint has no metadata, and its objects go with it. */
static bool is_upon_one_image(const struct build *b)
{
    return b->parent && !b->resumed && b->parent->image_count == 1 && !b->options.join_at;
}

/* Where the metadata of a parent that the user did not name is damaged, all is laid out and written anew. */
int build_parent_metadata(void *build, struct scratch **out)
{
    struct build *b = build;
    *out = NULL;
    if (!is_upon_one_image(b))
        return 0;
    const struct inodes_config config = {.store = b->store,
                                         .manifest = &b->parent->images->manifest,
                                         .dir = b->options.tmpdir,
                                         .step = {.call = build_same_step, .arg = b}};
    int rc = inodes_copy_metadata(&config, out);
    if (rc != -EBADMSG && rc != -ENOENT)
        return rc;
    if (b->options.parent_count)
        return parent_refused(-EBADMSG);
    log_warning("build: writes all metadata anew, since the parent's is damaged: %s", error_text());
    sink_metadata_anew(b->sink);
    return 0;
}

/* --scrub leaves no name of a removed file, so nothing that has one may stay. */
bool build_parent_has_bases(const struct build *b)
{
    return is_upon_one_image(b) && !b->options.scrub;
}

bool build_parent_erases(const struct build *b)
{
    return b->parent && b->options.scrub;
}

int build_parent_scrub(struct build *b)
{
    if (!build_parent_erases(b))
        return 0;
    int rc = parent_scrub(b->parent, b->sink);
    b->result->rebuild.chunks_scrubbed = b->parent->scrubbed.chunks;
    b->result->rebuild.bytes_scrubbed = b->parent->scrubbed.bytes;
    return rc;
}

/* A build upon a parent writes no checkpoints: it reads little, and its addresses depend on more than the number of
 * bytes that it has read. */
int build_parent_open_checkpoint(struct build *b)
{
    const struct checkpoint_config config = {.store = b->store,
                                             .upload = b->upload,
                                             .sink = b->sink,
                                             .lease = b->lease,
                                             .id = identity(b),
                                             .data_begin = b->fs->data_begin};
    return checkpoints(b) && (!b->parent || b->resumed) ? checkpoint_new(&config, &b->checkpoint) : 0;
}

/* ------------------------------------------------------------------ the end */

int build_parent_catalog(struct build *b, struct catalog_root *out)
{
    CLEANUP(cleanup_catalog_bases) struct catalog_bases *bases = NULL;
    int rc = build_parent_has_bases(b) ? catalog_bases_new(b->store, &b->parent->images->manifest, &bases) : 0;
    return rc ? rc : catalog_write(b->written.nodes, bases, b->upload, out);
}

int build_parent_hold(struct build *b)
{
    const struct checkpoint_identity id = identity(b);
    bool lapsed = lease_lapses(b->lease) > 0;
    if (!b->resumed)
        return b->parent ? parent_hold(b->parent, lapsed) : 0;
    const struct step step = {.call = build_same_step, .arg = b};
    int rc = lapsed ? checkpoint_hold(b->store, &id) : 0;
    return rc ? rc : gc_unmark_chunks(b->store, &b->parent->manifest, &step);
}

void build_parent_forget_checkpoint(struct build *b)
{
    const struct checkpoint_identity id = identity(b);
    if (b->resumed || b->result->checkpoints)
        checkpoint_remove(b->store, &id);
}
