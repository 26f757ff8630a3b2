/* The order of a build, each step one function here; docs/way-of-a-build.md walks through it.
 *
 *   prepare   the store's own document, tags can be guarded (--strict-tags), a lease
 *   list      source -> tree, sealed
 *   read      bodies in path order -> dedupe -> layout -> sink -> upload
 *   finish    metadata, the index's top, catalog; everything has arrived; what was re-used is still there
 *   publish   manifest, the unique tag, the tag asked for
 *
 * Until the unique tag is there nothing refers to anything that was uploaded: a failure before it leaves objects that
 * the next run re-uses or gc removes. Whatever was started is ended in build_release, in reverse.
 */
#include "imagebuild/build.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "imagebuild/bodies.h"
#include "imagebuild/catalog_writer.h"
#include "imagebuild/dedupe.h"
#include "imagebuild/layout.h"
#include "imagebuild/sink.h"
#include "imagebuild/upload.h"
#include "store/gc.h"
#include "store/lease.h"
#include "store/repository.h"

enum { PROGRESS_MS = 200 };
#define READ_MEMORY_DEFAULT ((size_t)128 << 20)
#define PACK_SIZE_DEFAULT ((size_t)32 << 20)
#define PACK_SIZE_MAX ((size_t)1 << 30)

struct build {
    struct source *source;
    struct store *store;
    const struct image_ref *ref;
    struct build_options options; /* defaults filled in */
    struct build_result *result;
    struct build_progress progress;
    const char *phase;
    uint64_t reported_ms;
    struct lease_handle *lease;
    struct tree *tree;
    struct upload *upload;
    struct sink *sink;
    struct layout *layout;
    struct dedupe *dedupe;
    struct bodies *bodies;
};

static void build_release(struct build *b)
{
    bodies_free(b->bodies);
    layout_free(b->layout);
    dedupe_free(b->dedupe);
    sink_free(b->sink);
    upload_free(b->upload);
    tree_free(b->tree);
    lease_end(b->lease);
}

/* ------------------------------------------------------------------ while anything goes on */

static void report(struct build *b, const char *phase)
{
    if (!b->options.progress)
        return;
    uint64_t now = clock_now_ms();
    bool same = b->progress.phase && !strcmp(phase, b->progress.phase);
    if (same && now - b->reported_ms < PROGRESS_MS)
        return;
    b->reported_ms = now;
    b->progress.phase = phase;
    if (b->upload)
        b->progress.bytes_uploaded = upload_counts(b->upload).bytes;
    b->options.progress(b->options.progress_arg, &b->progress);
}

/* Between any two pieces of work: -ECANCELED when asked to stop; progress; the lease. */
static int step(struct build *b, const char *phase)
{
    if (b->options.cancel && *b->options.cancel)
        return error_set(-ECANCELED, "build: interrupted; nothing was published, and running it again re-uses what was "
                                     "uploaded");
    b->phase = phase;
    report(b, phase);
    return b->lease ? lease_renew(b->lease) : 0;
}

static int upload_step(void *arg)
{
    struct build *b = arg;
    return step(b, b->phase);
}

/* ------------------------------------------------------------------ prepare */

static int fill_options(struct build *b, const struct build_options *options)
{
    struct build_options *o = &b->options;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    *o = *options;
    o->chunk_size = o->chunk_size ? o->chunk_size : CHUNK_SIZE_DEFAULT;
    o->jobs = o->jobs ? o->jobs : 32;
    o->read_memory = o->read_memory ? o->read_memory : READ_MEMORY_DEFAULT;
    o->pack_size = o->pack_size ? o->pack_size : PACK_SIZE_DEFAULT;
    o->uploads = o->uploads ? o->uploads : 4;
    o->workers = o->workers ? o->workers : (unsigned)GR_MAX(cpus, 1L);
    if (!chunk_size_valid(o->chunk_size))
        return error_set(-EINVAL, "build: chunk size %u: a power of two from 64 KiB to 4 MiB is needed", o->chunk_size);
    if (o->pack_size > PACK_SIZE_MAX)
        return error_set(-EINVAL, "build: pack size %zu is over 1 GiB", o->pack_size);
    if (b->ref->by_digest || !b->ref->tag[0])
        return error_set(-EINVAL, "build: an image is published under a tag, not a digest: give STORE/NAME[:TAG]");
    return 0;
}

static int prepare(struct build *b)
{
    char image[IMAGE_NAME_MAX + IMAGE_TAG_MAX + 2];
    bool guarded = true;
    int rc = b->options.strict_tags ? b->store->ops->probe_conditional(b->store, &guarded) : 0;
    if (!rc && !guarded)
        rc = error_set(-ENOTSUP,
                       "build: %s has no conditional writes, so another build could replace the tag unseen; leave out "
                       "--strict-tags to publish all the same",
                       b->store->url);
    if (!rc)
        rc = repository_check(b->store, true);
    if (rc)
        return rc;
    snprintf(image, sizeof image, "%s:%s", b->ref->name, b->ref->tag);
    return lease_begin(b->store, image, &b->lease);
}

