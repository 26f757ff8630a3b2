/* Index nodes: one encoding, every limit, content hashes by hand. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/le.h"
#include "format/index.h"
#include "unit/mangle.h"

enum { CHUNK = 128 << 10 };

static struct digest digest_number(uint64_t n)
{
    return digest_of(&n, sizeof n);
}

static struct chunk_ref chunk_number(uint64_t n, uint64_t pack)
{
    return (struct chunk_ref){
        .digest = digest_number(n),
        .object = digest_number(1000000 + pack),
        .kind = OBJECT_PACK,
        .flags = n % 2 ? CHUNK_ZSTD : 0,
        .offset = (uint32_t)n * 1000,
        .stored_len = n % 2 ? CHUNK / 2 : CHUNK,
        .stored_crc = (uint32_t)(n * 77),
        .plain_len = CHUNK,
    };
}

static struct index_node *decode(const struct bytes *b)
{
    struct index_node *node = NULL;
    if (index_decode(b->data, b->len, &node))
        fail_msg("%s", error_text());
    return node;
}

static void assert_same_chunk(const struct chunk_ref *a, const struct chunk_ref *b)
{
    if (chunk_is_hole(a)) {
        assert_true(chunk_is_hole(b));
        return;
    }
    assert_memory_equal(&a->digest, &b->digest, DIGEST_SIZE);
    assert_memory_equal(&a->object, &b->object, DIGEST_SIZE);
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->offset, b->offset);
    assert_int_equal(a->stored_len, b->stored_len);
    assert_int_equal(a->stored_crc, b->stored_crc);
    assert_int_equal(a->plain_len, b->plain_len);
    assert_memory_equal(&a->base.digest, &b->base.digest, DIGEST_SIZE);
    assert_memory_equal(&a->base.object, &b->base.object, DIGEST_SIZE);
    assert_int_equal(a->base.flags, b->base.flags);
    assert_int_equal(a->base.offset, b->base.offset);
    assert_int_equal(a->base.stored_len, b->base.stored_len);
    assert_int_equal(a->base.stored_crc, b->base.stored_crc);
}

static struct chunk_ref delta_number(uint64_t n, uint64_t pack, uint64_t base, uint64_t base_pack)
{
    const struct chunk_ref of = chunk_number(base, base_pack);
    struct chunk_ref delta = chunk_number(n, pack);
    delta.flags = CHUNK_DELTA | (n % 2 ? CHUNK_SPLIT : 0);
    delta.stored_len = 100;
    delta.base = chunk_as_base(&of);
    return delta;
}

/* Encode, decode, compare, encode again: the same bytes. */
static size_t leaf_round_trip(const struct chunk_ref *chunks, uint32_t count)
{
    CLEANUP_BYTES object = BYTES_INIT(INDEX_NODE_MAX);
    CLEANUP_BYTES again = BYTES_INIT(INDEX_NODE_MAX);
    struct digest content, content_again, content_decoded;
    assert_int_equal(index_encode_leaf(chunks, count, &object, &content), 0);
    CLEANUP(cleanup_index_node) struct index_node *node = decode(&object);
    assert_int_equal(node->level, 0);
    assert_int_equal(node->count, count);
    for (uint32_t i = 0; i < count; i++)
        assert_same_chunk(&chunks[i], &node->chunks[i]);
    assert_int_equal(index_node_content(node, &content_decoded), 0);
    assert_memory_equal(&content, &content_decoded, DIGEST_SIZE);
    assert_int_equal(index_encode_leaf(node->chunks, count, &again, &content_again), 0);
    assert_int_equal(again.len, object.len);
    assert_memory_equal(again.data, object.data, object.len);
    return object.len;
}

static void test_index__leaves_round_trip(void **state)
{
    static struct chunk_ref chunks[INDEX_FANOUT];
    const uint32_t counts[] = {1, 2, 7, 8, 9, 1000, INDEX_FANOUT};
    for (size_t c = 0; c < GR_ARRAY_SIZE(counts); c++)
        for (uint32_t hole = 1; hole <= 5; hole += 2) {
            for (uint32_t i = 0; i < counts[c]; i++)
                chunks[i] = i % 6 == hole ? (struct chunk_ref){.plain_len = 5} : chunk_number(i, i / 50 % 3);
            leaf_round_trip(chunks, counts[c]);
            if (!chunk_is_hole(&chunks[counts[c] - 1])) {
                struct chunk_ref *last = &chunks[counts[c] - 1];
                last->plain_len = 4096;
                last->stored_len = last->flags ? 100 : 4096;
                leaf_round_trip(chunks, counts[c]);
            }
        }
}

