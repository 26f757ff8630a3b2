/* A list is its entries one after the other. An entry is the base64 of 51 bytes: digest (32 bytes), offset in the
 * object, stored length, CRC-32C of the stored bytes, plain length (4 bytes each, little-endian), flags, and two zeros,
 * so that it ends without padding. */
#include "format/chunk_list.h"

#include <errno.h>
#include <string.h>

#include "base/ed25519.h"
#include "base/le.h"

enum { BYTES = CHUNK_LIST_ENTRY / 4 * 3 };

char *chunk_list_encode(const struct chunk_ref *const *refs, size_t n, char out[CHUNK_LIST_TEXT_MAX])
{
    uint8_t entry[BYTES] = {0};
    for (size_t i = 0; i < n; i++) {
        memcpy(entry, refs[i]->digest.b, DIGEST_SIZE);
        le32_put(entry + 32, refs[i]->offset);
        le32_put(entry + 36, refs[i]->stored_len);
        le32_put(entry + 40, refs[i]->stored_crc);
        le32_put(entry + 44, refs[i]->plain_len);
        entry[48] = refs[i]->flags;
        base64_encode(entry, sizeof entry, out + i * CHUNK_LIST_ENTRY);
    }
    return out;
}

/* Could such a chunk be in a store? */
static bool is_possible(const struct chunk_ref *ref)
{
    bool zstd = ref->flags == CHUNK_ZSTD;
    return ref->plain_len && ref->plain_len <= CHUNK_SIZE_MAX && ref->stored_len && !chunk_is_hole(ref) &&
           (zstd ? ref->stored_len < ref->plain_len : !ref->flags && ref->stored_len == ref->plain_len);
}

int chunk_list_decode(const char *text, enum object_kind kind, const struct digest *object, uint64_t off, uint64_t len,
                      struct chunk_ref out[CHUNK_LIST_MAX], size_t *out_n)
{
    uint8_t entry[BYTES];
    size_t text_len = strlen(text), n = text_len / CHUNK_LIST_ENTRY;
    uint64_t from = off;
    if (!n || n > CHUNK_LIST_MAX || text_len % CHUNK_LIST_ENTRY)
        return -EBADMSG;
    for (size_t i = 0; i < n; i++) {
        struct chunk_ref *ref = &out[i];
        if (base64_decode(text + i * CHUNK_LIST_ENTRY, CHUNK_LIST_ENTRY, entry, sizeof entry) || entry[49] || entry[50])
            return -EBADMSG;
        *ref = (struct chunk_ref){.object = *object,
                                  .kind = kind,
                                  .offset = le32_get(entry + 32),
                                  .stored_len = le32_get(entry + 36),
                                  .stored_crc = le32_get(entry + 40),
                                  .plain_len = le32_get(entry + 44),
                                  .flags = entry[48]};
        memcpy(ref->digest.b, entry, DIGEST_SIZE);
        if (!is_possible(ref) || ref->offset < from || (uint64_t)ref->offset + ref->stored_len > off + len)
            return -EBADMSG;
        from = (uint64_t)ref->offset + ref->stored_len;
    }
    *out_n = n;
    return 0;
}
