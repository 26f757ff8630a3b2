/* granary build SOURCE IMAGE
 *
 *   parse and check all options   an option without effect is refused; nothing has been opened yet
 *   build_source_open             SOURCE, rules, --add, overrides (cli/build_source.h)
 *   store_open, nesting_check     a store inside another store is a mistyped path
 *   build_run                     imagebuild/imagebuild.h
 *   print                         text or JSON
 *
 * The rest of the file prints. Text shows a line only if its count is not 0; JSON has all members always.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/rate.h"
#include "base/text.h"
#include "cli/build_source.h"
#include "cli/server_options.h"
#include "cli/verbs/verbs.h"
#include "imagebuild/imagebuild.h"
#include "net/hdfs/webhdfs.h"
#include "repository/nesting.h"

/* The options. 0 and NULL mean "not given": check_together must distinguish that from a default. */
struct build_values {
    uint64_t chunk_size, level, jobs, checkpoint;
    unsigned fs;       /* enum manifest_fs */
    unsigned compress; /* 0: zstd, 1: none */
    const char *tmpdir, *part, *compact_budget, *bwlimit;
    struct option_list parents;
    struct open_access access;
    struct build_source_values source;
    struct option_list map_users, map_groups, trust;
    const char *hdfs_token_file, *http_token_file;
    bool scrub, strict, strict_tags, keep_special, dry_run, json, quiet;
};

#define AT(field) offsetof(struct build_values, field), 0, 0
#define NUMBER(field, min, max) offsetof(struct build_values, field), min, max

static const struct option_row rows[] = {
    {OPTION_CHOICE, 0, "fs", "erofs|ext4", AT(fs), "the filesystem in the image (default erofs)"},
    {OPTION_SIZE, 0, "chunk-size", "N", NUMBER(chunk_size, CHUNK_SIZE_MIN, CHUNK_SIZE_MAX),
     "bytes of a chunk, a power of two from 64K to 4M (default: the parent's, or 64K)"},
    {OPTION_CHOICE, 0, "compress", "zstd|none", AT(compress), "how chunks are stored (default zstd)"},
    {OPTION_NUMBER, 0, "compress-level", "N", NUMBER(level, 1, 19), "zstd level, 1 to 19 (default 3)"},
    {OPTION_AUTO, 'j', "jobs", "N|auto", NUMBER(jobs, 1, 1024),
     "files read at the same time (default auto: as many as fill the link)"},
    {OPTION_TEXT, 0, "bwlimit", "RATE", AT(bwlimit),
     "bytes a second read from sources and written to the store, together, e.g. 100M (default: no limit)"},
    {OPTION_TEXT, 0, "tmpdir", "DIR", AT(tmpdir),
     "for temporary data, never file contents (default $TMPDIR, /var/tmp)"},
    {OPTION_SIZE, 0, "checkpoint", "SIZE", NUMBER(checkpoint, 1 << 20, UINT64_C(1) << 50),
     "without a parent, save a checkpoint every SIZE bytes; a run after a failure continues from it (default 64G)"},
    STORE_ROWS(struct build_values),
    {OPTION_LIST, 0, "parent", "auto|none|IMAGE", AT(parents),
     "build upon that image, or several: only what they lack is read (default auto: what the tag names now, else the "
     "name's newest; none if that is damaged)"},
    {OPTION_TEXT, 0, "part", "N/COUNT", AT(part),
     "build part N, from 0, of COUNT; a build without --part joins the parts if each is its --parent"},
    {OPTION_LIST, 0, "trust", "KEY", AT(trust),
     "build only upon an image that this public key has signed: the key, or its file; may be repeated"},
    {OPTION_TEXT, 0, "compact-budget", "PERCENT%|SIZE", AT(compact_budget),
     "move at most this much out of chunks of mostly dead bytes (default 2% of what is kept)"},
    {OPTION_FLAG, 0, "scrub", NULL, AT(scrub), "erase every byte of the parent that no file of the new image has"},
    {OPTION_TEXT, 0, "files-from", "FILE", AT(source.files_from),
     "only the files that FILE names, one per line (-: stdin)"},
    {OPTION_FLAG, '0', NULL, NULL, AT(source.nul), "the list's names end with NUL"},
    {OPTION_FLAG, 0, "ignore-missing", NULL, AT(source.ignore_missing),
     "leave out paths that the list names and that are missing"},
    {OPTION_FLAG, 0, "tar-dirs", NULL, AT(source.tar_dirs), "a directory for each tar shard, named after it"},
    {OPTION_LIST, 0, "include", "PATTERN", AT(source.rules), "take what matches"},
    {OPTION_LIST, 0, "exclude", "PATTERN", AT(source.rules),
     "leave out what matches, as git's ignore files do; the last rule that matches decides"},
    {OPTION_LIST, 0, "exclude-from", "FILE", AT(source.rules), "rules from a file in the form of .gitignore"},
    {OPTION_LIST, 0, "add", "DIR=SOURCE", AT(source.add), "another source, put below DIR of the image"},
    {OPTION_TEXT, 0, "prefix-strip", "PATH", AT(source.prefix_strip),
     "paths below PATH of SOURCE are put into the image's root"},
    {OPTION_TEXT, 0, "uid", "N", AT(source.uid), "owner of everything"},
    {OPTION_TEXT, 0, "gid", "N", AT(source.gid), "group of everything"},
    {OPTION_TEXT, 0, "mode", "MODE", AT(source.mode), "permissions of files, in octal"},
    {OPTION_TEXT, 0, "dir-mode", "MODE", AT(source.dir_mode), "permissions of directories, in octal"},
    {OPTION_TEXT, 0, "mtime", "TIME", AT(source.mtime),
     "time of everything: 2026-11-20T23:01:02Z, or seconds since 1970"},
    {OPTION_LIST, 0, "map-user", "NAME=ID", AT(map_users), "id of an owner that HDFS names (else this host's)"},
    {OPTION_LIST, 0, "map-group", "NAME=ID", AT(map_groups), "id of a group that HDFS names (else this host's)"},
    {OPTION_TEXT, 0, "hdfs-token-file", "FILE", AT(hdfs_token_file), "delegation token for HDFS"},
    {OPTION_TEXT, 0, "http-token-file", "FILE", AT(http_token_file), "bearer token for the web server of SOURCE"},
    {OPTION_FLAG, 0, "skip-bad-names", NULL, AT(source.skip_bad_names),
     "leave out names that no filesystem can hold, and count them"},
    {OPTION_FLAG, 0, "strict", NULL, AT(strict), "fail when a file changes or vanishes while it is listed or read"},
    {OPTION_FLAG, 0, "strict-tags", NULL, AT(strict_tags), "refuse a store that cannot replace a tag safely"},
    {OPTION_FLAG, 0, "keep-special", NULL, AT(keep_special), "keep setuid and setgid bits and device nodes"},
    {OPTION_FLAG, 'n', "dry-run", NULL, AT(dry_run), "list the source and show what would be built"},
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print the result as one JSON object"},
    {OPTION_FLAG, 'q', "quiet", NULL, AT(quiet), "no progress"},
    {0},
};

