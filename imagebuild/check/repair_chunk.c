/* A chunk's plain bytes are those of the files in it, with zeros between them. Only the parts of files that lie in the
 * chunk are read; its digest then proves them. Several files may share the same bytes: any one that can be read will
 * do. The zstd level of a pack is not recorded, so levels are tried until one gives the stored length and CRC.
 */
#include "imagebuild/check/repair_chunk.h"

#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

enum { LEVEL_FIRST = 3, LEVEL_MAX = 19, TEXTS_MAX = 1 << 30 };

/* Value of a record: this, then path and validator. */
struct noted {
    uint64_t file_offset;
    uint32_t path_len, validator_len;
};

/* Key of a record: {chunk, address, length}, big-endian, so that bytes sort as numbers do. */
enum { KEY_SIZE = 20 };

/* Numbers are big-endian, so the sorter's byte order is by chunk, address and length. */
int repair_note(struct sorter *s, uint32_t chunk, const struct catalog_entry *e, uint64_t address, uint64_t len,
                uint64_t file_offset)
{
    uint8_t key[KEY_SIZE];
    uint32_t chunk_be = htobe32(chunk);
    uint64_t address_be = htobe64(address), len_be = htobe64(len);
    CLEANUP_BYTES value = BYTES_INIT(CATALOG_PATH_MAX + SOURCE_VALIDATOR_MAX + sizeof(struct noted));
    const struct noted noted = {
        .file_offset = file_offset, .path_len = (uint32_t)e->path_len, .validator_len = (uint32_t)e->validator_len};
    memcpy(key, &chunk_be, 4);
    memcpy(key + 4, &address_be, 8);
    memcpy(key + 12, &len_be, 8);
    int rc = bytes_append(&value, &noted, sizeof noted);
    if (!rc)
        rc = bytes_append(&value, e->path, e->path_len);
    if (!rc)
        rc = bytes_append(&value, e->validator, e->validator_len);
    return rc ? rc : sorter_add(s, key, sizeof key, value.data, value.len);
}

uint32_t repair_noted_chunk(const struct sorter_record *r)
{
    uint32_t chunk;
    memcpy(&chunk, r->key, sizeof chunk);
    return be32toh(chunk);
}

void repair_maker_init(struct repair_maker *m, struct source *source)
{
    m->source = source;
    m->texts = (struct bytes)BYTES_INIT(TEXTS_MAX);
    m->level = LEVEL_FIRST;
    pthread_mutex_init(&m->lock, NULL);
}

void repair_maker_release(struct repair_maker *m)
{
    vec_release(&m->pieces);
    bytes_release(&m->texts);
    pthread_mutex_destroy(&m->lock);
}

void repair_maker_clear(struct repair_maker *m)
{
    m->pieces.len = 0;
    bytes_clear(&m->texts);
    m->why[0] = '\0';
}

int repair_maker_add(struct repair_maker *m, const struct sorter_record *r)
{
    struct noted noted;
    uint64_t address, len;
    memcpy(&noted, r->value, sizeof noted);
    memcpy(&address, r->key + 4, sizeof address);
    memcpy(&len, r->key + 12, sizeof len);
    struct repair_piece piece = {.chunk = repair_noted_chunk(r),
                                 .address = be64toh(address),
                                 .len = be64toh(len),
                                 .file_offset = noted.file_offset,
                                 .text = m->texts.len,
                                 .path_len = noted.path_len,
                                 .validator_len = noted.validator_len};
    int rc = bytes_append(&m->texts, r->value + sizeof noted, r->value_len - sizeof noted);
    if (!rc)
        rc = vec_push(&m->pieces, piece);
    return rc;
}

/* Keep the first reason why the pack cannot be rebuilt. */
static void repair_chunk_lose(struct repair_maker *m, const char *what, const char *name, size_t name_len)
{
    SCOPED_LOCK(&m->lock);
    if (!m->why[0])
        snprintf(m->why, sizeof m->why, "%s%.*s", what, (int)GR_MIN(name_len, (size_t)150), name);
}

/* ------------------------------------------------------------------ plain bytes */

