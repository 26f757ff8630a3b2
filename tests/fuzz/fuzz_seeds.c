/* Writes the seed corpora of the format's fuzz targets: fuzz_seeds DIR, DIR being tests/fuzz/corpus. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zstd.h>

#include "base/error.h"
#include "base/io.h"
#include "base/le.h"
#include "cache/disk/cache_meta.h"
#include "format/catalog.h"
#include "format/chunk.h"
#include "format/export_table.h"
#include "format/index.h"
#include "format/manifest.h"
#include "format/tag.h"
#include "format/trace.h"

#define HEX "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static void must(int rc)
{
    if (rc) {
        fprintf(stderr, "fuzz_seeds: %s\n", error_text());
        exit(1);
    }
}

static void save(const char *dir, const char *target, const char *name, const void *data, size_t len)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, target);
    must(io_mkdirs(path));
    snprintf(path, sizeof path, "%s/%s/%s", dir, target, name);
    must(io_write_file_atomic(path, data, len, false));
}

static struct chunk_ref chunk(uint32_t n)
{
    return (struct chunk_ref){.digest = digest_of(&n, sizeof n),
                              .object = digest_of(&n, n % 2),
                              .kind = OBJECT_PACK,
                              .flags = CHUNK_ZSTD,
                              .offset = n * 100,
                              .stored_len = 100,
                              .plain_len = 64 << 10};
}

/* fuzz_cache_meta.c's input: what is decoded, slab, slot and epoch, class; then the bytes. */
static void cache_meta_seeds(const char *dir)
{
    const struct cache_geometry g = {
        .budget = 64 << 20, .id = 0x6772616e61727921, .slab_size = CACHE_SLAB_MIN, .slab_count = 15};
    static const uint8_t stored[100000];
    struct cache_place place = {.slab = 3, .slot = 2, .epoch = 3, .class = 5};
    struct cache_record record = {
        .digest = digest_of("seed", 4), .seq = 7, .plain_len = sizeof stored, .stored_len = sizeof stored};
    uint8_t header[4 + CACHE_META_HEADER_SIZE] = {0, 3, 2, 5}, slab[4 + CACHE_META_SLAB_SIZE] = {1, 3, 2, 5},
                       entry[4 + CACHE_RECORD_MAX] = {2, 3, 2, 5};
    cache_meta_header_encode(&g, header + 4);
    save(dir, "cache_meta", "header", header, 4 + 64);
    cache_meta_slab_encode(&g, &place, slab + 4);
    save(dir, "cache_meta", "slab", slab, sizeof slab);
    cache_meta_record_encode(&g, &place, &record, stored, entry + 4);
    save(dir, "cache_meta", "record", entry, 4 + cache_class_record_size(place.class));
}

static void index_seeds(const char *dir)
{
    CLEANUP_BYTES node = BYTES_INIT(INDEX_NODE_MAX);
    struct chunk_ref chunks[12] = {0};
    struct index_child children[5] = {0};
    struct digest content;
    for (uint32_t i = 0; i < 12; i++)
        if (i % 5)
            chunks[i] = chunk(i);
    must(index_encode_leaf(chunks, 12, &node, &content));
    save(dir, "index", "leaf", node.data, node.len);
    bytes_clear(&node);
    must(index_encode_leaf(chunks + 1, 1, &node, &content));
    save(dir, "index", "leaf-one", node.data, node.len);
    for (uint32_t i = 0; i < 5; i += 2)
        children[i] = (struct index_child){.digest = content, .content = content, .len = 100 + i, .crc = i};
    for (unsigned level = 1; level < INDEX_LEVELS_MAX; level += 2) {
        char name[32];
        snprintf(name, sizeof name, "inner-%u", level);
        bytes_clear(&node);
        must(index_encode_inner(level, children, 5, &node, &content));
        save(dir, "index", name, node.data, node.len);
    }
    bytes_clear(&node);
    for (uint32_t i = 1; i < 12; i += 3) {
        const struct chunk_ref base = chunk(i + 100);
        chunks[i].flags = CHUNK_DELTA;
        chunks[i].base = chunk_as_base(&base);
    }
    must(index_encode_leaf(chunks, 12, &node, &content));
    save(dir, "index", "leaf-deltas", node.data, node.len);
}

static void manifest_seeds(const char *dir)
{
    CLEANUP_BYTES text = BYTES_INIT(MANIFEST_MAX);
    struct manifest m = {
        .size = 1 << 20,
        .chunk_size = 64 << 10,
        .metadata_offset = 1 << 19,
        .metadata_len = 4096,
        .index_levels = 1,
        .index_root = {.digest = digest_of("a", 1), .content = digest_of("b", 1), .len = 99, .crc = 1},
        .catalog_levels = 1,
        .catalog_root = digest_of("c", 1),
        .catalog_len = 77,
        .catalog_entries = 3,
    };
    m.content_root = index_content_root(m.size, m.chunk_size, &m.index_root.content);
    must(manifest_encode(&m, &text));
    save(dir, "manifest", "small", text.data, text.len);
    memset(&m.index_root, 0, sizeof m.index_root);
    m.fs = MANIFEST_EXT4;
    m.front_len = 8192;
    m.content_root = index_content_root(m.size, m.chunk_size, &m.index_root.content);
    bytes_clear(&text);
    must(manifest_encode(&m, &text));
    save(dir, "manifest", "holes", text.data, text.len);
    struct checkpoint_doc c = {.key = digest_of("k", 1), .image = m};
    c.image.size = c.image.chunk_size;
    c.image.front_len = c.image.metadata_offset = c.image.size;
    c.image.metadata_len = 0;
    c.image.content_root = index_content_root(c.image.size, m.chunk_size, &m.index_root.content);
    bytes_clear(&text);
    must(checkpoint_doc_encode(&c, &text));
    save(dir, "checkpoint", "holes", text.data, text.len);
}

