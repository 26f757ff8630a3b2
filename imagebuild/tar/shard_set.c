/* A numbered set is expanded and each name looked up, so that a missing shard is an error. A directory or prefix is
 * listed. */
#include "imagebuild/tar/tar_internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/error.h"
#include "format/catalog.h"

enum { SET_MAX = 1000000 }; /* names in a numbered set */

enum shard_kind shard_kind(const char *path, size_t len, size_t *out_stem)
{
    static const struct {
        const char *end;
        enum shard_kind kind;
    } kinds[] = {{".tar", SHARD_TAR}, {".tar.gz", SHARD_GZIP}, {".tgz", SHARD_GZIP}, {".tar.zst", SHARD_ZSTD}};
    for (size_t i = 0; i < GR_ARRAY_SIZE(kinds); i++) {
        size_t n = strlen(kinds[i].end);
        if (len > n && path[len - n - 1] != '/' && !memcmp(path + len - n, kinds[i].end, n)) {
            *out_stem = len - n;
            return kinds[i].kind;
        }
    }
    return SHARD_NONE;
}

/* Add a shard; its path is copied. */
static int shard_set_add(struct shard_set *set, const char *path, size_t len, const struct source_version *version)
{
    struct shard shard = {.path = strndup(path, len), .path_len = len, .version = *version};
    if (shard.path && !vec_push(&set->shards, shard))
        return 0;
    free(shard.path);
    return error_no_memory();
}

/* ------------------------------------------------------------------ numbered sets */

/* Parse a number; *digits: how many digits it has. Returns what follows; NULL: no number, or more than nine digits. */
static const char *scan_number(const char *p, unsigned long *out, size_t *digits)
{
    char *end;
    if (!isdigit((unsigned char)*p))
        return NULL;
    *out = strtoul(p, &end, 10);
    *digits = (size_t)(end - p);
    /* nine digits are ample, and cannot overflow */
    return *digits <= 9 ? end : NULL;
}

struct range {
    const char *open, *rest; /* the opening brace; after the closing one */
    unsigned long first, last;
    size_t digits;
};

static int parse_range(const char *pattern, struct range *out)
{
    size_t last_digits;
    out->open = strchr(pattern, '{');
    const char *p = out->open ? scan_number(out->open + 1, &out->first, &out->digits) : NULL;
    p = p && !strncmp(p, "..", 2) ? scan_number(p + 2, &out->last, &last_digits) : NULL;
    if (!p || *p != '}' || strpbrk(p + 1, "{}") || out->first > out->last || out->last - out->first >= SET_MAX)
        return error_set(-EINVAL, "source: '%s': braces are for one range of numbers here, for example {0000..0099}",
                         pattern);
    out->rest = p + 1;
    return 0;
}

/* Add a shard that the address names. */
static int shard_set_look_at(struct shard_set *set, const char *path)
{
    struct source_version version;
    int rc = source_stat(set->source, path, strlen(path), &version);
    return rc ? rc : shard_set_add(set, path, strlen(path), &version);
}

/* Add the shards of a pattern, with or without braces. */
static int list_pattern(struct shard_set *set)
{
    struct range range;
    if (!strchr(set->pattern, '{'))
        return shard_set_look_at(set, set->pattern);
    int rc = parse_range(set->pattern, &range);
    for (unsigned long i = range.first; !rc && i <= range.last; i++) {
        CLEANUP_FREE char *path = NULL;
        if (asprintf(&path, "%.*s%0*lu%s", (int)(range.open - set->pattern), set->pattern, (int)range.digits, i,
                     range.rest) < 0)
            return error_no_memory();
        rc = shard_set_look_at(set, path);
    }
    return rc;
}

/* ------------------------------------------------------------------ all there are */

/* Add a listed file if its name is a shard's. */
static int take_listed(void *arg, const struct source_entry *e)
{
    struct shard_set *set = arg;
    struct source_version version = {.size = e->size, .mtime = e->mtime, .validator_len = e->validator_len};
    size_t stem;
    if (!S_ISREG(e->mode) || shard_kind(e->path, e->path_len, &stem) == SHARD_NONE)
        return 0;
    if (e->validator_len)
        memcpy(version.validator, e->validator, e->validator_len);
    return shard_set_add(set, e->path, e->path_len, &version);
}

/* Order by path: the order in which shards are unpacked, and part of what the image's digest depends on. */
static int shard_order(const void *a, const void *b)
{
    const struct shard *x = a, *y = b;
    return catalog_path_compare(x->path, x->path_len, y->path, y->path_len);
}

int shard_set_list(struct shard_set *set)
{
    int rc = set->pattern ? list_pattern(set) : source_list(set->source, take_listed, set);
    if (rc)
        return rc;
    if (!set->shards.len)
        return error_set(-ENOENT, "source: there is no tar shard (.tar, .tar.gz, .tgz, .tar.zst) in %s",
                         set->source->url);
    qsort(set->shards.items, set->shards.len, sizeof *set->shards.items, shard_order);
    return 0;
}

/* ------------------------------------------------------------------ life */

/* Return where the last directory of the address ends, before any braces; 0: it has no slash. */
static size_t directory_end(const char *address)
{
    size_t n = strcspn(address, "{");
    while (n && address[n - 1] != '/')
        n--;
    return n;
}

int shard_set_open(const char *address, const struct source_options *options, source_opener *open,
                   struct shard_set *out)
{
    struct range range;
    size_t stem, dir = directory_end(address);
    /* a single shard or a set; otherwise everything below the address */
    bool named = strchr(address, '{') || shard_kind(address, strlen(address), &stem) != SHARD_NONE;
    *out = (struct shard_set){0};
    int rc = strchr(address, '{') ? parse_range(address, &range) : 0;
    if (rc)
        return rc;
    if (!named)
        return open(address, options, &out->source);
    CLEANUP_FREE char *base = dir ? strndup(address, dir) : strdup(".");
    CLEANUP_FREE char *pattern = strdup(address + dir);
    if (!base || !pattern)
        return error_no_memory();
    rc = open(base, options, &out->source);
    if (!rc)
        out->pattern = steal_ptr(&pattern);
    return rc;
}

void shard_set_release(struct shard_set *set)
{
    source_close(set->source);
    for (size_t i = 0; i < set->shards.len; i++)
        free(set->shards.items[i].path);
    vec_release(&set->shards);
    free(set->pattern);
}

int shard_key(const struct digest *choice, const struct shard *shard, char out[SOURCE_SHARD_KEY_LEN + 1])
{
    CLEANUP_BYTES text = BYTES_INIT(CATALOG_PATH_MAX + SOURCE_VALIDATOR_MAX + DIGEST_SIZE + 1);
    char hex[DIGEST_HEX_SIZE];
    *out = 0;
    if (!shard->version.validator_len)
        return 0;
    int rc = bytes_append(&text, choice, sizeof *choice);
    if (!rc)
        /* with the NUL, so that path and validator cannot run into each other */
        rc = bytes_append(&text, shard->path, shard->path_len + 1);
    if (!rc)
        rc = bytes_append(&text, shard->version.validator, shard->version.validator_len);
    if (rc)
        return error_set(rc, "source: no memory for a shard's path");
    struct digest digest = digest_of(text.data, text.len);
    snprintf(out, SOURCE_SHARD_KEY_LEN + 1, SOURCE_SHARD_KEY "%.32s:", digest_hex(&digest, hex));
    return 0;
}