/* ------------------------------------------------------------------ list */

static int on_entry(void *arg, const struct source_entry *entry)
{
    struct build *b = arg;
    int rc = tree_add(b->tree, entry);
    if (rc)
        return rc;
    b->progress.files_listed++;
    return step(b, "listing");
}

static int list(struct build *b)
{
    struct tree_options options = {.skip_bad_names = b->options.skip_bad_names,
                                   .keep_special = b->options.keep_special};
    int rc = tree_new(&options, &b->tree);
    if (!rc)
        rc = step(b, "listing");
    if (!rc)
        rc = b->source->ops->list(b->source, on_entry, b);
    if (!rc)
        rc = tree_seal(b->tree);
    if (rc)
        return rc;
    struct tree_stats stats = tree_stats(b->tree);
    b->progress.files_total = stats.files;
    b->progress.bytes_total = stats.bytes;
    return 0;
}

static void take_stats(struct build *b)
{
    struct tree_stats s = tree_stats(b->tree);
    b->result->names_skipped = s.names_skipped;
    b->result->special_skipped = s.special_skipped;
    b->result->xattrs_skipped = s.xattrs_skipped;
    b->result->manifest.counts = (struct manifest_counts){.files = s.files,
                                                          .directories = s.directories,
                                                          .symlinks = s.symlinks,
                                                          .hard_links = s.hard_links,
                                                          .others = s.others,
                                                          .bytes = s.bytes};
}

/* ------------------------------------------------------------------ read */

static int open_way(struct build *b)
{
    const struct build_options *o = &b->options;
    struct upload_config upload = {.store = b->store,
                                   .threads = o->uploads,
                                   .memory = o->uploads * o->pack_size,
                                   .step = upload_step,
                                   .step_arg = b};
    int rc = upload_new(&upload, &b->upload);
    if (rc)
        return rc;
    struct sink_config sink = {.upload = b->upload,
                               .chunk_size = o->chunk_size,
                               .zstd_level = o->zstd_level,
                               .workers = o->workers,
                               .pack_size = o->pack_size};
    rc = sink_new(&sink, &b->sink);
    if (rc)
        return rc;
    struct layout_config layout = {.tree = b->tree, .sink = b->sink, .chunk_size = o->chunk_size};
    rc = layout_erofs_new(&layout, &b->layout);
    if (rc)
        return rc;
    b->dedupe = dedupe_new();
    if (!b->dedupe)
        return error_set(-ENOMEM, "build: out of memory");
    struct bodies_config bodies = {
        .source = b->source, .tree = b->tree, .jobs = o->jobs, .memory = o->read_memory, .strict = o->strict};
    return bodies_start(&bodies, &b->bodies);
}

/* Share the blocks of an equal file, or emit the part. */
static int take_part(struct build *b, const struct body_part *part)
{
    struct node *n = tree_node(b->tree, part->node);
    bool candidate = part->first && part->last && part->size <= DEDUPE_SIZE_MAX;
    uint64_t known = candidate ? dedupe_find(b->dedupe, &n->content, part->size) : 0;
    if (known) {
        n->address = known;
        b->result->dedup_files++;
        b->result->dedup_bytes += part->size;
        return 0;
    }
    int rc = b->layout->ops->body(b->layout, part);
    if (!rc && candidate)
        dedupe_add(b->dedupe, &n->content, part->size, n->address);
    return rc;
}

static int read_bodies(struct build *b)
{
    struct body_part part;
    int rc = open_way(b);
    while (!rc && (rc = bodies_next(b->bodies, &part)) == 1) {
        rc = take_part(b, &part);
        b->progress.files_done += part.last;
        b->progress.bytes_done += part.len;
        if (!rc)
            rc = step(b, "reading");
    }
    if (rc)
        return rc;
    b->result->files_changed = bodies_changed(b->bodies);
    b->result->files_vanished = bodies_vanished(b->bodies);
    b->result->bytes_read = bodies_read_bytes(b->bodies);
    bodies_free(steal_ptr(&b->bodies));
    b->progress.files_done = b->progress.files_total;
    return step(b, "metadata");
}

/* ------------------------------------------------------------------ finish */

