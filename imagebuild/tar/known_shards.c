/* A member's validator is its shard's key (SOURCE_SHARD_KEY: "tar:...:") followed by its position in the shard. So
 * the catalog tells which shard a member came from, and a shard's key tells, without reading it, whether it has
 * changed.
 *
 *   new -> has (for each shard) -> suffice -> live, before data is written -> list
 */
#include "imagebuild/tar/tar.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/map.h"
#include "imagebuild/rebuild/rebuild_internal.h"
#include "repository/read/catalog_read.h"

/* Flags, the value of a key: */
enum { UNCHANGED = 1, HAS_DIRECTORIES = 2, DAMAGED = 4 };

struct known_shards {
    struct known_shards_config config;
    struct digest_map keys;
    struct digest_map linked;                           /* the first names of hard-linked members, numbered */
    bool of_no_use;                                     /* skipping shards would not be safe */
    struct catalog_extent extents[CATALOG_EXTENTS_MAX]; /* of the current entry */
};

/* Device number of hard-linked members listed from the catalog: unlike those of sources and of ingest.c
 * (LINKS_OF_ARCHIVES). */
#define LINKS_OF_KNOWN (UINT64_C(3) << 62)

/* Return the length of the shard's key in a validator; 0: it is not a member's. */
static size_t key_len(const char *validator, size_t len)
{
    bool member = len > SOURCE_SHARD_KEY_LEN && !memcmp(validator, SOURCE_SHARD_KEY, strlen(SOURCE_SHARD_KEY));
    return member ? SOURCE_SHARD_KEY_LEN : 0;
}

typedef int known_shards_visit(struct known_shards *k, const struct catalog_entry *e, void *arg);

/* Return the entry with its extents in the parent's address space. */
static struct catalog_entry moved_entry(struct known_shards *k, const struct parent_image *image,
                                        const struct catalog_entry *e)
{
    struct catalog_entry moved = *e;
    for (uint32_t i = 0; i < e->extent_count; i++) {
        k->extents[i] = e->extents[i];
        k->extents[i].offset += image->begin;
    }
    moved.extents = k->extents;
    return moved;
}

/* Visit all entries of an image's catalog. */
static int known_shards_walk_image(struct known_shards *k, const struct parent_image *image, known_shards_visit *visit,
                                   void *arg)
{
    const struct known_shards_config *c = &k->config;
    CLEANUP(cleanup_catalog_cursor) struct catalog_cursor *cursor = NULL;
    const struct catalog_entry *e;
    int rc = catalog_cursor_new(c->store, &image->manifest, NULL, 0, CATALOG_CURSOR_AHEAD, &cursor);
    if (rc)
        return rc;
    for (uint64_t n = 1; (rc = catalog_cursor_next(cursor, &e)) == 1; n++) {
        const struct catalog_entry moved = moved_entry(k, image, e);
        rc = visit(k, &moved, arg);
        if (!rc && n % PLAN_STEP == 0)
            rc = step_take(&c->step);
        if (rc)
            return rc;
    }
    return rc && rc != -ECANCELED ? parent_failed(rc) : rc;
}

/* Visit all entries of the parent's catalogs. */
static int known_shards_walk(struct known_shards *k, known_shards_visit *visit, void *arg)
{
    int rc = 0;
    for (size_t i = 0; i < k->config.image_count && !rc; i++)
        rc = known_shards_walk_image(k, &k->config.images[i], visit, arg);
    return rc;
}

/* Return the shard that an entry is a member of; NULL: none. */
static struct digest_slot *shard_of(const struct known_shards *k, const struct catalog_entry *e)
{
    struct digest key;
    if (!key_len(e->validator, e->validator_len))
        return NULL;
    key = digest_of(e->validator, SOURCE_SHARD_KEY_LEN);
    return digest_map_find(&k->keys, &key);
}

/* Return whether any data of an entry lies in a damaged pack. */
static bool is_damaged(const struct known_shards *k, const struct catalog_entry *e)
{
    bool damaged = false;
    for (uint32_t i = 0; k->config.damage && i < e->extent_count; i++) {
        const struct catalog_extent *at = &e->extents[i];
        bool inside = at->offset < k->config.size && at->len <= k->config.size - at->offset;
        damaged |= inside && parent_damage_touches(k->config.damage, at->offset, at->len);
    }
    return damaged;
}

