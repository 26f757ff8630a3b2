/* One run:
 *
 *   1 collect   every chunk the image has in the packs, by the index
 *   2 look      which of them are whole in what is left of the packs
 *   3 files     which files lie in the others, by the catalog, sorted by chunk
 *   4 rebuild   pack by pack: what is left, with the missing chunks put into it; put when its SHA-256 is its name
 *
 * What the pack holds of other images is kept as it is found, and the SHA-256 decides whether that was right. Steps 2
 * and 4 read a pack each, so that one is held at a time.
 */
#include "imagebuild/check/repair.h"

#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/spill/sorter.h"
#include "base/vec.h"
#include "imagebuild/check/repair_chunk.h"
#include "store/read/catalog_cursor.h"
#include "store/read/digest_map.h"
#include "store/read/index_read.h"

enum { THREADS = 8 };

struct pack {
    struct digest name;
    size_t first, count; /* of `chunks` */
    bool lost;           /* and reported */
};

struct repairing {
    struct store *store;
    const struct manifest *m;
    const struct repair_options *options;
    struct repair_result *result;
    struct digest_map names;
    VEC(struct repair_chunk) chunks; /* by pack and offset */
    VEC(struct pack) packs;
    VEC(size_t) missing; /* chunks to be put together, by number */
    struct sorter *files;
    struct sorter_record ahead;
    bool have_ahead;
    struct repair_maker maker;
    uint8_t *pack;    /* of the pack being rebuilt */
    VEC(size_t) todo; /* its missing chunks */
    uint64_t done;
};

static void repair_release(struct repairing *r)
{
    digest_map_release(&r->names);
    vec_release(&r->chunks);
    vec_release(&r->packs);
    vec_release(&r->missing);
    vec_release(&r->todo);
    sorter_free(r->files);
    repair_maker_release(&r->maker);
}

static int repair_step(void *arg)
{
    struct repairing *r = arg;
    if (r->options->cancel && *r->options->cancel)
        return error_set(-ECANCELED, "interrupted");
    if (r->options->progress)
        r->options->progress(r->options->arg, r->done, r->packs.len);
    return 0;
}

static void repair_lose(struct repairing *r, struct pack *p, const char *why)
{
    char hex[DIGEST_HEX_SIZE], key[OBJECT_KEY_MAX];
    p->lost = true;
    (void)error_set(-EBADMSG,
                    "pack %.12s... cannot be rebuilt: %s; remove %s from %s and run 'granary build --parent none' with "
                    "the options of the image: it puts back what is missing",
                    digest_hex(&p->name, hex), why, object_key(OBJECT_PACK, &p->name, key), r->store->url);
    if (r->options->problem)
        r->options->problem(r->options->arg, error_text());
}

/* ------------------------------------------------------------------ 1: the packs' chunks */

static int collect_chunks(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *refs)
{
    struct repairing *r = arg;
    for (uint64_t i = 0; refs && i < count; i++) {
        if (chunk_is_hole(&refs[i]) || !digest_map_find(&r->names, &refs[i].object))
            continue;
        struct repair_chunk chunk = {.ref = refs[i], .number = first + i};
        if (vec_push(&r->chunks, chunk))
            return error_no_memory();
    }
    return repair_step(r);
}

static int compare_places(const void *a, const void *b)
{
    const struct repair_chunk *x = a, *y = b;
    int order = memcmp(&x->ref.object, &y->ref.object, DIGEST_SIZE);
    return order ? order : x->ref.offset < y->ref.offset ? -1 : x->ref.offset > y->ref.offset;
}

static int repair_collect(struct repairing *r, const struct digest *packs, size_t count)
{
    const struct index_walk_ops ops = {.chunks = collect_chunks};
    int rc = 0;
    for (size_t i = 0; i < GR_MIN(count, (size_t)REPAIR_PACKS_MAX) && rc >= 0; i++)
        rc = digest_map_add(&r->names, &packs[i], 0);
    if (rc >= 0)
        rc = index_walk(r->store, r->m, &ops, r);
    if (rc || !r->chunks.len)
        return rc;
    qsort(r->chunks.items, r->chunks.len, sizeof *r->chunks.items, compare_places);
    for (size_t i = 0; i < r->chunks.len; i++) {
        struct pack *last = r->packs.len ? &r->packs.items[r->packs.len - 1] : NULL;
        struct pack fresh = {.name = r->chunks.items[i].ref.object, .first = i};
        if ((!last || !digest_equal(&last->name, &fresh.name)) && vec_push(&r->packs, fresh))
            return error_no_memory();
        r->packs.items[r->packs.len - 1].count++;
    }
    r->result->packs = r->packs.len;
    return 0;
}

/* ------------------------------------------------------------------ 2: what is left of them */

static int repair_append(void *arg, const void *data, size_t len)
{
    return bytes_append(arg, data, len);
}

