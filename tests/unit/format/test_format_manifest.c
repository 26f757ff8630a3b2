/* The manifest: canonical bytes, every rule refused on both ways. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/io.h"
#include "format/catalog.h"
#include "format/manifest.h"
#include "unit/mangle.h"

static struct manifest example(void)
{
    struct manifest m = {
        .fs = MANIFEST_EROFS,
        .size = UINT64_C(1030) * (128 << 10) + 4096,
        .chunk_size = 128 << 10,
        .metadata_offset = 64 << 20,
        .metadata_len = 1 << 20,
        .index_levels = 2,
        .index_root = {.digest = digest_of("node", 4),
                       .content = digest_of("content", 7),
                       .len = 200,
                       .crc = 4000000000u},
        .catalog_levels = 1,
        .catalog_root = digest_of("page", 4),
        .catalog_len = 5000,
        .catalog_crc = 17,
        .catalog_entries = 12,
        .stored_bytes = UINT64_C(100) << 30,
        .counts = {.files = 7, .directories = 2, .symlinks = 1, .hard_links = 1, .others = 1, .bytes = 123456789012},
    };
    m.content_root = index_content_root(m.size, m.chunk_size, &m.index_root.content);
    return m;
}

static void test_manifest__the_bytes_are_those_of_the_golden_file(void **state)
{
    CLEANUP_BYTES golden = BYTES_INIT(MANIFEST_MAX);
    CLEANUP_BYTES text = BYTES_INIT(MANIFEST_MAX);
    struct manifest m = example(), back;
    assert_int_equal(io_read_file(GRANARY_GOLDEN_DIR "/ok-manifest.json", &golden), 0);
    assert_int_equal(manifest_encode(&m, &text), 0);
    assert_int_equal(text.len, golden.len);
    assert_memory_equal(text.data, golden.data, text.len);
    assert_int_equal(manifest_decode(golden.data, golden.len, &back), 0);
    assert_memory_equal(&m, &back, sizeof m);
    for (unsigned fs = 0; fs < MANIFEST_FILESYSTEMS; fs++) {
        m.fs = (enum manifest_fs)fs;
        assert_string_not_equal(manifest_fs_name(m.fs), "unknown");
        bytes_clear(&text);
        assert_int_equal(manifest_encode(&m, &text), 0);
        assert_int_equal(manifest_decode(text.data, text.len, &back), 0);
        assert_int_equal(back.fs, fs);
    }
    assert_int_equal(back.front_len, 0);
    assert_int_equal(back.deltas, 0);
    m.front_len = 12345 * 4096;
    bytes_clear(&text);
    assert_int_equal(manifest_encode(&m, &text), 0);
    assert_int_equal(manifest_decode(text.data, text.len, &back), 0);
    assert_memory_equal(&m, &back, sizeof m);
}

/* Deltas in the index are the one difference between the versions: in version 2, none has the split form. */
static void test_manifest__versions_2_and_3_have_deltas(void **state)
{
    for (unsigned version = 2; version <= 3; version++) {
        CLEANUP_BYTES text = BYTES_INIT(MANIFEST_MAX);
        struct manifest m = example(), back;
        char key[32];
        snprintf(key, sizeof key, "\"version\":%u", version);
        m.deltas = version == 2 ? CHUNK_DELTA : CHUNK_DELTA | CHUNK_SPLIT;
        assert_int_equal(manifest_encode(&m, &text), 0);
        assert_non_null(strstr(bytes_string(&text), key));
        assert_int_equal(manifest_decode(text.data, text.len, &back), 0);
        assert_memory_equal(&m, &back, sizeof m);
    }
}

static int decode_text(void *arg, const void *data, size_t len)
{
    struct manifest m;
    return manifest_decode(data, len, &m);
}

/* The golden text with `from` replaced by `to`. */
static int decode_changed(const char *from, const char *to)
{
    CLEANUP_BYTES golden = BYTES_INIT(MANIFEST_MAX);
    static char changed[MANIFEST_MAX];
    assert_int_equal(io_read_file(GRANARY_GOLDEN_DIR "/ok-manifest.json", &golden), 0);
    const char *text = bytes_string(&golden), *at = strstr(text, from);
    if (!at)
        fail_msg("%s is not in the golden file", from);
    int len = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return decode_text(NULL, changed, (size_t)len);
}

