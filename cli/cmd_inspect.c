/* granary inspect IMAGE */
#include <errno.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/open.h"
#include "cli/options.h"
#include "cli/print.h"
#include "cli/verbs.h"
#include "store/image_stats.h"

struct inspect_values {
    const char *endpoint;
    bool json;
};

static const struct option_row rows[] = {
    ENDPOINT_ROW(struct inspect_values),
    {OPTION_FLAG, 0, "json", NULL, offsetof(struct inspect_values, json), 0, 0, "print one JSON object"},
    {0},
};

/* Plain bytes of chunks over what they take in the store. */
static double ratio(const struct image_stats *s)
{
    return s->stored_bytes ? (double)s->plain_bytes / (double)s->stored_bytes : 1;
}

#define INTEGER(field) json_integer((json_int_t)(field))

static json_t *counts_json(const struct manifest_counts *c)
{
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "files", INTEGER(c->files), "directories", INTEGER(c->directories),
                     "symlinks", INTEGER(c->symlinks), "hard_links", INTEGER(c->hard_links), "others",
                     INTEGER(c->others), "bytes", INTEGER(c->bytes));
}

static json_t *inspect_json(const struct open_image *image, const struct image_stats *s)
{
    const struct manifest *m = &image->manifest;
    json_t *object = json_pack(
        "{s:s,s:s,s:o,s:o,s:s,s:o,s:o,s:o,s:o,s:o, s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:f}", "store", image->ref.store,
        "name", image->ref.name, "digest", print_json_digest(&image->digest), "content_root",
        print_json_digest(&m->content_root), "filesystem", manifest_fs_name(m->fs), "size", INTEGER(m->size),
        "chunk_size", INTEGER(m->chunk_size), "metadata_offset", INTEGER(m->metadata_offset), "metadata_length",
        INTEGER(m->metadata_len), "counts", counts_json(&m->counts), "chunks", INTEGER(s->chunks), "holes",
        INTEGER(s->holes), "zstd_chunks", INTEGER(s->zstd_chunks), "packs", INTEGER(s->packs), "index_nodes",
        INTEGER(s->index_nodes), "plain_bytes", INTEGER(s->plain_bytes), "stored_bytes", INTEGER(s->stored_bytes),
        "catalog_entries", INTEGER(m->catalog_entries), "compression_ratio", ratio(s));
    if (object && !image->ref.by_digest) {
        json_object_set_new(object, "tag", json_string(image->ref.tag));
        json_object_set_new(object, "created", print_json_time(image->tag.created));
        json_object_set_new(object, "parent", print_json_digest(&image->tag.parent));
    }
    return object;
}

static void print_size(const char *label, uint64_t bytes)
{
    char text[TEXT_SIZE_MAX];
    printf("%-14s %s (%llu bytes)\n", label, text_format_size(bytes, text), (unsigned long long)bytes);
}

static void print_text(const struct open_image *image, const struct image_stats *s)
{
    const struct manifest *m = &image->manifest;
    char text[PRINT_DIGEST_MAX], chunk[TEXT_SIZE_MAX];
    printf("%-14s %s/%s\n", "image", image->ref.store, image->ref.name);
    printf("%-14s %s\n", "digest", print_digest(&image->digest, text));
    printf("%-14s %s\n", "content root", print_digest(&m->content_root, text));
    if (!image->ref.by_digest) {
        char created[TEXT_TIME_MAX];
        printf("%-14s %s, created %s\n", "tag", image->ref.tag, text_format_time(image->tag.created, created));
    }
    printf("%-14s %s\n", "filesystem", manifest_fs_name(m->fs));
    print_size("size", m->size);
    print_size("metadata", m->metadata_len);
    printf("%-14s %llu, %llu directories, %llu symlinks, %llu hard links, %llu others\n", "files",
           (unsigned long long)m->counts.files, (unsigned long long)m->counts.directories,
           (unsigned long long)m->counts.symlinks, (unsigned long long)m->counts.hard_links,
           (unsigned long long)m->counts.others);
    print_size("file bytes", m->counts.bytes);
    printf("%-14s %llu of %s, %llu holes, %llu compressed\n", "chunks", (unsigned long long)s->chunks,
           text_format_size(m->chunk_size, chunk), (unsigned long long)s->holes, (unsigned long long)s->zstd_chunks);
    printf("%-14s %llu, index nodes %llu\n", "packs", (unsigned long long)s->packs, (unsigned long long)s->index_nodes);
    print_size("stored", s->stored_bytes);
    printf("%-14s %.2f\n", "ratio", ratio(s));
}

static int run(const struct invocation *inv)
{
    const struct inspect_values *v = inv->values;
    struct image_stats stats;
    CLEANUP_OPEN_IMAGE image;
    int rc = open_image(inv->operands[0], v->endpoint, &image);
    if (!rc)
        rc = image_stats(image.store, &image.manifest, &stats);
    if (rc)
        return rc;
    if (v->json)
        return print_json(inspect_json(&image, &stats));
    print_text(&image, &stats);
    return 0;
}

const struct verb verb_inspect = {
    .name = "inspect",
    .operands = "IMAGE",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Show an image's sizes, counts and digests",
    .options = rows,
    .values_size = sizeof(struct inspect_values),
    .run = run,
};
