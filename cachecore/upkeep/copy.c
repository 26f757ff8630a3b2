/* Copies an image between stores. One run:
 *
 *   1 begin    read the manifest from the source, begin a lease in the target
 *   2 collect  list every object that the image needs: index nodes and packs from the index, pages from the catalog
 *   3 look     compare each in both stores, in parallel: its length, and whether the target has it with the same length
 *              and MD5, or the same end if a store reports no MD5
 *   4 copy     send what is missing, in parallel, each checked against its name
 *   5 recheck  look again at what was there already (at everything if the lease lapsed), put the manifest, and remove
 *              gc's marks from what was there; all of it again if the lease lapsed meanwhile
 *   6 publish  put the build tag, the requested tag
 *
 * A put needs a whole object in memory. `lock` guards the count of bytes held and the progress; it is not held across
 * I/O. */
#include "upkeep/upkeep.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/vec.h"
#include "format/image_ref.h"
#include "repository/gc_marks.h"
#include "repository/lease.h"
#include "repository/read/catalog_read.h"
#include "repository/read/index_read.h"
#include "repository/repository.h"
#include "upkeep/upkeep_internal.h"

/* An object of the image. */
struct object {
    struct digest name;
    uint64_t size;
    uint8_t kind;
    bool there; /* was in the target before */
};

/* One run. Threads change what `lock` guards, and `size` and `there` of their own object. */
struct copying {
    struct store *from, *to;
    const struct copy_options *options;
    struct copy_result *result;
    struct lease_handle *lease; /* used only by the calling thread */
    struct manifest manifest;
    struct bytes manifest_text;
    struct pack_set packs;
    VEC(struct object) objects;
    size_t missing;  /* objects[0..missing) are not in the target */
    unsigned lapses; /* of the lease when step 5 began; above 0: what this copy put may be gone too */
    size_t memory;
    uint64_t to_send; /* bytes of the missing objects */
    pthread_mutex_t lock;
    pthread_cond_t room; /* an object's memory was released */
    size_t held;         /* bytes of objects in memory */
    uint64_t bytes;      /* bytes that have arrived */
};

static void copy_release(struct copying *c)
{
    lease_end(c->lease);
    bytes_release(&c->manifest_text);
    pack_set_release(&c->packs);
    vec_release(&c->objects);
    pthread_cond_destroy(&c->room);
    pthread_mutex_destroy(&c->lock);
}

/* Called now and then in the calling thread while others work: cancellation, progress, lease. */
static int copy_step(void *arg)
{
    struct copying *c = arg;
    int rc = cancel_check(c->options->cancel);
    if (rc)
        return rc;
    if (c->options->progress) {
        pthread_mutex_lock(&c->lock);
        uint64_t done = c->bytes;
        pthread_mutex_unlock(&c->lock);
        c->options->progress(c->options->progress_arg, done, c->to_send);
    }
    return lease_renew(c->lease);
}

static int in_parallel(struct copying *c, size_t count, int (*item)(void *arg, size_t i))
{
    const struct parallel work = {.count = count,
                                  .threads = c->options->threads ? c->options->threads : COPY_THREADS,
                                  .item = item,
                                  .step = copy_step,
                                  .arg = c};
    return parallel_run(&work);
}

/* ------------------------------------------------------------------ what the image needs */

/* Add an object that the image needs. */
static int need(struct copying *c, enum object_kind kind, const struct digest *name)
{
    struct object o = {.name = *name, .kind = (uint8_t)kind};
    return vec_push(&c->objects, o);
}

static int need_node(void *arg, const struct index_child *node, unsigned level)
{
    int rc = need(arg, OBJECT_INDEX, &node->digest);
    return rc ? rc : copy_step(arg);
}

/* Note the packs of a leaf's chunks. */
static int need_packs(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    struct copying *c = arg;
    int rc = 0;
    for (uint64_t i = 0; chunks && i < count && !rc; i++)
        if (!chunk_is_hole(&chunks[i]))
            rc = pack_set_add(&c->packs, &chunks[i]);
    return rc;
}

static int need_page(void *arg, const struct digest *object)
{
    int rc = need(arg, OBJECT_CATALOG, object);
    return rc ? rc : copy_step(arg);
}

static int compare_objects(const void *a, const void *b)
{
    const struct object *x = a, *y = b;
    return x->kind != y->kind ? (int)x->kind - (int)y->kind : memcmp(&x->name, &y->name, DIGEST_SIZE);
}

/* Sort the objects and drop duplicates: equal subtrees of an index are one object. */
static void leave_out_doubles(struct copying *c)
{
    size_t kept = 0;
    qsort(c->objects.items, c->objects.len, sizeof *c->objects.items, compare_objects);
    for (size_t i = 0; i < c->objects.len; i++)
        if (!kept || compare_objects(&c->objects.items[kept - 1], &c->objects.items[i]))
            c->objects.items[kept++] = c->objects.items[i];
    c->objects.len = kept;
}

