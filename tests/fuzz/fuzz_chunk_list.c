/* The list of chunks that another node sends in a header. What is decoded is encoded again, byte by byte the same. */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "format/chunk_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const struct digest object = {{7}};
    enum { OFF = 4096, LEN = 8 << 20 };
    struct chunk_ref refs[CHUNK_LIST_MAX];
    const struct chunk_ref *each[CHUNK_LIST_MAX];
    char again[CHUNK_LIST_TEXT_MAX];
    size_t n;
    CLEANUP_FREE char *text = malloc(len + 1);
    FUZZ_CHECK(text);
    memcpy(text, data, len);
    text[len] = 0;
    int rc = chunk_list_decode(text, OBJECT_PACK, &object, OFF, LEN, refs, &n);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG);
    if (rc)
        return 0;
    FUZZ_CHECK(n && n <= CHUNK_LIST_MAX);
    for (size_t i = 0; i < n; i++) {
        each[i] = &refs[i];
        FUZZ_CHECK(refs[i].offset >= OFF && (uint64_t)refs[i].offset + refs[i].stored_len <= OFF + LEN);
    }
    FUZZ_CHECK(!strcmp(chunk_list_encode(each, n, again), text));
    return 0;
}
