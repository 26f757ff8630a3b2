/* What the parts of the ext4 writer share: errors of libext2fs, blocks of the metadata region, calls of step. */
#include "imagebuild/fs/ext4/ext4_internal.h"

#include <errno.h>

#include "base/error.h"

enum { STEP_NODES = 1 << 16 };

int ext4_check(struct ext4 *e, errcode_t code)
{
    /* libext2fs knows only a number; the space has the sentence, for example of a full --tmpdir */
    if (e->space.failed.code)
        return error_restore(&e->space.failed);
    if (!code)
        return 0;
    if (code == EXT2_ET_NO_MEMORY || code == ENOMEM)
        return error_no_memory();
    return error_set(-EIO, "ext4: libext2fs says \"%s\": a bug, nothing was published", error_message(code));
}

int ext4_take_block(struct ext4 *e, uint64_t *out)
{
    if (e->next == e->space.region_end)
        return error_set(
            -EFBIG, "ext4: no space is left for metadata behind the file contents; build again with --parent none");
    *out = e->next++;
    /* metadata lies in one ascending run, so allocation is a counter */
    ext2fs_mark_block_bitmap2(e->e2->block_map, *out);
    return 0;
}

int ext4_step(struct ext4 *e, uint64_t done)
{
    return done % STEP_NODES || !e->config.step ? 0 : e->config.step(e->config.step_arg);
}
