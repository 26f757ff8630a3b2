/* Which 4 KiB blocks of a parent's address space the files kept from it use: what a rebuild must leave where it is,
 * what it may write over, and what is dead.
 *
 * Memory: one bit a block and four bytes a chunk, touched only where files are: at most 32 MiB for each TiB of address
 * space, and as much again with chunks of 128 KiB. Used from one thread.
 */
#ifndef GRANARY_IMAGEBUILD_REBUILD_LIVE_MAP_H
#define GRANARY_IMAGEBUILD_REBUILD_LIVE_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/compiler.h"

enum { LIVE_BLOCK = 4096 };

struct live_map;

/* size: of the parent's image. */
GR_MUST_CHECK int live_map_new(uint64_t size, uint32_t chunk_size, struct live_map **out);
void live_map_free(struct live_map *l); /* NULL is allowed */
DEFINE_CLEANUP(live_map, struct live_map *, live_map_free)

/* Can a body of len bytes, not 0, lie there: from a block's begin, behind chunk 0, within the image? */
bool live_map_fits(const struct live_map *l, uint64_t address, uint64_t len);
/* A file keeps this body (live_map_fits); files of equal content may share one. */
void live_map_add(struct live_map *l, uint64_t address, uint64_t len);
/* No file keeps it any more. */
void live_map_remove(struct live_map *l, uint64_t address, uint64_t len);

/* Begin of the first kept body, a multiple of LIVE_BLOCK; 0: none is kept. */
uint64_t live_map_begin(const struct live_map *l);
/* Bytes of live blocks. */
uint64_t live_map_bytes(const struct live_map *l);

uint32_t live_map_chunk_size(const struct live_map *l);
/* One more than the number of the last chunk with a live block. */
uint64_t live_map_chunk_end(const struct live_map *l);
/* Live blocks of a chunk, 0 behind the image. */
uint32_t live_map_blocks(const struct live_map *l, uint64_t chunk);
/* Is that block live? Numbered from the image's begin. */
bool live_map_is_block(const struct live_map *l, uint64_t block);
/* Bytes of all the files, each counted whole, of which a part that is not all of the chunk lies in it: what moving them
 * out of it costs at most. In blocks; UINT32_MAX: that many or more. */
uint32_t live_map_cost(const struct live_map *l, uint64_t chunk);

/* Has any (have all) of these chunks a live block? arg: the struct live_map. */
bool live_map_kept(void *arg, uint64_t chunk);
bool live_map_kept_all(void *arg, uint64_t first, uint64_t count);

/* The first run of chunks without a live block that lies in [from, live_map_chunk_end): false: none. */
bool live_map_next_free(const struct live_map *l, uint64_t from, uint64_t *out_first, uint64_t *out_count);

/* Bytes of dead blocks in chunks that have live ones. */
uint64_t live_map_dead_bytes(const struct live_map *l);

#endif
