/* Reading an image back from a fake store, every node and chunk verified, to compare it with what was written. */
#ifndef GRANARY_TESTS_UNIT_READ_BACK_H
#define GRANARY_TESTS_UNIT_READ_BACK_H

#include <string.h>

#include "base/buf.h"
#include "base/crc32c.h"
#include "base/io.h"
#include "fake/store_fake.h"
#include "format/index.h"
#include "unit/cmocka_all.h"

/* Called for each stored chunk, ascending. */
typedef void read_back_visit(void *arg, uint64_t number, const struct chunk_ref *ref, const struct buf *plain);

static inline void read_back_object(struct store_fake *f, enum object_kind kind, const struct digest *name,
                                    struct bytes *out)
{
    char key[OBJECT_KEY_MAX];
    object_key(kind, name, key);
    assert_true(store_fake_get(f, key, out));
    struct digest found = digest_of(out->data, out->len);
    assert_true(digest_equal(&found, name));
}

struct read_back {
    struct store_fake *store;
    read_back_visit *visit;
    void *arg;
    struct digest name; /* of the pack, which the next chunk is likely to be in, too */
    struct bytes pack;
};

/* Return where the stored bytes of a chunk are. */
static inline const uint8_t *read_back_stored(struct read_back *r, const struct chunk_ref *ref)
{
    if (!digest_equal(&r->name, &ref->object)) {
        r->pack.len = 0;
        read_back_object(r->store, OBJECT_PACK, &ref->object, &r->pack);
        r->name = ref->object;
    }
    assert_true((uint64_t)ref->offset + ref->stored_len <= r->pack.len);
    return r->pack.data + ref->offset;
}

static inline void read_back_chunk(struct read_back *r, uint64_t number, const struct chunk_ref *ref)
{
    CLEANUP_BUF struct buf *base = NULL, *plain = NULL;
    if (chunk_is_delta(ref)) {
        const struct chunk_ref of = chunk_base_ref(ref);
        assert_int_equal(chunk_decode(&of, read_back_stored(r, &of), &base), 0);
        assert_int_equal(chunk_decode_upon(ref, base, read_back_stored(r, ref), &plain), 0);
    } else {
        assert_int_equal(chunk_decode(ref, read_back_stored(r, ref), &plain), 0);
    }
    r->visit(r->arg, number, ref, plain);
}

static inline void read_back_below(struct read_back *r, const struct index_child *child, unsigned level, uint64_t first)
{
    if (digest_is_zero(&child->digest))
        return;
    CLEANUP_BYTES object = BYTES_INIT(INDEX_NODE_MAX);
    CLEANUP(cleanup_index_node) struct index_node *node = NULL;
    uint64_t span = 1;
    read_back_object(r->store, OBJECT_INDEX, &child->digest, &object);
    assert_int_equal(object.len, child->len);
    assert_int_equal(crc32c(object.data, object.len), child->crc);
    assert_int_equal(index_decode(object.data, object.len, &node), 0);
    assert_int_equal(node->level, level);
    for (unsigned l = 0; l < level; l++)
        span *= INDEX_FANOUT;
    for (uint32_t i = 0; i < node->count; i++) {
        if (level)
            read_back_below(r, &node->children[i], level - 1, first + i * span);
        else if (!chunk_is_hole(&node->chunks[i]))
            read_back_chunk(r, first + i, &node->chunks[i]);
    }
}

/* The nodes below `child`, which stands at level + 1 and begins at chunk `first`. */
static inline void read_back_node(struct store_fake *f, const struct index_child *child, unsigned level, uint64_t first,
                                  read_back_visit *visit, void *arg)
{
    struct read_back r = {.store = f, .visit = visit, .arg = arg, .pack = BYTES_INIT(64 << 20)};
    read_back_below(&r, child, level, first);
    bytes_release(&r.pack);
}

struct read_back_image {
    uint8_t *data; /* the first chunk, then the image from `begin` on, but for the hole */
    uint64_t begin, size;
    uint64_t hole, hole_len; /* whole chunks */
    uint32_t chunk_size;
};

static inline void read_back_into_image(void *arg, uint64_t number, const struct chunk_ref *ref,
                                        const struct buf *plain)
{
    struct read_back_image *image = arg;
    uint64_t at = number * image->chunk_size;
    assert_true(at + plain->len <= image->size);
    assert_true(plain->len == image->chunk_size || at + plain->len == image->size);
    assert_true(at < image->hole || at - image->hole >= image->hole_len);
    if (number && at < image->begin)
        return;
    if (number)
        at = image->chunk_size + (at - image->begin) - (at >= image->hole ? image->hole_len : 0);
    memcpy(image->data + at, plain->data, plain->len);
}

struct read_back_file {
    int fd;
    uint32_t chunk_size;
};

static inline void read_back_into_file(void *arg, uint64_t number, const struct chunk_ref *ref, const struct buf *plain)
{
    struct read_back_file *file = arg;
    assert_int_equal(io_pwrite_full(file->fd, plain->data, plain->len, number * file->chunk_size), 0);
}

/* Fill in image->data, for the caller to free. All chunks are verified; none is in the hole. */
static inline void read_back_from(struct store_fake *f, const struct index_child *root, unsigned levels,
                                  struct read_back_image *image)
{
    image->data = calloc(1, image->chunk_size + (image->size - image->begin) - image->hole_len);
    assert_non_null(image->data);
    read_back_node(f, root, levels - 1, 0, read_back_into_image, image);
}

/* The whole image, in memory of the caller's to free. */
static inline uint8_t *read_back(struct store_fake *f, const struct index_child *root, unsigned levels, uint64_t size,
                                 uint32_t chunk_size)
{
    struct read_back_image image = {
        .begin = GR_MIN((uint64_t)chunk_size, size), .size = size, .hole = size, .chunk_size = chunk_size};
    read_back_from(f, root, levels, &image);
    return image.data;
}

#endif