/* List all objects. A missing node or page means that the image is damaged there. */
static int copy_collect(struct copying *c)
{
    const struct index_walk_ops ops = {.node = need_node, .chunks = need_packs};
    int rc = index_walk(c->from, &c->manifest, &ops, c);
    if (!rc)
        rc = catalog_walk_pages(c->from, &c->manifest, need_page, c);
    pack_set_finish(&c->packs);
    for (size_t i = 0; i < c->packs.needs.len && !rc; i++)
        rc = need(c, OBJECT_PACK, &c->packs.needs.items[i].pack);
    if (rc)
        return rc == -ENOENT ? -EBADMSG : rc;
    leave_out_doubles(c);
    return 0;
}

/* ------------------------------------------------------------------ what is missing */

/* Compare objects of the same length: by their MD5s if both stores report them, else by their ends. MD5s that differ
 * prove a difference only if both stores report true MD5s. */
static int is_same(struct copying *c, const struct store_item *from, const struct store_item *to, bool *out)
{
    CLEANUP_BYTES end = BYTES_INIT(REPOSITORY_COMPARED);
    bool said = *from->md5 && *to->md5, differs = said;
    *out = said && !strcmp(from->md5, to->md5);
    if (*out)
        return 0;
    int rc = differs ? repository_says_md5(c->from, &differs) : 0;
    if (!rc && differs)
        rc = repository_says_md5(c->to, &differs);
    if (rc || differs)
        return rc;
    rc = repository_read_end(c->from, from->key, from->size, &end);
    return rc ? rc : repository_has_end(c->to, from->key, from->size, end.data, end.len, out);
}

/* Compare one object in both stores. */
static int copy_look(void *arg, size_t i)
{
    struct copying *c = arg;
    struct object *o = &c->objects.items[i];
    struct store_item item, target;
    char key[OBJECT_KEY_MAX];
    object_key((enum object_kind)o->kind, &o->name, key);
    int rc = store_stat(c->from, key, &item);
    if (rc == -ENOENT)
        return error_set(-EBADMSG, "%s: %s is missing, so the image is not whole there; 'granary verify' says more",
                         c->from->url, key);
    if (rc)
        return rc;
    o->size = item.size;
    rc = store_stat(c->to, key, &target);
    if (rc || target.size != o->size) /* one of another length was truncated by an earlier writer */
        return rc == -ENOENT ? 0 : rc;
    return is_same(c, &item, &target, &o->there);
}

/* Order missing objects first. */
static int compare_there(const void *a, const void *b)
{
    const struct object *x = a, *y = b;
    return x->there != y->there ? (int)x->there - (int)y->there : compare_objects(a, b);
}

/* Step 3: compare all objects, and move the missing ones to the front. */
static int look_at_all(struct copying *c)
{
    int rc = in_parallel(c, c->objects.len, copy_look);
    if (rc)
        return rc;
    qsort(c->objects.items, c->objects.len, sizeof *c->objects.items, compare_there);
    for (size_t i = 0; i < c->objects.len; i++) {
        const struct object *o = &c->objects.items[i];
        c->result->bytes += o->size;
        c->missing += !o->there;
        c->to_send += o->there ? 0 : o->size;
    }
    c->result->objects = c->objects.len;
    return 0;
}

/* ------------------------------------------------------------------ copying */

/* Wait until there is memory for an object. The first one always fits, so that a large object cannot block forever. */
static void hold(struct copying *c, uint64_t size)
{
    SCOPED_LOCK(&c->lock);
    while (c->held && (size > c->memory || c->held > c->memory - size))
        pthread_cond_wait(&c->room, &c->lock);
    c->held += size;
}

static void let_go(struct copying *c, uint64_t size, bool arrived)
{
    SCOPED_LOCK(&c->lock);
    c->held -= size;
    if (arrived) {
        c->bytes += size;
        c->result->objects_copied++;
    }
    pthread_cond_broadcast(&c->room);
}

/* A get into memory that can be cancelled. */
struct receiving {
    const struct copying *c;
    struct bytes *body;
};

static int copy_receive(void *arg, const void *data, size_t len)
{
    struct receiving *r = arg;
    /* An interrupt does not wait for the end of a large object. */
    int rc = cancel_check(r->c->options->cancel);
    return rc ? rc : bytes_append(r->body, data, len);
}

/* Get an object from the source, check it, put it into the target. */
static int send_object(struct copying *c, const struct object *o)
{
    char key[OBJECT_KEY_MAX];
    CLEANUP_BYTES body = BYTES_INIT(o->size);
    struct receiving receiving = {.c = c, .body = &body};
    object_key((enum object_kind)o->kind, &o->name, key);
    int rc = store_get(c->from, key, 0, o->size, copy_receive, &receiving);
    if (rc)
        return rc;
    struct digest found = digest_of(body.data, body.len);
    if (!digest_equal(&found, &o->name))
        return error_set(-EBADMSG, "%s: %s: digest differs: the object is damaged; 'granary verify --deep' says more",
                         c->from->url, key);
    /* ALWAYS, because the target's object may be there but truncated. */
    const struct store_put put = {
        .key = key, .data = body.data, .len = body.len, .sha256 = &o->name, .mode = STORE_PUT_ALWAYS};
    return store_put(c->to, &put);
}

