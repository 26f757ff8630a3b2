/* The manifest as canonical JSON. manifest_json and manifest_decode write and read the same keys. manifest_problem has
 * the rules and is applied in both directions, so that nothing is written that a reader would refuse.
 *
 * A manifest is small but comes from outside: every number is bounded before it is used, so that no sum of two of them
 * can overflow 63 bits.
 */
#include "format/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "format/catalog.h"
#include "format/json_doc.h"

/* The image's alignment in bytes, and the bound of every number. */
enum { MANIFEST_ALIGN = 4096 };
static const int64_t manifest_number_max = INT64_C(1) << 60;

static const char *const fs_names[MANIFEST_FILESYSTEMS] = {[MANIFEST_EROFS] = "erofs", [MANIFEST_EXT4] = "ext4"};

const char *manifest_fs_name(enum manifest_fs fs)
{
    return (unsigned)fs < MANIFEST_FILESYSTEMS ? fs_names[fs] : "unknown";
}

const char *manifest_linux(const struct manifest *m)
{
    return m->fs == MANIFEST_EXT4 ? "4.18" : manifest_erofs_48bit(m) ? "6.15" : "5.4";
}

/* Return what is wrong with the image's geometry and trees; NULL: nothing. */
static const char *manifest_problem(const struct manifest *m)
{
    if ((unsigned)m->fs >= MANIFEST_FILESYSTEMS)
        return "unknown filesystem";
    if (m->size == 0 || m->size > (uint64_t)manifest_number_max || m->size % MANIFEST_ALIGN)
        return "the image's size is not a multiple of 4096 within bounds";
    if (!chunk_size_valid(m->chunk_size))
        return "the chunk size is not a power of two within bounds";
    if (m->metadata_offset > m->size || m->metadata_len > m->size - m->metadata_offset)
        return "the metadata region reaches past the image's end";
    if (m->front_len > m->metadata_offset)
        return "the metadata in front reaches into the metadata region";
    if (m->index_levels == 0 || m->index_levels != index_levels(manifest_chunk_count(m)))
        return "the index's levels do not fit the image's size";

    const struct index_child *root = &m->index_root;
    bool hole = digest_is_zero(&root->digest);
    if (hole != digest_is_zero(&root->content) || hole != (root->len == 0) || (hole && root->crc))
        return "the index's root is partly zero";
    if (root->len > INDEX_NODE_MAX)
        return "the index's root is too long";
    struct digest content = index_content_root(m->size, m->chunk_size, &root->content);
    if (!digest_equal(&content, &m->content_root))
        return "the content root does not follow from size, chunk size and index";

    if (m->catalog_levels < 1 || m->catalog_levels > CATALOG_LEVELS_MAX)
        return "the catalog's levels are out of bounds";
    if (digest_is_zero(&m->catalog_root) || m->catalog_len == 0 || m->catalog_len > CATALOG_OBJECT_MAX)
        return "the catalog's root is missing or too long";
    if (m->catalog_entries == 0)
        return "the catalog is empty, not even the root directory is in it";
    return NULL;
}

/* Are the numbers without further rules within the bound? When decoding, number() checks that. */
static bool manifest_numbers_fit(const struct manifest *m)
{
    const struct manifest_counts *c = &m->counts;
    const uint64_t numbers[] = {m->catalog_entries, m->stored_bytes, c->files,  c->directories,
                                c->symlinks,        c->hard_links,   c->others, c->bytes};
    for (size_t i = 0; i < GR_ARRAY_SIZE(numbers); i++)
        if (numbers[i] > (uint64_t)manifest_number_max)
            return false;
    return true;
}

static int version_of(const struct manifest *m)
{
    return m->deltas & CHUNK_SPLIT ? 3 : m->deltas ? 2 : 1;
}