/* Note an entry's shard, and its file if it is a further name. */
static int take_key(struct known_shards *k, const struct catalog_entry *e, void *arg)
{
    if (!key_len(e->validator, e->validator_len))
        return 0;
    struct digest key = digest_of(e->validator, SOURCE_SHARD_KEY_LEN), first = digest_of(e->target, e->target_len);
    int rc = digest_map_add(&k->keys, &key, 0);
    if (rc >= 0 && e->hard_link)
        rc = digest_map_add(&k->linked, &first, (int64_t)k->linked.map.count + 1);
    if (rc < 0)
        return rc;
    if (S_ISDIR(e->mode))
        digest_map_find(&k->keys, &key)->value |= HAS_DIRECTORIES;
    if (is_damaged(k, e))
        digest_map_find(&k->keys, &key)->value |= DAMAGED;
    return 0;
}

int known_shards_new(const struct known_shards_config *config, struct known_shards **out)
{
    CLEANUP(cleanup_known_shards) struct known_shards *k = calloc(1, sizeof *k);
    if (!k)
        return error_no_memory();
    k->config = *config;
    int rc = known_shards_walk(k, take_key, NULL);
    if (!rc)
        *out = steal_ptr(&k);
    return rc;
}

void known_shards_free(struct known_shards *k)
{
    if (!k)
        return;
    digest_map_release(&k->keys);
    digest_map_release(&k->linked);
    free(k);
}

bool known_shards_has(void *arg, const char *key, size_t len)
{
    struct known_shards *k = arg;
    struct digest digest = digest_of(key, len);
    struct digest_slot *slot = k->of_no_use ? NULL : digest_map_find(&k->keys, &digest);
    if (!slot || slot->value & DAMAGED)
        return false;
    slot->value |= UNCHANGED;
    return true;
}

/* If several shards have an entry for one directory, the catalog has only the winning one. If that shard changes,
 * another shard's entry counts, and nothing is known of it: then all shards must be read. */
bool known_shards_suffice(void *arg)
{
    struct known_shards *k = arg;
    for (const struct digest_slot *slot = NULL; !k->of_no_use && (slot = digest_map_next(&k->keys, slot));)
        k->of_no_use = slot->value & HAS_DIRECTORIES && !(slot->value & UNCHANGED);
    return !k->of_no_use;
}

/* Return whether a shard's members are taken from the catalog. */
static bool is_unchanged(const struct known_shards *k, const struct digest_slot *shard)
{
    return !k->of_no_use && shard && shard->value & UNCHANGED;
}

/* Return the number of the file if e is one of its several names; else 0. */
static uint64_t file_of(const struct known_shards *k, const struct catalog_entry *e)
{
    if (!k->linked.map.count || S_ISDIR(e->mode))
        return 0;
    struct digest first = e->hard_link ? digest_of(e->target, e->target_len) : digest_of(e->path, e->path_len);
    const struct digest_slot *slot = digest_map_find(&k->linked, &first);
    return slot ? (uint64_t)slot->value : 0;
}

/* List an entry if its shard is unchanged. */
static int list_member(struct known_shards *k, const struct catalog_entry *e, void *listing)
{
    if (!is_unchanged(k, shard_of(k, e)))
        return 0;
    struct source_entry entry = source_entry_of_catalog(e);
    entry.link_ino = file_of(k, e);
    entry.link_dev = entry.link_ino ? LINKS_OF_KNOWN : 0;
    return listing_add(listing, &entry);
}

int known_shards_list(struct known_shards *k, struct listing *listing)
{
    return known_shards_walk(k, list_member, listing);
}

/* Mark what may stay. Entries that are no shard's belong to another source, which decides later; they may stay if
 * their version can be told. */
static int add_live(struct known_shards *k, const struct catalog_entry *e, void *live)
{
    const struct digest_slot *shard = shard_of(k, e);
    bool stays = shard ? is_unchanged(k, shard) : e->validator_len > 0 && !is_damaged(k, e);
    for (uint32_t i = 0; stays && i < e->extent_count; i++)
        if (e->extents[i].len && live_map_fits(live, e->extents[i].offset, e->extents[i].len))
            live_map_add(live, e->extents[i].offset, e->extents[i].len);
    return 0;
}

int known_shards_live(struct known_shards *k, struct live_map *live)
{
    return known_shards_walk(k, add_live, live);
}
