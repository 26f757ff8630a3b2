/* Private to repair: assemble one chunk from the files that lie in it; repair.c does this for many. */
#ifndef GRANARY_IMAGEBUILD_CHECK_REPAIR_CHUNK_H
#define GRANARY_IMAGEBUILD_CHECK_REPAIR_CHUNK_H

#include <pthread.h>

#include "base/error.h"
#include "base/spill/sorter.h"
#include "base/vec.h"
#include "format/catalog.h"
#include "format/chunk.h"
#include "imagebuild/source/source.h"

/* A chunk of a pack that is being repaired. */
struct repair_chunk {
    struct chunk_ref ref;
    uint64_t number;
    bool missing; /* to be assembled */
};

/* Note in the sorter that `len` bytes of file e, from file_offset on, lie at `address` and touch a chunk. chunk: the
 * chunk's index in the caller's list. Errors of the sorter; -ENOMEM. */
GR_MUST_CHECK int repair_note(struct sorter *s, uint32_t chunk, const struct catalog_entry *e, uint64_t address,
                              uint64_t len, uint64_t file_offset);
/* Return the index that a record was noted for. */
uint32_t repair_noted_chunk(const struct sorter_record *r);

/* Bytes of a file that lie at an address of the image. */
struct repair_piece {
    uint32_t chunk;
    uint64_t address, len, file_offset;
    size_t text, path_len, validator_len; /* offset of path and validator in `texts` */
};

/* Assembles chunks of one pack. Pieces and texts are set before the threads start, and only read by them. */
struct repair_maker {
    struct source *source;
    VEC(struct repair_piece) pieces; /* ascending by chunk, address, length */
    struct bytes texts;
    pthread_mutex_t lock;         /* guards why */
    char why[ERROR_TEXT_MAX / 2]; /* the first reason why a chunk could not be assembled; "" if all could */
    _Atomic int level;            /* the zstd level that gave the last chunk's bytes; it mostly fits the next one too */
};

void repair_maker_init(struct repair_maker *m, struct source *source);
void repair_maker_release(struct repair_maker *m);
/* Forget the pieces and why, for another pack. */
void repair_maker_clear(struct repair_maker *m);
/* Add a noted file; records come in the sorter's order. */
GR_MUST_CHECK int repair_maker_add(struct repair_maker *m, const struct sorter_record *r);

/* Assemble a chunk and write its ref.stored_len bytes to `stored`. place: its index in the caller's list. Returns 0
 * even if that is not possible: m->why then has the reason. -errno if the source cannot be read. Any thread. */
GR_MUST_CHECK int repair_make(struct repair_maker *m, const struct repair_chunk *chunk, uint32_t place,
                              uint32_t chunk_size, uint8_t *stored);

#endif
