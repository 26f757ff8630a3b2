/* Takes apart a store that lies inside another one. One run:
 *
 *   1 look     the inner store's leases and tags, and what the same tags name in the outer store
 *   2 copy     each image, then its tags unchanged
 *   3 close    announce a sweep of the inner store, then check its leases and tags again: a build that has begun is
 *              seen, and one that begins now waits for the end of the sweep, and finds no store then (lease.h)
 *   4 list     all objects below dir, and which of them are the inner store's
 *   5 remove   tags first, so that no tag names an incomplete image; then what they need; then granary.json; then the
 *              leases of builds that wait, which are lost from here on; the announcement last
 *
 * A run that was killed is found again by granary.json, or by its announcement where granary.json is gone. So a run
 * that fails after that leaves its announcement.
 *
 * If the inner store is the directory "images" itself, its keys of two components lie where the outer store keeps
 * tags. Those are read, and whatever may be a tag stays. */
#include "upkeep/upkeep.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/vec.h"
#include "format/object.h"
#include "repository/lease.h"
#include "repository/repository.h"

static const char images[] = "images/", document[] = "/granary.json", announcement[] = "/" LEASE_SWEEP_KEY;

/* A lease may be dead for its owner after LEASE_LIFE_MIN_S, and clocks may be ten minutes apart. */
enum { UNNEST_LEASE_S = 2 * LEASE_LIFE_MIN_S };

/* ---- finding ---- */

struct dirs {
    VEC(char *) list;
};

static void dirs_release(struct dirs *d)
{
    for (size_t i = 0; i < d->list.len; i++)
        free(d->list.items[i]);
    vec_release(&d->list);
}

/* Return the length of the directory if the key ends so, else 0. */
static size_t dir_length(const char *key, const char *ending)
{
    size_t len = strlen(key), tail = strlen(ending);
    return len > tail && !strcmp(key + len - tail, ending) ? len - tail : 0;
}

/* Collect the directory of each granary.json and of each announcement. */
static int note_dir(void *arg, const struct store_item *item)
{
    struct dirs *d = arg;
    size_t len = GR_MAX(dir_length(item->key, document), dir_length(item->key, announcement));
    if (!len)
        return 0;
    CLEANUP_FREE char *dir = strndup(item->key, len);
    if (!dir || vec_push(&d->list, dir))
        return error_no_memory();
    (void)steal_ptr(&dir);
    return 0;
}

/* Longer paths first, so that an inner store is taken apart before the one around it. */
static int compare_depth(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    size_t m = strlen(x), n = strlen(y);
    return m != n ? (m < n ? 1 : -1) : strcmp(x, y);
}

/* Check that there is really a store, since a tag may be called granary.json; or what an unnest left that was killed
 * after it had removed that. -ENOENT, -EBADMSG: neither. */
static int check_inner(struct store *inner)
{
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    struct lease sweep;
    int rc = repository_check(inner, false);
    if (rc != -ENOENT)
        return rc;
    rc = store_get_small(inner, LEASE_SWEEP_KEY, &doc, NULL);
    return rc ? rc : lease_decode(doc.data, doc.len, &sweep);
}

static int unnest_check_dir(struct store *outer, const char *dir)
{
    CLEANUP(cleanup_store) struct store *inner = NULL;
    int rc = store_below_open(outer, dir, &inner);
    return rc ? rc : check_inner(inner);
}

int unnest_find(struct store *outer, unnest_visit *visit, void *arg)
{
    struct dirs dirs CLEANUP(dirs_release) = {{0}};
    int rc = store_list(outer, images, note_dir, &dirs);
    if (dirs.list.len)
        qsort(dirs.list.items, dirs.list.len, sizeof *dirs.list.items, compare_depth);
    for (size_t i = 0; i < dirs.list.len && !rc; i++) {
        if (i && !strcmp(dirs.list.items[i - 1], dirs.list.items[i]))
            continue;
        rc = unnest_check_dir(outer, dirs.list.items[i]);
        /* Not a store after all. */
        if (rc == -EBADMSG || rc == -ENOENT)
            rc = 0;
        else if (!rc)
            rc = visit(arg, dirs.list.items[i]);
    }
    return rc;
}

