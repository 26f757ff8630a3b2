/* The list of chunks in a request between nodes: what was encoded comes back, and nothing that cannot be is taken. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "format/chunk_list.h"

/* n chunks side by side from `off` on, every third compressed, with a gap behind every fifth. */
static uint64_t make(struct chunk_ref *refs, const struct chunk_ref **list, size_t n, uint32_t off)
{
    memset(refs, 0, n * sizeof *refs);
    for (size_t i = 0; i < n; i++) {
        struct chunk_ref *ref = &refs[i];
        memset(ref->digest.b, (int)(i + 1), DIGEST_SIZE);
        memset(ref->object.b, 0xab, DIGEST_SIZE);
        ref->plain_len = 65536;
        ref->flags = i % 3 ? 0 : CHUNK_ZSTD;
        ref->stored_len = i % 3 ? 65536 : 1000;
        ref->stored_crc = (uint32_t)i * 0x01010101u;
        ref->offset = off;
        off += ref->stored_len + (i % 5 ? 0 : 777);
        list[i] = ref;
    }
    return (uint64_t)refs[n - 1].offset + refs[n - 1].stored_len;
}

static void test_chunk_list__comes_back(void **state)
{
    static struct chunk_ref refs[CHUNK_LIST_MAX], out[CHUNK_LIST_MAX];
    const struct chunk_ref *list[CHUNK_LIST_MAX];
    char text[CHUNK_LIST_TEXT_MAX];
    static const size_t counts[] = {1, 2, 50, CHUNK_LIST_MAX};
    for (size_t k = 0; k < GR_ARRAY_SIZE(counts); k++) {
        size_t n = 0;
        uint64_t end = make(refs, list, counts[k], 12345);
        chunk_list_encode(list, counts[k], text);
        assert_int_equal(strlen(text), counts[k] * CHUNK_LIST_ENTRY);
        assert_int_equal(chunk_list_decode(text, OBJECT_PACK, &refs[0].object, 12345, end - 12345, out, &n), 0);
        assert_int_equal(n, counts[k]);
        assert_memory_equal(out, refs, n * sizeof *refs);
    }
}

/* Decode a list of two after one change; returns the result. */
static int changed(void (*change)(struct chunk_ref *refs), uint64_t off, uint64_t len)
{
    struct chunk_ref refs[2], out[CHUNK_LIST_MAX];
    const struct chunk_ref *list[2];
    char text[CHUNK_LIST_TEXT_MAX];
    size_t n = 0;
    make(refs, list, 2, 1000);
    if (change)
        change(refs);
    return chunk_list_decode(chunk_list_encode(list, 2, text), OBJECT_PACK, &refs[0].object, off, len, out, &n);
}

static void overlap(struct chunk_ref *refs)
{
    refs[1].offset = refs[0].offset + refs[0].stored_len - 1;
}

static void backwards(struct chunk_ref *refs)
{
    refs[0].offset = refs[1].offset + refs[1].stored_len;
}

static void hole(struct chunk_ref *refs)
{
    memset(refs[1].digest.b, 0, DIGEST_SIZE);
}

static void too_long(struct chunk_ref *refs)
{
    refs[0].plain_len = CHUNK_SIZE_MAX + 1;
}

static void grown(struct chunk_ref *refs)
{
    refs[0].stored_len = refs[0].plain_len;
}

static void shrunk(struct chunk_ref *refs)
{
    refs[1].stored_len--;
}

static void other_flag(struct chunk_ref *refs)
{
    refs[1].flags = 2;
}

static void empty(struct chunk_ref *refs)
{
    refs[1].plain_len = refs[1].stored_len = 0;
}

static void test_chunk_list__what_cannot_be_is_refused(void **state)
{
    enum { LEN = 1000 + 777 + 65536 };
    assert_int_equal(changed(NULL, 1000, LEN), 0);
    assert_int_equal(changed(NULL, 1001, LEN), -EBADMSG);
    assert_int_equal(changed(NULL, 1000, LEN - 1), -EBADMSG);
    void (*const changes[])(struct chunk_ref *) = {overlap, backwards, hole,       too_long,
                                                   grown,   shrunk,    other_flag, empty};
    for (size_t i = 0; i < GR_ARRAY_SIZE(changes); i++)
        if (changed(changes[i], 0, 1 << 20) != -EBADMSG)
            fail_msg("change %zu", i);
}

static void test_chunk_list__other_text_is_refused(void **state)
{
    struct chunk_ref refs[2], out[CHUNK_LIST_MAX];
    const struct chunk_ref *list[2];
    static char text[CHUNK_LIST_TEXT_MAX + CHUNK_LIST_ENTRY];
    size_t n = 0;
    uint64_t end = make(refs, list, 2, 0);
    chunk_list_encode(list, 2, text);
    for (size_t len = 0; len < strlen(text); len++) { /* cut */
        char cut[CHUNK_LIST_TEXT_MAX];
        snprintf(cut, sizeof cut, "%.*s", (int)len, text);
        assert_int_equal(chunk_list_decode(cut, OBJECT_PACK, &refs[0].object, 0, end, out, &n),
                         len == CHUNK_LIST_ENTRY ? 0 : -EBADMSG);
    }
    text[CHUNK_LIST_ENTRY - 1] ^= 1; /* the zeros at an entry's end */
    assert_int_equal(chunk_list_decode(text, OBJECT_PACK, &refs[0].object, 0, end, out, &n), -EBADMSG);
    text[CHUNK_LIST_ENTRY - 1] = '*';
    assert_int_equal(chunk_list_decode(text, OBJECT_PACK, &refs[0].object, 0, end, out, &n), -EBADMSG);
    memset(text, 'A', sizeof text - 1); /* one entry too many */
    assert_int_equal(chunk_list_decode(text, OBJECT_PACK, &refs[0].object, 0, end, out, &n), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunk_list__comes_back),
        cmocka_unit_test(test_chunk_list__what_cannot_be_is_refused),
        cmocka_unit_test(test_chunk_list__other_text_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
