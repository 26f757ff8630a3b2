/* The order of a build, one function per step. docs/internals/build.md walks through it.
 *
 *    prepare   granary.json, conditional writes (--strict-tags), the lease
 *    parent    find and check the parent image
 *    list      source -> nodes in path order; of these, the part that is built
 *    plan      which of the parent's files stay, which are moved, which are read
 *    read      file data in path order -> dedupe -> addresses -> sink -> upload; the final nodes
 *    finish    metadata, top of the index, catalog; wait for uploads
 *    publish   reused objects are still there; the manifest, the unique tag, the requested tag
 *
 * A source that streams (tar shards) delivers file data with the listing. Then the output opens before the listing,
 * and "list" writes the data. A join (build_join.c) lists images instead of a source; it plans and reads nothing.
 *
 * If the parent that "parent", "list" or "plan" reads is damaged, and the user did not name it, all of this happens
 * once more without a parent.
 *
 * Invariant: until the unique tag exists, nothing refers to an uploaded object. A failure before that leaves objects
 * that the next run reuses or gc removes. build_release frees everything in reverse order of creation.
 * build_parent.c finds what to build upon, build_publish.c publishes, build_step.c runs between any two pieces of work.
 */
#include "imagebuild/build_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "imagebuild/fs/fs.h"
#include "imagebuild/sink/catalog_writer.h"
#include "imagebuild/sink/sink.h"
#include "repository/repository.h"

#define JOIN_REMEDY "put one of the images below a directory of its own: --at DIR=PART"
#define READ_MEMORY_DEFAULT ((size_t)128 << 20)
#define PACK_SIZE_DEFAULT ((size_t)32 << 20)
#define PACK_SIZE_MAX ((size_t)1 << 30)

/* The lease ends last: until then it protects everything that the build has put. */
static void build_release(struct build *b)
{
    nodes_free(b->written.nodes);
    known_shards_free(b->known);
    fs_free(b->fs);
    sink_free(b->sink);
    upload_free(b->upload);
    nodes_free(b->planned);
    checkpoint_free(b->checkpoint);
    source_close(b->joined);
    parent_free(b->parent);
    free(b->identity);
    lease_end(b->lease);
}

/* ------------------------------------------------------------------ prepare */

/* Fill in b->identity. */
static int name_source(struct build *b)
{
    const struct share *part = &b->options.part;
    if (b->options.join_at)
        return build_join_name(b);
    if (part->count && source_streams(b->source))
        return error_set(-ENOTSUP, "build: %s: tar shards cannot be built in parts; choose shards by --include",
                         b->source->url);
    int len = part->count ? asprintf(&b->identity, "%s part %u/%u", b->source->url, part->number, part->count)
                          : asprintf(&b->identity, "%s", b->source->url);
    if (len < 0)
        b->identity = NULL; /* undefined after a failure */
    return len < 0 ? error_no_memory() : 0;
}

/* Fill in defaults and refuse bad options before any work begins. */
static int fill_options(struct build *b, const struct build_options *options)
{
    struct build_options *o = &b->options;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    *o = *options;
    o->read_memory = o->read_memory ? o->read_memory : READ_MEMORY_DEFAULT;
    o->pack_size = o->pack_size ? o->pack_size : PACK_SIZE_DEFAULT;
    o->uploads = o->uploads ? o->uploads : 4;
    o->workers = o->workers ? o->workers : (unsigned)GR_MAX(cpus, 1L);
    if (o->chunk_size && !chunk_size_valid(o->chunk_size))
        return error_set(-EINVAL, "build: chunk size %u: a power of two from 64 KiB to 4 MiB is needed", o->chunk_size);
    if (o->pack_size > PACK_SIZE_MAX)
        return error_set(-EINVAL, "build: pack size %zu is over 1 GiB", o->pack_size);
    if (o->tmpdir && access(o->tmpdir, W_OK | X_OK)) /* fail now, not after hours when the first file spills */
        return error_set(-errno, "build: --tmpdir %s: %s; name a directory that can be written to", o->tmpdir,
                         strerror(errno));
    if (b->ref->by_digest || !b->ref->tag[0])
        return error_set(-EINVAL, "build: an image is published under a tag, not a digest: give STORE/NAME[:TAG]");
    return name_source(b);
}

