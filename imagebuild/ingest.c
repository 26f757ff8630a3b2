/* Taking the entries that a source lists, with their data if it comes with them, as from tar shards.
 *
 * Such data is written at once, before the rest of the listing is known; the listing then treats the file as kept. It
 * may go into free space of the parent: a source asks about all its shards before it reads any, so the space that must
 * stay is known when the first data comes. */
#include "imagebuild/build_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/spill/scratch.h"
#include "format/catalog.h"
#include "imagebuild/tree/listing.h"

/* ------------------------------------------------------------------ hard links in archives */

/* An index of the members of the current archive listed so far, since a hard link in an archive names a member that
 * came before it. Memory: two scratches (scratch.h), about 300 bytes a member, for one archive at a time.
 *
 * A record of fixed size for each member, at its number; the strings of all members lie in a second scratch. Records
 * that an earlier archive left behind are recognized by the archive's number in them.
 *
 *   records:  [member 1][member 2][member 3] ...      at member * sizeof(struct member)
 *   texts:    path validator target | path ...        at member.strings
 */

/* Device number of hard-linked members: differs from those that other sources list. */
#define LINKS_OF_ARCHIVES (UINT64_C(1) << 63)

/* A member. Its strings lie in `texts` at `strings`: path, validator, target. Never outlives the process: native
 * order. */
struct member {
    struct source_entry entry; /* without its pointers */
    struct listing_written content;
    uint64_t strings;
    bool refused;
};

struct archive_index {
    struct scratch *records, *texts;
    uint32_t archive;
    uint64_t texts_end;
    struct bytes text; /* strings of the member found last */
};

static void archive_index_free(struct archive_index *m)
{
    if (!m)
        return;
    scratch_free(m->records);
    scratch_free(m->texts);
    bytes_release(&m->text);
    free(m);
}
DEFINE_CLEANUP(archive_index, struct archive_index *, archive_index_free)

/* dir: for temporary files, as in struct scratch_config; the caller's. -ENOMEM; errors of scratch_new. */
static int archive_index_new(const char *dir, struct archive_index **out)
{
    CLEANUP(cleanup_archive_index) struct archive_index *m = calloc(1, sizeof *m);
    const struct scratch_config config = {.dir = dir};
    if (!m)
        return error_no_memory();
    m->text.max = CATALOG_PATH_MAX + 2 * (size_t)UINT16_MAX;
    int rc = scratch_new(&config, &m->records);
    if (!rc)
        rc = scratch_new(&config, &m->texts);
    if (!rc)
        *out = steal_ptr(&m);
    return rc;
}

/* Append a string to the scratch of strings. */
static int put_text(struct archive_index *m, const char *text, size_t len)
{
    int rc = len ? scratch_write(m->texts, m->texts_end, text, len) : 0;
    m->texts_end += len;
    return rc;
}

/* Write a member's record at its number. */
static int put_member(struct archive_index *m, const struct member *r)
{
    return scratch_write(m->records, r->entry.member * sizeof *r, r, sizeof *r);
}

/* Note that e was left out, and so will be its further names. Errors of the scratch. */
static int archive_index_note_refused(struct archive_index *m, const struct source_entry *e)
{
    struct member r;
    memset(&r, 0, sizeof r);
    r.entry.archive = e->archive;
    r.entry.member = e->member;
    r.refused = true;
    return put_member(m, &r);
}

/* Note that e, an entry of an archive, is part of the image, and where its data lies. The first entry of another
 * archive makes the index forget the former one. Errors of the scratch. */
static int archive_index_note(struct archive_index *m, const struct source_entry *e,
                              const struct listing_written *content)
{
    if (m->archive != e->archive)
        m->texts_end = 0;
    m->archive = e->archive;
    struct member r;
    memset(&r, 0, sizeof r);
    r = (struct member){.entry = *e, .content = *content, .strings = m->texts_end};
    r.entry.path = r.entry.validator = r.entry.target = NULL;
    r.entry.xattrs = NULL;
    r.entry.xattrs_len = 0;
    r.entry.content = NULL;
    int rc = put_text(m, e->path, e->path_len);
    if (!rc)
        rc = put_text(m, e->validator, e->validator_len);
    if (!rc)
        rc = put_text(m, e->target, e->target_len);
    return rc ? rc : put_member(m, &r);
}

/* Read the record that `link` names. 1: there is one; 0: there is none of this archive. */
static int read_member(struct archive_index *m, const struct source_entry *link, struct member *out)
{
    if (link->link_to >= scratch_len(m->records) / sizeof *out)
        return 0;
    int rc = scratch_read(m->records, link->link_to * sizeof *out, out, sizeof *out);
    return rc ? rc : out->entry.archive == link->archive && out->entry.member == link->link_to;
}

/* Find the entry that `link` is a further name of. 1: *out is it, with the identity of a file with several names, and
 * *out_written its data; valid until the next call. 0: it was left out. -EINVAL: it was never noted; the sentence
 * names both. Others come from the scratch. */
static int archive_index_find(struct archive_index *m, const struct source_entry *link, struct source_entry *out,
                              struct listing_written *out_written)
{
    struct member r;
    int rc = read_member(m, link, &r);
    if (rc < 0)
        return rc;
    if (!rc)
        return error_set(-EINVAL,
                         "'%.*s' is a hard link to '%.*s', which does not come before it in its archive, or was left "
                         "out; leave out both, or pack them anew",
                         (int)GR_MIN(link->path_len, (size_t)150), link->path,
                         (int)GR_MIN(link->target_len, (size_t)150), link->target);
    if (r.refused)
        return 0;
    *out = r.entry;
    size_t len = r.entry.path_len + r.entry.validator_len + r.entry.target_len;
    uint8_t *text;
    bytes_clear(&m->text);
    rc = bytes_extend(&m->text, len, &text);
    if (rc)
        return rc;
    rc = scratch_read(m->texts, r.strings, text, len);
    out->path = (const char *)text;
    out->validator = out->path + out->path_len;
    out->target = out->validator + out->validator_len;
    out->link_dev = LINKS_OF_ARCHIVES | out->archive;
    out->link_ino = out->member;
    *out_written = r.content;
    return rc ? rc : 1;
}

/* ------------------------------------------------------------------ the run */

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
                                                 .gaps = c->gaps,
                                                 .step = c->step,
                                                 .step_arg = c->arg};
    return content_stream_new(&stream, &t->stream);
}

static int take_content(struct ingest *t, const struct source_entry *e, struct listing_written *out)
{
    int rc = t->stream ? 0 : start_stream(t);
    return rc ? rc : content_stream_take(t->stream, e, out);
}

/* Write the entry's data if it comes with the entry, index it for hard links of its archive, and list it. Data of a
 * path that the listing will refuse is not written. */
static int ingest_take_entry(struct ingest *t, const struct source_entry *e)
{
    struct listing_written content = {.address = e->address, .content = e->sha256};
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
