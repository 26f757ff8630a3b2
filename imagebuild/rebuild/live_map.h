/* The live-block map: which 4 KiB blocks of the parent's address space belong to kept files. A rebuild leaves these
 * blocks where they are. It may write over chunks without live blocks. The other blocks of kept chunks are dead.
 *
 * Memory: a bit a block and four bytes a chunk, used only where files are: at most 32 MiB for each TiB of address
 * space, and as much again with chunks of 128 KiB. One thread.
 */
#ifndef GRANARY_IMAGEBUILD_REBUILD_LIVE_MAP_H
#define GRANARY_IMAGEBUILD_REBUILD_LIVE_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/compiler.h"

enum { LIVE_BLOCK = 4096 }; /* bytes */

struct live_map;

/* size: bytes of the parent's image. -ENOMEM, naming --parent none. */
GR_MUST_CHECK int live_map_new(uint64_t size, uint32_t chunk_size, struct live_map **out);
void live_map_free(struct live_map *l); /* NULL is allowed */
DEFINE_CLEANUP(live_map, struct live_map *, live_map_free)

/* Return whether a file of len bytes (not 0) can lie there: at the start of a block, after chunk 0, and within the
 * image. */
bool live_map_fits(const struct live_map *l, uint64_t address, uint64_t len);
/* Mark the bytes of a kept file as live; live_map_fits holds for them. Files of equal content may share them. */
void live_map_add(struct live_map *l, uint64_t address, uint64_t len);
/* Mark the bytes as dead. Files that share them must be removed together, since this ends the blocks for all. */
void live_map_remove(struct live_map *l, uint64_t address, uint64_t len);

/* Return the address of the first live block; 0: there is none. */
uint64_t live_map_begin(const struct live_map *l);
/* Return the bytes of live blocks. */
uint64_t live_map_bytes(const struct live_map *l);

uint32_t live_map_chunk_size(const struct live_map *l);
/* Return one more than the number of the last chunk with a live block. */
uint64_t live_map_chunk_end(const struct live_map *l);
/* Return the number of live blocks in a chunk; 0 past the image. */
uint32_t live_map_blocks(const struct live_map *l, uint64_t chunk);
/* Return whether a block is live. Blocks are numbered from the start of the image. */
bool live_map_is_block(const struct live_map *l, uint64_t block);
/* Return an upper bound, in blocks, for the cost of moving all files out of a chunk: the whole sizes of the files that
 * have a part in the chunk, except for parts that fill it. UINT32_MAX: that much or more. */
uint32_t live_map_cost(const struct live_map *l, uint64_t chunk);

/* Return whether a chunk has (all of `count` chunks have) a live block. arg: the struct live_map. */
bool live_map_kept(void *arg, uint64_t chunk);
bool live_map_kept_all(void *arg, uint64_t first, uint64_t count);

/* Find the first run of chunks without live blocks in [from, live_map_chunk_end). false: there is none. */
bool live_map_next_free(const struct live_map *l, uint64_t from, uint64_t *out_first, uint64_t *out_count);

/* Return the bytes of dead blocks in chunks that have live ones. */
uint64_t live_map_dead_bytes(const struct live_map *l);

#endif
