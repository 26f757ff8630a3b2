/* The table of exports: an array in the order of adding, guarded by the stack's lock, which is never held across I/O.
 *
 *   resolved, opened --stack_link--> listed --stack_remove (no client)--> unlisted --last reference--> freed
 *
 * A walk goes from number to number, so exports that come and go meanwhile do not mislead it. When an image is
 * removed, its totals stay in stack.removed.
 *
 * Adding does its I/O before it links the export, so that two threads may add the same image at once; the second one
 * then drops its own and gets the first one's. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "format/export_table.h"
#include "stack_internal.h"

enum { INDEX_MEMORY_DEFAULT = 64 << 20 };

/* ---- the table ---- */

void stack_put(struct stack_export *e)
{
    if (!e || atomic_fetch_sub(&e->refs, 1) != 1)
        return;
    image_close(e->image);
    stack_export_leave_store(e);
    s3_keys_unref(e->keys);
    bytes_release(&e->proof);
    free(e->name);
    free(e);
}

struct stack_export *stack_ref(struct stack_export *e)
{
    atomic_fetch_add(&e->refs, 1);
    return e;
}

/* Return the export of that name, borrowed from the table, or NULL. */
static struct stack_export *stack_exports_find_locked(struct stack *s, const char *name)
{
    /* The default export of the NBD protocol. */
    if (!*name && s->exports.len == 1)
        return s->exports.items[0];
    for (size_t i = 0; i < s->exports.len; i++)
        if (!strcmp(s->exports.items[i]->name, name))
            return s->exports.items[i];
    return stack_names_find_locked(s, name);
}

struct stack_export *stack_get(struct stack *s, const char *name)
{
    SCOPED_LOCK(&s->lock);
    struct stack_export *e = stack_exports_find_locked(s, name);
    return e ? stack_ref(e) : NULL;
}

struct stack_export *stack_connect(struct stack *s, const char *name)
{
    SCOPED_LOCK(&s->lock);
    struct stack_export *e = stack_exports_find_locked(s, name);
    if (!e)
        return NULL;
    /* Under the lock: stack_remove either sees this client, or has removed the export already. */
    atomic_fetch_add(&e->clients, 1);
    return stack_ref(e);
}

void stack_disconnect(struct stack_export *e)
{
    atomic_store(&e->left_ms,
                 clock_now_ms()); /* first: a thread that sees no client then sees when the last one left */
    atomic_fetch_sub(&e->clients, 1);
    stack_put(e);
}

/* Return the index of the first export with a greater number. */
static size_t place_after_locked(struct stack *s, uint64_t number)
{
    size_t low = 0, high = s->exports.len;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->exports.items[middle]->number > number)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static struct stack_export *next(struct stack *s, uint64_t number)
{
    SCOPED_LOCK(&s->lock);
    size_t i = place_after_locked(s, number);
    return i < s->exports.len ? stack_ref(s->exports.items[i]) : NULL;
}

struct stack_export *stack_next(struct stack *s, struct stack_export *after)
{
    struct stack_export *e = next(s, after ? after->number : 0);
    stack_put(after);
    return e;
}

size_t stack_count(struct stack *s)
{
    SCOPED_LOCK(&s->lock);
    return s->exports.len;
}

int stack_link(struct stack *s, struct stack_export *e, struct stack_export **out_there)
{
    SCOPED_LOCK(&s->lock);
    for (size_t i = 0; i < s->exports.len; i++)
        if (!strcmp(s->exports.items[i]->name, e->name)) {
            *out_there = stack_ref(s->exports.items[i]);
            return -EEXIST;
        }
    if (stack_followed_as(s, e->name))
        return error_set(-EEXIST, "the export '%s' is there already: it follows a tag; choose another name", e->name);
    if (s->exports.len == STACK_EXPORTS_MAX)
        return error_set(-ENOSPC, "a server has at most %d exports; remove one, or start another server",
                         STACK_EXPORTS_MAX);
    int rc = stack_quota_claim_locked(s, e);
    if (rc)
        return rc;
    /* Numbers ascend, so the array stays sorted by them. */
    e->number = s->numbers + 1;
    if (vec_push(&s->exports, e))
        return -ENOMEM;
    rc = stack_quota_apply_locked(s, &e->ref);
    if (rc) {
        s->exports.len--;
        return rc;
    }
    s->numbers++;
    return 0;
}

/* ---- one export ---- */

uint64_t stack_export_number(const struct stack_export *e)
{
    return e->number;
}

