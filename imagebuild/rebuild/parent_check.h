/* Check that the store still has the packs that a build re-uses from its parent. The build reads the files in damaged
 * packs from the source again.
 *
 * From every pack, the last chunk that the parent needs is read and verified. This one small read a pack finds packs
 * that are missing, too short, or replaced by other bytes. Only reading a whole pack finds damage in its middle:
 * `granary verify --deep`.
 */
#ifndef GRANARY_IMAGEBUILD_REBUILD_PARENT_CHECK_H
#define GRANARY_IMAGEBUILD_REBUILD_PARENT_CHECK_H

#include <stdbool.h>

#include "base/map.h"
#include "format/manifest.h"
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

/* Read and verify the parent's whole index and one chunk of each pack. Logs damaged packs, the first few by name.
 * -EBADMSG, naming --parent none: the index is damaged. Others come from the store and step; a failing store ends the
 * build, since its packs may be whole. Memory: 150 bytes a pack, a chunk a thread, and with damage a bit for each
 * chunk. */
GR_MUST_CHECK int parent_check(const struct parent_check_config *config, struct parent_damage *out);
void parent_damage_release(struct parent_damage *d);

/* Return `code` with the thread's sentence extended by the remedy: "...; the parent image cannot be used: --parent
 * none builds without it". */
int parent_failed(int code);

/* Return whether [address, address + len), which lies within the parent's image, touches a damaged chunk. */
bool parent_damage_touches(const struct parent_damage *d, uint64_t address, uint64_t len);

#endif
