/* Take listed paths. Each is judged and goes into a sorter under its path, and so does every directory above it.
 *
 *   listed:   a/b/c            records:  a/b/c (as listed), a/b (mode 0), a (mode 0)
 *             a/b/d                      a/b/d              (a/b was met before: nothing above it is added)
 *
 * A directory may get several such records: the last path and a small table avoid most of them, and the merge folds the
 * rest. Only the merge decides how listed paths relate to each other (listing_seal.c), so nothing depends on their
 * order.
 */
#include "imagebuild/tree/listing.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/log.h"
#include "format/catalog.h"
#include "imagebuild/tree/listing_internal.h"
#include "imagebuild/tree/listing_judge.h"

enum { WARNINGS_MAX = 20, KNOWN_PATH_MAX = 4096 };

/* Add a record for a directory that may not be listed. */
static int add_implicit(struct listing *l, const char *path, size_t len)
{
    struct listing_record r;
    memset(&r, 0, sizeof r);
    return sorter_add(l->sorter, path, len, &r, sizeof r);
}

int listing_new(const struct listing_options *options, struct listing **out)
{
    CLEANUP(cleanup_listing) struct listing *l = calloc(1, sizeof *l);
    if (!l)
        return error_no_memory();
    l->options = *options;
    l->value.max = SORTER_RECORD_MAX;
    l->last.max = CATALOG_PATH_MAX + 1;
    if (options->dir && !(l->options.dir = l->dir = strdup(options->dir)))
        return error_no_memory();
    struct sorter_config config = {.dir = l->options.dir, .memory = options->sort_memory};
    int rc = sorter_new(&config, &l->sorter);
    if (!rc)
        rc = add_implicit(l, "", 0); /* the root always exists */
    if (rc)
        return rc;
    *out = steal_ptr(&l);
    return 0;
}

void listing_free(struct listing *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < LISTING_KNOWN; i++)
        free(l->known[i].path);
    sorter_free(l->sorter);
    bytes_release(&l->value);
    bytes_release(&l->last);
    free(l->dir);
    free(l);
}

struct listing_stats listing_stats(const struct listing *l)
{
    return l->stats;
}

int listing_skip(struct listing *l, const char *path, size_t len, const char *why)
{
    int shown = (int)GR_MIN(len, 300u);
    if (!l->options.skip_bad_names)
        return error_set(-EINVAL, "%s: '%.*s'; rename it, or leave such names out with --skip-bad-names", why, shown,
                         path);
    l->stats.names_skipped++;
    if (l->warnings++ < WARNINGS_MAX)
        log_warning("left out: %s: '%.*s'%s", why, shown, path,
                    l->warnings == WARNINGS_MAX ? "; further ones are counted only" : "");
    return 0;
}

/* ------------------------------------------------------------------ directories above */

static struct listing_known *known_slot(struct listing *l, const char *path, size_t len)
{
    uint64_t h = 0xCBF29CE484222325u; /* FNV-1a: colliding paths cost extra records, nothing else */
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)path[i]) * 0x100000001B3u;
    return &l->known[(h ^ h >> 32) % LISTING_KNOWN];
}

/* Remember a directory. The slot's former one is forgotten: it may get another record. */
static int remember(struct listing_known *k, const char *path, size_t len)
{
    char *copy = realloc(k->path, GR_MAX(len, (size_t)1));
    if (!copy)
        return error_no_memory();
    memcpy(copy, path, len);
    *k = (struct listing_known){copy, len};
    return 0;
}

/* Return how many leading bytes the path has in common with the last one. */
static size_t shared_with_last(const struct listing *l, const char *path, size_t len)
{
    size_t n = 0, common = GR_MIN(len, l->last.len);
    while (n < common && path[n] == (char)l->last.data[n])
        n++;
    return n;
}

