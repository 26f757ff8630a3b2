/* Garbage collection: mark and sweep over a store that others use at the same time. One run:
 *
 *   1 leases   count the live ones, remove the dead
 *   2 live     read every tag and walk every image: the names of all objects that are needed. Nothing has been
 *              written so far, and a failure ends the run here
 *   3 untag    remove the tags that keep_last gives up
 *   4 list     compare every object with the live set and the marks: mark, unmark, keep, or remember as eligible
 *              (marked at least a grace period ago)
 *   5 sweep    announce it (lease.h), look for leases and new tags once more, remove the eligible objects that are
 *              still not needed; stop as soon as a lease appears
 *
 * An object is removed before its mark, so a crash leaves at worst a mark without an object, which the next run
 * removes. Manifests are removed first and packs last, so an image disappears before it becomes incomplete.
 *
 * The age of a mark is checked twice: by the store's time of the mark, and by the time inside it. If one clock is
 * wrong, the object stays. */
#include "upkeep/upkeep.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/log.h"
#include "format/json_doc.h"
#include "repository/gc_marks.h"
#include "repository/lease.h"
#include "repository/repository.h"

enum {
    MARK_MAX = 4096,
    SWEEP_BATCH = 16, /* removals between two checks for leases */
};

/* An object whose mark is old enough. */
struct eligible {
    struct digest name;
    enum object_kind kind;
    uint64_t size;
};

/* One run. One thread. */
struct gc {
    struct store *store;
    const struct gc_options *options;
    struct gc_result *result;
    int64_t now;
    struct digest_map live;
    struct digest_map marks; /* value: mtime of the mark, or MARK_SEEN once its object was listed */
    VEC(struct eligible) eligible;
    enum object_kind kind; /* kind of the objects being listed */
};

#define MARK_SEEN INT64_MIN

static void gc_release(struct gc *g)
{
    digest_map_release(&g->live);
    digest_map_release(&g->marks);
    vec_release(&g->eligible);
}

/* Called between requests, wherever there are many. */
static int gc_check_cancel(void *arg)
{
    const struct gc *g = arg;
    return cancel_check(g->options->cancel);
}

/* Add what the images of these tags need to the live set. */
static int add_live(struct gc *g, const struct gc_tags *tags, uint64_t *images)
{
    const struct step step = {.call = gc_check_cancel, .arg = g};
    return gc_live_add(g->store, tags, &step, &g->live, images);
}

/* Mark the object being listed. */
static int put_mark(struct gc *g, enum object_kind kind, const struct digest *name)
{
    char key[OBJECT_KEY_MAX], object[OBJECT_KEY_MAX];
    CLEANUP_BYTES doc = BYTES_INIT(MARK_MAX);
    CLEANUP_JSON json_t *root = json_pack("{s:s, s:i, s:s, s:I}", "format", "granary-trash", "version", 1, "key",
                                          object_key(kind, name, object), "marked", (json_int_t)g->now);
    int rc = json_doc_dump("trash mark", root, &doc);
    const struct store_put put = {
        .key = gc_mark_key(name, key), .data = doc.data, .len = doc.len, .mode = STORE_PUT_ALWAYS};
    return rc ? rc : store_put(g->store, &put);
}

/* Remove an object's mark, except in a dry run. */
static int remove_mark(struct gc *g, const struct digest *name)
{
    char key[OBJECT_KEY_MAX];
    return g->options->dry_run ? 0 : store_remove(g->store, gc_mark_key(name, key));
}

/* Set *out to whether the mark itself says that this object was marked a grace period ago. Not for an unreadable
 * mark. */