static void test_index__the_largest_leaf_fits_and_holes_cost_a_bit(void **state)
{
    static struct chunk_ref chunks[INDEX_FANOUT];
    for (uint32_t i = 0; i < INDEX_FANOUT; i++)
        chunks[i] = chunk_number(i, i);
    assert_true(leaf_round_trip(chunks, INDEX_FANOUT) <= INDEX_NODE_MAX);
    size_t one = leaf_round_trip(chunks, 1);
    memset(chunks, 0, sizeof chunks);
    chunks[INDEX_FANOUT - 1] = chunk_number(3, 3);
    assert_int_equal(leaf_round_trip(chunks, INDEX_FANOUT), one - 1 + INDEX_FANOUT / 8);
}

static void test_index__a_node_of_holes_is_not_stored(void **state)
{
    static const struct chunk_ref holes[10];
    static const struct index_child empty[10];
    CLEANUP_BYTES object = BYTES_INIT(INDEX_NODE_MAX);
    struct digest content = digest_number(1);
    assert_int_equal(index_encode_leaf(holes, 10, &object, &content), 0);
    assert_int_equal(object.len, 0);
    assert_true(digest_is_zero(&content));
    content = digest_number(1);
    assert_int_equal(index_encode_inner(1, empty, 10, &object, &content), 0);
    assert_int_equal(object.len, 0);
    assert_true(digest_is_zero(&content));
}

static void test_index__content_hashes_are_those_of_the_definition(void **state)
{
    struct chunk_ref chunks[3] = {chunk_number(1, 1), {.plain_len = 0}, chunk_number(4, 2)};
    uint8_t digests[96] = {0};
    memcpy(digests, &chunks[0].digest, 32);
    memcpy(digests + 64, &chunks[2].digest, 32);
    struct digest want = digest_of(digests, sizeof digests), content, inner_content;
    CLEANUP_BYTES object = BYTES_INIT(INDEX_NODE_MAX);
    assert_int_equal(index_encode_leaf(chunks, 3, &object, &content), 0);
    assert_memory_equal(&content, &want, DIGEST_SIZE);

    /* packs, offsets, compression: another storage of the same chunks has the same content */
    struct chunk_ref moved = chunk_number(1, 9);
    moved.flags = 0;
    moved.stored_len = CHUNK;
    moved.offset = 5;
    struct chunk_ref again[3] = {moved, {.plain_len = 0}, chunk_number(4, 9)};
    assert_int_equal(index_encode_leaf(again, 3, &object, &content), 0);
    assert_memory_equal(&content, &want, DIGEST_SIZE);

    struct index_child children[2] = {{.digest = digest_number(5), .content = want, .len = 100, .crc = 1}};
    uint8_t contents[64] = {0};
    memcpy(contents, &want, 32);
    struct digest want_inner = digest_of(contents, sizeof contents);
    assert_int_equal(index_encode_inner(1, children, 2, &object, &inner_content), 0);
    assert_memory_equal(&inner_content, &want_inner, DIGEST_SIZE);

    uint8_t root[18 + 8 + 4 + 32] = "granary content 1\n";
    le64_put(root + 18, 3 * CHUNK);
    le32_put(root + 26, CHUNK);
    memcpy(root + 30, &want, 32);
    struct digest want_root = digest_of(root, sizeof root), got = index_content_root(3 * CHUNK, CHUNK, &want);
    assert_memory_equal(&got, &want_root, DIGEST_SIZE);
}

static void fill_children(struct index_child *children, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        children[i] =
            i % 5 == 1
                ? (struct index_child){.len = 0}
                : (struct index_child){
                      .digest = digest_number(i), .content = digest_number(i + 5000), .len = i + 1, .crc = i * 3};
}

