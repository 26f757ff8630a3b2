/* Chunks are encoded one by one into packs; then the index, level by level; then the manifest. */
#include "fake/image_fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/io.h"
#include "base/vec.h"
#include "fake/words.h"
#include "format/index.h"
#include "format/object.h"
#include "repository/read/catalog_read.h"
#include "repository/repository.h"

enum { PACK_MAX = 64 << 20 };

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* Half of the bytes repeat, so that chunks are compressed. */
static uint64_t word_at(const void *arg, uint64_t off)
{
    const struct image_fake *img = arg;
    uint64_t x = (off / 16 + 1) * UINT64_C(0x9E3779B97F4A7C15) + img->seed;
    x ^= x >> 29;
    return off & 8 ? img->seed : x * UINT64_C(0xBF58476D1CE4E5B9);
}

void image_fake_bytes(const struct image_fake *img, uint64_t off, void *out, size_t len)
{
    uint8_t *p = out;
    for (uint64_t end = off + len; off < end;) {
        uint64_t chunk = off / img->chunk_size, n = GR_MIN(end, (chunk + 1) * img->chunk_size) - off;
        uint64_t number = img->from ? img->from(chunk) : chunk;
        if (img->hole && img->hole(chunk)) {
            memset(p, 0, n);
        } else if (img->deltas_of) {
            image_fake_bytes(img->deltas_of, off, p, n);
            for (uint64_t i = off % img->chunk_size, k = 0; i < 8 && k < n; i++, k++)
                p[k] ^= (uint8_t)img->seed;
        } else {
            words_fill(word_at, img, off + (number - chunk) * img->chunk_size, p, n);
        }
        p += n;
        off += n;
    }
}

static void put_object(struct store_fake *store, enum object_kind kind, const void *data, size_t len,
                       struct digest *name)
{
    char key[OBJECT_KEY_MAX];
    *name = digest_of(data, len);
    store_fake_put(store, object_key(kind, name, key), data, len);
}

/* Encode chunk i, of len bytes. */
static void encode_chunk(struct image_fake *img, uint64_t i, const uint8_t *plain, uint32_t len, struct bytes *stored)
{
    if (!img->deltas_of) {
        must(!chunk_encode(plain, len, 1, stored, &img->refs[i]));
        return;
    }
    const struct chunk_base base = chunk_as_base(&img->deltas_of->refs[i]);
    CLEANUP_FREE uint8_t *upon = malloc(len);
    must(upon);
    image_fake_bytes(img->deltas_of, i * img->chunk_size, upon, len);
    must(!chunk_encode_upon(&base, upon, plain, len, 1, stored, &img->refs[i]));
}

/* Chunks [first, first+n) as one pack. */
static void put_pack(struct image_fake *img, struct store_fake *store, uint64_t first, uint64_t n)
{
    CLEANUP_BYTES pack = BYTES_INIT(PACK_MAX);
    CLEANUP_BYTES stored = BYTES_INIT(CHUNK_SIZE_MAX);
    CLEANUP_FREE uint8_t *plain = malloc(img->chunk_size);
    must(plain);
    for (uint64_t i = first; i < first + n; i++) {
        struct chunk_ref *ref = &img->refs[i];
        uint64_t off = i * img->chunk_size;
        uint32_t len = GR_MIN(img->size - off, (uint64_t)img->chunk_size);
        if (img->hole && img->hole(i))
            continue;
        image_fake_bytes(img, off, plain, len);
        encode_chunk(img, i, plain, len, &stored);
        ref->kind = OBJECT_PACK;
        ref->offset = pack.len;
        must(!bytes_append(&pack, stored.data, stored.len));
        img->manifest.stored_bytes += stored.len;
    }
    if (!pack.len)
        return;
    struct digest name;
    put_object(store, OBJECT_PACK, pack.data, pack.len, &name);
    for (uint64_t i = first; i < first + n; i++)
        if (!chunk_is_hole(&img->refs[i]))
            img->refs[i].object = name;
}

typedef VEC(struct index_child) children;

static void put_node(struct store_fake *store, const struct bytes *node, const struct digest *content, children *out)
{
    struct index_child child = {0};
    if (!digest_is_zero(content)) {
        put_object(store, OBJECT_INDEX, node->data, node->len, &child.digest);
        child.content = *content;
        child.len = node->len;
        child.crc = crc32c(node->data, node->len);
    }
    must(!vec_push(out, child));
}

static void put_leaves(struct image_fake *img, struct store_fake *store, uint64_t chunks, children *out)
{
    for (uint64_t i = 0; i < chunks; i += INDEX_FANOUT) {
        CLEANUP_BYTES node = BYTES_INIT(INDEX_NODE_MAX);
        struct digest content = {0};
        uint32_t n = GR_MIN(chunks - i, (uint64_t)INDEX_FANOUT);
        bool any = false;
        for (uint32_t k = 0; k < n; k++)
            any |= !chunk_is_hole(&img->refs[i + k]);
        must(!any || !index_encode_leaf(&img->refs[i], n, &node, &content));
        put_node(store, &node, &content, out);
    }
}