/* ---- what is to be done ---- */

/* A tag of the inner store. */
struct moved_tag {
    struct tag tag;
    bool there; /* the outer store has it, for the same image */
};

/* Kinds of objects in the order of removal; RANK_LEFT is not removed. */
enum rank {
    RANK_TAG,
    RANK_MANIFEST,
    RANK_CATALOG,
    RANK_INDEX,
    RANK_PACK,
    RANK_OTHER,
    RANK_STORE,
    RANK_LEASE,
    RANK_LEFT
};

/* An object below dir. */
struct piece {
    char *key; /* key in the inner store */
    uint64_t size;
    enum rank rank;
};

/* One run. Threads, in the removal, change only the atomic counts. */
struct unnesting {
    struct store *outer, *inner;
    const struct unnest_options *options;
    struct unnest_result *result;
    VEC(struct moved_tag) tags; /* by image, the order of copying */
    VEC(char *) tag_keys;       /* sorted, for binary search */
    VEC(struct piece) pieces;
    struct lease_handle *sweep; /* the announcement; NULL until step 3 */
    bool leave_sweep;           /* a later run finds the rest by it alone */
    bool among_tags;            /* dir is "images": see the top */
    size_t first;               /* first piece of the batch being removed */
    _Atomic uint64_t removed, removed_bytes;
};

static void unnest_release(struct unnesting *u)
{
    if (u->leave_sweep)
        lease_abandon(u->sweep);
    else
        lease_end(u->sweep);
    for (size_t i = 0; i < u->pieces.len; i++)
        free(u->pieces.items[i].key);
    vec_release(&u->pieces);
    vec_release(&u->tags);
    for (size_t i = 0; i < u->tag_keys.len; i++)
        free(u->tag_keys.items[i]);
    vec_release(&u->tag_keys);
    store_close(u->inner);
}

/* Refuse while a build into the inner store is running. */
static int check_no_build(struct unnesting *u)
{
    uint64_t live;
    int rc = lease_count_live(u->inner, time(NULL), UNNEST_LEASE_S, false, &live);
    if (rc || !live)
        return rc;
    return error_set(-EBUSY,
                     "%s: a build into it is running, or left a lease or a checkpoint within the last twenty minutes; "
                     "end it, or wait, and run the same command again",
                     u->inner->url);
}

/* Note a tag, and its key for is_tag. */
static int note_tag(void *arg, const char *name, const char *tag, const struct tag *t)
{
    struct unnesting *u = arg;
    struct moved_tag m = {.tag = *t};
    CLEANUP_FREE char *key = NULL;
    snprintf(m.tag.name, sizeof m.tag.name, "%s", name);
    snprintf(m.tag.tag, sizeof m.tag.tag, "%s", tag);
    if (asprintf(&key, "%s%s/%s", images, name, tag) < 0)
        key = NULL;
    if (!key || vec_push(&u->tags, m) || vec_push(&u->tag_keys, key))
        return error_no_memory();
    (void)steal_ptr(&key);
    return 0;
}

/* Set *there to whether the outer store has the tag. -EEXIST: it has the tag for another image. */
static int look_outside(struct unnesting *u, const struct tag *t, bool *there)
{
    struct image_ref ref = {.by_digest = false};
    struct digest image;
    memcpy(ref.name, t->name, sizeof ref.name);
    memcpy(ref.tag, t->tag, sizeof ref.tag);
    *there = false;
    int rc = repository_resolve(u->outer, &ref, &image, NULL);
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    *there = digest_equal(&image, &t->digest);
    if (*there)
        return 0;
    return error_set(-EEXIST,
                     "%s:%s is one image in %s and another in %s: give the latter another name there ('granary copy "
                     "%s/%s:%s %s/%s:OTHER'), remove it ('granary rm %s/%s:%s'), and run this again",
                     t->name, t->tag, u->outer->url, u->inner->url, u->inner->url, t->name, t->tag, u->outer->url,
                     t->name, u->inner->url, t->name, t->tag);
}