static void test_index__inner_nodes_round_trip(void **state)
{
    static struct index_child children[INDEX_FANOUT];
    const uint32_t counts[] = {1, 3, 8, INDEX_FANOUT};
    for (size_t c = 0; c < GR_ARRAY_SIZE(counts); c++)
        for (unsigned level = 1; level < INDEX_LEVELS_MAX; level++) {
            fill_children(children, counts[c]);
            children[counts[c] - 1].len = INDEX_NODE_MAX;
            children[counts[c] - 1].digest = children[counts[c] - 1].content = digest_number(9);
            CLEANUP_BYTES object = BYTES_INIT(INDEX_NODE_MAX);
            struct digest content;
            assert_int_equal(index_encode_inner(level, children, counts[c], &object, &content), 0);
            CLEANUP(cleanup_index_node) struct index_node *node = decode(&object);
            assert_int_equal(node->level, level);
            assert_int_equal(node->count, counts[c]);
            for (uint32_t i = 0; i < counts[c]; i++)
                assert_memory_equal(&node->children[i], &children[i], sizeof children[i]);
        }
}

static void test_index__leaves_with_deltas_round_trip(void **state)
{
    static struct chunk_ref chunks[INDEX_FANOUT];
    const uint32_t counts[] = {1, 2, 9, INDEX_FANOUT};
    for (size_t c = 0; c < GR_ARRAY_SIZE(counts); c++)
        for (uint32_t every = 1; every <= 3; every++) {
            for (uint32_t i = 0; i < counts[c]; i++)
                chunks[i] = i % every ? chunk_number(i, i / 50 % 3) : delta_number(i, i % 4, i + 5000, i / 7);
            size_t len = leaf_round_trip(chunks, counts[c]);
            chunks[counts[c] - 1].plain_len = 8192; /* the base of a short chunk is short, too */
            chunks[counts[c] - 1].stored_len = (counts[c] - 1) % every ? 8192 : 100;
            chunks[counts[c] - 1].flags &= CHUNK_DELTA | CHUNK_SPLIT;
            chunks[counts[c] - 1].base.flags = CHUNK_ZSTD;
            chunks[counts[c] - 1].base.stored_len = 8000;
            if (!chunks[counts[c] - 1].flags)
                chunks[counts[c] - 1].base = (struct chunk_base){.flags = 0};
            assert_int_equal(leaf_round_trip(chunks, counts[c]), len);
        }
    /* every entry and every base in a pack of its own */
    for (uint32_t i = 0; i < INDEX_FANOUT; i++)
        chunks[i] = delta_number(i, i, i, i + 2000);
    size_t len = leaf_round_trip(chunks, INDEX_FANOUT);
    assert_int_equal(len, 24 + 128 + INDEX_FANOUT * (47 + 47 + 32 + 32));
    assert_true(len <= INDEX_NODE_MAX);
}

/* Encode three chunks, the second of them a delta. */
static void put_delta_leaf(struct bytes *out)
{
    struct chunk_ref chunks[3] = {chunk_number(0, 0), delta_number(1, 1, 7, 2), chunk_number(2, 0)};
    struct digest content;
    assert_int_equal(index_encode_leaf(chunks, 3, out, &content), 0);
    assert_int_equal(out->len, 24 + 1 + 3 * 32 + 4 * 47);
    assert_int_equal(out->data[4], 2);
}

static int decode_node(void *arg, const void *data, size_t len);