/* Make the JSON; the empty comments keep one line group for each object. NULL when out of memory. */
static json_t *manifest_json(const struct manifest *m)
{
    const struct manifest_counts *c = &m->counts;
    return json_pack(
        "{s:s, s:i, s:s, s:I, s:I, s:o, s:I, s:{s:I, s:I}, s:{s:i, s:o, s:o, s:I, s:I}, s:{s:i, s:o, s:I, s:I, s:I},"
        " s:{s:I, s:I, s:I, s:I, s:I, s:I}}",
        "format", "granary-image", "version", version_of(m), "fs", manifest_fs_name(m->fs), "size", (json_int_t)m->size,
        "chunk_size", (json_int_t)m->chunk_size, "content_root", json_doc_from_digest(&m->content_root), "stored_bytes",
        (json_int_t)m->stored_bytes,
        /* */
        "metadata", "offset", (json_int_t)m->metadata_offset, "len", (json_int_t)m->metadata_len,
        /* */
        "index", "levels", (int)m->index_levels, "root", json_doc_from_digest(&m->index_root.digest), "content",
        json_doc_from_digest(&m->index_root.content), "len", (json_int_t)m->index_root.len, "crc",
        (json_int_t)m->index_root.crc,
        /* */
        "catalog", "levels", (int)m->catalog_levels, "root", json_doc_from_digest(&m->catalog_root), "len",
        (json_int_t)m->catalog_len, "crc", (json_int_t)m->catalog_crc, "entries", (json_int_t)m->catalog_entries,
        /* */
        "counts", "files", (json_int_t)c->files, "directories", (json_int_t)c->directories, "symlinks",
        (json_int_t)c->symlinks, "hard_links", (json_int_t)c->hard_links, "others", (json_int_t)c->others, "bytes",
        (json_int_t)c->bytes);
}

int manifest_encode(const struct manifest *m, struct bytes *out)
{
    const char *problem = manifest_numbers_fit(m) ? manifest_problem(m) : "a number is out of bounds";
    if (problem)
        return error_set(-EINVAL, "manifest: %s", problem);
    /* "front" is left out when it is 0, which keeps the digests of images without it unchanged. */
    CLEANUP_JSON json_t *root = manifest_json(m);
    if (root && m->front_len &&
        json_object_set_new(json_object_get(root, "metadata"), "front", json_integer((json_int_t)m->front_len)))
        return error_no_memory();
    return json_doc_dump("manifest", root, out);
}

static uint64_t number(struct json_doc *doc, const json_t *object, const char *key)
{
    return (uint64_t)json_doc_int(doc, object, key, 0, manifest_number_max);
}

static uint32_t number32(struct json_doc *doc, const json_t *object, const char *key)
{
    return (uint32_t)json_doc_int(doc, object, key, 0, UINT32_MAX);
}

/* Decode the roots of index and catalog; a missing object leaves zeros and doc->rc set. */
static void decode_trees(struct json_doc *doc, const json_t *root, struct manifest *m)
{
    const json_t *index = json_doc_object(doc, root, "index");
    m->index_levels = number32(doc, index, "levels");
    m->index_root.digest = json_doc_digest(doc, index, "root");
    m->index_root.content = json_doc_digest(doc, index, "content");
    m->index_root.len = number32(doc, index, "len");
    m->index_root.crc = number32(doc, index, "crc");

    const json_t *catalog = json_doc_object(doc, root, "catalog");
    m->catalog_levels = number32(doc, catalog, "levels");
    m->catalog_root = json_doc_digest(doc, catalog, "root");
    m->catalog_len = number32(doc, catalog, "len");
    m->catalog_crc = number32(doc, catalog, "crc");
    m->catalog_entries = number(doc, catalog, "entries");
}

static void decode_counts(struct json_doc *doc, const json_t *root, struct manifest_counts *c)
{
    const json_t *counts = json_doc_object(doc, root, "counts");
    c->files = number(doc, counts, "files");
    c->directories = number(doc, counts, "directories");
    c->symlinks = number(doc, counts, "symlinks");
    c->hard_links = number(doc, counts, "hard_links");
    c->others = number(doc, counts, "others");
    c->bytes = number(doc, counts, "bytes");
}

/* Decode the filesystem's name. */
static enum manifest_fs decode_fs(struct json_doc *doc, const json_t *root)
{
    char name[16];
    json_doc_string(doc, root, "fs", name, sizeof name);
    for (unsigned fs = 0; fs < MANIFEST_FILESYSTEMS; fs++)
        if (!strcmp(name, fs_names[fs]))
            return (enum manifest_fs)fs;
    json_doc_fail(doc, "unknown filesystem \"%s\"", name);
    return MANIFEST_EROFS;
}