/* Read that part of a piece that lies in [begin, end) of the image. */
static int read_piece(struct repair_maker *m, const struct repair_piece *p, uint64_t begin, uint64_t end,
                      uint8_t *plain)
{
    uint64_t from = GR_MAX(begin, p->address), to = GR_MIN(end, p->address + p->len);
    const char *text = (const char *)m->texts.data + p->text;
    struct source_read read = {.path = text,
                               .path_len = p->path_len,
                               .validator = text + p->path_len,
                               .validator_len = p->validator_len,
                               .offset = p->file_offset + (from - p->address),
                               .len = to - from,
                               .dst = plain + (from - begin)};
    return source_read(m->source, &read);
}

/* Return the index of the first piece of this chunk. */
static size_t first_piece(const struct repair_maker *m, uint32_t place)
{
    size_t low = 0, high = m->pieces.len;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (m->pieces.items[middle].chunk < place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Read all pieces of a chunk. *out_lost: a piece whose version no file in the source has any more; NULL: none. */
static int repair_chunk_fill(struct repair_maker *m, uint32_t place, uint64_t begin, uint64_t end, uint8_t *plain,
                             const struct repair_piece **out_lost)
{
    const struct repair_piece *before = NULL;
    bool have = false;
    *out_lost = NULL;
    for (size_t i = first_piece(m, place); i < m->pieces.len && m->pieces.items[i].chunk == place; i++) {
        const struct repair_piece *p = &m->pieces.items[i];
        bool same = before && before->address == p->address && before->len == p->len;
        /* the last candidate for these bytes could not be read either */
        if (!same && before && !have)
            *out_lost = before;
        /* another file with the same bytes has been read */
        if (same && have)
            continue;
        int rc = read_piece(m, p, begin, end, plain);
        /* a file that changed or is gone may have an equal one */
        if (rc && rc != -ESTALE && rc != -ENOENT)
            return rc;
        have = !rc;
        before = p;
    }
    if (before && !have)
        *out_lost = before;
    return 0;
}

/* ------------------------------------------------------------------ stored bytes */

/* Compress with one level; *fits: the result has the stored length, CRC and flags. */
static int try_level(const struct chunk_ref *ref, const uint8_t *plain, int level, struct bytes *out, bool *fits)
{
    struct chunk_ref made;
    int rc = chunk_encode(plain, ref->plain_len, level, out, &made);
    *fits = !rc && made.flags == ref->flags && made.stored_len == ref->stored_len && made.stored_crc == ref->stored_crc;
    return rc;
}

/* Find the level that gives the stored bytes, beginning with the one that fitted last. A chunk stored plain has no
 * level. */
static int compress(struct repair_maker *m, const struct chunk_ref *ref, const uint8_t *plain, struct bytes *out,
                    bool *fits)
{
    int last = atomic_load(&m->level);
    int rc = try_level(ref, plain, ref->flags & CHUNK_ZSTD ? last : 0, out, fits);
    for (int level = 1; level <= LEVEL_MAX && !rc && !*fits && ref->flags & CHUNK_ZSTD; level++) {
        if (level != last)
            rc = try_level(ref, plain, level, out, fits);
        if (*fits)
            atomic_store(&m->level, level);
    }
    return rc;
}

int repair_make(struct repair_maker *m, const struct repair_chunk *chunk, uint32_t place, uint32_t chunk_size,
                uint8_t *stored)
{
    const struct chunk_ref *ref = &chunk->ref;
    const struct repair_piece *lost;
    uint64_t begin = chunk->number * chunk_size;
    CLEANUP_FREE uint8_t *plain = calloc(1, ref->plain_len);
    CLEANUP_BYTES out = BYTES_INIT(CHUNK_SIZE_MAX);
    bool fits;
    if (!plain)
        return error_no_memory();
    int rc = repair_chunk_fill(m, place, begin, begin + ref->plain_len, plain, &lost);
    if (rc)
        return rc;
    struct digest found = digest_of(plain, ref->plain_len);
    if (!digest_equal(&found, &ref->digest)) {
        if (lost)
            repair_chunk_lose(m, "the source no longer has the image's version of ", (char *)m->texts.data + lost->text,
                              lost->path_len);
        else
            repair_chunk_lose(m, "it holds bytes that no file of this image has, or a file's bytes changed unnoticed",
                              "", 0);
        return 0;
    }
    rc = compress(m, ref, plain, &out, &fits);
    if (!rc && fits)
        memcpy(stored, out.data, out.len);
    else if (!rc)
        repair_chunk_lose(m, "this version of zstd compresses it differently", "", 0);
    return rc;
}
