/* Shards come in the order of their names, members in the order of the archive.
 *
 *   shard_reader (threads) -> shard_stream (gzip, zstd) -> libarchive -> take_member -> visit
 *                                                               ^             |
 *                                                               +-- content_next: visit pulls the data
 *
 * A hard link names a member that came before it in the same shard, so the names of one shard at a time are
 * remembered, 60 to 120 bytes each. Damage is an error even where no member needs the bytes: the rest of a shard is
 * read to its checksum.
 */
#include "imagebuild/tar/tar_internal.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/bytes.h"
#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/map.h"
#include "format/catalog.h"
#include "imagebuild/source/source_wrappers.h"

enum { PIECE = 256 << 10 }; /* bytes of zeros handed out at a time, for holes */

/* State of a run. */
struct unpacking {
    const struct tar_unpack *config;
    struct shard_reader *reader;
    struct shard_stream *stream;
    const struct shard *shard;
    char key[SOURCE_SHARD_KEY_LEN + 1]; /* shard_key; empty: the shard has no version */
    struct archive *archive;
    struct error failed; /* of the reader: libarchive passes on only numbers and texts of its own */
    struct bytes path, target;
    uint32_t shards;  /* shards begun */
    uint64_t members; /* of the current shard, so far */
    /* Member numbers of the current shard by path, without directories; a hard link has its target's number. */
    struct digest_map names;
    /* the current member's data; size and at are in bytes of the file, holes included */
    struct content {
        struct source_content content;
        struct unpacking *u;
        const char *name; /* name of the member, for messages */
        uint64_t size, at;
        uint64_t data; /* bytes still to come that are not holes */
        const uint8_t *block;
        size_t block_len; /* rest of the block, in bytes */
        uint64_t block_at;
        bool ended; /* the archive has no further block */
    } content;
};

/* Return the error for a shard that cannot be unpacked: the reader's own, or why it is damaged. */
static int broken(const struct unpacking *u)
{
    const char *why = u->archive ? archive_error_string(u->archive) : NULL;
    if (u->failed.code && u->failed.code != -EBADMSG)
        return error_restore(&u->failed);
    if (u->failed.code)
        why = u->failed.text;
    return error_set(-EBADMSG, "source: %s/%.*s is damaged, or no tar of its name's kind: %s", u->config->source->url,
                     (int)GR_MIN(u->shard->path_len, (size_t)200), u->shard->path, why ? why : "no reason given");
}

/* ------------------------------------------------------------------ members */

static int wrong_length(const struct content *b)
{
    int rc = error_set(-EBADMSG, "'%.200s' does not have the %llu bytes that its header says", b->name,
                       (unsigned long long)b->size);
    error_take(&b->u->failed, rc);
    return broken(b->u);
}

/* Get the next block of the member, if the last is used up. The header's sizes are checked against it. */
static int next_block(struct content *b)
{
    const void *data;
    la_int64_t at;
    while (!b->block_len && !b->ended) {
        int rc = archive_read_data_block(b->u->archive, &data, &b->block_len, &at);
        b->ended = rc == ARCHIVE_EOF;
        if (rc == ARCHIVE_OK) {
            b->block = data;
            b->block_at = (uint64_t)at;
        } else if (!b->ended) {
            return broken(b->u);
        } else {
            b->block_len = 0;
        }
    }
    /* a block may not overlap what was delivered, nor exceed the bytes that the header promised */
    bool fits = b->ended ? !b->data : b->block_at >= b->at && b->block_at < b->size && b->block_len <= b->data;
    return fits ? 0 : wrong_length(b);
}

/* Deliver the next bytes of the member: zeros up to the next block, then the block. */
static int content_next(struct source_content *base, const void **out, size_t *len)
{
    static const uint8_t zeros[PIECE];
    struct content *b = (struct content *)base;
    *len = 0;
    if (b->at == b->size)
        return 0;
    int rc = next_block(b);
    if (rc)
        return rc;
    uint64_t hole = (b->ended ? b->size : b->block_at) - b->at;
    *out = hole ? zeros : b->block;
    *len = (size_t)(hole ? GR_MIN(hole, (uint64_t)PIECE) : GR_MIN(b->block_len, b->size - b->at));
    b->at += *len;
    if (!hole) {
        b->data -= b->block_len;
        b->block_len = 0;
    }
    return 0;
}

/* Begin a member's data. A sparse member's header lists which bytes are stored. */
static void begin_content(struct content *b, struct archive_entry *a, const char *name, uint64_t size)
{
    la_int64_t at, len;
    bool sparse = archive_entry_sparse_reset(a) > 0;
    b->name = name;
    b->size = size;
    b->at = b->block_at = 0;
    b->block_len = 0;
    b->ended = false;
    b->data = sparse ? 0 : size;
    while (sparse && archive_entry_sparse_next(a, &at, &len) == ARCHIVE_OK)
        b->data += (uint64_t)len;
}

