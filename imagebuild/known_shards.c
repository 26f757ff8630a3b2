/* A member's validator is its shard's key (SOURCE_SHARD_KEY: "tar:...:") and its place in there. */
#include "imagebuild/known_shards.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "imagebuild/plan.h"
#include "store/catalog_cursor.h"
#include "store/digest_map.h"

/* What is known of a key, in its value. */
enum { UNCHANGED = 1, HAS_DIRECTORIES = 2 };

struct known_shards {
    struct known_shards_config config;
    struct digest_map keys;
    bool of_no_use;
};

/* The length of the shard's key in a validator; 0: it is no member's. */
static size_t key_len(const char *validator, size_t len)
{
    bool member = len > SOURCE_SHARD_KEY_LEN && !memcmp(validator, SOURCE_SHARD_KEY, strlen(SOURCE_SHARD_KEY));
    return member ? SOURCE_SHARD_KEY_LEN : 0;
}

/* Go through the parent's members. */
static int walk(struct known_shards *k, int (*visit)(struct known_shards *k, const struct catalog_entry *e, void *arg),
                void *arg)
{
    const struct known_shards_config *c = &k->config;
    CLEANUP(cleanup_catalog_cursor) struct catalog_cursor *cursor = NULL;
    const struct catalog_entry *e;
    int rc = catalog_cursor_new(c->store, c->parent, NULL, 0, CATALOG_CURSOR_AHEAD, &cursor);
    if (rc)
        return rc;
    for (uint64_t n = 1; (rc = catalog_cursor_next(cursor, &e)) == 1; n++) {
        rc = key_len(e->validator, e->validator_len) ? visit(k, e, arg) : 0;
        if (!rc && n % PLAN_STEP == 0)
            rc = c->step(c->step_arg);
        if (rc)
            return rc;
    }
    return rc && rc != -ECANCELED ? plan_parent_failed(rc) : rc;
}

static int take_key(struct known_shards *k, const struct catalog_entry *e, void *arg)
{
    struct digest key = digest_of(e->validator, SOURCE_SHARD_KEY_LEN);
    int rc = digest_map_add(&k->keys, &key, 0);
    if (rc < 0)
        return rc;
    if (S_ISDIR(e->mode))
        digest_map_find(&k->keys, &key)->value |= HAS_DIRECTORIES;
    return 0;
}

int known_shards_new(const struct known_shards_config *config, struct known_shards **out)
{
    CLEANUP(cleanup_known_shards) struct known_shards *k = calloc(1, sizeof *k);
    if (!k)
        return error_set(-ENOMEM, "build: out of memory");
    k->config = *config;
    int rc = walk(k, take_key, NULL);
    if (!rc)
        *out = steal_ptr(&k);
    return rc;
}

void known_shards_free(struct known_shards *k)
{
    if (k)
        digest_map_release(&k->keys);
    free(k);
}

bool known_shards_has(void *arg, const char *key, size_t len)
{
    struct known_shards *k = arg;
    struct digest digest = digest_of(key, len);
    struct digest_slot *slot = k->of_no_use ? NULL : digest_map_find(&k->keys, &digest);
    if (slot)
        slot->value |= UNCHANGED;
    return slot;
}

/* Of the entries that several shards have for a directory the catalog has one. When that one goes, another counts, of
 * which nothing is known. */
bool known_shards_suffice(void *arg)
{
    struct known_shards *k = arg;
    for (size_t i = 0; i < k->keys.capacity && !k->of_no_use; i++)
        k->of_no_use = k->keys.slots[i].value == HAS_DIRECTORIES;
    return !k->of_no_use;
}

static int list_member(struct known_shards *k, const struct catalog_entry *e, void *listing)
{
    struct digest key = digest_of(e->validator, SOURCE_SHARD_KEY_LEN);
    const struct digest_slot *slot = digest_map_find(&k->keys, &key);
    if (k->of_no_use || !slot || !(slot->value & UNCHANGED))
        return 0;
    const struct source_entry entry = {.path = e->path,
                                       .path_len = e->path_len,
                                       .mode = e->mode,
                                       .uid = e->uid,
                                       .gid = e->gid,
                                       .size = e->size,
                                       .mtime = e->mtime,
                                       .mtime_nsec = e->mtime_nsec,
                                       .validator = e->validator,
                                       .validator_len = e->validator_len,
                                       .target = S_ISLNK(e->mode) ? e->target : NULL,
                                       .target_len = S_ISLNK(e->mode) ? e->target_len : 0};
    return listing_add(listing, &entry);
}

int known_shards_list(struct known_shards *k, struct listing *listing)
{
    return walk(k, list_member, listing);
}