static void test_index__a_delta_whose_base_cannot_be_is_refused(void **state)
{
    enum { ENTRIES = 24 + 1 + 3 * 32, BASE = ENTRIES + 3 * 47 };
    CLEANUP_BYTES leaf = BYTES_INIT(INDEX_NODE_MAX);
    put_delta_leaf(&leaf);
#define REFUSED(words, ...)                                                                                            \
    do {                                                                                                               \
        CLEANUP_BYTES bad = BYTES_INIT(INDEX_NODE_MAX);                                                                \
        assert_int_equal(bytes_append(&bad, leaf.data, leaf.len), 0);                                                  \
        __VA_ARGS__;                                                                                                   \
        assert_int_equal(decode_node(NULL, bad.data, bad.len), -EBADMSG);                                              \
        assert_non_null(strstr(error_text(), words));                                                                  \
    } while (0)
    assert_int_equal(decode_node(NULL, leaf.data, leaf.len), 0);
    REFUSED("or a delta itself", bad.data[BASE + 14] = CHUNK_DELTA);
    REFUSED("or a delta itself", bad.data[BASE + 14] = CHUNK_DELTA | CHUNK_ZSTD);
    REFUSED("or a delta itself", bad.data[BASE + 14] = CHUNK_ZSTD | CHUNK_SPLIT);
    REFUSED("out of bounds", memset(bad.data + BASE + 15, 0, DIGEST_SIZE));
    REFUSED("out of bounds", le32_put(bad.data + BASE + 6, CHUNK + 1));
    REFUSED("out of bounds", le32_put(bad.data + BASE + 6, 0));
    REFUSED("not in the table", le16_put(bad.data + BASE, 3));
    REFUSED("not used", le16_put(bad.data + BASE, 0));
    REFUSED("out of bounds", bad.data[ENTRIES + 47 + 14] = CHUNK_DELTA | CHUNK_ZSTD);
    REFUSED("out of bounds", bad.data[ENTRIES + 14] = CHUNK_ZSTD | CHUNK_SPLIT);
    REFUSED("out of bounds", bad.data[ENTRIES + 14] = 8 | CHUNK_ZSTD);
    REFUSED("out of bounds", le32_put(bad.data + ENTRIES + 47 + 6, CHUNK)); /* as long as its plain bytes */
    REFUSED("count of them differ", bad.data[ENTRIES + 47 + 14] = CHUNK_ZSTD);
    REFUSED("has none", bad.data[4] = 1);
    REFUSED("has none", le32_put(bad.data + 20, 0));
    REFUSED("its header says", le32_put(bad.data + 20, 2));
#undef REFUSED
    mangle_truncate(decode_node, NULL, leaf.data, leaf.len, -EBADMSG);
    (void)mangle_flip(decode_node, NULL, leaf.data, leaf.len, 1, -EBADMSG);
    struct chunk_ref bad = delta_number(1, 1, 7, 2);
    bad.base.flags = CHUNK_DELTA;
    struct digest content;
    bytes_clear(&leaf);
    assert_int_equal(index_encode_leaf(&bad, 1, &leaf, &content), -EINVAL);
}

static void assert_leaf_refused(struct chunk_ref bad, bool last)
{
    struct chunk_ref chunks[3] = {chunk_number(0, 0), chunk_number(1, 0), chunk_number(2, 0)};
    chunks[last ? 2 : 1] = bad;
    CLEANUP_BYTES object = BYTES_INIT(INDEX_NODE_MAX);
    struct digest content;
    assert_int_equal(index_encode_leaf(chunks, 3, &object, &content), -EINVAL);
    assert_int_equal(object.len, 0);
}

static void test_index__impossible_entries_are_not_written(void **state)
{
    struct chunk_ref bad;
#define REFUSED(last, ...)                                                                                             \
    bad = chunk_number(2, 0);                                                                                          \
    __VA_ARGS__;                                                                                                       \
    assert_leaf_refused(bad, last)
    REFUSED(false, bad.plain_len = 4096; bad.stored_len = 4096);
    REFUSED(true, bad.plain_len = 2 * CHUNK; bad.stored_len = 2 * CHUNK);
    REFUSED(false, bad.flags = 2);
    REFUSED(false, bad.flags = CHUNK_ZSTD);
    REFUSED(false, bad.stored_len--);
    REFUSED(false, bad.flags = CHUNK_ZSTD; bad.stored_len = 0);
    REFUSED(false, bad.offset = UINT32_MAX - 10);
    REFUSED(false, bad.kind = OBJECT_INDEX);
    REFUSED(false, memset(&bad.object, 0, sizeof bad.object));
    REFUSED(true, bad.plain_len = bad.stored_len = 0);
#undef REFUSED
    CLEANUP_BYTES object = BYTES_INIT(INDEX_NODE_MAX);
    struct digest content;
    struct index_child child = {.digest = digest_number(1), .content = digest_number(2), .len = 1};
    assert_int_equal(index_encode_leaf(&bad, 0, &object, &content), -EINVAL);
    assert_int_equal(index_encode_inner(0, &child, 1, &object, &content), -EINVAL);
    assert_int_equal(index_encode_inner(INDEX_LEVELS_MAX, &child, 1, &object, &content), -EINVAL);
    child.len = INDEX_NODE_MAX + 1;
    assert_int_equal(index_encode_inner(1, &child, 1, &object, &content), -EINVAL);
    child = (struct index_child){.digest = digest_number(1), .len = 1};
    assert_int_equal(index_encode_inner(1, &child, 1, &object, &content), -EINVAL);
    child = (struct index_child){.content = digest_number(1)};
    assert_int_equal(index_encode_inner(1, &child, 1, &object, &content), -EINVAL);
}

