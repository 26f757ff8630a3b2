/* A record of fixed size for each member, at its number; the strings of all members lie in a second scratch. Records
 * that an earlier archive left behind are recognized by the archive's number in them.
 *
 *   records:  [member 1][member 2][member 3] ...      at member * sizeof record
 *   texts:    path validator target | path ...        at record.strings
 */
#include "imagebuild/tar/archive_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/spill/scratch.h"
#include "format/catalog.h"

/* Device number of hard-linked members: differs from those that other sources list. */
#define LINKS_OF_ARCHIVES (UINT64_C(1) << 63)

/* A member. Its strings lie in `texts` at `strings`: path, validator, target. Never outlives the process: native
 * order. */
struct record {
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

void archive_index_free(struct archive_index *m)
{
    if (!m)
        return;
    scratch_free(m->records);
    scratch_free(m->texts);
    bytes_release(&m->text);
    free(m);
}

int archive_index_new(const char *dir, struct archive_index **out)
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
static int put_record(struct archive_index *m, const struct record *r)
{
    return scratch_write(m->records, r->entry.member * sizeof *r, r, sizeof *r);
}

int archive_index_note_refused(struct archive_index *m, const struct source_entry *e)
{
    struct record r;
    memset(&r, 0, sizeof r);
    r.entry.archive = e->archive;
    r.entry.member = e->member;
    r.refused = true;
    return put_record(m, &r);
}

int archive_index_note(struct archive_index *m, const struct source_entry *e, const struct listing_written *content)
{
    if (m->archive != e->archive)
        m->texts_end = 0;
    m->archive = e->archive;
    struct record r;
    memset(&r, 0, sizeof r);
    r = (struct record){.entry = *e, .content = *content, .strings = m->texts_end};
    r.entry.path = r.entry.validator = r.entry.target = NULL;
    r.entry.xattrs = NULL;
    r.entry.xattrs_len = 0;
    r.entry.content = NULL;
    int rc = put_text(m, e->path, e->path_len);
    if (!rc)
        rc = put_text(m, e->validator, e->validator_len);
    if (!rc)
        rc = put_text(m, e->target, e->target_len);
    return rc ? rc : put_record(m, &r);
}

/* Read the record that `link` names. 1: there is one; 0: there is none of this archive. */
static int read_record(struct archive_index *m, const struct source_entry *link, struct record *out)
{
    if (link->link_to >= scratch_len(m->records) / sizeof *out)
        return 0;
    int rc = scratch_read(m->records, link->link_to * sizeof *out, out, sizeof *out);
    return rc ? rc : out->entry.archive == link->archive && out->entry.member == link->link_to;
}

int archive_index_find(struct archive_index *m, const struct source_entry *link, struct source_entry *out,
                       struct listing_written *out_written)
{
    struct record r;
    int rc = read_record(m, link, &r);
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
    size_t len = r.entry.path_len + r.entry.validator_len + r.entry.target_len;
    uint8_t *text;
    bytes_clear(&m->text);
    rc = bytes_extend(&m->text, len, &text);
    if (rc)
        return error_set(rc, "build: out of memory");
    rc = scratch_read(m->texts, r.strings, text, len);
    *out = r.entry;
    out->path = (const char *)text;
    out->validator = out->path + out->path_len;
    out->target = out->validator + out->validator_len;
    out->link_dev = LINKS_OF_ARCHIVES | out->archive;
    out->link_ino = out->member;
    *out_written = r.content;
    return rc ? rc : 1;
}