/* The page itself, and its records after the 24 bytes that fuzz_catalog makes a header of. */
static void save_page(const char *dir, const char *name, const struct bytes *page)
{
    uint8_t raw[24 + 4096] = {0};
    char raw_name[64];
    save(dir, "catalog", name, page->data, page->len);
    size_t n = ZSTD_decompress(raw + 24, sizeof raw - 24, page->data + 32, page->len - 32);
    must(ZSTD_isError(n) ? error_set(-1, "seed too large") : 0);
    raw[0] = page->data[5];
    raw[1] = page->data[8];
    memcpy(raw + 2, page->data + 16, 2);
    raw[4] = page->data[20];
    raw[5] = page->data[4] - 1;
    snprintf(raw_name, sizeof raw_name, "records-%s", name);
    save(dir, "catalog", raw_name, raw, 24 + n);
    if (!page->data[5]) {
        raw[5] = 1; /* the same records as a delta */
        save(dir, "catalog", "records-delta", raw, 24 + n);
    }
}

static void catalog_seeds(const char *dir)
{
    CLEANUP(cleanup_catalog_page_writer) struct catalog_page_writer *w = catalog_page_writer_new(0);
    CLEANUP(cleanup_catalog_page_writer) struct catalog_page_writer *above = catalog_page_writer_new(1);
    CLEANUP_BYTES page = BYTES_INIT(CATALOG_OBJECT_MAX);
    const struct catalog_extent extent = {.offset = 1 << 20, .len = 12345};
    struct catalog_child child;
    bool full;
    const struct catalog_entry entries[] = {
        {.path = "", .mode = S_IFDIR | 0755, .mtime = -5, .mtime_nsec = 7},
        {.path = "a",
         .path_len = 1,
         .mode = S_IFREG | 0644,
         .size = 12345,
         .uid = 70000,
         .content = digest_of("a", 1),
         .validator = "\"etag\"",
         .validator_len = 6,
         .extents = &extent,
         .extent_count = 1},
        {.path = "a-link", .path_len = 6, .mode = S_IFLNK | 0777, .size = 1, .target = "a", .target_len = 1},
        {.path = "aa", .path_len = 2, .mode = S_IFREG, .target = "a", .target_len = 1, .hard_link = true},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(entries); i++)
        must(catalog_page_add(w, &entries[i], &full));
    must(catalog_page_finish(w, &page, &child));
    save_page(dir, "entries", &page);
    must(catalog_page_add_child(above, &child, &full));
    child.first = "b/c";
    child.first_len = 3;
    must(catalog_page_add_child(above, &child, &full));
    bytes_clear(&page);
    must(catalog_page_finish(above, &page, &child));
    save_page(dir, "children", &page);
    child.first = "b/d";
    child.first_len = 3;
    child.base = digest_of("base", 4);
    must(catalog_page_add_child(above, &child, &full));
    bytes_clear(&page);
    must(catalog_page_finish(above, &page, &child));
    save_page(dir, "deltas", &page);
}

/* A directory's list of two names. */
static void put_names(uint8_t *list)
{
    memcpy(list + 24, "firstsecond", 11);
    for (int i = 0; i < 2; i++) {
        le64_put(list + i * 12, 36 + (uint64_t)i);
        le16_put(list + i * 12 + 8, (uint16_t)(24 + 5 * i));
        list[i * 12 + 10] = 1;
    }
}

static void chunk_seeds(const char *dir)
{
    CLEANUP_BYTES stored = BYTES_INIT(CHUNK_SIZE_MAX);
    uint8_t plain[4096], seed[8 + 4096] = {0};
    struct chunk_ref ref;
    for (size_t i = 0; i < sizeof plain; i++)
        plain[i] = (uint8_t)(i / 64 * 7);
    for (int level = 0; level <= 3; level += 3) {
        must(chunk_encode(plain, sizeof plain, level, &stored, &ref));
        le32_put(seed, ref.plain_len);
        seed[5] = ref.flags;
        memcpy(seed + 8, stored.data, stored.len);
        save(dir, "chunk", level ? "zstd" : "plain", seed, 8 + stored.len);
    }
    uint8_t upon[sizeof plain];
    memset(upon, 'b', sizeof upon);
    memset(plain, 'b', sizeof plain / 2);
    const struct chunk_base base = {.stored_len = sizeof plain};
    must(chunk_encode_upon(&base, upon, plain, sizeof plain, 3, &stored, &ref));
    seed[5] = ref.flags;
    memcpy(seed + 8, stored.data, stored.len);
    /* "delta" beside it was written before there was the split form. */
    save(dir, "chunk", "delta-split", seed, 8 + stored.len);

    /* A block that is a list of two names, one with a directory's inode and its list, and half a one. */
    uint8_t blocks[2 * 4096 + 2048] = {0}, *inode = blocks + 4096 + 96;
    put_names(blocks);
    le16_put(inode, 5);
    le16_put(inode + 4, S_IFDIR | 0755);
    le32_put(inode + 8, 24 + 11);
    put_names(inode + 64);
    memset(blocks + sizeof blocks - 2048, 'r', 2048);
    save(dir, "chunk", "list-and-tail", blocks, sizeof blocks);
}

