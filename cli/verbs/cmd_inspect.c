/* granary inspect IMAGE: what an image consists of. The manifest has the counts; catalog and index are read for sizes
 * and dead bytes, the packs' lengths come from the store, and the lineage names the image's parents. The tag has the
 * signature and the provenance; bad ones are shown and refuse nothing, since people inspect an image to find out what
 * it is. */
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/server_options.h"
#include "cli/verbs/verbs.h"
#include "repository/repository.h"
#include "upkeep/upkeep.h"

struct inspect_values {
    struct open_access access;
    struct option_list trust;
    bool json, quiet;
};

static const struct inspect_values defaults = {.access = {.timeout_s = OPEN_LOOKUP_S}};

static const struct option_row rows[] = {
    {OPTION_LIST, 0, "trust", "KEY", offsetof(struct inspect_values, trust), 0, 0,
     "say whether this key has signed the image, as for serve; may be repeated"},
    LOOKUP_ROWS(struct inspect_values),
    {OPTION_FLAG, 0, "json", NULL, offsetof(struct inspect_values, json), 0, 0, "print one JSON object"},
    {OPTION_FLAG, 'q', "quiet", NULL, offsetof(struct inspect_values, quiet), 0, 0, "no progress"},
    {0},
};

/* The signature of the image's tag. */
struct inspected_signature {
    bool there, decoded;
    bool checked; /* against the keys that are trusted; there are some */
    struct signature signature;
    char error[ERROR_TEXT_MAX]; /* why it is not trusted, or could not be decoded; empty: neither */
};

/* Everything that is printed. */
struct inspection {
    const struct open_image *image;
    struct image_stats stats;
    struct inspected_signature signature;
    struct provenance provenance;
    bool has_provenance;                   /* the tag has one that can be decoded */
    char provenance_error[ERROR_TEXT_MAX]; /* why it could not be decoded; empty: it could, or there is none */
    struct lineage lineage;
    char lineage_error[ERROR_TEXT_MAX]; /* why the lineage is unknown; empty: it is known */
};

/* 1 if there is nothing to divide by: nothing was saved. */
static double ratio(uint64_t more, uint64_t less)
{
    return less ? (double)more / (double)less : 1;
}

/* Return bytes of chunks divided by their bytes in the store. */
static double compression(const struct image_stats *s)
{
    return ratio(s->plain_bytes, s->stored_bytes);
}

/* Return bytes of files divided by bytes of distinct content. */
static double dedupe(const struct image_stats *s)
{
    return ratio(s->file_bytes, s->content_bytes);
}

/* Files are counted in classes by size: class 0 is empty files, class n is 2^(n-1) to 2^n - 1 bytes. */
static uint64_t class_min(unsigned n)
{
    return n ? UINT64_C(1) << (n - 1) : 0;
}

/* ------------------------------------------------------------------ JSON */

/* Only classes that have files. */
static json_t *sizes_json(const struct image_stats *s)
{
    json_t *sizes = json_array();
    for (unsigned n = 0; n < IMAGE_SIZE_CLASSES; n++)
        if (s->sizes[n].files)
            json_array_append_new(sizes, json_pack("{s:o,s:o,s:o,s:o}", "min", INTEGER(class_min(n)), "max",
                                                   INTEGER(n ? class_min(n) * 2 - 1 : 0), "files",
                                                   INTEGER(s->sizes[n].files), "bytes", INTEGER(s->sizes[n].bytes)));
    return sizes;
}

/* A parent whose tags are all gone has a digest only. */
static json_t *parents_json(const struct lineage *l)
{
    json_t *parents = json_array();
    for (size_t i = 0; i < l->steps.len; i++) {
        const struct lineage_step *step = &l->steps.items[i];
        json_array_append_new(parents, json_pack("{s:o,s:s?,s:o}", "digest", print_json_digest(&step->image), "tag",
                                                 step->tag[0] ? step->tag : NULL, "created",
                                                 step->tag[0] ? print_json_time(step->created) : json_null()));
    }
    return parents;
}

/* "trusted" is null where there are no keys to check with. */
static json_t *signature_json(const struct inspected_signature *s)
{
    char id[KEY_ID_TEXT_MAX];
    if (!s->there && !s->checked)
        return json_null();
    return json_pack("{s:s?,s:o,s:o,s:o}", "key", s->decoded ? key_id_text(s->signature.id, id) : NULL,
                     "trusted_comment", s->decoded ? json_lossy(s->signature.comment) : json_null(), "trusted",
                     s->checked ? json_boolean(!*s->error) : json_null(), "error",
                     *s->error ? json_lossy(s->error) : json_null());
}

