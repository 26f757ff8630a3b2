/* The metadata blocks of an ext4 image: the front, from block 0 on, and the region behind the file data. They lie in
 * scratches, so that libext2fs can write them in any order and read them again, until they go to the sink in
 * ascending order. libext2fs uses the space through an io_manager; the io_channel's private_data is the space.
 *
 *   block 0 .. front_end       -> scratch `front`
 *   front_end .. region_begin  -> file data: neither read nor written here
 *   region_begin .. region_end -> scratch `region`
 *
 * One thread. The first failure is kept, because libext2fs passes on only numbers.
 */
#ifndef GRANARY_IMAGEBUILD_FS_EXT4_EXT4_SPACE_H
#define GRANARY_IMAGEBUILD_FS_EXT4_EXT4_SPACE_H

#include <ext2fs/ext2fs.h>

#include "base/error.h"
#include "base/spill/scratch.h"
#include "imagebuild/sink/sink.h"

enum { EXT4_SPACE_BLOCK = 4096 };

/* `block` caches one block, written back if dirty. */
struct ext4_space {
    struct scratch *front, *region;
    uint64_t front_end, region_begin, region_end; /* block numbers; set by the owner */
    uint64_t held;                                /* number of the cached block; UINT64_MAX: none */
    bool dirty;
    struct error failed; /* the first one */
    uint8_t block[EXT4_SPACE_BLOCK];
};

/* Initialize a space whose members are all zero. -ENOMEM; errors of scratch_new. */
GR_MUST_CHECK int ext4_space_init(struct ext4_space *s, const struct scratch_config *config);
void ext4_space_release(struct ext4_space *s);

/* The io_manager. Its channels fail until private_data is set to a space. */
extern struct struct_io_manager ext4_space_manager;

/* Write every block that is not zeros to the sink. *out_front_len: bytes from address 0 to the end of the last such
 * block of the front. Errors of scratch and sink; -ENOMEM. */
GR_MUST_CHECK int ext4_space_emit(struct ext4_space *s, struct sink *sink, uint64_t *out_front_len);

#endif