/* While the source is listed, the number of files is not known yet; files listed so far stand in. */
static void build_on_progress(void *arg, const struct build_progress *p)
{
    struct progress_state state = {.phase = p->phase,
                                   .bytes_done = p->bytes_done,
                                   .bytes_total = p->bytes_total,
                                   .files_done = p->files_total ? p->files_done : p->files_listed,
                                   .files_total = p->files_total};
    progress_update(arg, &state);
}

/* Print a line unless the count is 0. */
static void print_counted(const char *what, uint64_t n)
{
    if (n)
        printf("  %-16s %llu\n", what, (unsigned long long)n);
}

/* Print which image the build started from, how much was read, and what was taken from the parent: files kept, moved,
 * and read again. */
static void print_rebuild(const struct build_rebuild *r, bool no_parent)
{
    char parent[PRINT_DIGEST_MAX], files[TEXT_COUNT_MAX], read[TEXT_SIZE_MAX], kept[TEXT_SIZE_MAX];
    char moved[TEXT_SIZE_MAX], dead[TEXT_SIZE_MAX], n[TEXT_COUNT_MAX], packs[TEXT_COUNT_MAX];
    if (!r->parents) {
        printf("  %-16s in full: %s\n", "built",
               r->parent_differs   ? "the parent has another filesystem or chunk size, or (ext4) no room left"
               : r->parent_damaged ? "the parent is damaged"
               : no_parent         ? "--parent none"
               : r->parent_other_source
                   ? "the images of this name are not known to be of this source (--parent IMAGE builds upon one)"
                   : "no parent");
        return;
    }
    if (r->parents > 1)
        snprintf(parent, sizeof parent, "%llu images", (unsigned long long)r->parents);
    else
        print_digest(&r->parent, parent);
    printf("  %-16s upon %s: %s, %s read, %s kept\n", "built", r->parent_name[0] ? r->parent_name : parent,
           text_format_count(r->added + r->changed + r->healed, "file", files),
           text_format_size(r->bytes_to_read, read), text_format_size(r->bytes_kept, kept));
    printf("  %-16s %s\n", "parent", parent);
    printf("  %-16s %llu new, %llu changed, %llu removed, %llu unchanged\n", "files since",
           (unsigned long long)r->added, (unsigned long long)r->changed, (unsigned long long)r->removed,
           (unsigned long long)r->unchanged);
    printf("  %-16s %s, moved %s, dead %s\n", "kept", text_format_size(r->bytes_kept, kept),
           text_format_size(r->bytes_moved, moved), text_format_size(r->dead_bytes, dead));
    if (r->packs_damaged)
        printf("  %-16s %s, %s read again, since %s of the parent %s missing or damaged\n", "healed",
               text_format_count(r->healed, "file", n), text_format_size(r->bytes_healed, kept),
               text_format_count(r->packs_damaged, "pack", packs), r->packs_damaged == 1 ? "is" : "are");
    if (r->chunks_scrubbed)
        printf("  %-16s %s in %s\n", "erased", text_format_count(r->bytes_scrubbed, "byte", packs),
               text_format_count(r->chunks_scrubbed, "chunk", n));
    if (r->packs_emptied)
        printf("  %-16s %s out of %s that %s partly dead\n", "repacked", text_format_size(r->bytes_repacked, kept),
               text_format_count(r->packs_emptied, "pack", packs), r->packs_emptied == 1 ? "was" : "were");
}