static int decode_node(void *arg, const void *data, size_t len)
{
    CLEANUP(cleanup_index_node) struct index_node *node = NULL;
    int rc = index_decode(data, len, &node);
    if (rc == 0) {
        /* What a decoder lets through, an encoder must be able to write: the bounds are the same. */
        CLEANUP_BYTES object = BYTES_INIT(INDEX_NODE_MAX);
        struct digest content;
        assert_int_equal(node->level ? index_encode_inner(node->level, node->children, node->count, &object, &content)
                                     : index_encode_leaf(node->chunks, node->count, &object, &content),
                         0);
    }
    return rc;
}

static void test_index__damage_is_refused_or_harmless(void **state)
{
    struct chunk_ref chunks[20];
    struct index_child children[20];
    CLEANUP_BYTES leaf = BYTES_INIT(INDEX_NODE_MAX);
    CLEANUP_BYTES inner = BYTES_INIT(INDEX_NODE_MAX);
    struct digest content;
    for (uint32_t i = 0; i < 20; i++)
        chunks[i] = i % 4 == 3 ? (struct chunk_ref){.flags = 0} : chunk_number(i, i / 7);
    fill_children(children, 20);
    assert_int_equal(index_encode_leaf(chunks, 20, &leaf, &content), 0);
    assert_int_equal(index_encode_inner(2, children, 20, &inner, &content), 0);
    mangle_truncate(decode_node, NULL, leaf.data, leaf.len, -EBADMSG);
    mangle_truncate(decode_node, NULL, inner.data, inner.len, -EBADMSG);
    /* every bit of the header and the bitmap counts */
    assert_true(mangle_flip(decode_node, NULL, leaf.data, leaf.len, 1, -EBADMSG) >= 24 * 8 - 64);
    (void)mangle_flip(decode_node, NULL, inner.data, inner.len, 1, -EBADMSG);
    assert_int_equal(bytes_append(&leaf, "", 1), 0);
    assert_int_equal(decode_node(NULL, leaf.data, leaf.len), -EBADMSG);
}

static void test_index__packs_stand_in_the_order_of_their_use(void **state)
{
    struct chunk_ref chunks[3] = {chunk_number(0, 0), chunk_number(1, 1), chunk_number(2, 1)};
    CLEANUP_BYTES leaf = BYTES_INIT(INDEX_NODE_MAX);
    struct digest content;
    assert_int_equal(index_encode_leaf(chunks, 3, &leaf, &content), 0);
    uint8_t *entries = leaf.data + 24 + 1 + 2 * 32;
    assert_int_equal(decode_node(NULL, leaf.data, leaf.len), 0);
    le16_put(entries, 1); /* another order, a pack after the table, one that nobody uses */
    le16_put(entries + 47, 0);
    assert_int_equal(decode_node(NULL, leaf.data, leaf.len), -EBADMSG);
    le16_put(entries, 0);
    le16_put(entries + 47, 2);
    assert_int_equal(decode_node(NULL, leaf.data, leaf.len), -EBADMSG);
    le16_put(entries + 47, 0);
    le16_put(entries + 94, 0);
    assert_int_equal(decode_node(NULL, leaf.data, leaf.len), -EBADMSG);
}

static void test_index__a_newer_version_says_so(void **state)
{
    struct chunk_ref chunk = chunk_number(0, 0);
    CLEANUP_BYTES leaf = BYTES_INIT(INDEX_NODE_MAX);
    struct digest content;
    struct index_node *node = NULL;
    assert_int_equal(index_encode_leaf(&chunk, 1, &leaf, &content), 0);
    assert_int_equal(leaf.data[4], 1); /* without deltas it is what it always was */
    leaf.data[4] = 3;
    assert_int_equal(index_decode(leaf.data, leaf.len, &node), -EBADMSG);
    assert_non_null(strstr(error_text(), "newer"));
}