static void fill_manifest(struct build *b, const struct layout_result *l, const struct sink_result *s,
                          const struct catalog_root *c)
{
    struct manifest *m = &b->result->manifest;
    take_stats(b); /* vanished files are known now */
    m->fs = MANIFEST_EROFS;
    m->size = l->image_size;
    m->chunk_size = b->options.chunk_size;
    m->metadata_offset = l->metadata_offset;
    m->metadata_len = l->metadata_len;
    m->index_levels = s->index_levels;
    m->index_root = s->index_root;
    m->content_root = s->content_root;
    m->stored_bytes = s->stored_bytes;
    m->catalog_levels = c->levels;
    m->catalog_root = c->digest;
    m->catalog_len = c->len;
    m->catalog_crc = c->crc;
    m->catalog_entries = c->entries;
    b->result->content_root = s->content_root;
}

static int finish(struct build *b)
{
    struct layout_result layout;
    struct sink_result sink;
    struct catalog_root catalog;
    int rc = b->layout->ops->finish(b->layout, &layout);
    if (!rc)
        rc = sink_finish(b->sink, layout.image_size, &sink);
    if (!rc)
        rc = step(b, "metadata");
    if (!rc)
        rc = catalog_write(b->tree, b->upload, &catalog);
    if (!rc)
        rc = upload_flush(b->upload);
    if (!rc)
        rc = upload_check_present(b->upload, lease_lapsed(b->lease));
    if (rc)
        return rc;
    fill_manifest(b, &layout, &sink, &catalog);
    return step(b, "publishing");
}

/* ------------------------------------------------------------------ publish */

static void name_unique_tag(struct build_result *r, int64_t now)
{
    char when[32], hex[DIGEST_HEX_SIZE];
    time_t t = (time_t)now;
    struct tm utc;
    gmtime_r(&t, &utc);
    strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", &utc);
    snprintf(r->unique_tag, sizeof r->unique_tag, "%s-%.12s", when, digest_hex(&r->image, hex));
}

/* Both tags or neither, as far as the store lets us. */
static int publish_tags(struct build *b)
{
    struct build_result *r = b->result;
    int64_t now = (int64_t)time(NULL);
    struct tag unique = {.digest = r->image, .content_root = r->content_root, .created = now}, asked = unique;
    name_unique_tag(r, now);
    int rc = repository_publish(b->store, b->ref->name, r->unique_tag, &unique, b->options.strict_tags);
    if (rc)
        return rc;
    rc = repository_publish(b->store, b->ref->name, b->ref->tag, &asked, b->options.strict_tags);
    if (!rc)
        return 0;
    struct error first;
    error_take(&first, rc);
    if (repository_remove_tag(b->store, b->ref->name, r->unique_tag))
        log_warning("build: tag %s:%s was published, but %s was not: %s", b->ref->name, r->unique_tag, b->ref->tag,
                    first.text);
    return error_restore(&first);
}

/* An image that was there before may bear gc's mark, as its other objects did (upload_check_present). */
static int unmark_manifest(struct build *b)
{
    CLEANUP_DIGEST_MAP name = {0};
    int rc = digest_map_add(&name, &b->result->image, 0);
    return rc < 0 ? rc : gc_unmark(b->store, &name);
}

static int publish(struct build *b)
{
    CLEANUP_BYTES document = BYTES_INIT(MANIFEST_MAX);
    struct build_result *r = b->result;
    bool existed;
    int rc = manifest_encode(&r->manifest, &document);
    if (!rc)
        rc = repository_put_object(b->store, OBJECT_MANIFEST, document.data, document.len, NULL, &r->image, &existed);
    if (!rc && existed)
        rc = unmark_manifest(b);
    if (!rc)
        rc = publish_tags(b);
    if (rc)
        return rc;
    struct upload_counts counts = upload_counts(b->upload);
    r->packs_new = counts.packs_new;
    r->packs_reused = counts.packs_reused;
    r->objects_new = counts.objects_new + !existed;
    r->bytes_uploaded = counts.bytes + (existed ? 0 : document.len);
    return 0;
}

/* ------------------------------------------------------------------ all of it */

static int build_all(struct build *b)
{
    int rc = b->options.dry_run ? 0 : prepare(b);
    if (!rc)
        rc = list(b);
    if (rc || b->options.dry_run) {
        if (!rc)
            take_stats(b);
        return rc;
    }
    rc = read_bodies(b);
    if (!rc)
        rc = finish(b);
    return rc ? rc : publish(b);
}

int build_run(struct source *source, struct store *store, const struct image_ref *ref,
              const struct build_options *options, struct build_result *out)
{
    struct build b = {.source = source, .store = store, .ref = ref, .result = out};
    uint64_t started_ms = clock_now_ms();
    memset(out, 0, sizeof *out);
    int rc = fill_options(&b, options);
    if (!rc)
        rc = build_all(&b);
    struct error error;
    error_take(&error, rc); /* releasing must not replace the sentence */
    build_release(&b);
    out->seconds = (double)(clock_now_ms() - started_ms) / 1000;
    return rc ? error_restore(&error) : 0;
}