static json_t *provenance_json(const struct inspection *in)
{
    const struct provenance *p = &in->provenance;
    if (!in->has_provenance)
        return json_null();
    json_t *sources = json_array();
    for (size_t i = 0; i < p->listed; i++)
        json_array_append_new(sources, json_lossy(p->sources[i]));
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "sources", sources, "source_count",
                     INTEGER(p->source_count), "part", p->part_count ? INTEGER(p->part) : json_null(), "part_count",
                     p->part_count ? INTEGER(p->part_count) : json_null(), "parents", INTEGER(p->parents), "files",
                     INTEGER(p->files), "bytes", INTEGER(p->bytes), "built", print_json_time(p->built), "parent",
                     print_json_digest(&p->parent), "tool", json_lossy(p->tool));
}

static json_t *inspect_json(const struct inspection *in)
{
    const struct open_image *image = in->image;
    const struct manifest *m = &image->manifest;
    const struct image_stats *s = &in->stats;
    json_t *object = json_pack(
        "{s:o,s:s,s:o,s:o,s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:o, s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:f}", "store",
        json_lossy(image->ref.store), "name", image->ref.name, "digest", print_json_digest(&image->digest),
        "content_root", print_json_digest(&m->content_root), "filesystem", manifest_fs_name(m->fs), "linux",
        manifest_linux(m), "size", INTEGER(m->size), "chunk_size", INTEGER(m->chunk_size), "metadata_offset",
        INTEGER(m->metadata_offset), "metadata_length", INTEGER(m->metadata_len), "front_length", INTEGER(m->front_len),
        "counts", print_json_counts(&m->counts), "chunks", INTEGER(s->chunks), "holes", INTEGER(s->holes),
        "zstd_chunks", INTEGER(s->zstd_chunks), "packs", INTEGER(s->packs), "index_nodes", INTEGER(s->index_nodes),
        "plain_bytes", INTEGER(s->plain_bytes), "stored_bytes", INTEGER(s->stored_bytes), "catalog_entries",
        INTEGER(m->catalog_entries), "compression_ratio", compression(s));
    json_t *more =
        json_pack("{s:o,s:o,s:o,s:o,s:f,s:o,s:o,s:o,s:o,s:o,s:o}", "delta_chunks", INTEGER(s->delta_chunks), "bodies",
                  INTEGER(s->contents), "body_bytes", INTEGER(s->content_bytes), "padding_bytes", INTEGER(s->padding),
                  "dedupe_ratio", dedupe(s), "dead_bytes", INTEGER(s->dead_bytes), "pack_bytes", INTEGER(s->pack_bytes),
                  "packs_missing", INTEGER(s->packs_missing), "foreign_bytes", INTEGER(s->foreign_bytes), "sizes",
                  sizes_json(s), "parents", parents_json(&in->lineage));
    if (object && more)
        json_object_update(object, more);
    json_decref(more);
    if (object && !image->ref.by_digest) {
        json_object_set_new(object, "tag", json_string(image->ref.tag));
        json_object_set_new(object, "created", print_json_time(image->tag.created));
        json_object_set_new(object, "parent", print_json_digest(&image->tag.parent));
    }
    if (object) {
        json_object_set_new(object, "signature", signature_json(&in->signature));
        json_object_set_new(object, "provenance", provenance_json(in));
        json_object_set_new(object, "provenance_error",
                            *in->provenance_error ? json_lossy(in->provenance_error) : json_null());
    }
    return object;
}

/* ------------------------------------------------------------------ text */

/* Print a size both rounded and exact. */
static void print_size(const char *label, uint64_t bytes)
{
    char text[TEXT_SIZE_MAX];
    printf("%-14s %s (%llu bytes)\n", label, text_format_size(bytes, text), (unsigned long long)bytes);
}

/* Print a size and its share of a whole. */
static void print_part(const char *label, uint64_t bytes, uint64_t whole, const char *what)
{
    char text[TEXT_SIZE_MAX];
    printf("%-14s %s, %.1f %% of %s\n", label, text_format_size(bytes, text),
           whole ? 100.0 * (double)bytes / (double)whole : 0.0, what);
}