static void assert_refused(const char *from, const char *to, const char *because)
{
    assert_int_equal(decode_changed(from, to), -EBADMSG);
    if (!strstr(error_text(), because))
        fail_msg("\"%s\" does not say \"%s\"", error_text(), because);
}

static void test_manifest__what_is_wrong_is_named(void **state)
{
    assert_refused("{\"catalog\"", "{\"size\":4096,\"catalog\"", "duplicate");
    assert_refused("\"version\":1", "\"version\":4", "newer");
    assert_refused("\"version\":1", "\"version\":\"1\"", "version");
    assert_refused("granary-image", "other-image", "format");
    assert_refused("\"fs\":\"erofs\"", "\"fs\":\"xfs\"", "filesystem");
    assert_refused("\"fs\":\"erofs\"", "\"fs\":\"a-name-that-is-too-long\"", "fs");
    assert_refused("\"chunk_size\":131072", "\"chunk_size\":131073", "chunk size");
    assert_refused("\"chunk_size\":131072", "\"chunk_size\":32768", "chunk size");
    assert_refused("\"chunk_size\":131072", "\"chunk_size\":8388608", "chunk size");
    assert_refused("\"chunk_size\":131072", "\"chunk_size\":1e5", "chunk_size");
    assert_refused("\"size\":135008256", "\"size\":135012352", "content root");
    assert_refused("\"metadata\":{\"len\":1048576", "\"metadata\":{\"len\":9900000000", "metadata");
    assert_refused("\"metadata\":{\"len\":1048576", "\"metadata\":{\"len\":-1", "len");
    assert_refused("\"metadata\":{\"len\":1048576", "\"metadata\":[{\"len\":1048576", "JSON");
    assert_refused("\"levels\":2", "\"levels\":1", "levels");
    assert_refused("\"levels\":2", "\"levels\":3", "levels");
    assert_refused("\"catalog\":{\"crc\":17", "\"catalog\":{\"crc\":4294967296", "crc");
    assert_refused("\"entries\":12", "\"entries\":0", "catalog");
    assert_refused("\"entries\":12", "\"entries\":1152921504606846977", "entries");
    assert_refused("\"len\":5000", "\"len\":0", "catalog");
    assert_refused("\"len\":5000", "\"len\":5000000", "catalog");
    assert_refused("\"len\":200", "\"len\":0", "root");
    assert_refused("\"len\":200", "\"len\":196609", "root");
    assert_refused("\"files\":7", "\"files\":-7", "files");
    assert_refused("\"files\":7,", "", "files");
    assert_refused("\"stored_bytes\":107374182400", "\"stored_bytes\":null", "stored_bytes");
}

static void test_manifest__unknown_keys_are_ignored(void **state)
{
    assert_int_equal(decode_changed("{\"catalog\"", "{\"added later\":[1,{}],\"catalog\""), 0);
}

static void test_manifest__not_json_at_all(void **state)
{
    const char *const texts[] = {
        "", "{", "[]", "null", "1", "\"\"", "{}", "\xff\xfe", "{\"format\":\"granary-image\"}"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(texts); i++)
        assert_int_equal(mangle_try(decode_text, NULL, (const uint8_t *)texts[i], strlen(texts[i])), -EBADMSG);
    /* deeper than any stack */
    static char deep[MANIFEST_MAX];
    memset(deep, '[', sizeof deep);
    assert_int_equal(decode_text(NULL, deep, sizeof deep), -EBADMSG);
    static char large[MANIFEST_MAX + 1];
    memset(large, ' ', sizeof large);
    assert_int_equal(decode_text(NULL, large, sizeof large), -EBADMSG);
}

static void test_manifest__damage_is_refused_or_harmless(void **state)
{
    CLEANUP_BYTES golden = BYTES_INIT(MANIFEST_MAX);
    assert_int_equal(io_read_file(GRANARY_GOLDEN_DIR "/ok-manifest.json", &golden), 0);
    mangle_truncate(decode_text, NULL, golden.data, golden.len, -EBADMSG);
    assert_true(mangle_flip(decode_text, NULL, golden.data, golden.len, 1, -EBADMSG) > golden.len * 4);
}

