/* The steps of one run:
 *
 *   1 collect   find every chunk that the image has in the packs, by the index
 *   2 look      find which of them are intact in the remaining bytes of the packs
 *   3 files     find which files lie in the others, by the catalog, sorted by chunk
 *   4 rebuild   pack by pack: assemble the missing chunks; put the pack if its SHA-256 is its name
 *
 * Bytes of the pack that belong to other images are kept as found; the SHA-256 decides whether they were right. Steps
 * 2 and 4 read each pack once, so that one pack at a time is in memory.
 */
#include "imagebuild/check/check.h"

#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cancel.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/map.h"
#include "base/parallel.h"
#include "base/spill/sorter.h"
#include "base/vec.h"
#include "imagebuild/check/repair_chunk.h"
#include "repository/lease.h"
#include "repository/nesting.h"
#include "repository/read/catalog_read.h"
#include "repository/read/index_read.h"

enum { THREADS = 8 };

/* A pack to be rebuilt. */
struct pack {
    struct digest name;
    size_t first, count; /* its range in `chunks` */
    bool lost;           /* it cannot be rebuilt, and that was reported */
};

/* State of a run. The caller's thread owns it; make_nth runs in several threads, and touches only chunks of its own. */
struct repairing {
    struct store *store;
    const struct manifest *m;
    const struct repair_options *options;
    struct repair_result *result;
    struct digest_map names;
    VEC(struct repair_chunk) chunks; /* by pack and offset */
    VEC(struct pack) packs;
    VEC(size_t) missing; /* indexes into `chunks` of chunks to be assembled, by chunk number */
    /* the sorter's files, and the record read ahead of the pack that it belongs to */
    struct sorter *files;
    struct sorter_record ahead;
    bool have_ahead;
    struct repair_maker maker;
    struct lease_handle *lease; /* keeps gc from sweeping the packs that are put */
    uint8_t *pack;              /* bytes of the pack being rebuilt */
    VEC(size_t) todo;           /* its missing chunks, as indexes into `chunks` */
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
    lease_end(r->lease);
}

/* Called between any two pieces of work: report progress, check for cancellation, renew the lease. */
static int repair_step(void *arg)
{
    struct repairing *r = arg;
    int rc = cancel_check(r->options->cancel);
    if (!rc && r->options->progress)
        r->options->progress(r->options->arg, r->done, r->packs.len);
    return rc ? rc : lease_renew(r->lease);
}

/* Give up a pack and report why. */
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

/* ------------------------------------------------------------------ 1: collect the packs' chunks */

/* Take a chunk, if it lies in one of the named packs. */
static int collect_chunk(struct repairing *r, uint64_t number, const struct chunk_ref *ref)
{
    const struct repair_chunk chunk = {.ref = *ref, .number = number};
    if (chunk_is_hole(ref) || !digest_map_find(&r->names, &ref->object))
        return 0;
    return vec_push(&r->chunks, chunk);
}

/* Take the chunks of an index leaf that lie in the named packs, and the bases of its deltas that do: a base is a chunk
 * of metadata, too. */
static int collect_chunks(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *refs)
{
    struct repairing *r = arg;
    int rc = 0;
    for (uint64_t i = 0; refs && i < count && !rc; i++) {
        rc = collect_chunk(r, first + i, &refs[i]);
        if (!rc && chunk_is_delta(&refs[i])) {
            const struct chunk_ref base = chunk_base_ref(&refs[i]);
            rc = collect_chunk(r, first + i, &base);
        }
    }
    return rc ? rc : repair_step(r);
}

/* Order by pack, then by offset. */
static int compare_places(const void *a, const void *b)
{
    const struct repair_chunk *x = a, *y = b;
    int order = memcmp(&x->ref.object, &y->ref.object, DIGEST_SIZE);
    return order ? order : x->ref.offset < y->ref.offset ? -1 : x->ref.offset > y->ref.offset;
}

/* Find the chunks of the named packs, and make a list of packs from them. */
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
            return -ENOMEM;
        r->packs.items[r->packs.len - 1].count++;
    }
    r->result->packs = r->packs.len;
    return 0;
}

/* ------------------------------------------------------------------ 2: look at the remaining bytes */

/* Read the remaining bytes of a pack into *out, padded with zeros to the length that the image needs. *out_left: the
 * number of bytes that were there. */
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
    rc = *out_left ? store_get(r->store, key, 0, *out_left, store_append, out) : 0;
    uint64_t need = (uint64_t)last->offset + last->stored_len;
    /* missing chunks will be assembled into this part */
    if (!rc && need > out->len && need <= REPAIR_PACK_BYTES)
        rc = bytes_extend(out, need - out->len, &zeros);
    return rc;
}

/* Return whether a chunk is intact: all of its bytes were there, and their CRC is right. */
static bool is_whole(const struct chunk_ref *ref, const struct bytes *pack, uint64_t left)
{
    return (uint64_t)ref->offset + ref->stored_len <= left &&
           crc32c(pack->data + ref->offset, ref->stored_len) == ref->stored_crc;
}