/* Print the result as text. */
static void cmd_build_print_result(const struct image_ref *ref, const struct build_result *r, bool no_parent,
                                   bool dry_run)
{
    char digest[PRINT_DIGEST_MAX], bytes[TEXT_SIZE_MAX], uploaded[TEXT_SIZE_MAX];
    char n[TEXT_COUNT_MAX], links[TEXT_COUNT_MAX];
    const struct manifest_counts *c = &r->manifest.counts;
    if (dry_run) {
        printf("would build %s/%s:%s: %s, %s\n", ref->store, ref->name, ref->tag,
               text_format_count(c->files, "file", n), text_format_size(c->bytes, bytes));
    } else {
        printf("%s/%s:%s\n", ref->store, ref->name, ref->tag);
        printf("  %-16s %s\n", "digest", print_digest(&r->image, digest));
        printf("  %-16s %s\n", "also tagged", r->unique_tag);
        printf("  %-16s %llu, %s; %s, %s\n", "files", (unsigned long long)c->files, text_format_size(c->bytes, bytes),
               text_format_count(c->directories, "directory", n), text_format_count(c->symlinks, "symlink", links));
        printf("  %-16s %s in %s, %llu already there\n", "uploaded", text_format_size(r->bytes_uploaded, uploaded),
               text_format_count(r->packs_new, "new pack", n), (unsigned long long)r->packs_reused);
        printf("  %-16s %.1f s\n", "took", r->seconds);
        print_needs(&r->manifest);
    }
    print_rebuild(&r->rebuild, no_parent);
    if (r->bytes_resumed)
        printf("  %-16s %s, %s of an earlier run that failed\n", "went on from",
               text_format_count(r->files_resumed, "file", n), text_format_size(r->bytes_resumed, bytes));
    if (r->objects_healed)
        printf("  %-16s %s of the store\n", "written again", text_format_count(r->objects_healed, "damaged object", n));
    print_counted("changed", r->files_changed);
    print_counted("vanished", r->files_vanished);
    print_counted("gone when listed", r->listing_vanished);
    print_counted("owners unknown", r->owners_unknown);
    print_counted("names skipped", r->names_skipped);
    print_counted("special skipped", r->special_skipped);
    print_counted("xattrs skipped", r->xattrs_skipped);
}

