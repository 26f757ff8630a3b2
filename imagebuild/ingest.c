/* Ingest the entries of a source.
 *
 * File data that comes with an entry is written at once, before the rest of the listing is known. The listing then
 * treats the file as kept. The data may go into free space of the parent. That is safe: a source asks about all its
 * shards before it reads any, so the space that must stay is known when the first data comes.
 */
#include "imagebuild/ingest.h"

#include <errno.h>
#include <sys/stat.h>

#include "base/error.h"
#include "imagebuild/tar/archive_index.h"

/* One run of ingest_run. */
struct ingest {
    const struct ingest_config *config;
    struct ingest_result *result;
    struct listing *listing;
    struct archive_index *archive_index;
    struct live_map *live;         /* space of the parent that new data must leave alone; NULL: no parent */
    struct content_stream *stream; /* NULL until the first file data comes */
};

static void ingest_release(struct ingest *t)
{
    content_stream_free(t->stream);
    live_map_free(t->live);
    archive_index_free(t->archive_index);
    listing_free(t->listing);
}

/* Create the content stream, once the source has asked about all shards (known_shards_live needs that). */
static int start_stream(struct ingest *t)
{
    const struct ingest_config *c = t->config;
    int rc = c->known ? live_map_new(c->parent_size, c->chunk_size, &t->live) : 0;
    if (!rc && c->known)
        rc = known_shards_live(c->known, t->live);
    if (rc)
        return rc;
    const struct content_stream_config stream = {.sink = c->sink,
                                                 .fs = c->fs,
                                                 .chunk_size = c->chunk_size,
                                                 .live = t->live,
                                                 .step = c->step,
                                                 .step_arg = c->arg};
    return content_stream_new(&stream, &t->stream);
}

static int take_content(struct ingest *t, const struct source_entry *e, struct listing_written *out)
{
    int rc = t->stream ? 0 : start_stream(t);
    return rc ? rc : content_stream_take(t->stream, e, out);
}

/* Write the entry's data if there is any, index it for hard links of its archive, and list it. Data of a path that
 * the listing will refuse is not written. */
static int ingest_take_entry(struct ingest *t, const struct source_entry *e)
{
    struct listing_written content = {0};
    bool refused = listing_refuses(e);
    int rc = e->content && t->config->sink && !refused ? take_content(t, e, &content) : 0;
    if (!rc && e->archive && !S_ISDIR(e->mode))
        rc = refused ? archive_index_note_refused(t->archive_index, e)
                     : archive_index_note(t->archive_index, e, &content);
    return rc ? rc : listing_add_written(t->listing, e, &content);
}

/* Add a hard link of an archive: list the file once more under its first name, now as one of several names, and then
 * under the link's name. A link to something left out is left out too. */
static int take_link(struct ingest *t, const struct source_entry *e)
{
    struct source_entry file;
    struct listing_written content;
    int rc = archive_index_find(t->archive_index, e, &file, &content);
    if (!rc)
        return listing_skip(t->listing, e->path, e->path_len, "a hard link to a name that was left out");
    rc = GR_MIN(rc, 0);
    if (!rc && (S_ISREG(file.mode) || S_ISLNK(file.mode) || t->config->listing.keep_special))
        rc = listing_add_written(t->listing, &file, &content);
    if (rc)
        return rc;
    /* the first name is listed now, with the identity of a file of several names; add the link's own */
    file.path = e->path;
    file.path_len = e->path_len;
    file.member = e->member;
    return listing_add_written(t->listing, &file, &content);
}

static int on_entry(void *arg, const struct source_entry *e)
{
    struct ingest *t = arg;
    int rc = e->link_to ? take_link(t, e) : ingest_take_entry(t, e);
    return rc ? rc : t->config->listed(t->config->arg);
}

/* List everything, then the members of shards that the parent has and the source did not read. */
static int take_all(struct ingest *t)
{
    const struct ingest_config *c = t->config;
    struct listing_options listing = c->listing;
    listing.source = c->source;
    int rc = listing_new(&listing, &t->listing);
    if (!rc)
        rc = archive_index_new(c->listing.dir, &t->archive_index);
    if (!rc)
        rc = source_list(c->source, on_entry, t);
    if (!rc && c->known)
        rc = known_shards_list(c->known, t->listing);
    if (rc)
        return rc;
    rc = listing_seal(t->listing, &t->result->nodes);
    if (rc == -EINVAL && source_streams(c->source))
        return error_prefix(rc, "%s: the shards together cannot be one tree (--tar-dirs gives each a directory)",
                            c->source->url);
    return rc;
}

int ingest_run(const struct ingest_config *config, struct ingest_result *out)
{
    struct ingest t = {.config = config, .result = out};
    *out = (struct ingest_result){0};
    int rc = take_all(&t);
    struct error error;
    error_take(&error, rc); /* ingest_release must not replace the sentence */
    if (!rc)
        out->stats = listing_stats(t.listing);
    if (!rc && t.stream) {
        out->written_end = content_stream_end(t.stream);
        out->written = content_stream_counts(t.stream);
    }
    ingest_release(&t);
    return rc ? error_restore(&error) : 0;
}
