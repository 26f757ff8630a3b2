/* What the parent's catalog knows of a source that streams: members of unchanged shards are listed from the catalog,
 * so that these shards need not be read. One thread. */
#ifndef GRANARY_IMAGEBUILD_TAR_TAR_H
#define GRANARY_IMAGEBUILD_TAR_TAR_H

#include "base/step.h"
#include "format/manifest.h"
#include "imagebuild/rebuild/live_map.h"
#include "imagebuild/rebuild/parent.h"
#include "imagebuild/tree/listing.h"
#include "store/store.h"

struct known_shards_config {
    struct store *store;                /* the parent's */
    const struct parent_image *images;  /* the parent's; the caller's */
    size_t image_count;                 /* at least 1 */
    uint64_t size;                      /* bytes of the parent, all images together */
    const struct parent_damage *damage; /* shards with data in damaged packs are not known; NULL: none are damaged */
    struct step step;
};

struct known_shards;

/* Read the parent's catalog once. Memory: 54 to 107 bytes for each shard and each hard-linked file. -ENOMEM;
 * PARENT_DAMAGED: the catalog is; other errors come from the store and step. */
GR_MUST_CHECK int known_shards_new(const struct known_shards_config *config, struct known_shards **out);
void known_shards_free(struct known_shards *k); /* NULL is allowed */
DEFINE_CLEANUP(known_shards, struct known_shards *, known_shards_free)

/* Return whether the parent has all members of the shard with this key; the shard then counts as unchanged. A
 * source_known callback. */
bool known_shards_has(void *known_shards, const char *key, size_t len);
/* After all shards have been asked about: return whether unchanged ones can be skipped. If not, all must be read,
 * and known_shards_has returns false from now on. A source_known callback. */
bool known_shards_suffice(void *known_shards);
/* Add the members of all unchanged shards to the listing. Errors as from known_shards_new and listing_add. */
GR_MUST_CHECK int known_shards_list(struct known_shards *k, struct listing *listing);
/* After all shards have been asked about: add to `live`, empty and of the parent's size, what may stay of the parent:
 * data of unchanged shards' members, and of everything that is no shard's. Errors as from known_shards_new. */
GR_MUST_CHECK int known_shards_live(struct known_shards *k, struct live_map *live);

#endif