static void test_index__levels(void **state)
{
    assert_int_equal(index_levels(1), 1);
    assert_int_equal(index_levels(1024), 1);
    assert_int_equal(index_levels(1025), 2);
    assert_int_equal(index_levels(1 << 20), 2);
    assert_int_equal(index_levels((1 << 20) + 1), 3);
    assert_int_equal(index_levels(UINT64_C(1) << 40), 4);
    assert_int_equal(index_levels(UINT64_C(1) << 50), 5);
    assert_int_equal(index_levels((UINT64_C(1) << 50) + 1), 0);
    assert_int_equal(index_levels(UINT64_MAX), 0);
}

static void test_index__a_node_is_checked_against_the_image(void **state)
{
    struct chunk_ref chunks[3] = {chunk_number(0, 0), chunk_number(1, 0), chunk_number(2, 0)};
    struct index_node node = {.level = 0, .count = 3, .chunks = chunks};
    chunks[2].plain_len = 4096;
    uint64_t size = UINT64_C(1026) * CHUNK + 4096; /* leaf 1 describes the last three chunks */
    assert_int_equal(index_node_check(&node, 0, 1, size, CHUNK), 0);
    assert_int_equal(index_node_check(&node, 0, 0, size, CHUNK), -EBADMSG);
    assert_int_equal(index_node_check(&node, 0, 2, size, CHUNK), -EBADMSG);
    assert_int_equal(index_node_check(&node, 1, 1, size, CHUNK), -EBADMSG);
    assert_int_equal(index_node_check(&node, 0, 1, size + 4096, CHUNK), -EBADMSG);
    assert_int_equal(index_node_check(&node, 0, 1, size, CHUNK / 2), -EBADMSG);
    assert_int_equal(index_node_check(&node, 0, UINT64_MAX / 2, size, CHUNK), -EBADMSG);
    chunks[1] = (struct chunk_ref){.flags = 0};
    assert_int_equal(index_node_check(&node, 0, 1, size, CHUNK), 0);
    chunks[0].plain_len--;
    assert_int_equal(index_node_check(&node, 0, 1, size, CHUNK), -EBADMSG);
    struct index_node inner = {.level = 1, .count = 2};
    assert_int_equal(index_node_check(&inner, 1, 0, size, CHUNK), 0);
    inner.count = 3;
    assert_int_equal(index_node_check(&inner, 1, 0, size, CHUNK), -EBADMSG);
}

static void test_index__a_child_is_fetched_as_a_plain_chunk(void **state)
{
    struct chunk_ref chunk = chunk_number(0, 0);
    CLEANUP_BYTES leaf = BYTES_INIT(INDEX_NODE_MAX);
    struct index_child child;
    assert_int_equal(index_encode_leaf(&chunk, 1, &leaf, &child.content), 0);
    child.digest = digest_of(leaf.data, leaf.len);
    child.len = (uint32_t)leaf.len;
    child.crc = crc32c(leaf.data, leaf.len);
    struct chunk_ref ref = index_child_ref(&child);
    assert_int_equal(ref.kind, OBJECT_INDEX);
    CLEANUP_BUF struct buf *plain = NULL;
    assert_int_equal(chunk_decode(&ref, leaf.data, &plain), 0);
    assert_memory_equal(plain->data, leaf.data, leaf.len);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index__leaves_round_trip),
        cmocka_unit_test(test_index__the_largest_leaf_fits_and_holes_cost_a_bit),
        cmocka_unit_test(test_index__a_node_of_holes_is_not_stored),
        cmocka_unit_test(test_index__content_hashes_are_those_of_the_definition),
        cmocka_unit_test(test_index__inner_nodes_round_trip),
        cmocka_unit_test(test_index__impossible_entries_are_not_written),
        cmocka_unit_test(test_index__leaves_with_deltas_round_trip),
        cmocka_unit_test(test_index__a_delta_whose_base_cannot_be_is_refused),
        cmocka_unit_test(test_index__damage_is_refused_or_harmless),
        cmocka_unit_test(test_index__packs_stand_in_the_order_of_their_use),
        cmocka_unit_test(test_index__a_newer_version_says_so),
        cmocka_unit_test(test_index__levels),
        cmocka_unit_test(test_index__a_node_is_checked_against_the_image),
        cmocka_unit_test(test_index__a_child_is_fetched_as_a_plain_chunk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