static void test_manifest__nothing_is_written_that_would_be_refused(void **state)
{
    CLEANUP_BYTES text = BYTES_INIT(MANIFEST_MAX);
    struct manifest m;
#define REFUSED(change)                                                                                                \
    m = example();                                                                                                     \
    change;                                                                                                            \
    assert_int_equal(manifest_encode(&m, &text), -EINVAL);                                                             \
    assert_int_equal(text.len, 0)
    REFUSED(m.size = 0);
    REFUSED(m.size += 1);
    REFUSED(m.size = UINT64_C(1) << 61);
    REFUSED(m.chunk_size = 0);
    REFUSED(m.chunk_size = 100000);
    REFUSED(m.fs = (enum manifest_fs)7);
    REFUSED(m.metadata_offset = UINT64_MAX);
    REFUSED(m.metadata_len = UINT64_MAX);
    REFUSED(m.front_len = m.metadata_offset + 1);
    REFUSED(m.index_levels = 0);
    REFUSED(m.index_levels = 3);
    REFUSED(m.content_root.b[5] ^= 1);
    REFUSED(memset(&m.index_root.digest, 0, DIGEST_SIZE));
    REFUSED(m.catalog_levels = 0);
    REFUSED(m.catalog_levels = CATALOG_LEVELS_MAX + 1);
    REFUSED(m.catalog_len = CATALOG_OBJECT_MAX + 1);
    REFUSED(m.stored_bytes = UINT64_MAX);
    REFUSED(m.counts.bytes = UINT64_MAX);
#undef REFUSED
    CLEANUP_BYTES small = BYTES_INIT(100);
    m = example();
    assert_int_equal(manifest_encode(&m, &small), -EMSGSIZE);
    assert_int_equal(small.len, 0);
}

static void test_manifest__an_image_of_holes(void **state)
{
    CLEANUP_BYTES text = BYTES_INIT(MANIFEST_MAX);
    struct manifest m = example(), back;
    memset(&m.index_root, 0, sizeof m.index_root);
    m.content_root = index_content_root(m.size, m.chunk_size, &m.index_root.content);
    assert_int_equal(manifest_encode(&m, &text), 0);
    assert_int_equal(manifest_decode(text.data, text.len, &back), 0);
}

static int decode_checkpoint(void *arg, const void *data, size_t len)
{
    struct checkpoint_doc c;
    return checkpoint_doc_decode(data, len, &c);
}

static void test_checkpoint__round_trip_and_no_byte_may_differ(void **state)
{
    CLEANUP_BYTES text = BYTES_INIT(CHECKPOINT_DOC_MAX);
    struct checkpoint_doc c = {.key = digest_of("build", 5), .image = example()}, back;
    char key[CHECKPOINT_KEY_MAX];
    assert_int_equal(checkpoint_doc_encode(&c, &text), 0);
    assert_int_equal(checkpoint_doc_decode(text.data, text.len, &back), -EBADMSG); /* a whole image */
    c.image.size = UINT64_C(1030) * c.image.chunk_size;
    c.image.metadata_offset = c.image.size;
    c.image.metadata_len = 0;
    c.image.front_len = c.image.chunk_size;
    c.image.content_root = index_content_root(c.image.size, c.image.chunk_size, &c.image.index_root.content);
    bytes_clear(&text);
    assert_int_equal(checkpoint_doc_encode(&c, &text), 0);
    assert_int_equal(checkpoint_doc_decode(text.data, text.len, &back), 0);
    assert_memory_equal(&c, &back, sizeof c);
    assert_string_equal(checkpoint_doc_key(&c.key, key) + 7 + 64, ".checkpoint");
    mangle_truncate(decode_checkpoint, NULL, text.data, text.len, -EBADMSG);
    char *size = strstr(bytes_string(&text), "\\\"stored_bytes\\\":");
    assert_non_null(size);
    size[strlen("\\\"stored_bytes\\\":")] ^= 1;
    assert_int_equal(checkpoint_doc_decode(text.data, text.len, &back), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_manifest__the_bytes_are_those_of_the_golden_file),
        cmocka_unit_test(test_manifest__versions_2_and_3_have_deltas),
        cmocka_unit_test(test_manifest__what_is_wrong_is_named),
        cmocka_unit_test(test_manifest__unknown_keys_are_ignored),
        cmocka_unit_test(test_manifest__not_json_at_all),
        cmocka_unit_test(test_manifest__damage_is_refused_or_harmless),
        cmocka_unit_test(test_manifest__nothing_is_written_that_would_be_refused),
        cmocka_unit_test(test_manifest__an_image_of_holes),
        cmocka_unit_test(test_checkpoint__round_trip_and_no_byte_may_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