/* Prefix an error of the listing, which names at most the member, with shard and member. */
static int of_shard(const struct unpacking *u, int rc, const char *name)
{
    return error_prefix(rc, "source: %s/%.*s: '%.100s'", u->config->source->url,
                        (int)GR_MIN(u->shard->path_len, (size_t)200), u->shard->path, name);
}

static int tar_unpack_refuse(const struct unpacking *u, const char *name, const char *why)
{
    return error_set(-EINVAL, "source: %s/%.*s: '%.200s' %s", u->config->source->url,
                     (int)GR_MIN(u->shard->path_len, (size_t)200), u->shard->path, name, why);
}

/* Make *out the image's path of a member that the shard calls `name`. */
static int make_path(const struct unpacking *u, const char *name, struct bytes *out)
{
    size_t stem = 0;
    bytes_clear(out);
    (void)shard_kind(u->shard->path, u->shard->path_len, &stem);
    int rc = u->config->directories ? bytes_append(out, u->shard->path, stem) : 0;
    if (!rc && u->config->directories)
        rc = bytes_append(out, "/", 1);
    if (!rc)
        rc = bytes_append(out, name, strlen(name));
    if (rc)
        return rc == -EMSGSIZE ? tar_unpack_refuse(u, name, "has a path of over 65535 bytes") : rc;
    ssize_t len = path_clean((char *)out->data, out->len);
    if (len < 0)
        return tar_unpack_refuse(u, name, "has '..' in its path, which is not followed; repack the shard without");
    out->len = (size_t)len;
    return 0;
}

/* Find the member that a hard link names; SOURCE_NO_MEMBER: there is none before it. */
static int find_target(struct unpacking *u, const char *target, uint64_t *out)
{
    int rc = make_path(u, target, &u->target);
    if (rc)
        return rc;
    struct digest name = digest_of(u->target.data, u->target.len);
    const struct digest_slot *slot = digest_map_find(&u->names, &name);
    *out = slot ? (uint64_t)slot->value : SOURCE_NO_MEMBER;
    return 0;
}

/* Let hard links that follow find member `place` under u->path. */
static int note_name(struct unpacking *u, uint64_t place)
{
    struct digest name = digest_of(u->path.data, u->path.len);
    int rc = digest_map_add(&u->names, &name, (int64_t)place);
    if (!rc)
        digest_map_find(&u->names, &name)->value = (int64_t)place;
    return rc < 0 ? rc : 0;
}

static int take_owner(const struct unpacking *u, struct archive_entry *a, const char *name, struct source_entry *e)
{
    int64_t uid = archive_entry_uid(a), gid = archive_entry_gid(a);
    if (uid < 0 || uid >= UINT32_MAX || gid < 0 || gid >= UINT32_MAX)
        return tar_unpack_refuse(u, name, "has an owner or group that is no number of 32 bits; repack the shard");
    e->uid = (uint32_t)uid;
    e->gid = (uint32_t)gid;
    return 0;
}

/* Turn a header into an entry and visit it. */
static int take_member(struct unpacking *u, struct archive_entry *a)
{
    char validator[SOURCE_VALIDATOR_MAX + 1];
    const char *name = archive_entry_pathname(a), *hard = archive_entry_hardlink(a);
    const char *target = hard ? hard : archive_entry_symlink(a);
    if (!name)
        return broken(u);
    int rc = make_path(u, name, &u->path);
    if (rc)
        return rc;
    struct source_entry e = {.path = u->path.len ? (const char *)u->path.data : "",
                             .path_len = u->path.len,
                             .mode = archive_entry_mode(a),
                             .rdev = archive_entry_rdev(a),
                             .mtime = archive_entry_mtime(a),
                             .mtime_nsec = (uint32_t)archive_entry_mtime_nsec(a),
                             .validator = validator,
                             .archive = u->shards,
                             .member = ++u->members};
    rc = hard ? find_target(u, hard, &e.link_to) : take_owner(u, a, name, &e);
    if (rc)
        return rc;
    if (*u->key)
        e.validator_len = (size_t)snprintf(validator, sizeof validator, "%s%llx", u->key,
                                           (unsigned long long)archive_read_header_position(u->archive));
    if (hard)
        /* the listing takes the real attributes from the member that the link names */
        e.mode = S_IFREG;
    if (target) {
        e.target = target;
        e.target_len = strlen(target);
    }
    if (S_ISREG(e.mode) && !hard) {
        e.size = (uint64_t)archive_entry_size(a);
        e.content = &u->content.content;
        begin_content(&u->content, a, name, e.size);
    }
    if (!S_ISDIR(e.mode))
        rc = note_name(u, hard ? e.link_to : e.member);
    rc = rc ? rc : u->config->visit(u->config->arg, &e);
    return rc == -EINVAL || rc == -EFBIG ? of_shard(u, rc, name) : rc;
}