static int copy_one(void *arg, size_t i)
{
    struct copying *c = arg;
    const struct object *o = &c->objects.items[i];
    hold(c, o->size);
    int rc = send_object(c, o);
    let_go(c, o->size, !rc);
    return rc;
}

/* ------------------------------------------------------------------ publishing */

/* Check that an object is still in the target: if it was there before, and if the lease has lapsed also if we put it.
 */
static int still_there(void *arg, size_t i)
{
    struct copying *c = arg;
    const struct object *o = &c->objects.items[i];
    struct store_item item;
    char key[OBJECT_KEY_MAX];
    if (!o->there && !c->lapses)
        return 0;
    int rc = store_stat(c->to, object_key((enum object_kind)o->kind, &o->name, key), &item);
    if (rc == -ENOENT)
        return error_set(-EAGAIN, "%s: %s was removed meanwhile, by a garbage collection; run the same command again",
                         c->to->url, key);
    return rc;
}

/* Remove gc's marks from the image's objects. Those that were put first may be older than the grace period by now. */
static int unmark(struct copying *c)
{
    const struct step step = {.call = copy_step, .arg = c};
    CLEANUP_DIGEST_MAP names = {0};
    int rc = 0;
    for (size_t i = 0; i < c->objects.len && rc >= 0; i++)
        rc = digest_map_add(&names, &c->objects.items[i].name, 0);
    struct digest image = digest_of(c->manifest_text.data, c->manifest_text.len);
    if (rc >= 0)
        rc = digest_map_add(&names, &image, 0);
    return rc < 0 ? rc : gc_unmark(c->to, &names, &step);
}

/* Put the build tag and the requested tag. */
static int publish_tags(struct copying *c, const struct digest *image, const struct copy_name *name)
{
    struct tag tag = {.digest = *image,
                      .content_root = c->manifest.content_root,
                      .created = name->created ? name->created : time(NULL),
                      .parent = name->parent,
                      .source = name->source};
    /* Under its own name the signature stays; the build tag gets none. */
    snprintf(tag.name, sizeof tag.name, "%s", name->name);
    snprintf(tag.tag, sizeof tag.tag, "%s", name->tag);
    snprintf(tag.signature, sizeof tag.signature, "%s", name->signature ? name->signature : "");
    snprintf(tag.provenance, sizeof tag.provenance, "%s", name->provenance ? name->provenance : "");
    return repository_publish_both(c->to, name->name, name->tag, &tag, c->options->strict_tags, c->result->unique_tag);
}

/* Step 5, once. */
static int put_manifest(struct copying *c, const struct digest *image)
{
    enum repository_found found;
    int rc = in_parallel(c, c->objects.len, still_there);
    if (!rc)
        rc = repository_put_object(c->to, OBJECT_MANIFEST, c->manifest_text.data, c->manifest_text.len, image, NULL,
                                   &found);
    if (!rc)
        rc = unmark(c);
    return rc ? rc : copy_step(c);
}

/* Steps 5 and 6. */
static int publish(struct copying *c, const struct digest *image, const struct copy_name *name)
{
    int rc;
    do {
        c->lapses = lease_lapses(c->lease);
        rc = put_manifest(c, image);
    } while (!rc && lease_lapses(c->lease) != c->lapses);
    if (!rc)
        rc = nesting_check_again(c->to, &c->options->place);
    if (!rc)
        rc = publish_tags(c, image, name);
    if (!rc)
        rc = lease_renew(c->lease);
    return rc ? rc : lease_check_held(c->lease, c->lapses);
}

/* The steps. The lease begins before the target is looked at, so nothing found there can be removed by gc. */
static int copy_run(struct copying *c, const struct digest *image, const struct copy_name *name)
{
    char called[2 * IMAGE_NAME_MAX];
    int rc = repository_manifest_text(c->from, image, &c->manifest, &c->manifest_text);
    if (!rc)
        rc = nesting_enter(c->to, &c->options->place);
    snprintf(called, sizeof called, "%s:%s", name->name, name->tag);
    if (!rc)
        rc = lease_begin(c->to, &c->options->place, called, c->options->cancel, &c->lease);
    if (!rc)
        rc = copy_collect(c);
    if (!rc)
        rc = look_at_all(c);
    if (!rc)
        rc = in_parallel(c, c->missing, copy_one);
    return rc ? rc : publish(c, image, name);
}

int copy_image(struct store *from, const struct digest *image, struct store *to, const struct copy_name *name,
               const struct copy_options *options, struct copy_result *out)
{
    *out = (struct copy_result){0};
    struct copying c CLEANUP(copy_release) = {.from = from,
                                              .to = to,
                                              .options = options,
                                              .result = out,
                                              .manifest_text = BYTES_INIT(MANIFEST_MAX),
                                              .memory = options->memory ? options->memory : COPY_MEMORY,
                                              .lock = PTHREAD_MUTEX_INITIALIZER,
                                              .room = PTHREAD_COND_INITIALIZER};
    int rc = copy_run(&c, image, name);
    out->bytes_copied = c.bytes;
    return rc;
}
