/* Is what a build re-uses of its parent still in the store? Packs that are missing, cut short or replaced, and the
 * chunks in them, which the build then reads from the source again.
 *
 * Of every pack that the parent refers to the last chunk it needs is read and proved. That tells a pack that is missing
 * or too short, and one that was replaced by other bytes, for one small read a pack. A pack that is damaged in its
 * middle only is found by reading all of it: `granary verify --deep`.
 */
#ifndef GRANARY_IMAGEBUILD_REBUILD_PARENT_CHECK_H
#define GRANARY_IMAGEBUILD_REBUILD_PARENT_CHECK_H

#include <stdbool.h>

#include "format/manifest.h"
#include "store/read/digest_map.h"
#include "store/store.h"

enum { PARENT_CHECK_THREADS = 16 };

struct parent_check_config {
    struct store *store;
    const struct manifest *manifest; /* the parent's */
    int (*step)(void *arg);          /* between any two pieces of work, calling thread; not 0 ends it */
    void *step_arg;
};

/* Starts as all zero: nothing is damaged. Read by any thread once parent_check has returned. */
struct parent_damage {
    struct digest_map packs; /* damaged ones */
    uint8_t *chunks;         /* a bit for each chunk of the parent: is it in one of those? NULL: none is */
    uint32_t chunk_size;
};

/* Reads all of the parent's index, which proves it, and one chunk of each pack. Each damaged pack is a warning in the
 * log, the first few of them by name. -EBADMSG, naming --parent none: the index itself is damaged. Memory: 150 bytes a
 * pack, a chunk a thread, and with damage a bit for each chunk. */
GR_MUST_CHECK int parent_check(const struct parent_check_config *config, struct parent_damage *out);
void parent_damage_release(struct parent_damage *d);

/* code, and "...; the parent image cannot be used: --parent none builds without it" around the thread's sentence. */
int parent_failed(int code);

/* Does [address, address + len) of the parent's image touch a damaged chunk? It lies within the image. */
bool parent_damage_touches(const struct parent_damage *d, uint64_t address, uint64_t len);

#endif