const char *stack_export_name(const struct stack_export *e)
{
    return e->name;
}

struct image *stack_export_image(const struct stack_export *e)
{
    return e->image;
}

const struct image_ref *stack_export_ref(const struct stack_export *e)
{
    return &e->ref;
}

unsigned stack_export_clients(const struct stack_export *e)
{
    return atomic_load(&e->clients);
}

uint64_t stack_export_left_ms(const struct stack_export *e)
{
    return atomic_load(&e->left_ms);
}

struct s3_keys *stack_export_keys(const struct stack_export *e)
{
    return e->keys;
}

const struct bytes *stack_export_proof(const struct stack_export *e)
{
    return &e->proof;
}

bool stack_export_fenced(const struct stack_export *e)
{
    return e->fenced;
}

uint64_t stack_export_quota(const struct stack_export *e)
{
    return e->quota;
}

bool stack_export_unwarmed(const struct stack_export *e)
{
    return e->unwarmed;
}

/* ---- adding ---- */

/* Check an export's name: it appears in NBD's handshake, in URLs, in log lines, and in FUSE as a directory entry. */
static int check_name(const char *name)
{
    bool printable = true;
    for (const char *p = name; *p; p++)
        printable = printable && (unsigned char)*p >= ' ' && *p != 0x7f;
    if (!*name)
        return error_set(-EINVAL, "image: an export's name is empty; write image=NAME=STORE/IMAGE");
    if (strlen(name) > STACK_EXPORT_NAME_MAX)
        return error_set(-EINVAL, "the name of an export has at most %d bytes", STACK_EXPORT_NAME_MAX);
    if (!printable || strchr(name, '/'))
        return error_set(-EINVAL, "the export's name '%.100s' contains '/' or a control character; choose another",
                         name);
    return 0;
}

int stack_export_new(struct stack *s, const struct stack_image *image, struct resolver *resolver,
                     struct stack_export **out)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = calloc(1, sizeof *e);
    if (!e)
        return error_no_memory();
    e->refs = 1;
    e->stack = s;
    e->proof = (struct bytes)BYTES_INIT(EXPORT_TABLE_MAX);
    e->fenced = image->fenced;
    e->quota = image->quota;
    e->unwarmed = image->unwarmed;
    if (e->fenced && !s->config.cache.dir_count && !s->config.cache.memory)
        return error_set(-EINVAL, "fence=warmed needs a cache, or nothing can be read; this server has none");
    if (e->quota && !s->config.cache.dir_count)
        return error_set(-EDQUOT, "a quota is of the chunks in a cache directory; this server has none");
    int rc = image_ref_parse(image->ref, &e->ref);
    if (!rc && image->keys)
        rc = s3_keys_copy(image->keys, &e->keys);
    if (rc)
        return rc;
    e->name = strdup(image->export_name ? image->export_name : e->ref.name);
    if (!e->name)
        return error_no_memory();
    rc = check_name(e->name);
    if (rc)
        return rc;
    /* From here on the reference is by digest: a tag that moves later changes nothing. */
    rc = resolver_resolve(resolver, &e->ref);
    if (!rc)
        rc = stack_names_check(e);
    if (!rc)
        *out = steal_ptr(&e);
    return rc;
}

/* Return each image's share of the index memory. */
static size_t index_memory(const struct stack *s, size_t exports)
{
    size_t memory = s->config.index_memory ? s->config.index_memory : INDEX_MEMORY_DEFAULT;
    return memory / GR_MAX(exports, (size_t)1);
}

int stack_export_open(struct stack *s, struct resolver *resolver, struct stack_export *e)
{
    struct manifest manifest;
    int rc = resolver_manifest(resolver, &e->ref, &manifest);
    if (rc)
        return rc;
    const struct image_config image = {
        .cache = s->cache,
        .store = e->store,
        .manifest = &manifest,
        .index_memory = index_memory(s, stack_count(s)),
        .quota = cache_quota(s->cache, e->ref.name), /* the configuration's */
        .fenced = e->fenced,
        .readahead = e->fenced ? 0 : s->config.readahead, /* it would fetch */
        .latency = &s->reads,
        .slow = &s->slow,
    };
    rc = e->keys ? resolver_hand(resolver, &e->proof) : 0;
    if (!rc)
        rc = image_open(&image, &e->ref.digest, &e->image);
    return rc || !s->ahead || e->fenced ? rc : ahead_add(s->ahead, e->image);
}