static json_t *rebuild_json(const struct build_rebuild *r)
{
    return json_pack("{s:o,s:o,s:s?,s:b,s:b,s:b,s:o,s:o,s:o,s:o, s:o,s:o,s:o, s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}",
                     "parents", INTEGER(r->parents), "parent", print_json_digest(&r->parent), "parent_name",
                     r->parent_name[0] ? r->parent_name : NULL, "parent_differs", r->parent_differs,
                     "parent_other_source", r->parent_other_source, "parent_damaged", r->parent_damaged, "unchanged",
                     INTEGER(r->unchanged), "added", INTEGER(r->added), "changed", INTEGER(r->changed), "removed",
                     INTEGER(r->removed), "packs_damaged", INTEGER(r->packs_damaged), "healed", INTEGER(r->healed),
                     "bytes_healed", INTEGER(r->bytes_healed), "bytes_to_read", INTEGER(r->bytes_to_read), "bytes_kept",
                     INTEGER(r->bytes_kept), "bytes_moved", INTEGER(r->bytes_moved), "files_moved",
                     INTEGER(r->files_moved), "dead_bytes", INTEGER(r->dead_bytes), "chunks_scrubbed",
                     INTEGER(r->chunks_scrubbed), "bytes_scrubbed", INTEGER(r->bytes_scrubbed), "packs_emptied",
                     INTEGER(r->packs_emptied), "bytes_repacked", INTEGER(r->bytes_repacked));
}

static json_t *cmd_build_result_json(const struct image_ref *ref, const struct build_result *r, bool dry_run)
{
    return json_pack("{s:o,s:s,s:s,s:s,s:o,s:o,s:b,s:o,s:s?,s:o,s:o, s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o, "
                     "s:o,s:o,s:o,s:o,s:o,s:o, s:o,s:o,s:o,s:f}",
                     "store", json_lossy(ref->store), "name", ref->name, "tag", ref->tag, "unique_tag", r->unique_tag,
                     "digest", print_json_digest(&r->image), "content_root", print_json_digest(&r->content_root),
                     "dry_run", dry_run, "size", INTEGER(r->manifest.size), "linux",
                     dry_run ? NULL : manifest_linux(&r->manifest), "chunk_size", INTEGER(r->manifest.chunk_size),
                     "counts", print_json_counts(&r->manifest.counts), "rebuild", rebuild_json(&r->rebuild),
                     "files_changed", INTEGER(r->files_changed), "files_vanished", INTEGER(r->files_vanished),
                     "names_skipped", INTEGER(r->names_skipped), "special_skipped", INTEGER(r->special_skipped),
                     "xattrs_skipped", INTEGER(r->xattrs_skipped), "listing_vanished", INTEGER(r->listing_vanished),
                     "owners_unknown", INTEGER(r->owners_unknown), "dedupe_files", INTEGER(r->dedupe_files),
                     "dedupe_bytes", INTEGER(r->dedupe_bytes), "packs_new", INTEGER(r->packs_new), "packs_reused",
                     INTEGER(r->packs_reused), "objects_new", INTEGER(r->objects_new), "objects_healed",
                     INTEGER(r->objects_healed), "bytes_read", INTEGER(r->bytes_read), "bytes_uploaded",
                     INTEGER(r->bytes_uploaded), "checkpoints", INTEGER(r->checkpoints), "files_resumed",
                     INTEGER(r->files_resumed), "bytes_resumed", INTEGER(r->bytes_resumed), "seconds", r->seconds);
}

/* --parent, --part, --trust and --compact-budget, parsed. Either percent or bytes bounds the compaction. */
struct rebuild_words {
    bool no_parent;
    struct image_ref *parents; /* the images that --parent names */
    size_t count;
    struct share part;
    struct trust trust; /* no keys: a parent need not be signed */
    unsigned percent;
    uint64_t bytes;
};

static void rebuild_words_release(struct rebuild_words *w)
{
    free(w->parents);
}

static int parse_parents(const struct option_list *list, const struct image_ref *ref, struct rebuild_words *out)
{
    out->parents = calloc(list->count + 1, sizeof *out->parents);
    if (!out->parents)
        return error_no_memory();
    for (size_t i = 0; i < list->count; i++) {
        bool none = !strcmp(list->items[i], "none");
        if ((none || !strcmp(list->items[i], "auto")) && list->count > 1)
            return error_set(-EINVAL, "--parent %s stands alone; leave it out beside other parents", list->items[i]);
        out->no_parent |= none;
        if (none || !strcmp(list->items[i], "auto"))
            continue;
        int rc = open_same_store_ref(list->items[i], ref, &out->parents[out->count++]);
        if (rc)
            return rc;
    }
    return 0;
}