int manifest_decode(const void *data, size_t len, struct manifest *out)
{
    struct json_doc doc = {.what = "manifest"};
    CLEANUP_JSON json_t *root = NULL;
    if (json_doc_parse(&doc, data, len, MANIFEST_MAX, &root))
        return doc.rc;
    /* Keys of a newer version may mean anything. Report the version instead of the first key that looks wrong. */
    json_doc_check_format(&doc, root, "granary-image", MANIFEST_VERSION);
    if (doc.rc)
        return doc.rc;
    struct manifest m = {.fs = decode_fs(&doc, root)};
    const int64_t version = json_doc_int(&doc, root, "version", 1, MANIFEST_VERSION);
    m.deltas = (version > 1 ? CHUNK_DELTA : 0) | (version > 2 ? CHUNK_SPLIT : 0);
    m.size = number(&doc, root, "size");
    m.chunk_size = number32(&doc, root, "chunk_size");
    m.content_root = json_doc_digest(&doc, root, "content_root");
    m.stored_bytes = number(&doc, root, "stored_bytes");
    const json_t *metadata = json_doc_object(&doc, root, "metadata");
    m.metadata_offset = number(&doc, metadata, "offset");
    m.metadata_len = number(&doc, metadata, "len");
    if (json_object_get(metadata, "front")) /* absent means 0 */
        m.front_len = (uint64_t)json_doc_int(&doc, metadata, "front", 1, manifest_number_max);
    decode_trees(&doc, root, &m);
    decode_counts(&doc, root, &m.counts);
    if (doc.rc)
        return doc.rc;
    const char *problem = manifest_problem(&m);
    if (problem)
        return error_set(-EBADMSG, "manifest: %s", problem);
    *out = m;
    return 0;
}

/* ---- checkpoints ----
 *
 * The document contains a manifest as text together with its SHA-256. A published manifest is checked by the digest
 * that names it; this one has no such name, so the digest is stored beside it. */

char *checkpoint_doc_key(const struct digest *key, char out[CHECKPOINT_KEY_MAX])
{
    char hex[DIGEST_HEX_SIZE];
    snprintf(out, CHECKPOINT_KEY_MAX, "builds/%s.checkpoint", digest_hex(key, hex));
    return out;
}

int checkpoint_doc_encode(const struct checkpoint_doc *c, struct bytes *out)
{
    CLEANUP_BYTES text = BYTES_INIT(CHECKPOINT_DOC_MAX / 2);
    int rc = manifest_encode(&c->image, &text);
    if (rc)
        return rc;
    struct digest digest = digest_of(text.data, text.len);
    CLEANUP_JSON json_t *root =
        json_pack("{s:s, s:i, s:o, s:o, s:s}", "format", "granary-checkpoint", "version", 1, "key",
                  json_doc_from_digest(&c->key), "digest", json_doc_from_digest(&digest), "image", bytes_string(&text));
    return json_doc_dump("checkpoint", root, out);
}

int checkpoint_doc_decode(const void *data, size_t len, struct checkpoint_doc *out)
{
    struct json_doc doc = {.what = "checkpoint"};
    struct checkpoint_doc c = {.key = {{0}}};
    CLEANUP_JSON json_t *root = NULL;
    CLEANUP_FREE char *text = malloc(CHECKPOINT_DOC_MAX);
    if (!text)
        return error_no_memory();
    if (json_doc_parse(&doc, data, len, CHECKPOINT_DOC_MAX, &root))
        return doc.rc;
    json_doc_check_format(&doc, root, "granary-checkpoint", 1);
    c.key = json_doc_digest(&doc, root, "key");
    struct digest expected = json_doc_digest(&doc, root, "digest");
    text[0] = 0;
    json_doc_string(&doc, root, "image", text, CHECKPOINT_DOC_MAX);
    struct digest found = digest_of(text, strlen(text));
    if (!doc.rc && !digest_equal(&found, &expected))
        json_doc_fail(&doc, "\"image\" is not what \"digest\" says");
    if (!doc.rc)
        doc.rc = manifest_decode(text, strlen(text), &c.image);
    /* Only the form that struct checkpoint_doc describes: no metadata yet, and file data up to a chunk's end. */
    if (!doc.rc && (c.image.metadata_len || c.image.metadata_offset != c.image.size || !c.image.front_len ||
                    c.image.size % c.image.chunk_size))
        json_doc_fail(&doc, "\"image\" is a whole image, or ends within a chunk");
    if (doc.rc)
        return doc.rc;
    *out = c;
    return 0;
}
