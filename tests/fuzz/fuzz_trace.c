/* A trace. Its checksums are put right in a copy, or nothing else would be reached. */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/crc32c.h"
#include "base/le.h"
#include "format/trace.h"

static void check(const uint8_t *data, size_t len)
{
    struct trace t;
    CLEANUP_BYTES again = BYTES_INIT(TRACE_FILE_MAX);
    int rc = trace_decode(data, len, &t);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG);
    if (rc)
        return;
    for (uint32_t i = 0; i < t.count; i++)
        FUZZ_CHECK((uint64_t)trace_entry_at(&t, i).chunk * t.chunk_size < t.size);
    FUZZ_CHECK(trace_check_geometry(t.size, t.chunk_size) == 0);
    FUZZ_CHECK(trace_encode(&t, &again) == 0 && again.len == len && !memcmp(again.data, data, len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    check(data, len);
    CLEANUP_FREE uint8_t *copy = malloc(len + !len);
    if (!copy || len < TRACE_HEADER_SIZE)
        return 0;
    memcpy(copy, data, len);
    le32_put(copy + 36, crc32c(copy + TRACE_HEADER_SIZE, len - TRACE_HEADER_SIZE));
    le32_put(copy + 108, crc32c(copy, 108));
    check(copy, len);
    return 0;
}