static void document_seeds(const char *dir)
{
    CLEANUP_BYTES text = BYTES_INIT(TAG_DOC_MAX);
    struct tag t = {.digest = digest_of("a", 1), .created = 1, .parent = digest_of("b", 1), .nonce = "n"};
    struct lease l = {.started = 1, .renewed = 2, .host = "h", .pid = 3, .image = "s3://b/i:t"};
    must(tag_encode(&t, &text));
    save(dir, "tag", "tag", text.data, text.len);
    bytes_clear(&text);
    t.source = digest_of("s", 1);
    snprintf(t.name, sizeof t.name, "faces");
    snprintf(t.tag, sizeof t.tag, "v1");
    must(signature_make(&(struct secret_key){.id = {1}, .secret = {9}}, "m", 1, "c", t.signature));
    must(tag_encode(&t, &text));
    save(dir, "tag", "tag-signed", text.data, text.len);
    save(dir, "tag", "signature", t.signature, strlen(t.signature));
    bytes_clear(&text);
    struct provenance p = {.files = 1, .bytes = 2, .built = 3, .parent = t.parent, .tool = "granary"};
    provenance_add_source(&p, "s3://b/p");
    must(provenance_encode(&p, t.provenance));
    must(tag_encode(&t, &text));
    save(dir, "tag", "tag-provenance", text.data, text.len);
    bytes_clear(&text);
    must(lease_encode(&l, &text));
    save(dir, "tag", "lease", text.data, text.len);
    bytes_clear(&text);
    must(store_doc_encode("0123456789abcdef0123456789abcdef", &text));
    save(dir, "tag", "store", text.data, text.len);
    static const char by_digest[] = "file:///srv/faces:v1@sha256:" HEX, key[] = "packs/ba/" HEX;
    const char *const refs[] = {"s3://lake/images/faces:2026-11-20", "/srv/images/faces", "https://host:1/p/faces",
                                by_digest, key};
    for (size_t i = 0; i < GR_ARRAY_SIZE(refs); i++) {
        char name[16];
        snprintf(name, sizeof name, "ref-%zu", i);
        save(dir, "image_ref", name, refs[i], strlen(refs[i]));
    }
}

static void export_seeds(const char *dir)
{
    CLEANUP_EXPORT_TABLE t = {.generation = 1};
    CLEANUP_BYTES text = BYTES_INIT(EXPORT_TABLE_MAX);
    struct export_entry e = {
        .resolved = 1, .manifest = {.data = (uint8_t *)"abc", .len = 3}, .signature = "not decoded here"};
    size_t kept, sum_line = sizeof "sha256:" HEX "\n" - 1; /* the target makes its own */
    must(image_ref_parse("s3://lake/faces:v1@sha256:" HEX, &e.ref));
    must(export_table_put(&t, &e));
    must(export_table_encode(&t, &text, &kept));
    save(dir, "exports", "table", text.data + sum_line, text.len - sum_line);
}

static void trace_seeds(const char *dir)
{
    CLEANUP_BYTES file = BYTES_INIT(TRACE_FILE_MAX);
    uint8_t entries[3 * TRACE_ENTRY_SIZE];
    for (uint32_t i = 0; i < 3; i++) {
        const struct digest digest = digest_of(&i, sizeof i);
        const struct trace_entry entry = trace_entry_of(7 - 3 * i, &digest);
        trace_entry_put(entries + (size_t)i * TRACE_ENTRY_SIZE, &entry);
    }
    struct trace t = {.image = digest_of("a", 1),
                      .content_root = digest_of("b", 1),
                      .size = 1 << 20,
                      .chunk_size = 128 << 10,
                      .dropped = 1,
                      .count = 3,
                      .entries = entries};
    must(trace_encode(&t, &file));
    save(dir, "trace", "three", file.data, file.len);
    t.count = 0;
    bytes_clear(&file);
    must(trace_encode(&t, &file));
    save(dir, "trace", "empty", file.data, file.len);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: fuzz_seeds DIR\n");
        return 2;
    }
    cache_meta_seeds(argv[1]);
    index_seeds(argv[1]);
    manifest_seeds(argv[1]);
    catalog_seeds(argv[1]);
    chunk_seeds(argv[1]);
    document_seeds(argv[1]);
    export_seeds(argv[1]);
    trace_seeds(argv[1]);
    return 0;
}
