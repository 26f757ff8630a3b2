/* What a parent's catalog knows of a source that streams: the members of shards that have not changed are taken from
 * it, so that those shards need not be read. One thread.
 */
#ifndef GRANARY_IMAGEBUILD_TAR_KNOWN_SHARDS_H
#define GRANARY_IMAGEBUILD_TAR_KNOWN_SHARDS_H

#include "format/manifest.h"
#include "imagebuild/rebuild/live.h"
#include "imagebuild/rebuild/parent_check.h"
#include "imagebuild/tree/listing.h"
#include "store/store.h"

struct known_shards_config {
    struct store *store;                /* the parent's */
    const struct manifest *parent;      /* the caller's */
    const struct parent_damage *damage; /* shards of which something lies there are not known; NULL: none */
    int (*step)(void *arg);             /* between any two pieces of work; not 0 ends it */
    void *step_arg;
};

struct known_shards;

/* One pass through the catalog. Memory: 54 to 107 bytes for each shard and each file of several names. */
GR_MUST_CHECK int known_shards_new(const struct known_shards_config *config, struct known_shards **out);
void known_shards_free(struct known_shards *k); /* NULL is allowed */
DEFINE_CLEANUP(known_shards, struct known_shards *, known_shards_free)

/* Does the parent have the shard whose members' validators begin so? It then counts as unchanged. */
bool known_shards_has(void *known_shards, const char *key, size_t len);
/* All shards there are have been asked about: can those that are unchanged be passed over? If not, all must be read,
 * now and from now on. */
bool known_shards_suffice(void *known_shards);
/* List the members of all unchanged shards. */
GR_MUST_CHECK int known_shards_list(struct known_shards *k, struct listing *listing);
/* Tell live, empty and of the parent's size, what of the parent may stay: bodies of unchanged shards' members, and all
 * that are no shard's. Once all shards have been asked about. */
GR_MUST_CHECK int known_shards_live(struct known_shards *k, struct live *live);

#endif