/* Share the index memory anew after the number of exports changed. */
static void share_index_memory(struct stack *s)
{
    size_t share = index_memory(s, stack_count(s));
    for (struct stack_export *e = NULL; (e = stack_next(s, e));)
        image_set_index_memory(e->image, share);
}

/* Replace the keys of an export by those of a later request, which have read the same manifest. A request that asks for
 * no fence, no quota or no warming takes the export as it is. */
static int take_keys(struct stack_export *there, const struct stack_export *mine)
{
    char text[TEXT_SIZE_MAX];
    if (mine->quota && mine->quota != there->quota)
        return error_set(
            -EDQUOT,
            "the export '%s' is there without a quota of %s; unmount or remove it first, or choose another "
            "name",
            there->name, text_format_size(mine->quota, text));
    if (mine->fenced && !there->fenced)
        return error_set(-EPERM,
                         "the export '%s' is there without fence=warmed; unmount or remove it first, or choose another "
                         "name",
                         there->name);
    if (there->keys && mine->keys)
        return s3_keys_replace(there->keys, mine->keys);
    if (!there->keys && !mine->keys)
        return 0;
    return error_set(-EPERM,
                     there->keys ? "the export '%s' has keys of its own; send keys that read its image"
                                 : "the export '%s' is there without keys of its own, and gets none; unmount or remove "
                                   "it first, or choose another name",
                     there->name);
}

/* Replace the keys of an export that is there by those of a later request for the same image, once these have read its
 * manifest. *out NULL: there is none. */
static int replace_keys(struct stack *s, struct resolver *resolver, const struct stack_export *mine,
                        struct stack_export **out)
{
    struct manifest read;
    CLEANUP(cleanup_stack_export) struct stack_export *there = stack_get(s, mine->name);
    *out = NULL;
    if (!there || !digest_equal(&there->ref.digest, &mine->ref.digest))
        return 0;
    int rc = resolver_manifest(resolver, &mine->ref, &read);
    if (!rc)
        rc = take_keys(there, mine);
    if (!rc)
        *out = steal_ptr(&there);
    return rc;
}

/* Link the export, or return the one of the same image that is there already. Takes over *e if it is linked. */
static int stack_exports_enter(struct stack *s, struct stack_export **e, struct stack_export **out, bool *out_added)
{
    /* The table takes over *e; `mine` becomes the caller's reference. */
    CLEANUP(cleanup_stack_export) struct stack_export *there = NULL, *mine = stack_ref(*e);
    int rc = stack_link(s, *e, &there);
    if (rc == -EEXIST && there && digest_equal(&there->ref.digest, &mine->ref.digest)) {
        rc = take_keys(there, mine);
        if (rc)
            return rc;
        *out = steal_ptr(&there);
        *out_added = false;
        return 0;
    }
    if (rc == -EEXIST && there) {
        char hex[DIGEST_HEX_SIZE];
        return error_set(rc, "the export '%s' is there already, of another image (sha256:%s)", mine->name,
                         digest_hex(&there->ref.digest, hex));
    }
    if (rc)
        return rc;
    steal_ptr(e);
    *out = steal_ptr(&mine);
    *out_added = true;
    return 0;
}

const struct resolver_config *stack_resolving(const struct stack *s, const struct stack_image *image,
                                              const volatile int *cancel, struct stack_resolving *out)
{
    const struct cache_config *cache = &s->config.cache;
    *out = (struct stack_resolving){
        .config = {
            .dirs = out->dirs, .store = s->config.store, .trust = &s->config.trust, .resolved = s->config.resolved}};
    if (cancel)
        out->config.store.cancel = cancel;
    if (image && image->keys) {
        /* No tables: what other keys have read proves nothing for these, and the reverse. */
        out->config.store.keys = image->keys;
        out->config.proof = image->proof;
        return &out->config;
    }
    out->config.handed = s->config.handed;
    out->config.dir_count = GR_MIN(cache->dir_count, (size_t)CACHE_DIRS_MAX);
    for (size_t i = 0; i < out->config.dir_count; i++)
        out->dirs[i] = cache->dirs[i].path;
    return &out->config;
}

/* A run of additions with one resolver. */
struct stack_adding {
    struct stack *stack;
    struct stack_resolving resolving;
    struct resolver *resolver;
    bool added; /* at least one export was added */
};

/* image: as for stack_resolving. */
static int begin_adding(struct stack *s, const struct stack_image *image, const volatile int *cancel,
                        struct stack_adding **out)
{
    CLEANUP_FREE struct stack_adding *a = calloc(1, sizeof *a);
    if (!a)
        return error_no_memory();
    a->stack = s;
    int rc = resolver_new(stack_resolving(s, image, cancel, &a->resolving), &a->resolver);
    if (!rc)
        *out = steal_ptr(&a);
    return rc;
}

