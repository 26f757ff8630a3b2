/* Checks an image in up to three passes: the catalog (deep: its files are collected); the index, whose packs are
 * looked up and, if deep, whose chunks are all read; and if a file is damaged the catalog again, to report it by name.
 * A problem of the image is reported and counted; only what prevents the check is returned. */
#include "upkeep/upkeep.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/parallel.h"
#include "repository/read/catalog_read.h"
#include "repository/read/chunk_read.h"
#include "repository/read/index_read.h"
#include "upkeep/upkeep_internal.h"

/* One run. */
struct verifying {
    struct store *store;
    const struct manifest *m;
    const struct verify_options *options;
    struct verify_result *result;
    struct verify_files *files; /* deep, unless the catalog is damaged */
    struct manifest_counts counts;
    struct pack_set packs;
    pthread_mutex_t lock;      /* guards reporting while several threads look up packs */
    char last[ERROR_TEXT_MAX]; /* the last problem reported */
};

/* Report the calling thread's sentence as a problem of the image. A pack that is missing or truncated fails every read
 * from it with the same sentence; that counts as one problem. */
static void found(struct verifying *v)
{
    if (!strcmp(v->last, error_text()))
        return;
    snprintf(v->last, sizeof v->last, "%s", error_text());
    v->result->problems++;
    if (v->options->problem)
        v->options->problem(v->options->arg, error_text());
}

/* Report corrupt or missing bytes as a problem of the image and return 0; return any other rc, which ends the check. */
static int found_if_image(struct verifying *v, int rc)
{
    if (rc != -EBADMSG && rc != -ENOENT && rc != -EMSGSIZE)
        return rc;
    found(v);
    return 0;
}

/* Count an entry, and collect it for a deep check. */
static int count_entry(void *arg, const struct catalog_entry *e)
{
    struct verifying *v = arg;
    v->result->entries++;
    if (e->hard_link)
        v->counts.hard_links++;
    else if (S_ISREG(e->mode))
        v->counts.files++;
    else if (S_ISDIR(e->mode))
        v->counts.directories++;
    else if (S_ISLNK(e->mode))
        v->counts.symlinks++;
    else
        v->counts.others++;
    if (S_ISREG(e->mode) && !e->hard_link)
        v->counts.bytes += e->size;
    int rc = cancel_check(v->options->cancel);
    return rc || !v->files ? rc : verify_files_add(v->files, e);
}

/* Read the whole catalog, and compare its counts with the manifest's. */
static int check_catalog(struct verifying *v)
{
    int rc = catalog_walk(v->store, v->m, "", 0, count_entry, v);
    if (rc)
        return found_if_image(v, rc);
    const struct manifest_counts *want = &v->m->counts;
    if (v->result->entries != v->m->catalog_entries || v->counts.files != want->files ||
        v->counts.directories != want->directories || v->counts.symlinks != want->symlinks ||
        v->counts.hard_links != want->hard_links || v->counts.others != want->others ||
        v->counts.bytes != want->bytes) {
        (void)error_set(-EBADMSG, "catalog: its %llu entries are not what the manifest counts",
                        (unsigned long long)v->result->entries);
        found(v);
    }
    return 0;
}

/* Count a leaf's chunks and note their packs. */
static int collect_packs(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    struct verifying *v = arg;
    v->result->chunks += count;
    v->result->holes += chunks ? 0 : count;
    for (uint64_t i = 0; chunks && i < count; i++) {
        int rc = 0;
        if (chunk_is_hole(&chunks[i]))
            v->result->holes++;
        else
            rc = pack_set_add(&v->packs, &chunks[i]);
        if (rc)
            return rc;
    }
    return cancel_check(v->options->cancel);
}

/* Check that a pack is there and long enough. */
static int check_pack(struct verifying *v, const struct pack_need *need)
{
    char key[OBJECT_KEY_MAX];
    struct store_item item;
    int rc = store_stat(v->store, object_key(OBJECT_PACK, &need->pack, key), &item);
    if (!rc && item.size < need->len)
        rc = error_set(-EBADMSG, "%s: %s has %llu bytes, the image needs %llu: it was cut short", v->store->url, key,
                       (unsigned long long)item.size, (unsigned long long)need->len);
    return rc;
}

