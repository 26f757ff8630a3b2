/* A trace is read back as it was written, and no other bytes are taken for one. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/le.h"
#include "format/trace.h"

enum { COUNT = 5, CHUNK = 64 << 10, CHUNKS = 100 };

struct sample {
    uint8_t entries[COUNT * TRACE_ENTRY_SIZE];
    struct bytes file;
    struct trace t;
};

static void sample_init(struct sample *s)
{
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct digest digest = digest_of(&i, sizeof i);
        const struct trace_entry entry = trace_entry_of(CHUNKS - 1 - 7 * i, &digest);
        trace_entry_put(s->entries + (size_t)i * TRACE_ENTRY_SIZE, &entry);
    }
    s->file = (struct bytes)BYTES_INIT(TRACE_FILE_MAX);
    s->t = (struct trace){.image = digest_of("image", 5),
                          .content_root = digest_of("content", 7),
                          .size = (uint64_t)(CHUNKS - 1) * CHUNK + 1,
                          .chunk_size = CHUNK,
                          .dropped = UINT64_C(1) << 40,
                          .count = COUNT,
                          .entries = s->entries};
    assert_int_equal(trace_encode(&s->t, &s->file), 0);
}

static void seal(uint8_t *file, size_t len)
{
    le32_put(file + 36, crc32c(file + TRACE_HEADER_SIZE, len - TRACE_HEADER_SIZE));
    le32_put(file + 108, crc32c(file, 108));
}

static void test_trace__is_read_back(void **state)
{
    struct sample s;
    struct trace t;
    sample_init(&s);
    assert_int_equal(s.file.len, TRACE_HEADER_SIZE + sizeof s.entries);
    assert_int_equal(trace_decode(s.file.data, s.file.len, &t), 0);
    assert_true(digest_equal(&t.image, &s.t.image) && digest_equal(&t.content_root, &s.t.content_root));
    assert_true(t.size == s.t.size && t.chunk_size == CHUNK && t.dropped == s.t.dropped && t.count == COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct digest digest = digest_of(&i, sizeof i);
        const struct trace_entry entry = trace_entry_at(&t, i);
        assert_int_equal(entry.chunk, CHUNKS - 1 - 7 * i);
        assert_memory_equal(entry.id, digest.b, TRACE_ID_SIZE);
    }
    bytes_release(&s.file);
}

static void test_trace__every_flipped_bit_and_every_cut_is_refused(void **state)
{
    struct sample s;
    struct trace t;
    sample_init(&s);
    for (size_t i = 0; i < s.file.len * 8; i++) {
        s.file.data[i / 8] ^= (uint8_t)(1 << i % 8);
        assert_int_equal(trace_decode(s.file.data, s.file.len, &t), -EBADMSG);
        s.file.data[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    for (size_t len = 0; len < s.file.len; len++)
        assert_int_equal(trace_decode(s.file.data, len, &t), -EBADMSG);
    assert_int_equal(trace_decode(s.file.data, s.file.len, &t), 0);
    bytes_release(&s.file);
}

/* Put a value where the checksums are right. */
static void expect_refusal(size_t at, size_t width, uint64_t value, const char *text)
{
    struct sample s;
    struct trace t;
    sample_init(&s);
    uint8_t bytes[8];
    le64_put(bytes, value);
    memcpy(s.file.data + at, bytes, width);
    seal(s.file.data, s.file.len);
    assert_int_equal(trace_decode(s.file.data, s.file.len, &t), -EBADMSG);
    if (!strstr(error_text(), text))
        fail_msg("'%s', not '%s'", error_text(), text);
    bytes_release(&s.file);
}

static void test_trace__hostile_fields_are_refused(void **state)
{
    expect_refusal(8, 4, 2, "version 2");
    expect_refusal(12, 4, 100000, "no image");
    expect_refusal(16, 8, 0, "no image");
    expect_refusal(16, 8, UINT64_MAX, "no image");
    expect_refusal(32, 4, UINT32_MAX, "no image");
    expect_refusal(32, 4, COUNT + 1, "cut short");
    expect_refusal(32, 4, COUNT - 1, "cut short");
    expect_refusal(104, 4, 1, "header");
    expect_refusal(TRACE_HEADER_SIZE, 4, CHUNKS, "past the end");
}

static void test_trace__what_cannot_be_numbered_is_refused(void **state)
{
    assert_int_equal(trace_check_geometry(UINT64_C(1) << 48, CHUNK), 0);
    assert_int_equal(trace_check_geometry((UINT64_C(1) << 48) + 1, CHUNK), -E2BIG);
    assert_int_equal(trace_check_geometry((UINT64_C(1) << 48) + 1, 2 * CHUNK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trace__is_read_back),
        cmocka_unit_test(test_trace__every_flipped_bit_and_every_cut_is_refused),
        cmocka_unit_test(test_trace__hostile_fields_are_refused),
        cmocka_unit_test(test_trace__what_cannot_be_numbered_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
