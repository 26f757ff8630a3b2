/* The table of exports. Its checksum is put in front of the input, or nothing else would be reached. */
#include "fuzz/fuzz.h"

#include <errno.h>

#include "format/export_table.h"

static void write_again(const struct export_table *t)
{
    CLEANUP_EXPORT_TABLE again = {0};
    CLEANUP_BYTES text = BYTES_INIT(4 * EXPORT_TABLE_MAX); /* escapes make a string longer */
    size_t kept;
    FUZZ_CHECK(export_table_encode(t, &text, &kept) == 0 && kept == t->entries.len);
    if (text.len > EXPORT_TABLE_MAX)
        return;
    FUZZ_CHECK(export_table_decode(text.data, text.len, &again) == 0 && again.entries.len == kept);
    for (size_t i = 0; i < kept; i++)
        FUZZ_CHECK(export_table_find_image(&again, t->entries.items[i].ref.store, &t->entries.items[i].ref.digest));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    CLEANUP_EXPORT_TABLE t = {0};
    CLEANUP_BYTES text = BYTES_INIT(EXPORT_TABLE_MAX);
    char hex[DIGEST_HEX_SIZE];
    struct digest sum = digest_of(data, len);
    if (bytes_printf(&text, "sha256:%s\n", digest_hex(&sum, hex)) || bytes_append(&text, data, len))
        return 0;
    int rc = export_table_decode(text.data, text.len, &t);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG);
    if (!rc)
        write_again(&t);
    return 0;
}