/* Parse "2/8". Parts count from 0, as the pods of an Indexed Job do, so that a pod's index can stand there. */
static int parse_part(const char *text, struct share *out)
{
    char end;
    bool valid = isdigit((unsigned char)text[0]) && sscanf(text, "%5u/%5u%c", &out->number, &out->count, &end) == 2;
    if (valid && out->number < out->count && out->count <= SHARES_MAX)
        return 0;
    return error_set(-EINVAL, "--part: '%s' is no part; the parts of 8 are 0/8 to 7/8, and there are at most %d", text,
                     SHARES_MAX);
}

/* Parse the options. *out is to be released in any case. */
static int parse_rebuild(const struct build_values *v, const struct image_ref *ref, struct rebuild_words *out)
{
    int rc = parse_parents(&v->parents, ref, out);
    if (!rc && v->part)
        rc = parse_part(v->part, &out->part);
    if (!rc)
        rc = server_options_add_trust("--trust ", &v->trust, &out->trust);
    const char *budget = v->compact_budget ? v->compact_budget : "2%";
    if (rc || !strchr(budget, '%'))
        return rc ? rc : text_parse_size("--compact-budget", budget, &out->bytes);
    return text_parse_percent("--compact-budget", budget, 0, 100, &out->percent);
}

/* Run the build and print its result. url: SOURCE. */
static int build(const struct build_values *v, const char *url, const struct build_source *source,
                 const struct image_ref *ref, const struct rebuild_words *words, struct rate *rate)
{
    CLEANUP(cleanup_store) struct store *store = NULL;
    struct store_options store_options = {.hdfs_token_file = v->hdfs_token_file, .rate = rate};
    open_store_options(&v->access, &store_options);
    int rc = store_open(ref->store, &store_options, &store);
    struct nesting place;
    if (!rc) /* a store inside another store is a mistyped path; 'granary unnest' repairs that */
        rc = nesting_check(store, ref->name, &store_options, &place);
    if (rc)
        return rc;
    struct progress progress;
    progress_init(&progress, "build", v->quiet);
    progress.json = v->json;
    const struct source_overrides *o = &source->override;
    struct provenance provenance = {.tool = "granary " GRANARY_VERSION};
    build_source_note(url, &v->source, &provenance);
    const struct build_options options = {.place = place,
                                          .fs = (enum manifest_fs)v->fs,
                                          .chunk_size = (uint32_t)v->chunk_size,
                                          .zstd_level = v->compress ? 0
                                                        : v->level  ? (int)v->level
                                                                    : BUILD_ZSTD_LEVEL,
                                          .jobs = (unsigned)v->jobs,
                                          .tmpdir = v->tmpdir,
                                          .skip_bad_names = v->source.skip_bad_names,
                                          .strict = v->strict,
                                          .strict_tags = v->strict_tags,
                                          .keep_special = v->keep_special,
                                          .dry_run = v->dry_run,
                                          .directory = {.uid = o->uid, .gid = o->gid, .mode = o->directory_mode},
                                          .no_parent = words->no_parent,
                                          .parents = words->parents,
                                          .parent_count = words->count,
                                          .part = words->part,
                                          .trust = words->trust.count ? &words->trust : NULL,
                                          .compact_percent = words->percent,
                                          .compact_bytes = words->bytes,
                                          .scrub = v->scrub,
                                          .provenance = &provenance,
                                          .checkpoint_bytes = v->checkpoint ? v->checkpoint : BUILD_CHECKPOINT_BYTES,
                                          .progress = build_on_progress,
                                          .progress_arg = &progress,
                                          .cancel = interrupt_watch()};
    struct build_result result = {0};
    rc = build_run(source->source, store, ref, &options, &result);
    progress_end(&progress);
    if (rc)
        return rc;
    if (v->json)
        return print_json(cmd_build_result_json(ref, &result, v->dry_run));
    cmd_build_print_result(ref, &result, words->no_parent, v->dry_run);
    return 0;
}

/* Check what concerns the image alone. */
static int cmd_build_check(const struct build_values *v, const char *image, struct image_ref *ref)
{
    int rc = open_new_ref(image, ref);
    if (!rc && v->chunk_size && !chunk_size_valid(v->chunk_size))
        rc = options_wrong("--chunk-size: %llu is not a power of two; write for example 128K",
                           (unsigned long long)v->chunk_size);
    return rc;
}

