/* Check that the store still has what a build re-uses of its parent. Finds packs that are missing, cut short or
 * replaced, and the chunks in them; the build reads those files from the source again.
 *
 * Of every pack that the parent refers to, the last chunk that it needs is read and proved. For one small read a
 * pack, that finds packs that are missing, too short, or replaced by other bytes. Damage in the middle of a pack is
 * found only by reading all of it: `granary verify --deep`.
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
    int (*step)(void *arg); /* called between any two pieces of work, in the calling thread; non-zero ends it */
    void *step_arg;
};

/* Begins as all zero: nothing is damaged. Any thread may read it once parent_check has returned. */
struct parent_damage {
    struct digest_map packs; /* the damaged ones */
    uint8_t *chunks;         /* a bit for each chunk of the parent: it lies in a damaged pack; NULL: none does */
    uint32_t chunk_size;
};

/* Read the parent's whole index, which proves it, and one chunk of each pack. Logs damaged packs, the first few by
 * name. -EBADMSG, naming --parent none: the index is damaged; others come from the store and step: what cannot be
 * told from a failing store ends the build. Memory: 150 bytes a pack, a chunk a thread, and with damage a bit for
 * each chunk. */
GR_MUST_CHECK int parent_check(const struct parent_check_config *config, struct parent_damage *out);
void parent_damage_release(struct parent_damage *d);

/* Return `code` with the thread's sentence extended by the remedy: "...; the parent image cannot be used: --parent
 * none builds without it". */
int parent_failed(int code);

/* Return whether [address, address + len), which lies within the parent's image, touches a damaged chunk. */
bool parent_damage_touches(const struct parent_damage *d, uint64_t address, uint64_t len);

#endif
