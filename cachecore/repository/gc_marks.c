/* Protects existing objects from gc on behalf of new images.
 *
 * A build shares its parent's objects without putting them. While its lease is live nothing is swept, so what was
 * whole when the lease began is whole at the end. But objects may have been marked meanwhile, when the parent's last
 * tag was removed, and then the next gc run would find their marks old enough. */
#include "repository/gc_marks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/vec.h"
#include "repository/gc_live.h"
#include "repository/repository.h"

char *gc_mark_key(const struct digest *name, char out[OBJECT_KEY_MAX])
{
    char hex[DIGEST_HEX_SIZE];
    snprintf(out, OBJECT_KEY_MAX, GC_MARKS_PREFIX "%s", digest_hex(name, hex));
    return out;
}

bool gc_mark_key_parse(const char *key, struct digest *out)
{
    const char *hex = key + strlen(GC_MARKS_PREFIX);
    return !digest_parse(hex, strlen(hex), out) && !digest_is_zero(out);
}

/* Set *out to whether the object is marked. */
static int is_marked(struct store *s, const struct digest *name, bool *out)
{
    char key[OBJECT_KEY_MAX];
    struct store_item item;
    int rc = store_stat(s, gc_mark_key(name, key), &item);
    *out = !rc;
    return rc == -ENOENT ? 0 : rc;
}

/* The marks to remove. They are collected first, so that no object is removed during the listing. */
struct unmarking {
    const struct digest_map *names;
    VEC(struct digest) marked;
};

static void unmarking_release(struct unmarking *u)
{
    vec_release(&u->marked);
}

static int collect_marked(void *arg, const struct store_item *item)
{
    struct unmarking *u = arg;
    struct digest name;
    if (!gc_mark_key_parse(item->key, &name) || !digest_map_find(u->names, &name))
        return 0;
    return vec_push(&u->marked, name) ? error_no_memory() : 0;
}

int gc_unmark(struct store *s, const struct digest_map *names, const struct gc_step *step)
{
    CLEANUP(unmarking_release) struct unmarking u = {.names = names};
    int rc = names->map.count ? store_list(s, GC_MARKS_PREFIX, collect_marked, &u) : 0;
    for (size_t i = 0; i < u.marked.len && !rc; i++) {
        char key[OBJECT_KEY_MAX];
        rc = store_remove(s, gc_mark_key(&u.marked.items[i], key));
        if (!rc)
            rc = gc_step_take(step);
    }
    return rc;
}

/* The sentence for a parent that lost an object. */
static int removed(const struct store *s, const char *what)
{
    return error_set(-EAGAIN,
                     "build: %s of the parent image is gone from %s (a garbage collection while the build stood still, "
                     "or before it?); nothing was published, run the build again, with --parent none if it persists",
                     what, s->url);
}

/* Give a listed object the value 1. */
static int note_present(void *arg, const struct store_item *item)
{
    enum object_kind kind;
    struct digest name;
    if (object_key_parse(item->key, &kind, &name) || digest_is_zero(&name))
        return 0;
    struct digest_slot *slot = digest_map_find(arg, &name);
    if (slot)
        slot->value = 1;
    return 0;
}

/* Check that all these packs and index nodes are in the store. Two listings cost less than a request for each
 * object. */
static int look_for(struct store *s, struct digest_map *names, const struct gc_step *step)
{
    int rc = store_list(s, "packs/", note_present, names);
    if (!rc)
        rc = gc_step_take(step);
    if (!rc)
        rc = store_list(s, "indexes/", note_present, names);
    for (struct digest_slot *slot = NULL; !rc && (slot = digest_map_next(names, slot));) {
        char hex[DIGEST_HEX_SIZE];
        if (!slot->value)
            rc = removed(s, digest_hex(&slot->key, hex));
    }
    return rc;
}

int gc_hold_parent(struct store *s, const struct digest *image, bool look, const struct gc_step *step)
{
    CLEANUP_DIGEST_MAP names = {0};
    struct manifest m;
    bool marked = false;
    int rc = repository_manifest(s, image, &m);
    if (!rc)
        /* One request looks up the manifest's mark. Only if there is one, the index is walked. */
        rc = is_marked(s, image, &marked);
    if (!rc && (look || marked))
        rc = gc_live_add_chunks(s, &m, step, &names);
    /* The manifest or a node is gone. */
    if (rc == -ENOENT)
        return removed(s, "something");
    if (!rc && look)
        rc = look_for(s, &names, step);
    if (!rc && names.map.count)
        rc = digest_map_add(&names, image, 0);
    return rc < 0 ? rc : gc_unmark(s, &names, step);
}

static int note_mark(void *arg, const struct store_item *item)
{
    struct digest name;
    *(bool *)arg |= gc_mark_key_parse(item->key, &name);
    return 0;
}

int gc_unmark_image(struct store *s, const struct digest *image, const struct gc_step *step)
{
    CLEANUP_DIGEST_MAP names = {0};
    bool marks = false;
    int rc = store_list(s, GC_MARKS_PREFIX, note_mark, &marks);
    if (rc || !marks)
        return rc;
    rc = gc_live_add_image(s, image, step, &names, NULL);
    return rc ? rc : gc_unmark(s, &names, step);
}