static void put_index(struct image_fake *img, struct store_fake *store, uint64_t chunks)
{
    children below = {0};
    put_leaves(img, store, chunks, &below);
    for (unsigned level = 1; level < img->manifest.index_levels; level++) {
        children above = {0};
        for (size_t i = 0; i < below.len; i += INDEX_FANOUT) {
            CLEANUP_BYTES node = BYTES_INIT(INDEX_NODE_MAX);
            struct digest content;
            must(!index_encode_inner(level, &below.items[i], GR_MIN(below.len - i, (size_t)INDEX_FANOUT), &node,
                                     &content));
            put_node(store, &node, &content, &above);
        }
        vec_release(&below);
        below = above;
    }
    must(below.len == 1);
    img->manifest.index_root = below.items[0];
    if (img->content)
        img->manifest.index_root.content = *img->content;
    vec_release(&below);
}

/* Put the page that w holds; add it to its parent. bases NULL: it is no delta. */
static void put_page(struct store_fake *store, struct catalog_page_writer *w, struct catalog_page_writer *parent,
                     struct catalog_bases *bases, struct catalog_child *child)
{
    CLEANUP_BYTES page = BYTES_INIT(CATALOG_OBJECT_MAX);
    struct catalog_base base;
    bool full = false;
    size_t len;
    const char *last = catalog_page_last(w, &len);
    if (bases && catalog_bases_at(bases, last, len, &base) == 1)
        must(!catalog_page_finish_upon(w, &base, &page, child) && !digest_is_zero(&child->base));
    else
        must(!catalog_page_finish(w, &page, child));
    put_object(store, OBJECT_CATALOG, page.data, page.len, &child->digest);
    must(!parent || (!catalog_page_add_child(parent, child, &full) && !full));
}

/* Pages of entries below one root. */
static void put_catalog(struct image_fake *img, struct store_fake *store)
{
    struct manifest *m = &img->manifest;
    CLEANUP(cleanup_catalog_page_writer) struct catalog_page_writer *leaf = catalog_page_writer_new(0);
    CLEANUP(cleanup_catalog_page_writer) struct catalog_page_writer *root = catalog_page_writer_new(1);
    CLEANUP(cleanup_catalog_bases) struct catalog_bases *bases = NULL;
    struct catalog_child child;
    must(leaf && root);
    must(!img->upon || !catalog_bases_new(store_fake_store(store), &img->upon->manifest, &bases));
    for (size_t i = 0; i < img->entry_count; i++) {
        bool full = false;
        must(!catalog_page_add(leaf, &img->entries[i], &full));
        if (full || i + 1 == img->entry_count)
            put_page(store, leaf, root, bases, &child);
    }
    put_page(store, root, NULL, NULL, &child);
    m->catalog_root = child.digest;
    m->catalog_levels = 2;
    m->catalog_len = child.len;
    m->catalog_crc = child.crc;
    m->catalog_entries = img->entry_count;
}

static void put_manifest(struct image_fake *img, struct store_fake *store)
{
    struct manifest *m = &img->manifest;
    CLEANUP_BYTES text = BYTES_INIT(MANIFEST_MAX);
    m->content_root = index_content_root(m->size, m->chunk_size, &m->index_root.content);
    /* No reader of chunks looks at the catalog. */
    m->catalog_levels = 1;
    m->catalog_root = digest_of("catalog", 7);
    m->catalog_len = 1;
    m->catalog_entries = 1;
    if (img->entry_count)
        put_catalog(img, store);
    must(!manifest_encode(m, &text));
    put_object(store, OBJECT_MANIFEST, text.data, text.len, &img->digest);
}

static const char no_id[] = "{\"format\":\"granary-store\",\"version\":1}";

void image_fake_put(struct image_fake *img, struct store_fake *store, const char *name)
{
    uint64_t chunks = (img->size + img->chunk_size - 1) / img->chunk_size;
    uint64_t pack_chunks = img->pack_chunks ? img->pack_chunks : 16;
    img->refs = calloc(chunks, sizeof *img->refs);
    must(img->refs);
    img->manifest =
        (struct manifest){.size = img->size, .chunk_size = img->chunk_size, .index_levels = index_levels(chunks)};
    for (uint64_t i = 0; i < chunks; i += pack_chunks)
        put_pack(img, store, i, GR_MIN(chunks - i, pack_chunks));
    put_index(img, store, chunks);
    for (size_t i = 0; i < img->entry_count; i++) {
        img->manifest.counts.files += S_ISREG(img->entries[i].mode) && !img->entries[i].hard_link;
        img->manifest.counts.directories += S_ISDIR(img->entries[i].mode);
    }
    put_manifest(img, store);
    if (name) {
        struct tag tag = {.digest = img->digest, .content_root = img->manifest.content_root};
        /* as old stores are, without an id: tests put images of several into one directory */
        store_fake_put(store, "granary.json", no_id, strlen(no_id));
        must(!repository_publish(store_fake_store(store), name, "latest", &tag, false));
    }
}

struct saving {
    struct store_fake *store;
    const char *dir;
};

static int save_one(void *arg, const struct store_item *item)
{
    const struct saving *saving = arg;
    CLEANUP_BYTES data = BYTES_INIT(PACK_MAX);
    char path[4096];
    must(store_fake_get(saving->store, item->key, &data));
    snprintf(path, sizeof path, "%s/%s", saving->dir, item->key);
    char *slash = strrchr(path, '/');
    *slash = 0;
    must(!io_mkdirs(path));
    *slash = '/';
    must(!io_write_file_atomic(path, data.data, data.len, false));
    return 0;
}

void image_fake_save(struct store_fake *store, const char *dir)
{
    struct store *s = store_fake_store(store);
    struct saving saving = {.store = store, .dir = dir};
    must(!store_list(s, "", save_one, &saving));
}

void image_fake_release(struct image_fake *img)
{
    free(img->refs);
    img->refs = NULL;
}