int stack_adding_begin(struct stack *s, const volatile int *cancel, struct stack_adding **out)
{
    return begin_adding(s, NULL, cancel, out);
}

int stack_adding_add(struct stack_adding *a, const struct stack_image *image, struct stack_export **out,
                     bool *out_added)
{
    struct stack *s = a->stack;
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    /* All I/O first, then the table. */
    int rc = stack_export_new(s, image, a->resolver, &e);
    if (!rc && e->keys) {
        rc = replace_keys(s, a->resolver, e, out);
        if (rc || *out) {
            *out_added = false;
            return rc;
        }
    }
    if (!rc)
        rc = stack_export_add_store(s, e);
    if (!rc)
        rc = stack_export_open(s, a->resolver, e);
    if (!rc)
        rc = stack_exports_enter(s, &e, out, out_added);
    /* Not linked: undo what stack_export_open registered. */
    if (e && e->image && s->ahead)
        ahead_remove(s->ahead, e->image);
    a->added |= !rc && *out_added;
    return rc;
}

/* Under `noting`, because another run may have written the tables since ours began. */
static void note_added(struct stack_adding *a)
{
    struct error before; /* the failure that ended the run */
    error_take(&before, 0);
    share_index_memory(a->stack);
    {
        SCOPED_LOCK(&a->stack->noting);
        resolver_reread(a->resolver);
        resolver_save(a->resolver);
    }
    (void)error_restore(&before);
}

void stack_adding_end(struct stack_adding *a)
{
    if (!a)
        return;
    if (a->added)
        note_added(a);
    resolver_free(a->resolver);
    free(a);
}

int stack_add(struct stack *s, const struct stack_image *image, const volatile int *cancel, struct stack_export **out,
              bool *out_added)
{
    CLEANUP(cleanup_stack_adding) struct stack_adding *a = NULL;
    int rc = begin_adding(s, image, cancel, &a);
    return rc ? rc : stack_adding_add(a, image, out, out_added);
}

/* ---- removing ---- */

/* Add a removed image's totals to s->removed; gauges, which have no _total in their name, vanish with it. */
static void keep_totals_locked(struct stack *s, struct image *img)
{
    static const char end[] = "_total";
    stack_sums_add(&s->removed, img);
    for (size_t i = 0; i < s->removed.count; i++) {
        size_t len = strlen(s->removed.rows[i].name);
        if (len < sizeof end - 1 || strcmp(s->removed.rows[i].name + len - (sizeof end - 1), end) != 0)
            s->removed.rows[i].value = 0;
    }
}

/* Take an export out of the table; its reference passes to *out. An empty name is no shorthand here. */
static int unlink_locked(struct stack *s, const char *name, struct stack_export **out)
{
    struct stack_export *e = *name ? stack_exports_find_locked(s, name) : NULL;
    if (!e || strcmp(e->name, name) != 0)
        return error_set(-ENOENT, "there is no export '%.100s' here", name);
    for (size_t i = 0; i < s->followed.len; i++)
        if (s->followed.items[i].to == e)
            return error_set(-EBUSY, "the export '%.100s' is the version that '%.100s' leads to, which follows a tag",
                             name, s->followed.items[i].name);
    unsigned clients = stack_export_clients(e);
    if (clients)
        return error_set(-EBUSY, "the export '%.100s' has %u connections open; it can be removed when they are closed",
                         name, clients);
    size_t i = place_after_locked(s, e->number - 1);
    memmove(&s->exports.items[i], &s->exports.items[i + 1], (s->exports.len - i - 1) * sizeof e);
    s->exports.len--;
    keep_totals_locked(s, e->image);
    *out = e;
    image_set_quota(e->image, 0);
    return stack_quota_apply_locked(s, &e->ref); /* never fails: none of the quotas that are left is new */
}

int stack_remove(struct stack *s, const char *name)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    {
        SCOPED_LOCK(&s->lock);
        int rc = unlink_locked(s, name, &e);
        if (rc)
            return rc;
    }
    /* Other threads may still hold references; completion ends now, and so do requests with the export's own keys. */
    if (e->keys)
        s3_keys_wipe(e->keys);
    if (s->ahead)
        ahead_remove(s->ahead, e->image);
    share_index_memory(s);
    return 0;
}