/* Add records for the directories above a path, bottom up, until one that has a record: so have all above it. */
static int add_parents(struct listing *l, const char *path, size_t len)
{
    size_t shared = shared_with_last(l, path, len);
    for (const char *slash; (slash = memrchr(path, '/', len));) {
        len = (size_t)(slash - path);
        /* the last path lies below this directory, so this one and all above it have records */
        if (len <= shared && len < l->last.len && l->last.data[len] == '/')
            return 0;
        struct listing_known *k = known_slot(l, path, len);
        if (k->path && k->len == len && !memcmp(k->path, path, len))
            return 0;
        int rc = add_implicit(l, path, len);
        if (!rc && len <= KNOWN_PATH_MAX)
            rc = remember(k, path, len);
        if (rc)
            return rc;
    }
    return 0;
}

/* ------------------------------------------------------------------ entries */

/* Encode the record of e into l->value. */
static int make_record(struct listing *l, const struct source_entry *e, const struct listing_written *written)
{
    CLEANUP_BYTES xattrs = BYTES_INIT(NODE_XATTRS_MAX);
    int rc = e->xattrs_len ? listing_filter_xattrs(e, &xattrs, &l->stats.xattrs_skipped) : 0;
    if (rc)
        return rc;
    size_t target_len = S_ISLNK(e->mode) ? e->target_len : 0;
    if (e->validator_len > CATALOG_VALIDATOR_MAX)
        return error_set(-EINVAL, "what the source says of '%.*s' is too long", (int)GR_MIN(e->path_len, 300u),
                         e->path);
    struct listing_record r;
    memset(&r, 0, sizeof r); /* records are compared as bytes, padding included */
    r.size = S_ISREG(e->mode) ? e->size : target_len;
    r.mode = l->options.keep_special ? e->mode : e->mode & ~(uint32_t)(S_ISUID | S_ISGID);
    r.uid = e->uid;
    r.gid = e->gid;
    r.mtime = e->mtime;
    r.mtime_nsec = e->mtime_nsec;
    r.rdev = S_ISCHR(e->mode) || S_ISBLK(e->mode) ? listing_encode_rdev(e->rdev) : 0;
    r.link_dev = S_ISDIR(e->mode) ? 0 : e->link_dev;
    r.link_ino = S_ISDIR(e->mode) ? 0 : e->link_ino;
    r.archive = e->archive;
    r.member = e->member;
    r.validator_len = (uint16_t)e->validator_len;
    r.target_len = (uint16_t)target_len;
    r.xattrs_len = (uint32_t)xattrs.len;
    if (written)
        r.written = *written;
    bytes_clear(&l->value);
    rc = bytes_append(&l->value, &r, sizeof r);
    if (!rc)
        rc = bytes_append(&l->value, e->validator, e->validator_len);
    if (!rc)
        rc = bytes_append(&l->value, e->target, target_len);
    return rc ? rc : bytes_append(&l->value, xattrs.data, xattrs.len);
}

/* Judge an entry and add its record, and those of the directories above it. */
static int listing_add_record(struct listing *l, const struct source_entry *e, const struct listing_written *written)
{
    bool is_directory = S_ISDIR(e->mode), is_root = is_directory && !e->path_len;
    const char *fault = is_root ? NULL : listing_fault(e);
    if (fault)
        return listing_skip(l, e->path, e->path_len, fault);
    bool special = !is_directory && !S_ISREG(e->mode) && !S_ISLNK(e->mode);
    /* a mode without a type is no file that could be kept */
    if (special && (!l->options.keep_special || !(e->mode & S_IFMT))) {
        l->stats.special_skipped++;
        return 0;
    }
    int rc = make_record(l, e, written);
    if (!rc)
        rc = add_parents(l, e->path, e->path_len);
    if (!rc)
        rc = sorter_add(l->sorter, e->path, e->path_len, l->value.data, l->value.len);
    /* only now: all directories above the path have their records */
    bytes_clear(&l->last);
    if (!rc)
        rc = bytes_append(&l->last, e->path, e->path_len);
    return rc ? rc : bytes_append(&l->last, "/", is_directory);
}

int listing_add(struct listing *l, const struct source_entry *e)
{
    return listing_add_record(l, e, NULL);
}

int listing_add_written(struct listing *l, const struct source_entry *e, const struct listing_written *written)
{
    return listing_add_record(l, e, written);
}

bool listing_refuses(const struct source_entry *e)
{
    return listing_fault(e) != NULL;
}