/* *out: what is left, as long as the image needs the pack at least; *out_left: how much of that was there. */
static int read_left(struct repairing *r, const struct pack *p, struct bytes *out, uint64_t *out_left)
{
    const struct chunk_ref *last = &r->chunks.items[p->first + p->count - 1].ref;
    struct store_item item = {.size = 0};
    char key[OBJECT_KEY_MAX];
    uint8_t *zeros;
    object_key(OBJECT_PACK, &p->name, key);
    bytes_clear(out);
    int rc = store_stat(r->store, key, &item);
    if (rc && rc != -ENOENT)
        return rc;
    *out_left = GR_MIN(item.size, (uint64_t)REPAIR_PACK_BYTES);
    rc = *out_left ? store_get(r->store, key, 0, *out_left, repair_append, out) : 0;
    uint64_t need = (uint64_t)last->offset + last->stored_len;
    if (!rc && need > out->len && need <= REPAIR_PACK_BYTES)
        rc = bytes_extend(out, need - out->len, &zeros);
    return rc;
}

static bool is_whole(const struct chunk_ref *ref, const struct bytes *pack, uint64_t left)
{
    return (uint64_t)ref->offset + ref->stored_len <= left &&
           crc32c(pack->data + ref->offset, ref->stored_len) == ref->stored_crc;
}

/* The superblock's chunk, what a filesystem has in front of the bodies, and the region behind them. */
static bool is_metadata(const struct manifest *m, uint64_t number)
{
    uint64_t begin = number * m->chunk_size;
    return number == 0 || begin < m->front_len || begin + m->chunk_size > m->metadata_offset;
}

static int repair_look_at(struct repairing *r, struct pack *p, struct bytes *pack)
{
    const struct chunk_ref *last = &r->chunks.items[p->first + p->count - 1].ref;
    uint64_t left;
    if ((uint64_t)last->offset + last->stored_len > REPAIR_PACK_BYTES) {
        repair_lose(r, p, "it is longer than 256 MiB");
        return 0;
    }
    int rc = read_left(r, p, pack, &left);
    for (size_t i = p->first; i < p->first + p->count && !rc && !p->lost; i++) {
        struct repair_chunk *chunk = &r->chunks.items[i];
        chunk->missing = !is_whole(&chunk->ref, pack, left);
        if (chunk->missing && is_metadata(r->m, chunk->number))
            repair_lose(r, p, "it holds metadata of the filesystem, which is not in the source");
    }
    for (size_t i = p->first; i < p->first + p->count && !rc && !p->lost; i++)
        if (r->chunks.items[i].missing && vec_push(&r->missing, i))
            rc = error_no_memory();
    return rc;
}

static int look_at_all(struct repairing *r, struct bytes *pack)
{
    int rc = 0;
    for (size_t i = 0; i < r->packs.len && !rc; i++) {
        rc = repair_look_at(r, &r->packs.items[i], pack);
        if (!rc)
            rc = repair_step(r);
    }
    return rc;
}

/* ------------------------------------------------------------------ 3: the files in them */

static int compare_numbers(const void *a, const void *b, void *arg)
{
    const struct repairing *r = arg;
    uint64_t x = r->chunks.items[*(const size_t *)a].number, y = r->chunks.items[*(const size_t *)b].number;
    return x < y ? -1 : x > y;
}