static void print_image(const struct open_image *image, const struct image_stats *s)
{
    char chunk[TEXT_SIZE_MAX];
    const struct manifest *m = &image->manifest;
    char text[PRINT_DIGEST_MAX];
    printf("%-14s %s/%s\n", "image", image->ref.store, image->ref.name);
    printf("%-14s %s\n", "digest", print_digest(&image->digest, text));
    printf("%-14s %s\n", "content root", print_digest(&m->content_root, text));
    if (!image->ref.by_digest) {
        char created[TEXT_TIME_MAX];
        printf("%-14s %s, created %s\n", "tag", image->ref.tag, text_format_time(image->tag.created, created));
    }
    printf("%-14s %s, for Linux %s and later\n", "filesystem", manifest_fs_name(m->fs), manifest_linux(m));
    print_size("size", m->size);
    print_size("metadata", m->front_len + m->metadata_len);
    printf("%-14s %llu, %llu directories, %llu symlinks, %llu hard links, %llu others\n", "files",
           (unsigned long long)m->counts.files, (unsigned long long)m->counts.directories,
           (unsigned long long)m->counts.symlinks, (unsigned long long)m->counts.hard_links,
           (unsigned long long)m->counts.others);
    print_size("file bytes", m->counts.bytes);
    printf("%-14s %llu, dedupe ratio %.2f\n", "contents", (unsigned long long)s->contents, dedupe(s));
    print_part("padding", s->padding, s->content_bytes, "the contents");
    printf("%-14s %llu of %s, %llu holes, %llu compressed, %llu deltas\n", "chunks", (unsigned long long)s->chunks,
           text_format_size(m->chunk_size, chunk), (unsigned long long)s->holes, (unsigned long long)s->zstd_chunks,
           (unsigned long long)s->delta_chunks);
    printf("%-14s %llu, index nodes %llu\n", "packs", (unsigned long long)s->packs, (unsigned long long)s->index_nodes);
    if (s->packs_missing) /* in capitals: nothing else here makes an image unreadable */
        printf("%-14s %llu packs are NOT THERE\n", "", (unsigned long long)s->packs_missing);
    print_size("stored", s->stored_bytes);
    printf("%-14s %.2f\n", "ratio", compression(s));
    print_part("dead", s->dead_bytes, s->plain_bytes, "the chunks' bytes");
    print_part("others' bytes", s->foreign_bytes, s->pack_bytes, "the packs");
}

/* Texts from a tag may have been written by anybody who can write the tag. */
static void print_provenance(const struct inspection *in)
{
    const struct provenance *p = &in->provenance;
    char files[TEXT_COUNT_MAX], bytes[TEXT_SIZE_MAX], built[TEXT_TIME_MAX], parent[PRINT_DIGEST_MAX];
    const char *label = "built from";
    if (*in->provenance_error)
        printf("%-14s not known: %s\n", label, in->provenance_error);
    if (!in->has_provenance)
        return;
    for (size_t i = 0; i < p->listed; i++) {
        printf("%-14s ", label);
        print_text(p->sources[i]);
        putchar('\n');
        label = "";
    }
    if (p->source_count > p->listed) {
        printf("%-14s %s%s\n", label, text_format_count(p->source_count - p->listed, "source", files),
               p->listed ? " more" : "");
        label = "";
    }
    printf("%-14s %s, %s, on %s by ", label, text_format_count(p->files, "file", files),
           text_format_size(p->bytes, bytes), text_format_time(p->built, built));
    print_text(p->tool);
    if (p->part_count)
        printf(", part %llu/%llu", (unsigned long long)p->part, (unsigned long long)p->part_count);
    if (p->parents > 1)
        printf(", upon %s", text_format_count(p->parents, "image", files));
    else if (!digest_is_zero(&p->parent))
        printf(", upon %s", print_digest(&p->parent, parent));
    putchar('\n');
}

static void print_signature(const struct inspected_signature *s)
{
    char id[KEY_ID_TEXT_MAX];
    const char *label = "signature";
    if (s->decoded) {
        printf("%-14s of key %s, trusted comment: ", label, key_id_text(s->signature.id, id));
        print_text(s->signature.comment);
        putchar('\n');
        label = "";
    }
    if (*s->error) {
        printf("%-14s %s", label, s->checked ? "NOT TRUSTED: " : "");
        print_text(s->error);
        putchar('\n');
    } else if (s->there) {
        printf("%-14s %s\n", label,
               s->checked ? "fits, by a key that is trusted" : "not checked: --trust KEY does that");
    }
}

