/* Bytes of a pack under a reference that may say anything: the first bytes are the reference. The
 * CRC is made to fit, so that the frame is reached. */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/le.h"
#include "format/chunk.h"
#include "format/format_internal.h"

/* Bytes as a split form, and as a chunk that has one. */
static void split_and_join(const uint8_t *data, size_t len)
{
    CLEANUP_FREE uint8_t *split = malloc(chunk_split_max(len)), *plain = malloc(CHUNK_SIZE_MIN);
    FUZZ_CHECK(split && plain);
    for (size_t of = len / 2; of <= len && of < CHUNK_SIZE_MIN; of += 4096)
        (void)!chunk_join(data, len, plain, of);
    const size_t split_len = chunk_split(data, len, split);
    free(steal_ptr(&plain));
    plain = malloc(len);
    FUZZ_CHECK(plain && chunk_join(split, split_len, plain, len) && !memcmp(plain, data, len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < 8)
        return 0;
    struct chunk_ref ref = {
        .digest = digest_of("nothing has this digest", 23),
        .kind = (enum object_kind)(data[4] % OBJECT_KINDS),
        .flags = data[5] & 7,
        .offset = le16_get(data + 6),
        .plain_len = le32_get(data) % (CHUNK_SIZE_MAX + 2),
        .stored_len = (uint32_t)len - 8,
    };
    uint8_t *stored = malloc(len - 8 ? len - 8 : 1);
    FUZZ_CHECK(stored);
    memcpy(stored, data + 8, len - 8);
    ref.stored_crc = crc32c(stored, ref.stored_len);
    struct buf *plain = NULL;
    FUZZ_CHECK(chunk_decode(&ref, stored, &plain) == -EBADMSG);
    struct buf *base = buf_new(ref.plain_len);
    FUZZ_CHECK(base);
    memset(base->data, 'b', base->len);
    FUZZ_CHECK(chunk_decode_upon(&ref, base, stored, &plain) == -EBADMSG);
    buf_unref(base);
    free(stored);

    /* and back: what is encoded decodes */
    CLEANUP_BYTES out = BYTES_INIT(CHUNK_SIZE_MAX);
    FUZZ_CHECK(chunk_encode(data, (uint32_t)GR_MIN(len, (size_t)CHUNK_SIZE_MAX), data[0] % 4, &out, &ref) == 0);
    FUZZ_CHECK(chunk_decode(&ref, out.data, &plain) == 0 && !memcmp(plain->data, data, ref.plain_len));

    /* and upon itself */
    const struct chunk_base upon = {.stored_len = UINT32_MAX / 1024};
    const uint32_t plain_len = ref.plain_len;
    FUZZ_CHECK(chunk_encode_upon(&upon, plain->data, data, plain_len, data[0] % 4 + 1, &out, &ref) == 0);
    base = steal_ptr(&plain);
    const bool delta = chunk_is_delta(&ref);
    FUZZ_CHECK(delta || plain_len < 256); /* of a shorter one a frame is more than a quarter */
    FUZZ_CHECK((delta ? chunk_decode_upon(&ref, base, out.data, &plain) : chunk_decode(&ref, out.data, &plain)) == 0);
    FUZZ_CHECK(!memcmp(plain->data, data, plain_len));
    buf_unref(plain);
    buf_unref(base);
    split_and_join(data, plain_len);
    return 0;
}