/* ------------------------------------------------------------------ shards */

/* libarchive's read callback. It also checks for cancellation, since libarchive may skip over much data without
 * returning. */
static la_ssize_t on_read(struct archive *a, void *arg, const void **out)
{
    struct unpacking *u = arg;
    size_t len;
    int rc = cancel_asked(u->config->cancel)
                 ? error_set(-ECANCELED, "source: the build was stopped while it read %s", u->config->url)
                 : shard_stream_next(u->stream, out, &len);
    if (!rc)
        return (la_ssize_t)len;
    error_take(&u->failed, rc);
    archive_set_error(a, EIO, "cannot be read");
    return -1;
}

static int open_archive(struct unpacking *u)
{
    size_t stem;
    int rc = shard_stream_begin(u->stream, shard_kind(u->shard->path, u->shard->path_len, &stem));
    if (rc)
        return rc;
    u->archive = archive_read_new();
    if (!u->archive)
        return error_no_memory();
    /* only tar, no filters: shard_stream has decompressed already */
    rc = archive_read_support_format_tar(u->archive);
    if (rc == ARCHIVE_OK)
        rc = archive_read_open(u->archive, u, NULL, on_read, NULL);
    return rc == ARCHIVE_OK ? 0 : broken(u);
}

/* Read past the tar's end to the end of the packed stream, where its checksums are. */
static int read_rest(struct unpacking *u)
{
    const void *data;
    size_t len;
    int rc;
    while (!(rc = shard_stream_next(u->stream, &data, &len)) && len)
        ;
    if (!rc)
        return 0;
    error_take(&u->failed, rc);
    return broken(u);
}

/* Unpack one shard. */
static int unpack(struct unpacking *u)
{
    struct archive_entry *entry;
    u->shards++;
    u->members = 0;
    digest_map_release(&u->names);
    int rc;
    if (u->shard->version.size) {
        rc = shard_key(u->config->choice, u->shard, u->key);
    } else { /* an empty file is no archive at all, not even an empty one */
        error_take(&u->failed, error_set(-EBADMSG, "it has no bytes"));
        rc = broken(u);
    }
    if (!rc)
        rc = open_archive(u);
    while (!rc) {
        int got = archive_read_next_header(u->archive, &entry);
        if (got == ARCHIVE_EOF) {
            rc = read_rest(u);
            break;
        }
        /* a warning of another kind means that a header was skipped */
        bool whole = got == ARCHIVE_OK || (got == ARCHIVE_WARN && archive_errno(u->archive) == EILSEQ);
        rc = whole ? take_member(u, entry) : broken(u);
    }
    struct error error;
    error_take(&error, rc);
    archive_read_free(u->archive); /* NULL is allowed */
    /* broken() must not use a freed archive */
    u->archive = NULL;
    return rc ? error_restore(&error) : 0;
}

static int unpack_all(struct unpacking *u)
{
    int rc;
    while ((rc = shard_reader_begin(u->reader, &u->shard)) == 1) {
        rc = unpack(u);
        if (rc)
            return rc;
    }
    return rc;
}

/* Unpack with a UTF-8 locale for this thread. Names are bytes to Granary, but libarchive converts them by locale. */
static int unpack_in_utf8(struct unpacking *u)
{
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    if (!utf8)
        return error_set(-EIO, "source: this system has no locale C.UTF-8, which names in tar shards need");
    locale_t before = uselocale(utf8);
    int rc = unpack_all(u);
    uselocale(before);
    freelocale(utf8);
    return rc;
}

int tar_unpack_run(const struct tar_unpack *config)
{
    CLEANUP_FREE struct unpacking *u = calloc(1, sizeof *u);
    if (!u)
        return error_no_memory();
    u->config = config;
    u->path.max = u->target.max = CATALOG_PATH_MAX;
    u->content = (struct content){.content.next = content_next, .u = u};
    const struct shard_reader_config reader = {
        .source = config->source, .shards = config->shards, .count = config->count, .threads = config->threads};
    int rc = shard_reader_start(&reader, &u->reader);
    if (!rc)
        rc = shard_stream_new(u->reader, &u->stream);
    if (!rc)
        rc = unpack_in_utf8(u);
    struct error error;
    error_take(&error, rc);
    shard_stream_free(u->stream);
    shard_reader_stop(u->reader);
    bytes_release(&u->path);
    bytes_release(&u->target);
    digest_map_release(&u->names);
    return rc ? error_restore(&error) : 0;
}