static void print_sizes(const struct image_stats *s)
{
    for (unsigned n = 0; n < IMAGE_SIZE_CLASSES; n++) {
        char min[TEXT_SIZE_MAX], bytes[TEXT_SIZE_MAX], files[TEXT_COUNT_MAX];
        if (!s->sizes[n].files)
            continue;
        printf("%-14s %s%s: %s, %s\n", "sizes", n ? "from " : "", n ? text_format_size(class_min(n), min) : "empty",
               text_format_count(s->sizes[n].files, "file", files), text_format_size(s->sizes[n].bytes, bytes));
    }
}

static void print_parents(const struct inspection *in)
{
    if (in->lineage_error[0])
        printf("%-14s not known: %s\n", "parents", in->lineage_error);
    for (size_t i = 0; i < in->lineage.steps.len; i++) {
        const struct lineage_step *step = &in->lineage.steps.items[i];
        char digest[PRINT_DIGEST_MAX], created[TEXT_TIME_MAX];
        printf("%-14s %s", i ? "" : "parents", print_digest(&step->image, digest));
        if (step->tag[0])
            printf(" %s, created %s\n", step->tag, text_format_time(step->created, created));
        else
            printf(", which no tag names any more\n");
    }
}

/* ------------------------------------------------------------------ the verb */

static void inspect_on_progress(void *arg, uint64_t done, uint64_t total)
{
    progress_update(arg, &(struct progress_state){.phase = "reading", .files_done = done, .files_total = total});
}

static void look_at_signature(const struct open_image *image, const struct trust *trust,
                              struct inspected_signature *out)
{
    const char *text = image->tag.signature;
    out->there = *text;
    out->checked = trust->count;
    out->decoded = *text && !signature_decode(text, strlen(text), &out->signature);
    if (*text && !out->decoded)
        snprintf(out->error, sizeof out->error, "what is there %s", error_text());
    if (open_check_trust(image, trust))
        snprintf(out->error, sizeof out->error, "%s", error_text());
}

/* The statistics need the whole catalog and index; only the manifest has been read when they begin. */
static int cmd_inspect_run(const struct invocation *inv)
{
    const struct inspect_values *v = inv->values;
    CLEANUP_OPEN_IMAGE image;
    struct inspection in = {.image = &image};
    struct trust trust = {.count = 0};
    if (server_options_trust(&v->trust, &trust))
        return CLI_USAGE;
    int rc = open_image(inv->operands[0], &v->access, &image);
    if (rc)
        return rc;
    struct progress progress;
    progress_init(&progress, "inspect", v->quiet);
    const struct image_stats_options options = {
        .progress = inspect_on_progress, .progress_arg = &progress, .cancel = interrupt_watch()};
    rc = image_stats(image.store, &image.manifest, &options, &in.stats);
    progress_end(&progress);
    if (rc)
        return rc;
    /* a store behind plain HTTP has no listing, so the parents are unknown there; the rest is shown all the same */
    if (lineage_read(image.store, image.ref.name, &image.digest, &image.tag.parent, &in.lineage))
        snprintf(in.lineage_error, sizeof in.lineage_error, "%s", error_text());
    look_at_signature(&image, &trust, &in.signature);
    in.has_provenance = *image.tag.provenance && !provenance_decode(image.tag.provenance, &in.provenance);
    if (*image.tag.provenance && !in.has_provenance)
        snprintf(in.provenance_error, sizeof in.provenance_error, "%s", error_text());
    if (v->json) {
        rc = print_json(inspect_json(&in));
    } else {
        print_image(&image, &in.stats);
        print_provenance(&in);
        print_signature(&in.signature);
        print_sizes(&in.stats);
        print_parents(&in);
    }
    lineage_release(&in.lineage);
    return rc;
}

const struct verb verb_inspect = {
    .name = "inspect",
    .operands = "IMAGE",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Show an image's sizes, counts and digests",
    .details = "Reads the catalog and the index, and asks the store for the lengths of the packs. Dead bytes are in\n"
               "no file: what those of earlier builds left in chunks that are still needed, and the rest of the chunk\n"
               "after a build's last file. The others' bytes in the packs belong to other images, or to none.\n"
               "A signature that no trusted key has made is shown, and is no error.",
    .options = rows,
    .values_size = sizeof(struct inspect_values),
    .defaults = &defaults,
    .run = cmd_inspect_run,
};
