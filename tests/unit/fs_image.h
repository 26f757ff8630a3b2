/* Making small images through a sink into a fake store: nodes as a listing would give them, file data, fs_finish. */
#ifndef GRANARY_TESTS_UNIT_FS_IMAGE_H
#define GRANARY_TESTS_UNIT_FS_IMAGE_H

#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/io.h"
#include "base/le.h"
#include "base/vec.h"
#include "fake/store_fake.h"
#include "imagebuild/fs/fs.h"
#include "unit/read_back.h"

enum { CHUNK = CHUNK_SIZE_MIN, BLOCK = 4096 };

/* ------------------------------------------------------------------ making images */

/* A path of the tree to be made; a file's body is `letter` throughout. */
struct item {
    char *path;
    const char *target;
    struct bytes xattrs;
    const char *link; /* path of the first name */
    char letter;
    struct node node;
};

struct image {
    VEC(struct item) items;
    unsigned gap; /* ranks that nobody has after each node's: files that vanished */
    struct store_fake *store;
    struct upload *upload;
    struct sink *sink;
    struct nodes *nodes;
    struct fs *fs;
    uint64_t data_end;
    struct fs_result result;
    uint64_t begin;          /* image_move's */
    uint64_t hole, hole_len; /* of a moved image, between data and metadata */
    uint8_t *data;           /* the image; after its first chunk come the bytes from `begin` on, but for the hole */
};

/* The byte at an address. */
static inline uint8_t *image_at(const struct image *i, uint64_t address)
{
    assert_true(address < CHUNK || address >= i->begin);
    assert_true(address < i->result.image_size);
    if (address < CHUNK)
        return i->data + address;
    assert_true(address < i->hole || address - i->hole >= i->hole_len);
    return i->data + CHUNK + (address - i->begin) - (address >= i->hole ? i->hole_len : 0);
}

static inline struct item *find(const struct image *i, const char *path, size_t len)
{
    for (size_t k = 0; k < i->items.len; k++)
        if (strlen(i->items.items[k].path) == len && !memcmp(i->items.items[k].path, path, len))
            return &i->items.items[k];
    return NULL;
}

static inline struct item *add_item(struct image *i, const char *path, size_t len, uint32_t mode)
{
    struct item item = {.path = strndup(path, len),
                        .node = {.mode = (uint16_t)mode, .mtime = 1700000000, .path_len = len}};
    item.xattrs = (struct bytes)BYTES_INIT(NODE_XATTRS_MAX);
    assert_int_equal(vec_push(&i->items, item), 0);
    return &i->items.items[i->items.len - 1];
}

/* Valid until the next one. */
static inline struct item *add(struct image *i, const char *path, uint32_t mode)
{
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/'))
        if (!find(i, path, (size_t)(slash - path)))
            add_item(i, path, (size_t)(slash - path), S_IFDIR | 0755);
    return add_item(i, path, strlen(path), mode);
}

/* config: CHUNK as its chunk size. */
static inline struct image image_begin_as(int (*make)(const struct fs_config *, struct fs **),
                                          const struct fs_config *config)
{
    struct image i = {.store = store_fake_new()};
    struct upload_config upload = {.store = store_fake_store(i.store), .threads = 1, .memory = 1 << 20};
    assert_int_equal(upload_new(&upload, &i.upload), 0);
    struct sink_config sink = {
        .upload = i.upload, .chunk_size = CHUNK, .zstd_level = 1, .workers = 1, .pack_size = 1 << 20};
    assert_int_equal(sink_new(&sink, &i.sink), 0);
    assert_int_equal(make(config, &i.fs), 0);
    struct scratch_config scratch = {.memory = config->memory};
    assert_int_equal(nodes_new(&scratch, &i.nodes), 0);
    i.data_end = i.fs->data_begin;
    i.begin = CHUNK;
    add_item(&i, "", 0, S_IFDIR | 0755);
    return i;
}

/* Have the file data begin at an address, a multiple of CHUNK, so that the image is large without bytes. A first one is
 * at the usual address: the index has no parent's range there. */
static inline void image_move(struct image *i, uint64_t address)
{
    assert_int_equal(sink_write(i->sink, SINK_DATA, i->fs->data_begin, "x", 1), 0);
    i->begin = i->data_end = address;
}

static inline void add_file(struct image *i, const char *path, uint64_t size, char letter)
{
    struct item *item = add(i, path, S_IFREG | 0644);
    item->node.size = size;
    item->letter = letter;
}

