/* sink_write -> chunker (hash, compress) -> packer (packs) -> index_writer (leaves), each handing on to the next in
 * chunk order in the caller's thread. Holes are simply never submitted.
 */
#include "imagebuild/sink.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "imagebuild/chunker.h"
#include "imagebuild/index_writer.h"
#include "imagebuild/packer.h"

struct sink {
    struct sink_config config;
    struct chunker *chunker;
    struct packer *packer;
    struct index_writer *index;
    uint64_t end;    /* of the last write */
    uint64_t chunk;  /* the one being filled, when buffer is set */
    uint8_t *buffer; /* NULL: no chunk is being filled */
    uint32_t filled; /* of buffer; what is behind is undefined */
    struct bytes front;
};

static int on_chunk(void *arg, uint64_t number, const struct chunk_ref *ref, const struct bytes *stored)
{
    struct sink *s = arg;
    return packer_add(s->packer, number, ref, stored);
}

static int on_packed(void *arg, uint64_t number, const struct chunk_ref *ref)
{
    struct sink *s = arg;
    return index_writer_add(s->index, number, ref);
}

int sink_new(const struct sink_config *config, struct sink **out)
{
    struct sink *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(-ENOMEM, "build: out of memory");
    s->config = *config;
    s->front = (struct bytes)BYTES_INIT(config->chunk_size);
    struct chunker_config chunker = {.chunk_size = config->chunk_size,
                                     .zstd_level = config->zstd_level,
                                     .workers = config->workers,
                                     .emit = on_chunk,
                                     .arg = s};
    struct packer_config packer = {
        .upload = config->upload, .pack_size = config->pack_size, .emit = on_packed, .arg = s};
    int rc = index_writer_new(config->upload, &s->index);
    if (!rc)
        rc = packer_new(&packer, &s->packer);
    if (!rc)
        rc = chunker_new(&chunker, &s->chunker);
    if (rc) {
        sink_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void sink_free(struct sink *s)
{
    if (!s)
        return;
    chunker_free(s->chunker);
    packer_free(s->packer);
    index_writer_free(s->index);
    bytes_release(&s->front);
    free(s);
}

/* The chunk being filled is len bytes long and complete. */
static void close_chunk(struct sink *s, uint32_t len)
{
    memset(s->buffer + s->filled, 0, len - s->filled);
    if (!chunk_all_zero(s->buffer, len))
        chunker_submit(s->chunker, s->chunk, len);
    s->buffer = NULL;
}

static int open_chunk(struct sink *s, uint64_t chunk)
{
    int rc = chunker_begin(s->chunker, &s->buffer);
    s->chunk = chunk;
    s->filled = 0;
    return rc;
}

int sink_write(struct sink *s, uint64_t address, const void *data, size_t len)
{
    const uint32_t size = s->config.chunk_size;
    const uint8_t *p = data;
    assert(address >= s->end && address >= size);
    s->end = address + len;
    while (len) {
        uint64_t chunk = address / size;
        uint32_t off = (uint32_t)(address % size);
        if (s->buffer && s->chunk != chunk)
            close_chunk(s, size);
        int rc = s->buffer ? 0 : open_chunk(s, chunk);
        if (rc)
            return rc;
        uint32_t n = (uint32_t)GR_MIN(len, (size_t)(size - off));
        memset(s->buffer + s->filled, 0, off - s->filled);
        memcpy(s->buffer + off, p, n);
        s->filled = off + n;
        if (s->filled == size)
            close_chunk(s, size);
        address += n;
        p += n;
        len -= n;
    }
    return 0;
}

int sink_write_front(struct sink *s, const void *data, size_t len)
{
    assert(!s->front.len);
    return bytes_append(&s->front, data, len);
}

static int close_front(struct sink *s, uint32_t len)
{
    int rc = open_chunk(s, 0);
    if (rc)
        return rc;
    memcpy(s->buffer, s->front.data, s->front.len);
    s->filled = (uint32_t)s->front.len;
    close_chunk(s, len);
    return 0;
}

int sink_finish(struct sink *s, uint64_t image_size, struct sink_result *out)
{
    const uint32_t size = s->config.chunk_size;
    uint64_t count = (image_size + size - 1) / size;
    uint32_t last_len = (uint32_t)(image_size - (count - 1) * size);
    assert(image_size >= s->end && image_size >= s->front.len && s->front.len);
    if (s->buffer)
        close_chunk(s, s->chunk == count - 1 ? last_len : size);
    int rc = close_front(s, count == 1 ? last_len : size);
    if (!rc)
        rc = chunker_drain(s->chunker);
    if (!rc)
        rc = packer_finish(s->packer);
    if (!rc)
        rc = index_writer_finish(s->index, count, &out->index_root, &out->index_levels);
    if (rc)
        return rc;
    out->content_root = index_content_root(image_size, size, &out->index_root.content);
    out->stored_bytes = packer_stored_bytes(s->packer);
    return 0;
}