/* Check the store and take the lease. The probe comes first, so that a refused --strict-tags leaves nothing behind. */
static int build_prepare(struct build *b)
{
    char image[IMAGE_NAME_MAX + IMAGE_TAG_MAX + 2];
    bool guarded = true;
    int rc = b->options.strict_tags ? store_probe_conditional(b->store, &guarded) : 0;
    if (!rc && !guarded)
        rc = error_set(-ENOTSUP,
                       "build: %s has no conditional writes, so another build could replace the tag unseen; leave out "
                       "--strict-tags to publish all the same",
                       b->store->url);
    if (!rc)
        rc = nesting_enter(b->store, &b->options.place);
    if (rc)
        return rc;
    snprintf(image, sizeof image, "%s:%s", b->ref->name, b->ref->tag);
    return lease_begin(b->store, &b->options.place, image, b->options.cancel, &b->lease);
}

/* ------------------------------------------------------------------ open */

/* Choose the filesystem's implementation. No default case, so that the compiler warns if one is missing here. */
static int new_fs(enum manifest_fs fs, const struct fs_config *config, struct fs **out)
{
    switch (fs) {
    case MANIFEST_EROFS:
        return fs_erofs_new(config, out);
    case MANIFEST_EXT4:
        return fs_ext4_new(config, out);
    case MANIFEST_FILESYSTEMS:
        break;
    }
    return error_set(-EINVAL, "filesystem number %d is not known to this build", (int)fs);
}

/* Return how many bytes the gaps between all files may take; each file is rounded up to a block. */
static uint64_t gaps_most(const struct build *b)
{
    const uint64_t files = b->planned ? nodes_count(b->planned) : 0;
    if (!build_leaves_gaps(b))
        return 0;
    return content_gaps_most(b->progress.bytes_total + files * LIVE_BLOCK, b->options.chunk_size);
}

/* Create the filesystem for what is listed. A filesystem that cannot keep the parent's data (fs->keeps) drops the
 * parent: everything is then read. */
static int open_fs(struct build *b)
{
    const struct manifest *parent = b->parent ? &b->parent->manifest : NULL;
    struct fs_config fs = {.chunk_size = b->options.chunk_size,
                           .nodes = b->planned ? nodes_count(b->planned) : 0,
                           .bytes = b->progress.bytes_total,
                           .gaps = gaps_most(b),
                           .parent_size = parent ? parent->size : 0,
                           .parent_data_end = parent ? parent->metadata_offset : 0,
                           .parent_metadata = build_parent_metadata,
                           .parent_arg = b,
                           .dir = b->options.tmpdir,
                           .step = {.call = build_same_step, .arg = b}};
    if (b->options.join_at)
        build_join_size(b, &fs);
    int rc = new_fs(b->options.fs, &fs, &b->fs);
    if (!rc && b->options.join_at)
        return build_join_open(b);
    if (rc || !b->parent || b->fs->keeps)
        return rc;
    b->result->rebuild.parent_differs = true;
    parent_free(steal_ptr(&b->parent));
    return 0;
}

/* Start the uploaders and the sink. Upload memory is one full pack for each uploader. */
static int open_output(struct build *b)
{
    const struct build_options *o = &b->options;
    struct upload_config upload = {.store = b->store,
                                   .threads = o->uploads,
                                   .memory = o->uploads * o->pack_size,
                                   .step = {.call = build_same_step, .arg = b}};
    int rc = upload_new(&upload, &b->upload);
    if (rc)
        return rc;
    const struct sink_parent parent = b->parent ? parent_sink(b->parent) : (struct sink_parent){.store = NULL};
    struct sink_config sink = {.upload = b->upload,
                               .chunk_size = o->chunk_size,
                               .zstd_level = o->zstd_level,
                               .workers = o->workers,
                               .pack_size = o->pack_size,
                               .sorter = {.dir = o->tmpdir},
                               .parent = b->parent ? &parent : NULL,
                               .repack_budget = b->parent ? b->parent->budget_left : 0,
                               .erase = build_parent_erases(b),
                               .deltas = build_parent_has_bases(b)};
    return sink_new(&sink, &b->sink);
}

