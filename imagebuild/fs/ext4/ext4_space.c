/* One block is cached, because libext2fs writes a block of the inode table once for every inode in it. Blocks that
 * were never written read as zeros. */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "imagebuild/fs/ext4/ext4_internal.h"

enum { EMIT_BLOCKS = 256 }; /* blocks read from a scratch at a time */
#define NO_BLOCK UINT64_MAX

/* Return the scratch of a block and the position there. NULL: the block is not for metadata, a bug of the writer. */
static struct scratch *locate(const struct ext4_space *s, uint64_t block, uint64_t *out_at)
{
    if (block < s->front_end) {
        *out_at = block * EXT4_BLOCK;
        return s->front;
    }
    if (block < s->region_begin || block >= s->region_end)
        return NULL;
    *out_at = (block - s->region_begin) * EXT4_BLOCK;
    return s->region;
}

/* Read len bytes of a scratch, with zeros past its end. */
static int read_padded(struct scratch *scratch, uint64_t at, uint8_t *dst, size_t len)
{
    uint64_t end = scratch_len(scratch);
    size_t there = at < end ? (size_t)GR_MIN(end - at, (uint64_t)len) : 0;
    memset(dst + there, 0, len - there);
    return there ? scratch_read(scratch, at, dst, there) : 0;
}

/* Write the cached block back if it is dirty. */
static int flush_held(struct ext4_space *s)
{
    uint64_t at = 0; /* always found: hold() has located it before */
    if (!s->dirty)
        return 0;
    /* also after a failure, which is kept and ends the build */
    s->dirty = false;
    struct scratch *scratch = locate(s, s->held, &at);
    return scratch_write(scratch, at, s->block, sizeof s->block);
}

/* Make `block` the cached one. replaced: all of it will be written, so its bytes are not read. */
static int hold(struct ext4_space *s, uint64_t block, bool replaced)
{
    uint64_t at;
    if (s->held == block)
        return 0;
    struct scratch *scratch = locate(s, block, &at);
    if (!scratch)
        return error_set(-EIO, "ext4: block %llu is no place for metadata: a bug, nothing was published",
                         (unsigned long long)block);
    int rc = flush_held(s);
    s->held = NO_BLOCK;
    if (!rc && !replaced)
        rc = read_padded(scratch, at, s->block, sizeof s->block);
    if (!rc)
        s->held = block;
    return rc;
}

/* Transfer len bytes at a byte address from the blocks to `out`, or to the blocks from `in`; the other is NULL. */
static int transfer(struct ext4_space *s, uint64_t at, size_t len, uint8_t *out, const uint8_t *in)
{
    size_t done = 0;
    int rc = 0;
    while (!rc && done < len) {
        size_t within = (at + done) % EXT4_BLOCK;
        size_t n = GR_MIN(len - done, EXT4_BLOCK - within);
        rc = hold(s, (at + done) / EXT4_BLOCK, in && n == EXT4_BLOCK);
        if (!rc && in) {
            memcpy(s->block + within, in + done, n);
            s->dirty = true;
        } else if (!rc) {
            memcpy(out + done, s->block + within, n);
        }
        done += n;
    }
    return rc;
}

/* ------------------------------------------------------------------ the io_manager */

/* Transfer for libext2fs, which counts blocks, or with a negative count bytes. After a failure everything fails. */
static errcode_t channel_transfer(io_channel channel, unsigned long long block, int count, void *out, const void *in)
{
    struct ext4_space *s = channel->private_data;
    size_t len = count < 0 ? (size_t)-count : (size_t)count * (size_t)channel->block_size;
    if (!s)
        return EXT2_ET_BAD_DEVICE_NAME;
    int rc = s->failed.code;
    if (!rc && (rc = transfer(s, block * (uint64_t)channel->block_size, len, out, in)))
        error_take(&s->failed, rc);
    return -rc;
}

static errcode_t channel_read64(io_channel channel, unsigned long long block, int count, void *data)
{
    return channel_transfer(channel, block, count, data, NULL);
}

static errcode_t channel_write64(io_channel channel, unsigned long long block, int count, const void *data)
{
    return channel_transfer(channel, block, count, NULL, data);
}

/* The 32-bit forms are for callers in libext2fs that still use them. */
static errcode_t channel_read(io_channel channel, unsigned long block, int count, void *data)
{
    return channel_transfer(channel, block, count, data, NULL);
}

static errcode_t channel_write(io_channel channel, unsigned long block, int count, const void *data)
{
    return channel_transfer(channel, block, count, NULL, data);
}