/* Check one pack, in one of several threads; the request is made outside the lock. */
static int check_nth_pack(void *arg, size_t i)
{
    struct verifying *v = arg;
    int rc = cancel_check(v->options->cancel);
    if (!rc)
        rc = check_pack(v, &v->packs.needs.items[i]);
    if (!rc)
        return 0;
    SCOPED_LOCK(&v->lock);
    v->result->packs_bad++;
    rc = found_if_image(v, rc);
    if (!rc && v->options->bad_pack)
        v->options->bad_pack(v->options->arg, &v->packs.needs.items[i].pack);
    return rc;
}

static int check_packs(struct verifying *v)
{
    pack_set_finish(&v->packs);
    v->result->packs = v->packs.needs.len;
    const struct parallel work = {.count = v->packs.needs.len,
                                  .threads = v->options->threads ? v->options->threads : CHUNK_STREAM_THREADS,
                                  .item = check_nth_pack,
                                  .arg = v};
    return parallel_run(&work);
}

/* Count one chunk of a deep check, and pass its bytes to the files. */
static int check_chunk(void *arg, const struct chunk_item *item)
{
    struct verifying *v = arg;
    uint64_t begin = item->number * v->m->chunk_size;
    uint64_t end = GR_MIN(v->m->size, begin + item->count * v->m->chunk_size);
    int rc = 0;
    if (item->rc) {
        v->result->chunks_bad++;
        rc = found_if_image(v, item->rc);
        if (!rc && v->options->bad_pack)
            v->options->bad_pack(v->options->arg, &item->ref->object);
        if (!rc && v->options->bad_pack && chunk_is_delta(item->ref)) /* either of them may be the bad one */
            v->options->bad_pack(v->options->arg, &item->ref->base.object);
        if (!rc && v->files)
            rc = verify_files_skip(v->files, begin, end - begin);
    } else {
        v->result->bytes += item->data ? end - begin : 0;
        if (v->files)
            rc = verify_files_feed(v->files, begin, end - begin, item->data);
    }
    if (!rc && v->options->progress)
        v->options->progress(v->options->arg, end, v->m->size);
    return rc;
}

/* Report a bad file by its path. */
static int name_bad_file(void *arg, const struct catalog_entry *e)
{
    struct verifying *v = arg;
    if (verify_files_is_bad(v->files, e)) {
        (void)error_set(-EBADMSG, "file '%.*s': its bytes are not those that were built", (int)e->path_len, e->path);
        found(v);
    }
    return 0;
}

/* The deep pass. */
static int check_chunks(struct verifying *v)
{
    struct chunk_stream_options options = {.threads = v->options->threads, .cancel = v->options->cancel};
    int rc = v->files ? verify_files_begin(v->files) : 0;
    if (!rc)
        rc = chunk_stream(v->store, v->m, &options, check_chunk, v);
    if (rc)
        return found_if_image(v, rc);
    if (!v->files)
        return 0;
    v->result->files = verify_files_compared(v->files);
    v->result->files_bad = verify_files_bad(v->files);
    return v->result->files_bad ? catalog_walk(v->store, v->m, "", 0, name_bad_file, v) : 0;
}

/* The passes. The catalog comes first, because its files take part in the pass over the chunks. */
static int verify_check_all(struct verifying *v)
{
    const struct index_walk_ops ops = {.chunks = collect_packs};
    uint64_t before = v->result->problems;
    int rc = check_catalog(v);
    if (!rc && v->result->problems != before) { /* a damaged catalog cannot tell which files are */
        verify_files_free(v->files);
        v->files = NULL;
    }
    if (rc)
        return rc;
    rc = index_walk(v->store, v->m, &ops, v);
    if (rc)
        return found_if_image(v, rc); /* without an index there are no chunks to check */
    rc = check_packs(v);
    return rc || !v->options->deep ? rc : check_chunks(v);
}

int verify_image(struct store *s, const struct manifest *m, const struct verify_options *options,
                 struct verify_result *out)
{
    *out = (struct verify_result){0};
    struct verifying v = {.store = s, .m = m, .options = options, .result = out, .lock = PTHREAD_MUTEX_INITIALIZER};
    int rc = options->deep ? verify_files_new(&v.files) : 0;
    if (!rc)
        rc = verify_check_all(&v);
    verify_files_free(v.files);
    pack_set_release(&v.packs);
    pthread_mutex_destroy(&v.lock);
    return rc;
}