/* Account for file data that was read or streamed. */
static int content_step(void *arg, uint64_t files, uint64_t bytes)
{
    struct build *b = arg;
    b->progress.files_done += files;
    b->progress.bytes_done += bytes;
    return build_step(b, "reading");
}

/* ------------------------------------------------------------------ list */

/* Keep the counts of the listing. read_content replaces the manifest's counts with those of the published files. */
static void take_listing_stats(struct build *b, const struct listing_stats *s)
{
    b->progress.files_total = s->files;
    b->progress.bytes_total = s->bytes;
    b->result->names_skipped = s->names_skipped;
    b->result->special_skipped = s->special_skipped;
    b->result->xattrs_skipped = s->xattrs_skipped;
    b->result->manifest.counts = (struct manifest_counts){.files = s->files,
                                                          .directories = s->directories,
                                                          .symlinks = s->symlinks,
                                                          .hard_links = s->hard_links,
                                                          .others = s->others,
                                                          .bytes = s->bytes};
}

/* With --strict a path that vanished while it was listed fails the build. */
static int take_source_counts(struct build *b)
{
    struct source_counts c = {0};
    source_ask_counts(b->source, &c);
    b->result->listing_vanished = c.vanished;
    b->result->owners_unknown = c.owners_unknown;
    if (!c.vanished || !b->options.strict)
        return 0;
    return error_set(-ENOENT, "source: %s: '%s' vanished while it was listed; --strict makes this an error",
                     b->source->url, c.first_vanished);
}

/* Count a listed entry. */
static int on_listed(void *arg)
{
    struct build *b = arg;
    b->progress.files_listed++;
    return build_step(b, "listing");
}

/* List the source into *out. With a sink, file data that comes with the listing is written too. */
static int ingest_source(struct build *b, struct ingest_result *out)
{
    const struct build_options *o = &b->options;
    const struct ingest_config config = {.source = b->source,
                                         .listing = {.skip_bad_names = o->skip_bad_names,
                                                     .keep_special = o->keep_special || o->join_at,
                                                     .remedy = o->join_at ? JOIN_REMEDY : NULL,
                                                     .directory = o->directory,
                                                     .dir = o->tmpdir},
                                         .known = b->known,
                                         .parent_size = b->known ? b->parent->manifest.size : 0,
                                         .sink = b->sink,
                                         .fs = b->fs,
                                         .chunk_size = o->chunk_size,
                                         .gaps = build_leaves_gaps(b),
                                         .listed = on_listed,
                                         .step = content_step,
                                         .arg = b};
    b->reading = b->streams;
    return ingest_run(&config, out);
}

/* ext4 needs the number of files and bytes before the first data, since its front lies before them: list the shards
 * once without writing. */
static int count_first(struct build *b)
{
    struct ingest_result counted;
    int rc = ingest_source(b, &counted);
    if (rc)
        return rc;
    b->planned = counted.nodes;
    b->progress.bytes_total = counted.stats.bytes + counted.stats.bytes_replaced;
    b->progress.files_listed = 0;
    rc = open_fs(b);
    nodes_free(steal_ptr(&b->planned));
    return rc;
}

/* For a source that streams, open filesystem and output before the listing, which writes the file data. */
static int open_streaming(struct build *b)
{
    b->streams = !b->options.dry_run && source_streams(b->source);
    if (!b->streams)
        return 0;
    int rc = build_parent_know_shards(b);
    if (!rc)
        rc = b->options.fs == MANIFEST_EXT4 ? count_first(b) : open_fs(b);
    if (!rc && !b->parent)
        rc = build_parent_forget_shards(b);
    return rc ? rc : open_output(b);
}

