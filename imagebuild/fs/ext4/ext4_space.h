/* The blocks of an ext4 image that are not bodies: the front, from block 0 on, and the region behind the bodies. In
 * scratches, so that libext2fs may write them in any order and read them again, until they go to the sink in ascending
 * order. To libext2fs it is an io_manager; its io_channel's private_data is the space.
 *
 * One thread. The first failure is kept: libext2fs passes on numbers only.
 */
#ifndef GRANARY_IMAGEBUILD_FS_EXT4_EXT4_SPACE_H
#define GRANARY_IMAGEBUILD_FS_EXT4_EXT4_SPACE_H

#include <ext2fs/ext2fs.h>

#include "base/error.h"
#include "base/spill/scratch.h"
#include "imagebuild/sink/sink.h"

enum { EXT4_SPACE_BLOCK = 4096 };

struct ext4_space {
    struct scratch *front, *region;
    uint64_t front_end, region_begin, region_end; /* block numbers */
    uint64_t held;                                /* the block in `block`; none: UINT64_MAX */
    bool dirty;
    struct error failed; /* the first failure */
    uint8_t block[EXT4_SPACE_BLOCK];
};

/* Fills in what is zero. */
GR_MUST_CHECK int ext4_space_init(struct ext4_space *s, const struct scratch_config *config);
void ext4_space_release(struct ext4_space *s);

/* Its channels fail until private_data is set to a space. */
extern struct struct_io_manager ext4_space_manager;

/* Hand on everything that is not zeros; *out_front_len: bytes from address 0 to the last of the front. */
GR_MUST_CHECK int ext4_space_emit(struct ext4_space *s, struct sink *sink, uint64_t *out_front_len);

#endif