static inline void add_symlink(struct image *i, const char *path, const char *target)
{
    struct item *item = add(i, path, S_IFLNK | 0777);
    item->target = target;
    item->node.target_len = item->node.size = strlen(target);
}

static inline void put_xattr(struct bytes *out, const char *name, const void *value, uint32_t len)
{
    uint8_t header[6];
    le16_put(header, (uint16_t)strlen(name));
    le32_put(header + 2, len);
    assert_int_equal(bytes_append(out, header, sizeof header), 0);
    assert_int_equal(bytes_append(out, name, strlen(name)), 0);
    if (len)
        assert_int_equal(bytes_append(out, value, len), 0);
}

static inline int compare_items(const void *pa, const void *pb)
{
    return strcmp(((const struct item *)pa)->path, ((const struct item *)pb)->path);
}

/* The items are sorted. */
static inline uint32_t rank_of(const struct image *i, const char *path, size_t len)
{
    struct item key = {.path = strndup(path, len)};
    const struct item *item = bsearch(&key, i->items.items, i->items.len, sizeof key, compare_items);
    assert_non_null(item);
    free(key.path);
    return (uint32_t)(item - i->items.items) * (1 + i->gap);
}

/* What it stands in, by rank; a listing's job. */
static inline void complete(struct image *i, struct item *item)
{
    const char *slash = strrchr(item->path, '/');
    struct node *n = &item->node;
    n->rank = n->link = (uint32_t)(item - i->items.items) * (1 + i->gap);
    n->parent = slash ? rank_of(i, item->path, (size_t)(slash - item->path)) : NODE_ROOT;
    if (item->link) {
        n->link = rank_of(i, item->link, strlen(item->link));
        i->items.items[n->link / (1 + i->gap)].node.linked = n->linked = true;
    }
    n->path = item->path;
    n->target = item->target;
    n->xattrs = item->xattrs.data;
    n->xattrs_len = item->xattrs.len;
}

static inline void put_content(struct image *i, struct item *item)
{
    uint8_t *data = malloc(item->node.size);
    memset(data, item->letter, item->node.size);
    item->node.content = digest_of(data, item->node.size);
    item->node.address = i->data_end;
    assert_int_equal(sink_write(i->sink, SINK_DATA, i->data_end, data, item->node.size), 0);
    i->data_end += GR_ALIGN_UP(item->node.size, (uint64_t)BLOCK);
    free(data);
}

/* The nodes in path order, files of a letter with their data. */
static inline void order(struct image *i)
{
    qsort(i->items.items, i->items.len, sizeof *i->items.items, compare_items);
    for (size_t k = 0; k < i->items.len; k++)
        complete(i, &i->items.items[k]);
    for (size_t k = 0; k < i->items.len; k++) {
        struct item *item = &i->items.items[k];
        if (item->letter && item->node.size && item->node.link == item->node.rank)
            put_content(i, item);
    }
    for (size_t k = 0; k < i->items.len; k++)
        assert_int_equal(nodes_add(i->nodes, &i->items.items[k].node), 0);
    assert_int_equal(nodes_end(i->nodes), 0);
}

static inline int finish(struct image *i)
{
    return i->fs->ops->finish(i->fs, i->nodes, i->data_end, i->sink, &i->result);
}

static inline void image_end(struct image *i)
{
    struct sink_result sink;
    order(i);
    assert_int_equal(finish(i), 0);
    assert_int_equal(sink_finish(i->sink, i->result.image_size, &sink), 0);
    assert_int_equal(upload_flush(i->upload), 0);
    i->hole = GR_ALIGN_UP(i->data_end, (uint64_t)CHUNK);
    i->hole_len = i->begin != CHUNK ? i->result.metadata_offset - i->hole : 0;
    struct read_back_image image = {
        .begin = i->begin, .size = i->result.image_size, .hole = i->hole, .hole_len = i->hole_len, .chunk_size = CHUNK};
    read_back_from(i->store, &sink.index_root, sink.index_levels, &image);
    i->data = image.data;
}

static inline void image_free(struct image *i)
{
    for (size_t k = 0; k < i->items.len; k++) {
        free(i->items.items[k].path);
        bytes_release(&i->items.items[k].xattrs);
    }
    vec_release(&i->items);
    free(i->data);
    fs_free(i->fs);
    nodes_free(i->nodes);
    sink_free(i->sink);
    upload_free(i->upload);
    store_fake_free(i->store);
}

#endif