static int mark_is_eligible(struct gc *g, const struct eligible *r, bool *out)
{
    char key[OBJECT_KEY_MAX], object[OBJECT_KEY_MAX], said[OBJECT_KEY_MAX];
    CLEANUP_BYTES text = BYTES_INIT(MARK_MAX);
    CLEANUP_JSON json_t *root = NULL;
    struct json_doc doc = {.what = "trash mark"};
    *out = false;
    int rc = store_get_small(g->store, gc_mark_key(&r->name, key), &text, NULL);
    if (rc)
        return rc == -ENOENT || rc == -EMSGSIZE ? 0 : rc;
    if (json_doc_parse(&doc, text.data, text.len, MARK_MAX, &root))
        return 0;
    json_doc_check_format(&doc, root, "granary-trash", 1);
    json_doc_string(&doc, root, "key", said, sizeof said);
    int64_t marked = json_doc_int(&doc, root, "marked", 0, INT64_MAX);
    *out = !doc.rc && !strcmp(said, object_key(r->kind, &r->name, object)) && marked <= g->now - g->options->grace_s;
    return 0;
}

/* Note a listed mark with the store's time of it. */
static int collect_mark(void *arg, const struct store_item *item)
{
    struct gc *g = arg;
    struct digest name;
    int rc = gc_mark_key_parse(item->key, &name) ? digest_map_add(&g->marks, &name, item->mtime) : 0;
    return rc < 0 ? rc : 0;
}

/* Decide about an object that is not needed and older than the grace period: mark it, keep it, or remember it as
 * eligible. */
static int consider(struct gc *g, const struct digest *name, const struct store_item *item, struct digest_slot *mark)
{
    struct gc_result *result = g->result;
    if (!mark) {
        result->marked++;
        result->marked_bytes += item->size;
        return g->options->dry_run ? 0 : put_mark(g, g->kind, name);
    }
    struct eligible eligible = {.name = *name, .kind = g->kind, .size = item->size};
    /* The listed time is checked first, so that only old marks are read. */
    bool due = false;
    int rc = mark->value <= g->now - g->options->grace_s ? mark_is_eligible(g, &eligible, &due) : 0;
    mark->value = MARK_SEEN;
    if (rc || !due) {
        result->waiting++;
        return rc;
    }
    return vec_push(&g->eligible, eligible);
}

/* Decide about a listed object. */
static int judge_object(void *arg, const struct store_item *item)
{
    struct gc *g = arg;
    struct digest name;
    enum object_kind kind;
    int rc = gc_check_cancel(g);
    if (rc)
        return rc;
    if (object_key_parse(item->key, &kind, &name) || kind != g->kind || digest_is_zero(&name))
        return 0; /* another program's file */
    g->result->objects++;
    struct digest_slot *mark = digest_map_find(&g->marks, &name);
    bool needed = digest_map_find(&g->live, &name);
    if (!needed && g->now - item->mtime >= g->options->grace_s)
        return consider(g, &name, item, mark);
    (*(needed ? &g->result->needed : &g->result->young))++;
    if (!mark)
        return 0;
    mark->value = MARK_SEEN;
    g->result->unmarked++;
    return remove_mark(g, &name);
}

/* Remove marks whose object is gone: a crash came between the two removals. */
static int remove_stray_marks(struct gc *g)
{
    int rc = 0;
    for (const struct digest_slot *slot = NULL; !rc && (slot = digest_map_next(&g->marks, slot));)
        if (slot->value != MARK_SEEN)
            rc = remove_mark(g, &slot->key);
    return rc;
}

/* Step 4: read the marks, then list the objects of each kind. */
static int list_objects(struct gc *g)
{
    int rc = store_list(g->store, GC_MARKS_PREFIX, collect_mark, g);
    for (int kind = 0; kind < OBJECT_KINDS && !rc; kind++) {
        char prefix[OBJECT_KEY_MAX];
        g->kind = (enum object_kind)kind;
        snprintf(prefix, sizeof prefix, "%s/", object_kind_prefix(g->kind));
        rc = store_list(g->store, prefix, judge_object, g);
    }
    return rc ? rc : remove_stray_marks(g);
}

/* Step 3. A tag that was removed meanwhile counts too. */
static int untag(struct gc *g, const struct gc_tags *tags)
{
    for (size_t i = 0; i < tags->list.len; i++) {
        const struct gc_tag *t = &tags->list.items[i];
        if (!t->expired)
            continue;
        int rc = gc_check_cancel(g);
        if (!rc && !g->options->dry_run)
            rc = repository_remove_tag(g->store, t->name, t->tag);
        if (rc && rc != -ENOENT)
            return rc;
        g->result->tags_removed++;
    }
    return 0;
}

