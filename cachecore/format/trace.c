/* The file: a header of 112 bytes, then entries of 16 bytes, little-endian.
 *
 *    0  magic 8          16  image size 8        32  count 4                  40  image digest 32
 *    8  version 4        24  dropped 8           36  CRC-32C of entries 4     72  content root 32
 *   12  chunk size 4                                                        104  zero 4
 *                                                                            108  CRC-32C of bytes 0 to 107
 *
 *   entry:  chunk number 4 | first 12 bytes of its SHA-256
 *
 * The header's CRC covers that of the entries.
 */
#include "format/trace.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/le.h"
#include "format/chunk.h"

enum { VERSION = 1, IMAGE_AT = 40, CONTENT_AT = 72, ZERO_AT = 104, CRC_AT = 108 };
static const char magic[8] = {'G', 'R', 'N', 'T', 'R', 'A', 'C', 'E'};

static_assert(CRC_AT + 4 == TRACE_HEADER_SIZE, "the header ends with its checksum");
static_assert(4 + TRACE_ID_SIZE == TRACE_ENTRY_SIZE, "a number and an id");

struct trace_entry trace_entry_of(uint64_t chunk, const struct digest *digest)
{
    struct trace_entry e = {.chunk = (uint32_t)chunk};
    memcpy(e.id, digest->b, sizeof e.id);
    return e;
}

void trace_entry_put(uint8_t out[TRACE_ENTRY_SIZE], const struct trace_entry *entry)
{
    le32_put(out, entry->chunk);
    memcpy(out + 4, entry->id, sizeof entry->id);
}

struct trace_entry trace_entry_at(const struct trace *t, uint32_t i)
{
    const uint8_t *p = t->entries + (size_t)i * TRACE_ENTRY_SIZE;
    struct trace_entry e = {.chunk = le32_get(p)};
    memcpy(e.id, p + 4, sizeof e.id);
    return e;
}

/* Return the number of chunks; 0: an image of this geometry cannot be traced. */
static uint64_t chunk_count(uint64_t size, uint32_t chunk_size)
{
    if (!chunk_size_valid(chunk_size) || !size)
        return 0;
    uint64_t count = (size - 1) / chunk_size + 1;
    return count <= UINT64_C(1) << 32 ? count : 0;
}

int trace_check_geometry(uint64_t size, uint32_t chunk_size)
{
    return chunk_count(size, chunk_size) ? 0
                                         : error_set(-E2BIG,
                                                     "an image of %llu bytes has more chunks than a trace can "
                                                     "number; build it with larger chunks",
                                                     (unsigned long long)size);
}

int trace_encode(const struct trace *t, struct bytes *out)
{
    uint8_t *p;
    size_t len = (size_t)t->count * TRACE_ENTRY_SIZE;
    int rc = bytes_extend(out, TRACE_HEADER_SIZE, &p);
    if (rc)
        return rc;
    memcpy(p, magic, sizeof magic);
    le32_put(p + 8, VERSION);
    le32_put(p + 12, t->chunk_size);
    le64_put(p + 16, t->size);
    le64_put(p + 24, t->dropped);
    le32_put(p + 32, t->count);
    le32_put(p + 36, crc32c(t->entries, len));
    memcpy(p + IMAGE_AT, t->image.b, DIGEST_SIZE);
    memcpy(p + CONTENT_AT, t->content_root.b, DIGEST_SIZE);
    le32_put(p + CRC_AT, crc32c(p, CRC_AT));
    return bytes_append(out, t->entries, len);
}

static int bad(const char *why)
{
    return error_set(-EBADMSG, "not a trace that can be used: %s; record it again", why);
}

int trace_decode(const void *data, size_t len, struct trace *out)
{
    const uint8_t *p = data;
    if (len < TRACE_HEADER_SIZE || memcmp(p, magic, sizeof magic) != 0)
        return bad("it does not begin like one");
    if (le32_get(p + 8) != VERSION)
        return error_set(-EBADMSG, "a trace of format version %u, and this program knows %d", le32_get(p + 8), VERSION);
    if (le32_get(p + CRC_AT) != crc32c(p, CRC_AT) || le32_get(p + ZERO_AT))
        return bad("its header is damaged");
    *out = (struct trace){.chunk_size = le32_get(p + 12),
                          .size = le64_get(p + 16),
                          .dropped = le64_get(p + 24),
                          .count = le32_get(p + 32),
                          .entries = p + TRACE_HEADER_SIZE};
    memcpy(out->image.b, p + IMAGE_AT, DIGEST_SIZE);
    memcpy(out->content_root.b, p + CONTENT_AT, DIGEST_SIZE);
    uint64_t chunks = chunk_count(out->size, out->chunk_size);
    if (!chunks || out->count > TRACE_CHUNKS_MAX)
        return bad("there is no image of the size it gives");
    if ((len - TRACE_HEADER_SIZE) != (size_t)out->count * TRACE_ENTRY_SIZE)
        return bad("it is cut short, or longer than it says");
    if (le32_get(p + 36) != crc32c(out->entries, len - TRACE_HEADER_SIZE))
        return bad("its list of chunks is damaged");
    /* Checked once here, so that no reader of the trace has to. */
    for (uint32_t i = 0; i < out->count; i++)
        if (trace_entry_at(out, i).chunk >= chunks)
            return bad("it lists a chunk past the end of its image");
    return 0;
}