/* The first of `missing` with that number or a higher one. */
static size_t first_missing(const struct repairing *r, uint64_t number)
{
    size_t low = 0, high = r->missing.len;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (r->chunks.items[r->missing.items[middle]].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int note_extent(struct repairing *r, const struct catalog_entry *e, const struct catalog_extent *extent,
                       uint64_t file_offset)
{
    uint64_t end = extent->offset + GR_MIN(extent->len, e->size - file_offset);
    int rc = 0;
    for (size_t i = first_missing(r, extent->offset / r->m->chunk_size); i < r->missing.len && !rc; i++) {
        size_t chunk = r->missing.items[i];
        if (r->chunks.items[chunk].number * r->m->chunk_size >= end)
            break;
        rc = repair_note(r->files, (uint32_t)chunk, e, extent->offset, end - extent->offset, file_offset);
    }
    return rc;
}

static int note_file(struct repairing *r, const struct catalog_entry *e)
{
    uint64_t file_offset = 0;
    int rc = 0;
    if (!S_ISREG(e->mode) || e->hard_link)
        return 0;
    for (size_t i = 0; i < e->extent_count && file_offset < e->size && !rc; i++) {
        if (e->extents[i].offset > r->m->size || e->extents[i].len > r->m->size - e->extents[i].offset)
            return error_set(-EBADMSG, "catalog: '%.*s' lies outside of the image", (int)GR_MIN(e->path_len, 256u),
                             e->path);
        rc = note_extent(r, e, &e->extents[i], file_offset);
        file_offset += e->extents[i].len;
    }
    return rc;
}

static int find_files(struct repairing *r)
{
    CLEANUP(cleanup_catalog_cursor) struct catalog_cursor *cursor = NULL;
    const struct catalog_entry *e;
    if (!r->missing.len)
        return 0;
    qsort_r(r->missing.items, r->missing.len, sizeof *r->missing.items, compare_numbers, r);
    int rc = catalog_cursor_new(r->store, r->m, "", 0, CATALOG_CURSOR_AHEAD, &cursor);
    while (!rc && (rc = catalog_cursor_next(cursor, &e)) > 0) {
        rc = note_file(r, e);
        if (!rc)
            rc = repair_step(r);
    }
    return rc;
}

/* ------------------------------------------------------------------ 4: putting them together */

static int repair_read_ahead(struct repairing *r)
{
    int rc = sorter_next(r->files, &r->ahead);
    r->have_ahead = rc > 0;
    return GR_MIN(rc, 0);
}

/* Hand the maker the files of this pack's missing chunks. */
static int load_files(struct repairing *r, const struct pack *p)
{
    int rc = 0;
    repair_maker_clear(&r->maker);
    while (!rc && r->have_ahead && repair_noted_chunk(&r->ahead) < p->first + p->count) {
        if (repair_noted_chunk(&r->ahead) >= p->first)
            rc = repair_maker_add(&r->maker, &r->ahead);
        if (!rc)
            rc = repair_read_ahead(r);
    }
    return rc;
}

static int make_nth(void *arg, size_t i)
{
    struct repairing *r = arg;
    size_t chunk = r->todo.items[i];
    return repair_make(&r->maker, &r->chunks.items[chunk], (uint32_t)chunk, r->m->chunk_size,
                       r->pack + r->chunks.items[chunk].ref.offset);
}

static int make_chunks(struct repairing *r, const struct pack *p)
{
    r->todo.len = 0;
    for (size_t i = p->first; i < p->first + p->count; i++)
        if (r->chunks.items[i].missing && vec_push(&r->todo, i))
            return error_no_memory();
    const struct parallel work = {.count = r->todo.len,
                                  .threads = r->options->threads ? r->options->threads : THREADS,
                                  .item = make_nth,
                                  .step = repair_step,
                                  .arg = r};
    return parallel_run(&work);
}

static bool has_name(const struct pack *p, const void *data, size_t len)
{
    struct digest d = digest_of(data, len);
    return digest_equal(&d, &p->name);
}

/* How much of the body is the pack: something may have been appended to it. 0: it is none. */
static size_t pack_len(const struct repairing *r, const struct pack *p, const struct bytes *pack)
{
    const struct chunk_ref *last = &r->chunks.items[p->first + p->count - 1].ref;
    size_t needed = (size_t)last->offset + last->stored_len;
    if (has_name(p, pack->data, pack->len))
        return pack->len;
    return needed < pack->len && has_name(p, pack->data, needed) ? needed : 0;
}

static int put_pack(struct repairing *r, struct pack *p, const struct bytes *pack)
{
    char key[OBJECT_KEY_MAX];
    size_t len = pack_len(r, p, pack);
    if (!len) {
        repair_lose(r, p, "it also held chunks of other images, which are damaged too; repair those images first");
        return 0;
    }
    const struct store_put put = {.key = object_key(OBJECT_PACK, &p->name, key),
                                  .data = pack->data,
                                  .len = len,
                                  .sha256 = &p->name,
                                  .mode = STORE_PUT_ALWAYS};
    int rc = store_put(r->store, &put);
    r->result->repaired += !rc;
    r->result->chunks += rc ? 0 : r->todo.len;
    return rc;
}

static int rebuild(struct repairing *r, struct pack *p, struct bytes *pack)
{
    uint64_t left;
    int rc = load_files(r, p);
    if (rc || p->lost)
        return rc;
    rc = read_left(r, p, pack, &left);
    r->pack = pack->data;
    if (!rc)
        rc = make_chunks(r, p);
    if (rc)
        return rc;
    if (r->maker.why[0]) {
        repair_lose(r, p, r->maker.why);
        return 0;
    }
    return put_pack(r, p, pack);
}

static int rebuild_all(struct repairing *r, struct bytes *pack)
{
    int rc = sorter_sort(r->files);
    if (!rc)
        rc = repair_read_ahead(r);
    for (size_t i = 0; i < r->packs.len && !rc; i++) {
        rc = rebuild(r, &r->packs.items[i], pack);
        r->done++;
    }
    return rc;
}

int repair_packs(struct store *s, const struct manifest *m, struct source *source, const struct digest *packs,
                 size_t count, const struct repair_options *options, struct repair_result *out)
{
    *out = (struct repair_result){0};
    struct repairing r CLEANUP(repair_release) = {.store = s, .m = m, .options = options, .result = out};
    CLEANUP_BYTES pack = BYTES_INIT(REPAIR_PACK_BYTES);
    repair_maker_init(&r.maker, source);
    int rc = sorter_new(&(struct sorter_config){0}, &r.files);
    if (!rc)
        rc = repair_collect(&r, packs, count);
    if (!rc)
        rc = look_at_all(&r, &pack);
    if (!rc)
        rc = find_files(&r);
    return rc ? rc : rebuild_all(&r, &pack);
}
