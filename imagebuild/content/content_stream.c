/* Each file gets its address before its first byte is written, while the listing is still running. Two ways:
 *
 *   up to DEDUPE_SIZE_MAX   held in memory -> digest -> equal file known? share its address : place and write
 *   larger                  place -> write and hash piece by piece
 *
 * A file cannot be placed before its size is certain, so the size in the listing is binding: another number of bytes
 * is an error.
 */
#include "imagebuild/content/content.h"

#include <errno.h>

#include "base/bytes.h"
#include "base/error.h"
#include "imagebuild/content/content_internal.h"

/* One per listing. One thread, so there is no lock. */
struct content_stream {
    struct content_stream_config config;
    struct alloc alloc;
    struct dedupe *dedupe;
    struct hasher *hasher;
    struct bytes held;         /* a small file, until its digest is known */
    bool written;              /* any data was placed */
    enum sink_section section; /* of the file being written */
    struct content_stream_counts counts;
};

int content_stream_new(const struct content_stream_config *config, struct content_stream **out)
{
    struct content_stream *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory();
    const struct alloc_config alloc = {.live = config->live,
                                       .chunk_size = config->chunk_size,
                                       .data_begin = config->fs->data_begin,
                                       .data_max = config->fs->data_max,
                                       .gaps = config->gaps,
                                       .limit = config->fs->limit};
    s->config = *config;
    /* the digest must be known before the address, so no more than this is ever held */
    s->held.max = DEDUPE_SIZE_MAX;
    s->dedupe = dedupe_new();
    s->hasher = hasher_new();
    alloc_init(&s->alloc, &alloc);
    if (s->dedupe && s->hasher) {
        *out = s;
        return 0;
    }
    content_stream_free(s);
    return error_no_memory();
}

void content_stream_free(struct content_stream *s)
{
    if (!s)
        return;
    bytes_release(&s->held);
    dedupe_free(s->dedupe);
    hasher_free(s->hasher);
    free(s);
}

/* Fail: the source delivers another number of bytes than it listed. */
static int wrong_length(const struct source_entry *e)
{
    return error_set(-EBADMSG, "source: '%.*s' does not have the %llu bytes that were listed",
                     (int)GR_MIN(e->path_len, (size_t)300), e->path, (unsigned long long)e->size);
}

/* Get the next piece of e's data. 1: there is one; 0: the end; or -errno. *left: bytes still to come. */
static int next_piece(struct content_stream *s, const struct source_entry *e, uint64_t *left, const void **data,
                      size_t *len)
{
    int rc = e->content->next(e->content, data, len);
    if (rc || !*len)
        return rc ? rc : *left ? wrong_length(e) : 0;
    if (*len > *left)
        return wrong_length(e);
    *left -= *len;
    s->counts.bytes += *len;
    rc = s->config.step(s->config.step_arg, 0, *len);
    return rc ? rc : 1;
}

/* Give a file of `size` bytes an address and a section. */
static int content_stream_place(struct content_stream *s, uint64_t size, uint64_t *out)
{
    s->written = true;
    return alloc_data(&s->alloc, size, &s->section, out);
}

/* Take a file whose equal dedupe may know. */
static int take_small(struct content_stream *s, const struct source_entry *e, struct listing_written *out)
{
    uint64_t left = e->size;
    const void *data;
    size_t len;
    int rc;
    bytes_clear(&s->held);
    while ((rc = next_piece(s, e, &left, &data, &len)) == 1)
        if (bytes_append(&s->held, data, len))
            return error_no_memory();
    /* an empty file has neither address nor digest */
    if (rc || !e->size)
        return rc;
    out->content = digest_of(s->held.data, s->held.len);
    out->address = dedupe_find(s->dedupe, &out->content, e->size);
    if (out->address) {
        s->counts.dedupe_files++;
        s->counts.dedupe_bytes += e->size;
        return 0;
    }
    rc = content_stream_place(s, e->size, &out->address);
    if (rc)
        return rc;
    dedupe_add(s->dedupe, &out->content, e->size, out->address);
    return sink_write(s->config.sink, s->section, out->address, s->held.data, s->held.len);
}

/* Take a file piece by piece. Its digest comes too late for sharing, but the catalog needs it. */
static int take_large(struct content_stream *s, const struct source_entry *e, struct listing_written *out)
{
    uint64_t left = e->size;
    const void *data;
    size_t len;
    int rc = content_stream_place(s, e->size, &out->address);
    while (!rc && (rc = next_piece(s, e, &left, &data, &len)) == 1) {
        hasher_update(s->hasher, data, len);
        rc = sink_write(s->config.sink, s->section, out->address + (e->size - left) - len, data, len);
    }
    out->content = hasher_finish(s->hasher);
    return rc;
}

int content_stream_take(struct content_stream *s, const struct source_entry *e, struct listing_written *out)
{
    *out = (struct listing_written){0};
    return e->size <= DEDUPE_SIZE_MAX ? take_small(s, e, out) : take_large(s, e, out);
}

uint64_t content_stream_end(const struct content_stream *s)
{
    return s->written ? alloc_end(&s->alloc) : 0;
}

struct content_stream_counts content_stream_counts(const struct content_stream *s)
{
    return s->counts;
}
