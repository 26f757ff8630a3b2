/* granary build SOURCE IMAGE */
#include <errno.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/interrupt.h"
#include "cli/open.h"
#include "cli/options.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "imagebuild/build.h"

struct build_values {
    uint64_t chunk_size, level, jobs;
    unsigned compress; /* 0: zstd, 1: none */
    const char *endpoint;
    bool skip_bad_names, strict, strict_tags, keep_special, dry_run, json, quiet;
};

#define AT(field) offsetof(struct build_values, field), 0, 0
#define NUMBER(field, min, max) offsetof(struct build_values, field), min, max

static const struct build_values defaults = {.level = 3, .jobs = 32};

static const struct option_row rows[] = {
    {OPTION_SIZE, 0, "chunk-size", "N", NUMBER(chunk_size, CHUNK_SIZE_MIN, CHUNK_SIZE_MAX),
     "bytes of a chunk, a power of two from 64K to 4M (default 128K)"},
    {OPTION_CHOICE, 0, "compress", "zstd|none", AT(compress), "how chunks are stored (default zstd)"},
    {OPTION_NUMBER, 0, "compress-level", "N", NUMBER(level, 1, 19), "zstd level, 1 to 19 (default 3)"},
    {OPTION_NUMBER, 'j', "jobs", "N", NUMBER(jobs, 1, 1024), "files read at the same time (default 32)"},
    ENDPOINT_ROW(struct build_values),
    {OPTION_FLAG, 0, "skip-bad-names", NULL, AT(skip_bad_names),
     "leave out names that no filesystem can hold, and count them"},
    {OPTION_FLAG, 0, "strict", NULL, AT(strict), "fail when a file changes or vanishes while it is read"},
    {OPTION_FLAG, 0, "strict-tags", NULL, AT(strict_tags), "refuse a store that cannot replace a tag safely"},
    {OPTION_FLAG, 0, "keep-special", NULL, AT(keep_special), "keep setuid and setgid bits and device nodes"},
    {OPTION_FLAG, 'n', "dry-run", NULL, AT(dry_run), "list the source and say what would be built"},
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print the result as one JSON object"},
    {OPTION_FLAG, 'q', "quiet", NULL, AT(quiet), "no progress"},
    {0},
};

static void on_progress(void *arg, const struct build_progress *p)
{
    struct progress_state state = {.phase = p->phase,
                                   .bytes_done = p->bytes_done,
                                   .bytes_total = p->bytes_total,
                                   .files_done = p->files_total ? p->files_done : p->files_listed,
                                   .files_total = p->files_total};
    progress_update(arg, &state);
}

static void print_counted(const char *what, uint64_t n)
{
    if (n)
        printf("  %-16s %llu\n", what, (unsigned long long)n);
}

static void print_result(const struct image_ref *ref, const struct build_result *r, bool dry_run)
{
    char digest[PRINT_DIGEST_MAX], bytes[TEXT_SIZE_MAX], uploaded[TEXT_SIZE_MAX];
    const struct manifest_counts *c = &r->manifest.counts;
    if (dry_run) {
        printf("would build %s/%s:%s: %llu files, %s\n", ref->store, ref->name, ref->tag, (unsigned long long)c->files,
               text_format_size(c->bytes, bytes));
    } else {
        printf("%s/%s:%s\n", ref->store, ref->name, ref->tag);
        printf("  %-16s %s\n", "digest", print_digest(&r->image, digest));
        printf("  %-16s %s\n", "also tagged", r->unique_tag);
        printf("  %-16s %llu, %s; %llu directories, %llu symlinks\n", "files", (unsigned long long)c->files,
               text_format_size(c->bytes, bytes), (unsigned long long)c->directories, (unsigned long long)c->symlinks);
        printf("  %-16s %s in %llu new packs, %llu already there\n", "uploaded",
               text_format_size(r->bytes_uploaded, uploaded), (unsigned long long)r->packs_new,
               (unsigned long long)r->packs_reused);
        printf("  %-16s %.1f s\n", "took", r->seconds);
    }
    print_counted("changed", r->files_changed);
    print_counted("vanished", r->files_vanished);
    print_counted("names skipped", r->names_skipped);
    print_counted("special skipped", r->special_skipped);
    print_counted("xattrs skipped", r->xattrs_skipped);
}

#define INTEGER(field) json_integer((json_int_t)(field))

static json_t *counts_json(const struct manifest_counts *c)
{
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "files", INTEGER(c->files), "directories", INTEGER(c->directories),
                     "symlinks", INTEGER(c->symlinks), "hard_links", INTEGER(c->hard_links), "others",
                     INTEGER(c->others), "bytes", INTEGER(c->bytes));
}