/* Leave only the part that is built. */
static int take_part(struct build *b)
{
    const struct build_options *o = &b->options;
    struct nodes *all = b->planned;
    struct listing_stats stats = b->ingested.stats;
    const struct scratch_config scratch = {.dir = o->tmpdir};
    const struct step step = {.call = build_same_step, .arg = b};
    b->planned = NULL;
    int rc = share_take(&o->part, all, &scratch, &step, &b->planned, &stats);
    nodes_free(all);
    take_listing_stats(b, &stats);
    return rc;
}

/* List everything into b->planned. */
static int build_list(struct build *b)
{
    int rc = build_step(b, "listing");
    if (!rc)
        rc = b->options.join_at ? open_fs(b) : open_streaming(b);
    if (!rc)
        rc = ingest_source(b, &b->ingested);
    if (rc)
        return rc;
    b->planned = steal_ptr(&b->ingested.nodes);
    take_listing_stats(b, &b->ingested.stats);
    if (b->options.join_at)
        build_join_take(b);
    rc = b->options.part.count ? take_part(b) : 0;
    return rc ? rc : take_source_counts(b);
}

/* ------------------------------------------------------------------ read */

/* Add up the data written with the listing (a source that streams) and the data that the content writer wrote. */
static void take_written(struct build *b)
{
    const struct content_writer_result *w = &b->written;
    b->result->files_changed = w->read.changed;
    b->result->files_vanished = w->read.vanished;
    b->result->bytes_read = w->read.read_bytes + b->ingested.written.bytes;
    b->result->checkpoints = b->checkpoint ? checkpoint_count(b->checkpoint) : 0;
    b->result->dedupe_files = w->dedupe_files + b->ingested.written.dedupe_files;
    b->result->dedupe_bytes = w->dedupe_bytes + b->ingested.written.dedupe_bytes;
    b->result->manifest.counts = w->counts;
}

/* Read and write all planned file data. Scrubbing comes before the first data, so that its chunks go into the first
 * packs; the order is part of the image's digest. */
static int read_content(struct build *b)
{
    const struct build_options *o = &b->options;
    int rc = b->sink ? 0 : open_output(b);
    if (!rc)
        rc = build_parent_scrub(b);
    if (!rc)
        rc = build_parent_open_checkpoint(b);
    if (rc)
        return rc;
    const struct content_writer_config config = {.source = b->source,
                                                 .parent = b->parent ? b->parent->source : NULL,
                                                 .live = b->parent ? b->parent->live : NULL,
                                                 .planned = b->planned,
                                                 .fs = b->fs,
                                                 .sink = b->sink,
                                                 .checkpoint = b->checkpoint,
                                                 .written_end = b->ingested.written_end,
                                                 .gaps = build_leaves_gaps(b),
                                                 .chunk_size = o->chunk_size,
                                                 .jobs = o->jobs,
                                                 .memory = o->read_memory,
                                                 .strict = o->strict,
                                                 .keep_special = o->keep_special,
                                                 .dir = o->tmpdir,
                                                 .step = content_step,
                                                 .step_arg = b};
    b->reading = true;
    rc = content_writer_run(&config, &b->written);
    if (rc)
        return rc;
    take_written(b);
    nodes_free(steal_ptr(&b->planned));
    return build_step(b, "metadata");
}

/* ------------------------------------------------------------------ finish */

/* Describe the finished image. Neither time nor parent is in it: equal images are one object. */
static void fill_manifest(struct build *b, const struct fs_result *fs, const struct sink_result *s,
                          const struct catalog_root *c)
{
    struct manifest *m = &b->result->manifest;
    m->fs = b->options.fs;
    m->size = fs->image_size;
    m->chunk_size = b->options.chunk_size;
    m->metadata_offset = fs->metadata_offset;
    m->metadata_len = fs->metadata_len;
    m->front_len = fs->front_len;
    m->index_levels = s->index_levels;
    m->index_root = s->index_root;
    m->deltas = s->deltas;
    m->content_root = s->content_root;
    m->stored_bytes = s->stored_bytes;
    m->catalog_levels = c->levels;
    m->catalog_root = c->digest;
    m->catalog_len = c->len;
    m->catalog_crc = c->crc;
    m->catalog_entries = c->entries;
    b->result->xattrs_skipped += fs->xattrs_skipped;
    b->result->content_root = s->content_root;
}