/* Count the live leases into the result. Dead ones are removed, except in a dry run. */
static int count_leases(struct gc *g, bool forget_dead)
{
    return lease_count_live(g->store, g->now, g->options->grace_s, forget_dead && !g->options->dry_run,
                            &g->result->live_leases);
}

/* Remove an eligible object, or unmark it if a new image needs it. */
static int sweep_one(struct gc *g, const struct eligible *r)
{
    char key[OBJECT_KEY_MAX];
    if (digest_map_find(&g->live, &r->name)) {
        g->result->needed++;
        g->result->unmarked++;
        return remove_mark(g, &r->name);
    }
    int rc = g->options->dry_run ? 0 : store_remove(g->store, object_key(r->kind, &r->name, key));
    if (!rc)
        rc = remove_mark(g, &r->name);
    if (!rc) {
        g->result->swept++;
        g->result->swept_bytes += r->size;
    }
    return rc;
}

/* The order of removal: manifests, catalog pages, index nodes, packs; that is `enum object_kind` backwards. */
static int compare_eligible(const void *a, const void *b)
{
    const struct eligible *x = a, *y = b;
    return x->kind != y->kind ? (int)y->kind - (int)x->kind : memcmp(x->name.b, y->name.b, DIGEST_SIZE);
}

/* Sweep, after the announcement. A lease that was written before it is counted here, and a build that begins after it
 * waits. What was published since step 2 has a tag, and is added to the live set here. */
static int sweep_announced(struct gc *g, struct lease_handle *sweep)
{
    CLEANUP_GC_TAGS tags = {0};
    int rc = count_leases(g, false);
    /* A dry run has not removed the tags that keep_last gives up: reading them would revive their images. */
    if (!rc && !g->result->live_leases && !g->options->dry_run)
        rc = gc_tags_read(g->store, 0, &tags);
    if (!rc)
        rc = add_live(g, &tags, NULL);
    size_t done = 0;
    for (; !rc && done < g->eligible.len && !g->result->live_leases; done++) {
        rc = gc_check_cancel(g);
        if (!rc && sweep)
            rc = lease_renew(sweep);
        /* A build that has begun now waits for us, so look often and stop soon. */
        if (!rc && done && done % SWEEP_BATCH == 0)
            rc = count_leases(g, false);
        if (rc || g->result->live_leases)
            break;
        rc = sweep_one(g, &g->eligible.items[done]);
    }
    g->result->waiting += g->eligible.len - done;
    return rc;
}

/* Sweep what is eligible, unless a build is running. */
static int sweep(struct gc *g)
{
    if (g->eligible.len == 0)
        return 0;
    qsort(g->eligible.items, g->eligible.len, sizeof *g->eligible.items, compare_eligible);
    if (g->result->live_leases) {
        g->result->waiting += g->eligible.len;
        return 0;
    }
    CLEANUP(cleanup_lease_handle) struct lease_handle *announced = NULL;
    int rc = g->options->dry_run ? 0 : lease_begin_sweep(g->store, &announced);
    return rc ? rc : sweep_announced(g, announced);
}

int gc_run(struct store *s, const struct gc_options *options, struct gc_result *out)
{
    memset(out, 0, sizeof *out);
    if (options->grace_s < 0)
        return error_set(-EINVAL, "gc: a grace period of %" PRId64 " seconds", options->grace_s);
    CLEANUP(gc_release)
    struct gc g = {.store = s, .options = options, .result = out, .now = options->now ? options->now : time(NULL)};
    CLEANUP_GC_TAGS tags = {0};
    /* A wrong URL must not pass for a store without tags, where every object is garbage. */
    int rc = repository_check(s, false);
    if (!rc)
        rc = count_leases(&g, true);
    if (!rc)
        rc = gc_tags_read(s, options->keep_last, &tags);
    if (!rc)
        rc = add_live(&g, &tags, &out->images);
    if (!rc)
        rc = untag(&g, &tags);
    if (!rc)
        rc = list_objects(&g);
    return rc ? rc : sweep(&g);
}