static json_t *result_json(const struct image_ref *ref, const struct build_result *r, bool dry_run)
{
    return json_pack("{s:s,s:s,s:s,s:s,s:o,s:o,s:b,s:o,s:o,s:o, s:o,s:o,s:o,s:o,s:o,s:o,s:o, s:o,s:o,s:o,s:o,s:o,s:f}",
                     "store", ref->store, "name", ref->name, "tag", ref->tag, "unique_tag", r->unique_tag, "digest",
                     print_json_digest(&r->image), "content_root", print_json_digest(&r->content_root), "dry_run",
                     dry_run, "size", INTEGER(r->manifest.size), "chunk_size", INTEGER(r->manifest.chunk_size),
                     "counts", counts_json(&r->manifest.counts), "files_changed", INTEGER(r->files_changed),
                     "files_vanished", INTEGER(r->files_vanished), "names_skipped", INTEGER(r->names_skipped),
                     "special_skipped", INTEGER(r->special_skipped), "xattrs_skipped", INTEGER(r->xattrs_skipped),
                     "dedup_files", INTEGER(r->dedup_files), "dedup_bytes", INTEGER(r->dedup_bytes), "packs_new",
                     INTEGER(r->packs_new), "packs_reused", INTEGER(r->packs_reused), "objects_new",
                     INTEGER(r->objects_new), "bytes_read", INTEGER(r->bytes_read), "bytes_uploaded",
                     INTEGER(r->bytes_uploaded), "seconds", r->seconds);
}

static int build(const struct build_values *v, struct source *source, const struct image_ref *ref)
{
    CLEANUP(cleanup_store) struct store *store = NULL;
    struct store_options store_options = {.endpoint = v->endpoint, .cancel = interrupt_watch()};
    int rc = store_open(ref->store, &store_options, &store);
    if (rc)
        return rc;
    struct progress progress;
    progress_init(&progress, "build", v->quiet);
    const struct build_options options = {.chunk_size = (uint32_t)v->chunk_size,
                                          .zstd_level = v->compress ? 0 : (int)v->level,
                                          .jobs = (unsigned)v->jobs,
                                          .skip_bad_names = v->skip_bad_names,
                                          .strict = v->strict,
                                          .strict_tags = v->strict_tags,
                                          .keep_special = v->keep_special,
                                          .dry_run = v->dry_run,
                                          .progress = on_progress,
                                          .progress_arg = &progress,
                                          .cancel = interrupt_watch()};
    struct build_result result = {0};
    rc = build_run(source, store, ref, &options, &result);
    progress_end(&progress);
    if (rc)
        return rc;
    if (v->json)
        return print_json(result_json(ref, &result, v->dry_run));
    print_result(ref, &result, v->dry_run);
    return 0;
}

static int check(const struct build_values *v, const char *image, struct image_ref *ref)
{
    int rc = image_ref_parse(image, ref);
    if (!rc && ref->by_digest)
        rc = error_set(-EINVAL, "%s: an image is built under a tag, not a digest; write STORE/NAME[:TAG]", image);
    if (!rc && v->chunk_size && !chunk_size_valid(v->chunk_size))
        rc = error_set(-EINVAL, "--chunk-size: %llu is not a power of two; write for example 128K",
                       (unsigned long long)v->chunk_size);
    return rc ? CLI_USAGE : 0;
}

static int run(const struct invocation *inv)
{
    const struct build_values *v = inv->values;
    struct image_ref ref;
    int rc = check(v, inv->operands[1], &ref);
    if (rc)
        return rc;
    struct source *source = NULL;
    struct source_options options = {
        .endpoint = v->endpoint, .connections = (unsigned)v->jobs, .cancel = interrupt_watch()};
    rc = source_open(inv->operands[0], &options, &source);
    if (!rc)
        rc = build(v, source, &ref);
    source_close(source);
    return rc;
}

const struct verb verb_build = {
    .name = "build",
    .operands = "SOURCE IMAGE",
    .min_operands = 2,
    .max_operands = 2,
    .summary = "Build an image of a directory or a bucket into a store",
    .details = "SOURCE is /dir, file:///dir or s3://bucket/prefix. IMAGE is STORE/NAME[:TAG]; without a tag it is\n"
               "'latest'. An interrupted or failed build publishes nothing; run again, it re-uses what is there.",
    .options = rows,
    .values_size = sizeof(struct build_values),
    .defaults = &defaults,
    .run = run,
};
