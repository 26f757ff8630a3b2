/* One chunk put together from the files that lie in it: what repair.c does with many. */
#ifndef GRANARY_IMAGEBUILD_CHECK_REPAIR_CHUNK_H
#define GRANARY_IMAGEBUILD_CHECK_REPAIR_CHUNK_H

#include <pthread.h>

#include "base/error.h"
#include "base/spill/sorter.h"
#include "base/vec.h"
#include "format/catalog.h"
#include "format/chunk.h"
#include "imagebuild/source/source.h"

struct repair_chunk {
    struct chunk_ref ref;
    uint64_t number;
    bool missing; /* to be put together */
};

/* Files are noted in a sorter, by the place of the chunk among all. */
GR_MUST_CHECK int repair_note(struct sorter *s, uint32_t chunk, const struct catalog_entry *e, uint64_t address,
                              uint64_t len, uint64_t file_offset);
uint32_t repair_noted_chunk(const struct sorter_record *r);

/* Bytes of a file at an address of the image. */
struct repair_piece {
    uint32_t chunk;
    uint64_t address, len, file_offset;
    size_t text, path_len, validator_len; /* path and validator, in `texts` */
};

struct repair_maker {
    struct source *source;
    VEC(struct repair_piece) pieces; /* by chunk, address, length */
    struct bytes texts;
    pthread_mutex_t lock; /* guards why */
    char why[ERROR_TEXT_MAX / 2];
    _Atomic int level; /* that compressed the last chunk right */
};

void repair_maker_init(struct repair_maker *m, struct source *source);
void repair_maker_release(struct repair_maker *m);
/* Forget pieces and why. */
void repair_maker_clear(struct repair_maker *m);
GR_MUST_CHECK int repair_maker_add(struct repair_maker *m, const struct sorter_record *r);

/* The chunk's stored bytes, ref.stored_len of them, to `stored`. When they cannot be had, m->why says why and the
 * result is 0 too; -errno when the source cannot be read. Any thread. */
GR_MUST_CHECK int repair_make(struct repair_maker *m, const struct repair_chunk *chunk, uint32_t place,
                              uint32_t chunk_size, uint8_t *stored);

#endif