/* Return whether a chunk holds what the filesystem made and no source has: the front, or the metadata after the file
 * data. */
static bool is_of_filesystem(const struct manifest *m, uint64_t number)
{
    uint64_t begin = number * m->chunk_size;
    return number == 0 || begin < m->front_len || begin + m->chunk_size > m->metadata_offset;
}

/* Find the missing chunks of a pack. One missing chunk of metadata means that the pack cannot be rebuilt. */
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
        if (chunk->missing && is_of_filesystem(r->m, chunk->number))
            repair_lose(r, p, "it holds metadata of the filesystem, which is not in the source");
    }
    for (size_t i = p->first; i < p->first + p->count && !rc && !p->lost; i++)
        if (r->chunks.items[i].missing)
            rc = vec_push(&r->missing, i);
    return rc;
}

/* Look at all packs, one at a time. */
static int repair_look_at_all(struct repairing *r, struct bytes *pack)
{
    int rc = 0;
    for (size_t i = 0; i < r->packs.len && !rc; i++) {
        rc = repair_look_at(r, &r->packs.items[i], pack);
        if (!rc)
            rc = repair_step(r);
    }
    return rc;
}

/* ------------------------------------------------------------------ 3: find the files */

/* Order missing chunks by number, so that an extent finds its chunks by a binary search. */
static int compare_numbers(const void *a, const void *b, void *arg)
{
    const struct repairing *r = arg;
    uint64_t x = r->chunks.items[*(const size_t *)a].number, y = r->chunks.items[*(const size_t *)b].number;
    return x < y ? -1 : x > y;
}

/* Return the index in `missing` of the first chunk with this number or a higher one. */
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

/* Note a file for each missing chunk that its extent touches. */
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

/* Note all extents of a file. A further name of a hard-linked file has the same data, so it is skipped. */
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

/* Walk the catalog once and note the files of all missing chunks, of all packs. */
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

/* ------------------------------------------------------------------ 4: rebuild */

/* Read the next noted file, which may belong to a later pack. */
static int repair_read_ahead(struct repairing *r)
{
    int rc = sorter_next(r->files, &r->ahead);
    r->have_ahead = rc > 0;
    return GR_MIN(rc, 0);
}

/* Give the maker the files of this pack's missing chunks. Records of lost packs are skipped. */
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

/* Assemble the i-th missing chunk, in any thread, into its place in the pack. */
static int make_nth(void *arg, size_t i)
{
    struct repairing *r = arg;
    size_t chunk = r->todo.items[i];
    return repair_make(&r->maker, &r->chunks.items[chunk], (uint32_t)chunk, r->m->chunk_size,
                       r->pack + r->chunks.items[chunk].ref.offset);
}

/* Assemble a pack's missing chunks in several threads. They write to disjoint parts of the pack. */
static int make_chunks(struct repairing *r, const struct pack *p)
{
    r->todo.len = 0;
    for (size_t i = p->first; i < p->first + p->count; i++)
        if (r->chunks.items[i].missing && vec_push(&r->todo, i))
            return -ENOMEM;
    const struct parallel work = {.count = r->todo.len,
                                  .threads = r->options->threads ? r->options->threads : THREADS,
                                  .item = make_nth,
                                  .step = repair_step,
                                  .arg = r};
    return parallel_run(&work);
}

/* Return whether bytes have the pack's name as their SHA-256. */
static bool has_name(const struct pack *p, const void *data, size_t len)
{
    struct digest d = digest_of(data, len);
    return digest_equal(&d, &p->name);
}

/* Return how many bytes of *pack are the pack: something may have been appended to it. 0: its name fits neither
 * length. */
static size_t pack_len(const struct repairing *r, const struct pack *p, const struct bytes *pack)
{
    const struct chunk_ref *last = &r->chunks.items[p->first + p->count - 1].ref;
    size_t needed = (size_t)last->offset + last->stored_len;
    if (has_name(p, pack->data, pack->len))
        return pack->len;
    return needed < pack->len && has_name(p, pack->data, needed) ? needed : 0;
}

/* Put a rebuilt pack, if its bytes have its name. */
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

/* Rebuild one pack. A pack that cannot be rebuilt is reported; that is not an error. */
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

/* Rebuild all packs in the order of their chunks in the list, which is the sorter's order too. */
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
    const struct nesting place = {.is_store = true};
    *out = (struct repair_result){0};
    struct repairing r CLEANUP(repair_release) = {.store = s, .m = m, .options = options, .result = out};
    CLEANUP_BYTES pack = BYTES_INIT(REPAIR_PACK_BYTES);
    repair_maker_init(&r.maker, source);
    int rc = lease_begin(s, &place, "repair", options->cancel, &r.lease);
    if (!rc)
        rc = sorter_new(&(struct sorter_config){0}, &r.files);
    if (!rc)
        rc = repair_collect(&r, packs, count);
    if (!rc)
        rc = repair_look_at_all(&r, &pack);
    if (!rc)
        rc = find_files(&r);
    return rc ? rc : rebuild_all(&r, &pack);
}
