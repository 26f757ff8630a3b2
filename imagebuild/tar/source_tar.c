/* tar:ADDRESS: the members of tar shards, plain or compressed, as a source that streams. File data comes with the
 * listing (tar_unpack.c). Shards whose members the parent has already are not read (struct source_known).
 *
 * A member's version is "tar:SHARD:OFFSET": the key of its shard, and its position there. SHARD is half a digest of the
 * shard's path and version and of the options.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "imagebuild/source/source_internal.h"
#include "imagebuild/tar/tar_internal.h"

struct source_tar {
    struct source base;
    char *url;
    struct shard_set set;
    unsigned threads;
    const volatile int *cancel; /* as in struct source_options */
    bool directories;           /* --tar-dirs */
    struct digest choice;       /* digest of the address and of all options that decide what members become */
    struct source_known known;
};

static struct source_tar *tar_of(struct source *s)
{
    return (struct source_tar *)s;
}

/* Find the shards once: the second listing, and tar_set_known before it, must see the same ones. */
static int find_shards(struct source_tar *s)
{
    return s->set.shards.len ? 0 : shard_set_list(&s->set);
}

/* Return in *out whether the parent has all members of a shard. */
static int is_known(const struct source_tar *s, const struct shard *shard, bool *out)
{
    char key[SOURCE_SHARD_KEY_LEN + 1];
    int rc = shard_key(&s->choice, shard, key);
    *out = !rc && s->known.has && *key && s->known.has(s->known.arg, key, SOURCE_SHARD_KEY_LEN);
    return rc;
}

/* Choose the shards to be read: all but those whose members the parent has. The caller frees *out, but not its
 * strings, which belong to the set. */
static int choose_shards(struct source_tar *s, struct shard **out, size_t *out_count)
{
    const struct source_known *known = &s->known;
    CLEANUP_FREE struct shard *chosen = calloc(s->set.shards.len + 1, sizeof *chosen);
    size_t count = 0;
    if (!chosen)
        return error_no_memory();
    for (size_t i = 0; i < s->set.shards.len; i++) {
        bool has;
        int rc = is_known(s, &s->set.shards.items[i], &has);
        if (rc)
            return rc;
        if (!has)
            chosen[count++] = s->set.shards.items[i];
    }
    /* every shard has been asked about; perhaps none can be skipped after all */
    if (known->has && !known->suffice(known->arg)) {
        count = s->set.shards.len;
        memcpy(chosen, s->set.shards.items, count * sizeof *chosen);
    }
    *out = steal_ptr(&chosen);
    *out_count = count;
    return 0;
}

static int tar_list(struct source *base, source_visit *visit, void *arg)
{
    struct source_tar *s = tar_of(base);
    CLEANUP_FREE struct shard *shards = NULL;
    struct tar_unpack unpack = {.source = s->set.source,
                                .threads = s->threads,
                                .url = s->url,
                                .directories = s->directories,
                                .choice = &s->choice,
                                .visit = visit,
                                .arg = arg,
                                .cancel = s->cancel};
    int rc = find_shards(s);
    if (!rc)
        rc = choose_shards(s, &shards, &unpack.count);
    unpack.shards = shards;
    return rc ? rc : tar_unpack_run(&unpack);
}

/* ------------------------------------------------------------------ the rest */

/* Counts of the shards' own listing. Owners of shards do not matter, so unknown ones are not reported. */
static void tar_counts(struct source *base, struct source_counts *out)
{
    struct source_counts shards = {0};
    source_ask_counts(tar_of(base)->set.source, &shards);
    shards.owners_unknown = 0;
    source_counts_add(out, &shards);
}

static bool tar_streams(const struct source *s)
{
    return true;
}

/* Ask about every shard now, so that a build with several sources knows the answers before one of them is read. */
static int tar_set_known(struct source *base, const struct source_known *known)
{
    struct source_tar *s = tar_of(base);
    s->known = *known;
    int rc = known->has ? find_shards(s) : 0;
    for (size_t i = 0; !rc && known->has && i < s->set.shards.len; i++) {
        bool has;
        rc = is_known(s, &s->set.shards.items[i], &has);
    }
    return rc;
}

/* Find the shard whose key the validator begins with. */
static bool tar_name_origin(struct source *base, const struct source_entry *e, char *out, size_t size)
{
    struct source_tar *s = tar_of(base);
    char key[SOURCE_SHARD_KEY_LEN + 1];
    for (size_t i = 0; e->validator_len >= SOURCE_SHARD_KEY_LEN && i < s->set.shards.len; i++) {
        const struct shard *shard = &s->set.shards.items[i];
        if (shard_key(&s->choice, shard, key) || memcmp(key, e->validator, SOURCE_SHARD_KEY_LEN) != 0)
            continue;
        snprintf(out, size, "%s", shard->path);
        return true;
    }
    return false;
}

/* A member that changed would have to be read again, and its shard with it. */
static int not_again(const struct source_tar *s)
{
    return error_set(-ENOTSUP, "source: %s: a member of a tar shard cannot be read again by itself", s->url);
}

static int tar_read(struct source *base, const struct source_read *r)
{
    return not_again(tar_of(base));
}

static int tar_stat(struct source *base, const char *path, size_t len, struct source_version *out)
{
    return not_again(tar_of(base));
}

static void tar_cancel(struct source *base)
{
    source_cancel(tar_of(base)->set.source);
}

static void tar_close(struct source *base)
{
    struct source_tar *s = tar_of(base);
    shard_set_release(&s->set);
    free(s->url);
    free(s);
}

int source_tar_open(const char *url, const char *address, const struct source_options *options, source_opener *open,
                    struct source **out)
{
    static const struct source_ops ops = {.list = tar_list,
                                          .counts = tar_counts,
                                          .streams = tar_streams,
                                          .set_known = tar_set_known,
                                          .name_origin = tar_name_origin,
                                          .read = tar_read,
                                          .stat = tar_stat,
                                          .cancel = tar_cancel,
                                          .close = tar_close};
    struct source_options inner = *options;
    struct source_tar *s = calloc(1, sizeof *s);
    inner.rules = NULL; /* rules apply to members, not to shards */
    if (!s || !(s->url = strdup(url))) {
        free(s);
        return error_no_memory();
    }
    CLEANUP_BYTES choice = BYTES_INIT(1 << 24);
    int rc = bytes_printf(&choice, "%s%c%d%c%s", url, 0, options->tar_directories, 0,
                          options->choice ? options->choice : "");
    s->choice = digest_of(choice.data, choice.len);
    s->base = (struct source){.ops = &ops, .url = s->url};
    s->threads = options->connections;
    s->cancel = options->cancel;
    s->directories = options->tar_directories;
    rc = rc ? error_set(rc, "source: no memory for the options") : shard_set_open(address, &inner, open, &s->set);
    if (rc)
        tar_close(&s->base);
    else
        *out = &s->base;
    return rc;
}