static int compare_images(const void *a, const void *b)
{
    const struct moved_tag *x = a, *y = b;
    int order = memcmp(&x->tag.digest, &y->tag.digest, DIGEST_SIZE);
    return order ? order : strcmp(x->tag.tag, y->tag.tag);
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Step 1. */
static int unnest_look(struct unnesting *u)
{
    struct unnest_result *r = u->result;
    int rc = check_no_build(u);
    if (!rc)
        rc = repository_tags(u->inner, NULL, note_tag, u);
    if (u->tags.len)
        qsort(u->tags.items, u->tags.len, sizeof *u->tags.items, compare_images);
    if (u->tag_keys.len)
        qsort(u->tag_keys.items, u->tag_keys.len, sizeof *u->tag_keys.items, compare_keys);
    for (size_t i = 0; i < u->tags.len && !rc; i++) {
        struct moved_tag *m = &u->tags.items[i];
        rc = look_outside(u, &m->tag, &m->there);
        r->tags_there += m->there;
        r->images += !i || !digest_equal(&m[-1].tag.digest, &m->tag.digest);
    }
    r->tags = u->tags.len;
    return rc;
}

/* ---- what lies there ---- */

/* Is it one of the tags that were read? Other keys there may belong to a store that is deeper still. */
static bool is_tag(const struct unnesting *u, const char *key)
{
    return u->tag_keys.len &&
           bsearch(&key, u->tag_keys.items, u->tag_keys.len, sizeof *u->tag_keys.items, compare_keys);
}

static unsigned count_slashes(const char *key)
{
    unsigned n = 0;
    for (; *key; key++)
        n += *key == '/';
    return n;
}

/* Tell what an object is from its key. */
static enum rank rank_of(const struct unnesting *u, const char *key)
{
    static const enum rank ranks[OBJECT_KINDS] = {[OBJECT_MANIFEST] = RANK_MANIFEST,
                                                  [OBJECT_CATALOG] = RANK_CATALOG,
                                                  [OBJECT_INDEX] = RANK_INDEX,
                                                  [OBJECT_PACK] = RANK_PACK};
    enum object_kind kind;
    struct digest name;
    unsigned slashes = count_slashes(key);
    if (!object_key_parse(key, &kind, &name))
        return ranks[kind];
    if (!strcmp(key, document + 1))
        return RANK_STORE;
    if (is_tag(u, key))
        return RANK_TAG;
    if (slashes != 1)
        return RANK_LEFT;
    if (text_begins_with(key, "builds/"))
        return RANK_LEASE;
    return text_begins_with(key, "trash/") || text_begins_with(key, "probe/") ? RANK_OTHER : RANK_LEFT;
}

/* Renew the announcement, if there is one: in a dry run there is none. */
static int unnest_renew(struct unnesting *u)
{
    return u->sweep ? lease_renew(u->sweep) : 0;
}

static int note_piece(void *arg, const struct store_item *item)
{
    struct unnesting *u = arg;
    /* Ours goes last, with lease_end; a dead one of an earlier run was replaced by it. */
    if (!strcmp(item->key, LEASE_SWEEP_KEY))
        return 0;
    struct piece p = {.key = strdup(item->key), .size = item->size, .rank = rank_of(u, item->key)};
    if (!p.key || vec_push(&u->pieces, p)) {
        free(p.key);
        return error_no_memory();
    }
    return unnest_renew(u);
}

/* Leave an object with a tag's key that may be a tag of the outer store. */
static int leave_tags(struct unnesting *u, struct piece *p)
{
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    int rc = store_get_small(u->inner, p->key, &doc, NULL);
    if (!rc && !tag_is_other_document(doc.data, doc.len))
        p->rank = RANK_LEFT;
    return rc && rc != -EMSGSIZE && rc != -ENOENT ? rc : unnest_renew(u);
}

static int compare_pieces(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    return x->rank != y->rank ? (int)x->rank - (int)y->rank : strcmp(x->key, y->key);
}

/* Step 4. */
static int list(struct unnesting *u)
{
    int rc = store_list(u->inner, "", note_piece, u);
    for (size_t i = 0; i < u->pieces.len && !rc; i++) {
        struct piece *p = &u->pieces.items[i];
        if (u->among_tags && count_slashes(p->key) == 1 && p->rank != RANK_LEFT)
            rc = leave_tags(u, p);
        u->result->left += p->rank == RANK_LEFT;
        u->result->removed += p->rank != RANK_LEFT;
        u->result->removed_bytes += p->rank != RANK_LEFT ? p->size : 0;
    }
    if (u->pieces.len)
        qsort(u->pieces.items, u->pieces.len, sizeof *u->pieces.items, compare_pieces);
    return rc;
}

/* ---- copying ---- */

/* Verify the copied image completely. Some of its objects were in the outer store before and were compared only by
 * length and end, but the inner store's are about to be removed. */
static int check_bytes(struct unnesting *u, const struct tag *t)
{
    struct manifest m;
    struct verify_result r = {0};
    const struct verify_options deep = {
        .deep = true, .threads = u->options->copy.threads, .cancel = u->options->copy.cancel};
    int rc = repository_manifest(u->outer, &t->digest, &m);
    if (!rc)
        rc = verify_image(u->outer, &m, &deep, &r);
    if (rc || !r.problems)
        return rc;
    return error_set(
        -EBADMSG,
        "%s/%s:%s is damaged, so the one in %s stays: 'granary verify --deep' says what of it, remove those "
        "objects and run this again",
        u->outer->url, t->name, t->tag, u->inner->url);
}

static int copy_tagged(struct unnesting *u, const struct tag *t)
{
    struct copy_result r = {0};
    const struct copy_name name = {.name = t->name,
                                   .tag = t->tag,
                                   .created = t->created,
                                   .parent = t->parent,
                                   .source = t->source,
                                   .signature = t->signature,
                                   .provenance = t->provenance};
    int rc = copy_image(u->inner, &t->digest, u->outer, &name, &u->options->copy, &r);
    u->result->objects_sent += r.objects_copied;
    u->result->bytes_sent += r.bytes_copied;
    return rc || r.objects_copied == r.objects ? rc : check_bytes(u, t);
}

/* Step 2: copy each image with its first tag, then publish all its tags as they were. */
static int copy_all(struct unnesting *u)
{
    int rc = 0;
    for (size_t i = 0; i < u->tags.len && !rc; i++) {
        struct moved_tag *m = &u->tags.items[i];
        struct tag t = m->tag;
        rc = look_outside(u, &t, &m->there); /* again, since copying the images before took time */
        if (rc)
            break;
        /* Copy even if the outer store has the tag, which checks the image: its other copy is about to be removed. */
        if (!i || !digest_equal(&m[-1].tag.digest, &m->tag.digest))
            rc = copy_tagged(u, &m->tag);
        if (!rc) /* unchanged: copy_image's tag does not record what the image was built from */
            rc = look_outside(u, &t, &m->there);
        if (!rc)
            rc = repository_publish(u->outer, m->tag.name, m->tag.tag, &t, u->options->copy.strict_tags);
    }
    return rc;
}

/* ---- removing ---- */

/* Check that a tag of the inner store is in the outer one. */
static int check_tag(void *arg, const char *name, const char *tag, const struct tag *t)
{
    struct unnesting *u = arg;
    struct tag now = *t;
    bool there;
    snprintf(now.name, sizeof now.name, "%s", name);
    snprintf(now.tag, sizeof now.tag, "%s", tag);
    int rc = look_outside(u, &now, &there);
    if (rc == -EEXIST || (!rc && !there))
        return error_set(-EAGAIN, "%s: %s:%s was published meanwhile; run the same command again", u->inner->url, name,
                         tag);
    return rc;
}

static int remove_one(void *arg, size_t i)
{
    struct unnesting *u = arg;
    const struct piece *p = &u->pieces.items[u->first + i];
    /* The calling thread may be stuck in a renewal, and builds no longer wait. */
    if (!lease_is_live(u->sweep))
        return error_set(-EAGAIN,
                         "%s: its announcement (%s) could not be renewed for ten minutes; run the same command "
                         "again",
                         u->inner->url, LEASE_SWEEP_KEY);
    int rc = store_remove(u->inner, p->key);
    if (rc)
        return rc;
    u->removed++;
    u->removed_bytes += p->size;
    return 0;
}

/* Progress and cancellation of the removal, and its announcement. Once granary.json goes, only leases are left, which a
 * later run would not find. */
static int unnest_step(void *arg)
{
    struct unnesting *u = arg;
    const struct copy_options *o = &u->options->copy;
    if (o->progress)
        o->progress(o->progress_arg, u->removed_bytes, u->result->removed_bytes);
    bool last = u->pieces.items[u->first].rank >= RANK_STORE;
    int rc = last ? 0 : cancel_check(o->cancel);
    return rc ? rc : unnest_renew(u);
}

/* Step 3. The leases come before the tags, because a build that ended meanwhile has published one. */
static int close_inner(struct unnesting *u)
{
    int rc = lease_begin_sweep(u->inner, &u->sweep);
    if (!rc)
        rc = check_no_build(u);
    return rc ? rc : repository_tags(u->inner, NULL, check_tag, u);
}

/* After a failure that came with granary.json or after it: is that gone? Also true if the store does not say. */
static bool is_gone(struct unnesting *u)
{
    struct error failed;
    error_take(&failed, 0);
    bool gone = repository_check(u->inner, false) != 0;
    (void)error_restore(&failed);
    return gone;
}

/* Step 5: remove batch by batch, each of one rank, in parallel within a batch. */
static int remove_all(struct unnesting *u)
{
    struct parallel work = {.threads = u->options->copy.threads ? u->options->copy.threads : COPY_THREADS,
                            .item = remove_one,
                            .step = unnest_step,
                            .arg = u};
    int rc = 0;
    for (u->first = 0; u->first < u->pieces.len && !rc; u->first += work.count) {
        const struct piece *p = &u->pieces.items[u->first];
        if (p->rank == RANK_LEFT)
            break;
        /* The batch: all pieces of one rank. */
        for (work.count = 1; u->first + work.count < u->pieces.len && p[work.count].rank == p->rank;)
            work.count++;
        rc = parallel_run(&work);
        u->leave_sweep = rc && p->rank >= RANK_STORE && is_gone(u);
    }
    u->result->removed = u->removed;
    u->result->removed_bytes = u->removed_bytes;
    return rc;
}

int unnest_run(struct store *outer, const char *dir, const struct unnest_options *options, struct unnest_result *out)
{
    *out = (struct unnest_result){0};
    struct unnesting u CLEANUP(unnest_release) = {
        .outer = outer, .options = options, .result = out, .among_tags = !strchr(dir, '/')};
    int rc = store_below_open(outer, dir, &u.inner);
    if (!rc)
        rc = check_inner(u.inner);
    if (!rc)
        rc = unnest_look(&u);
    if (!rc && !options->dry_run)
        rc = copy_all(&u);
    if (!rc && !options->dry_run)
        rc = close_inner(&u);
    if (!rc)
        rc = list(&u);
    return rc || options->dry_run ? rc : remove_all(&u);
}