/* Write the rest of the image but for its manifest, each object after those that it refers to. */
static int finish(struct build *b)
{
    struct fs_result fs;
    struct sink_result sink;
    struct catalog_root catalog;
    int rc = b->fs->ops->finish(b->fs, b->written.nodes, b->written.data_end, b->sink, &fs);
    if (!rc)
        rc = sink_finish(b->sink, fs.image_size, &sink);
    if (!rc)
        rc = build_step(b, "metadata");
    if (!rc)
        rc = build_parent_catalog(b, &catalog);
    if (!rc)
        rc = upload_flush(b->upload);
    if (rc)
        return rc;
    fill_manifest(b, &fs, &sink, &catalog);
    b->result->rebuild.packs_emptied = sink.repacked.packs;
    b->result->rebuild.bytes_repacked = sink.repacked.bytes;
    return 0;
}

/* ------------------------------------------------------------------ all of it */

/* The steps in order. */
static int build_all(struct build *b)
{
    int rc = b->options.dry_run ? 0 : build_prepare(b);
    if (!rc)
        rc = build_parent_find(b);
    if (!rc)
        rc = build_list(b);
    if (!rc && !b->fs)
        rc = open_fs(b);
    if (!rc)
        rc = b->options.join_at ? 0 : build_parent_plan(b);
    if (rc || b->options.dry_run)
        return rc;
    rc = read_content(b);
    if (!rc)
        rc = finish(b);
    if (!rc)
        rc = build_publish(b);
    if (!rc)
        build_parent_forget_checkpoint(b);
    return rc;
}

/* The parent is damaged: return the error that ends the build; or PARENT_DAMAGED, with a warning, if it may go on
 * without a parent. A source that may have been cancelled cannot be listed again. */
static int judge_damage(const struct build *b)
{
    if (b->options.join_at)
        return error_prefix(-EBADMSG, "join: an image is damaged");
    if (b->options.parent_count || b->resumed || b->reading)
        return parent_refused(-EBADMSG);
    const struct image_ref *parent = &b->parent->images->found;
    log_warning("build: the parent image %s:%s is damaged, so everything is read from the source: %s", parent->name,
                parent->tag, error_text());
    return PARENT_DAMAGED;
}

/* Build, and release everything. PARENT_DAMAGED: *options are now those of a build without it. */
static int build_once(struct source *source, struct store *store, const struct image_ref *ref,
                      struct build_options *options, struct build_result *out)
{
    struct build b = {.source = source, .store = store, .ref = ref, .result = out};
    memset(out, 0, sizeof *out);
    int rc = fill_options(&b, options);
    if (!rc)
        rc = build_all(&b);
    if (rc == PARENT_DAMAGED)
        rc = judge_damage(&b);
    if (rc == PARENT_DAMAGED) {
        options->no_parent = true;
        options->chunk_size = b.options.chunk_size; /* the parent's, if its manifest could be read */
    }
    struct error error;
    error_take(&error, rc); /* build_release must not replace the sentence */
    build_release(&b);
    return rc ? error_restore(&error) : 0;
}

/* Damage of the parent may show only after the listing. To begin again costs a second listing, and nothing of the
 * parent can remain in what is built then. */
int build_run(struct source *source, struct store *store, const struct image_ref *ref,
              const struct build_options *options, struct build_result *out)
{
    struct build_options o = *options;
    uint64_t started_ms = clock_now_ms();
    int rc = build_once(source, store, ref, &o, out);
    if (rc == PARENT_DAMAGED) {
        rc = build_once(source, store, ref, &o, out);
        out->rebuild.parent_damaged = true;
    }
    out->seconds = (double)(clock_now_ms() - started_ms) / 1000;
    return rc;
}