static errcode_t channel_set_blksize(io_channel channel, int size)
{
    channel->block_size = size;
    return 0;
}

/* Nothing to do: ext4_space_emit writes the cached block back. */
static errcode_t channel_flush(io_channel channel)
{
    return 0;
}

static errcode_t channel_close(io_channel channel)
{
    free(channel->name);
    free(channel);
    return 0;
}

/* libext2fs opens the channel inside ext2fs_initialize; private_data is set only after that. */
static errcode_t channel_open(const char *name, int flags, io_channel *out)
{
    io_channel c = calloc(1, sizeof *c);
    char *copy = strdup(name);
    if (!c || !copy) {
        free(c);
        free(copy);
        return EXT2_ET_NO_MEMORY;
    }
    c->magic = EXT2_ET_MAGIC_IO_CHANNEL;
    c->manager = &ext4_space_manager;
    c->name = copy;
    c->block_size = EXT4_BLOCK;
    c->refcount = 1;
    *out = c;
    return 0;
}

struct struct_io_manager ext4_space_manager = {
    .magic = EXT2_ET_MAGIC_IO_MANAGER,
    .name = "granary",
    .open = channel_open,
    .close = channel_close,
    .set_blksize = channel_set_blksize,
    .read_blk = channel_read,
    .write_blk = channel_write,
    .flush = channel_flush,
    .read_blk64 = channel_read64,
    .write_blk64 = channel_write64,
};

/* ------------------------------------------------------------------ to the sink */

/* Compare the block with itself, shifted by one byte. */
static bool is_zero(const uint8_t *block)
{
    return !block[0] && !memcmp(block, block + 1, EXT4_BLOCK - 1);
}

/* Write the runs of blocks that are not zeros. address: of the scratch's first byte. *out_len: bytes up to the end of
 * the last run. */
static int ext4_space_emit_scratch(struct scratch *scratch, uint64_t address, struct sink *sink,
                                   enum sink_section section, uint64_t *out_len)
{
    CLEANUP_FREE uint8_t *piece = malloc((size_t)EMIT_BLOCKS * EXT4_BLOCK);
    uint64_t end = scratch_len(scratch);
    int rc = piece ? 0 : error_no_memory();
    *out_len = 0;
    for (uint64_t at = 0; !rc && at < end; at += (uint64_t)EMIT_BLOCKS * EXT4_BLOCK) {
        unsigned n = (unsigned)GR_MIN((end - at) / EXT4_BLOCK, (uint64_t)EMIT_BLOCKS), first = 0;
        rc = scratch_read(scratch, at, piece, (size_t)n * EXT4_BLOCK);
        while (!rc && first < n) {
            unsigned run = 0;
            while (first + run < n && !is_zero(piece + (size_t)(first + run) * EXT4_BLOCK))
                run++;
            uint64_t from = at + (uint64_t)first * EXT4_BLOCK;
            size_t len = (size_t)run * EXT4_BLOCK;
            if (run) {
                rc = sink_write(sink, section, address + from, piece + (size_t)first * EXT4_BLOCK, len);
                *out_len = from + len;
            }
            first += run + 1;
        }
    }
    return rc;
}

int ext4_space_emit(struct ext4_space *s, struct sink *sink, uint64_t *out_front_len)
{
    uint64_t region_len;
    int rc = flush_held(s);
    s->held = NO_BLOCK;
    if (!rc)
        rc = ext4_space_emit_scratch(s->region, s->region_begin * EXT4_BLOCK, sink, SINK_METADATA, &region_len);
    return rc ? rc : ext4_space_emit_scratch(s->front, 0, sink, SINK_FRONT, out_front_len);
}

/* ------------------------------------------------------------------ its life */

int ext4_space_init(struct ext4_space *s, const struct scratch_config *config)
{
    s->held = NO_BLOCK;
    int rc = scratch_new(config, &s->front);
    return rc ? rc : scratch_new(config, &s->region);
}

void ext4_space_release(struct ext4_space *s)
{
    scratch_free(s->front);
    scratch_free(s->region);
    memset(s, 0, sizeof *s);
}

/* ------------------------------------------------------------------ what all parts of the writer share */

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
        return error_set(-EFBIG,
                         "ext4: no space is left for metadata after the file contents; build again with --parent none");
    *out = e->next++;
    /* metadata lies in one ascending run, so allocation is a counter */
    ext2fs_mark_block_bitmap2(e->e2->block_map, *out);
    return 0;
}

int ext4_step(struct ext4 *e, uint64_t done)
{
    return done % STEP_NODES ? 0 : step_take(&e->config.step);
}