/* Tar shards may lie in HDFS as well. */
static bool is_hdfs_or_tar_there(const char *url)
{
    return hdfs_address_known(build_source_is_tar(url) ? url + strlen("tar:") : url);
}

/* Refuse options that would have no effect: beside others, or without HDFS. */
static int check_together(const struct build_values *v, const char *url, const struct image_ref *ref,
                          const struct rebuild_words *words)
{
    const char *map = v->map_users.count ? "map-user" : v->map_groups.count ? "map-group" : NULL;
    if (v->level && v->compress)
        return options_exclude("--compress-level", "--compress none", "nothing is compressed");
    if (v->compact_budget && words->no_parent)
        return options_exclude("--compact-budget", "--parent none", "there is nothing to compact");
    if (v->part && build_source_any(url, &v->source, build_source_is_tar))
        return options_exclude("--part", "tar shards", "--include chooses shards for each of several builds");
    if (v->checkpoint && words->count)
        return options_exclude("--checkpoint", "--parent IMAGE", "only builds without a parent leave checkpoints");
    if (v->checkpoint && build_source_any(url, &v->source, build_source_is_tar))
        return options_exclude("--checkpoint", "tar shards", "their files are written while they are listed");
    if (v->map_users.count && v->source.uid)
        return options_exclude("--map-user", "--uid", "everything has that owner");
    if (v->map_groups.count && v->source.gid)
        return options_exclude("--map-group", "--gid", "everything has that group");
    if (map && !build_source_any(url, &v->source, hdfs_address_known))
        return options_wrong("--%s: no source is of HDFS, which alone has owners as names", map);
    if (v->hdfs_token_file && !hdfs_address_known(ref->store) &&
        !build_source_any(url, &v->source, is_hdfs_or_tar_there))
        return options_wrong("--hdfs-token-file: neither a source nor the store is of HDFS");
    return 0;
}

/* All checks come before anything is opened, so that a wrong option costs no request. */
static int cmd_build_run(const struct invocation *inv)
{
    const struct build_values *v = inv->values;
    struct image_ref ref;
    struct rebuild_words words CLEANUP(rebuild_words_release) = {.count = 0};
    int rc = cmd_build_check(v, inv->operands[1], &ref);
    if (!rc && parse_rebuild(v, &ref, &words))
        rc = CLI_USAGE;
    if (!rc)
        rc = check_together(v, inv->operands[0], &ref, &words);
    if (rc)
        return rc;
    struct rate limit, *rate = v->bwlimit ? &limit : NULL;
    uint64_t bytes_per_s = 0;
    if (v->bwlimit && rate_parse("--bwlimit", v->bwlimit, &bytes_per_s))
        return CLI_USAGE;
    rate_init(&limit, GR_MAX(bytes_per_s, (uint64_t)1));
    struct build_source source;
    struct source_options options = {.rate = rate,
                                     .endpoint = v->access.endpoint,
                                     .timeout_ms = v->access.timeout_s * 1000,
                                     /* with --jobs auto, as many as the build may come to use */
                                     .connections = v->jobs ? (unsigned)v->jobs : SOURCE_JOBS_MAX,
                                     .cancel = interrupt_watch(),
                                     .http_token_file = v->http_token_file,
                                     .hdfs = {.token_file = v->hdfs_token_file,
                                              .map_users = v->map_users.items,
                                              .map_user_count = v->map_users.count,
                                              .map_groups = v->map_groups.items,
                                              .map_group_count = v->map_groups.count}};
    rc = build_source_open(inv->operands[0], &v->source, &options, &source);
    if (!rc)
        rc = build(v, inv->operands[0], &source, &ref, &words, rate);
    build_source_release(&source);
    rate_release(&limit);
    return rc;
}

const struct verb verb_build = {
    .name = "build",
    .operands = "SOURCE IMAGE",
    .min_operands = 2,
    .max_operands = 2,
    .summary = "Build an image of a tree of files into a store",
    .details =
        "SOURCE is /dir, file:///dir, s3://bucket/prefix, hdfs://namenode:9870/path or http(s)://host/path, with tar:\n"
        "before it for the members of the tar shards there; or - for local files named on standard input.\n"
        "IMAGE is STORE/NAME[:TAG]; without a tag it is 'latest'. An interrupted or failed build publishes\n"
        "nothing; run again, it reuses what is there.",
    .interrupted = "what was stored is used by the next run",
    .options = rows,
    .values_size = sizeof(struct build_values),
    .run = cmd_build_run,
};
