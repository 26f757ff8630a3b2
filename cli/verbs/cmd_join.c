/* granary join PART... IMAGE --at DIR=PART: one image from the files of others in the same store, without reading them.
 *
 *   parse            PARTs and --at, in the order of the words: an image and its directory each
 *   store_open, nesting_check
 *   build_run        with join_at (imagebuild/build.h)
 *   print            text or JSON
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/server_options.h"
#include "cli/verbs/verbs.h"
#include "imagebuild/imagebuild.h"
#include "repository/nesting.h"

enum { OPERANDS_MAX = 10001 };

struct join_values {
    struct open_access access;
    const char *tmpdir;
    struct option_list at, trust;
    bool strict_tags, json, quiet;
};

#define AT(field) offsetof(struct join_values, field), 0, 0

static const struct option_row rows[] = {
    {OPTION_LIST, 0, "at", "DIR=PART", AT(at), "an image whose root is put at DIR of the new image; may be repeated"},
    {OPTION_LIST, 0, "trust", "KEY", AT(trust),
     "join only images that this public key has signed: the key, or its file; may be repeated"},
    {OPTION_TEXT, 0, "tmpdir", "DIR", AT(tmpdir),
     "for temporary data, never file contents (default $TMPDIR, /var/tmp)"},
    STORE_ROWS(struct join_values),
    {OPTION_FLAG, 0, "strict-tags", NULL, AT(strict_tags), "refuse a store that cannot replace a tag safely"},
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print the result as one JSON object"},
    {OPTION_FLAG, 'q', "quiet", NULL, AT(quiet), "no progress"},
    {0},
};

/* The images to be joined, and the directory of each. */
struct join_words {
    struct image_ref *images;
    string_list at;
    struct trust trust;
};

static void join_words_release(struct join_words *w)
{
    free(w->images);
    string_list_release(&w->at);
}

/* Add an image, whose root becomes the first dir_len bytes of dir. */
static int add_image(struct join_words *w, const char *image, const char *dir, size_t dir_len,
                     const struct image_ref *ref)
{
    int rc = open_same_store_ref(image, ref, &w->images[w->at.len]);
    return rc ? rc : string_list_add(&w->at, "%.*s", (int)dir_len, dir);
}

/* Add an image of --at. */
static int add_at(struct join_words *w, const char *text, const struct image_ref *ref)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return error_set(-EINVAL, "--at: '%s' is not DIR=PART; write for example train=%s/%s-train", text, ref->store,
                         ref->name);
    return add_image(w, equals + 1, text, (size_t)(equals - text), ref);
}

/* Parse the operands and options. *out is to be released in any case. */
static int parse_words(const struct invocation *inv, const struct image_ref *ref, struct join_words *out)
{
    const struct join_values *v = inv->values;
    const size_t parts = inv->operand_count - 1;
    if (!(parts + v->at.count))
        return error_set(-EINVAL, "join: there is nothing to join; name images before %s, or by --at",
                         inv->operands[parts]);
    out->images = calloc(parts + v->at.count, sizeof *out->images);
    if (!out->images)
        return error_no_memory();
    int rc = 0;
    for (size_t i = 0; i < parts && !rc; i++)
        rc = add_image(out, inv->operands[i], "", 0, ref);
    for (size_t i = 0; i < v->at.count && !rc; i++)
        rc = add_at(out, v->at.items[i], ref);
    return rc ? rc : server_options_add_trust("--trust ", &v->trust, &out->trust);
}

static void cmd_join_on_progress(void *arg, const struct build_progress *p)
{
    const struct progress_state state = {
        .phase = p->phase, .files_done = p->files_listed, .files_total = p->files_total};
    progress_update(arg, &state);
}

/* Print the result as text. */
static void cmd_join_print_result(const struct image_ref *ref, const struct build_result *r)
{
    char digest[PRINT_DIGEST_MAX], kept[TEXT_SIZE_MAX], uploaded[TEXT_SIZE_MAX];
    char images[TEXT_COUNT_MAX], directories[TEXT_COUNT_MAX], links[TEXT_COUNT_MAX], packs[TEXT_COUNT_MAX];
    const struct manifest_counts *c = &r->manifest.counts;
    printf("%s/%s:%s\n", ref->store, ref->name, ref->tag);
    printf("  %-16s %s\n", "digest", print_digest(&r->image, digest));
    printf("  %-16s %s\n", "also tagged", r->unique_tag);
    printf("  %-16s %llu of %s; %s, %s\n", "files", (unsigned long long)c->files,
           text_format_count(r->rebuild.parents, "image", images),
           text_format_count(c->directories, "directory", directories),
           text_format_count(c->symlinks, "symlink", links));
    printf("  %-16s %s, none of it read\n", "reused", text_format_size(r->rebuild.bytes_kept, kept));
    printf("  %-16s %s in %s\n", "uploaded", text_format_size(r->bytes_uploaded, uploaded),
           text_format_count(r->packs_new, "new pack", packs));
    printf("  %-16s %.1f s\n", "took", r->seconds);
    print_needs(&r->manifest);
    if (r->xattrs_skipped)
        printf("  %-16s %llu\n", "xattrs skipped", (unsigned long long)r->xattrs_skipped);
}

static json_t *cmd_join_result_json(const struct image_ref *ref, const struct build_result *r)
{
    return json_pack("{s:o,s:s,s:s,s:s,s:o,s:o,s:o,s:s,s:o,s:o, s:o,s:o,s:o,s:o,s:o,s:o,s:f}", "store",
                     json_lossy(ref->store), "name", ref->name, "tag", ref->tag, "unique_tag", r->unique_tag, "digest",
                     print_json_digest(&r->image), "content_root", print_json_digest(&r->content_root), "size",
                     INTEGER(r->manifest.size), "linux", manifest_linux(&r->manifest), "chunk_size",
                     INTEGER(r->manifest.chunk_size), "counts", print_json_counts(&r->manifest.counts), "images",
                     INTEGER(r->rebuild.parents), "bytes_reused", INTEGER(r->rebuild.bytes_kept), "bytes_uploaded",
                     INTEGER(r->bytes_uploaded), "packs_new", INTEGER(r->packs_new), "objects_new",
                     INTEGER(r->objects_new), "xattrs_skipped", INTEGER(r->xattrs_skipped), "seconds", r->seconds);
}

/* Run the join and print its result. */
static int join(const struct join_values *v, const struct image_ref *ref, const struct join_words *words)
{
    CLEANUP(cleanup_store) struct store *store = NULL;
    struct store_options store_options = {0};
    open_store_options(&v->access, &store_options);
    int rc = store_open(ref->store, &store_options, &store);
    struct nesting place;
    if (!rc)
        rc = nesting_check(store, ref->name, &store_options, &place);
    if (rc)
        return rc;
    struct progress progress;
    progress_init(&progress, "join", v->quiet);
    const struct provenance provenance = {.tool = "granary " GRANARY_VERSION};
    const struct build_options options = {.place = place,
                                          .zstd_level = BUILD_ZSTD_LEVEL,
                                          .tmpdir = v->tmpdir,
                                          .strict_tags = v->strict_tags,
                                          .parents = words->images,
                                          .parent_count = words->at.len,
                                          .join_at = (const char *const *)words->at.items,
                                          .trust = words->trust.count ? &words->trust : NULL,
                                          .provenance = &provenance,
                                          .progress = cmd_join_on_progress,
                                          .progress_arg = &progress,
                                          .cancel = interrupt_watch()};
    struct build_result result = {0};
    rc = build_run(NULL, store, ref, &options, &result);
    progress_end(&progress);
    if (rc)
        return rc;
    if (v->json)
        return print_json(cmd_join_result_json(ref, &result));
    cmd_join_print_result(ref, &result);
    return 0;
}

/* All checks come before anything is opened, so that a wrong option costs no request. */
static int cmd_join_run(const struct invocation *inv)
{
    const char *image = inv->operands[inv->operand_count - 1];
    struct join_words words CLEANUP(join_words_release) = {.images = NULL};
    struct image_ref ref;
    if (open_new_ref(image, &ref) || parse_words(inv, &ref, &words))
        return CLI_USAGE;
    return join(inv->values, &ref, &words);
}

const struct verb verb_join = {
    .name = "join",
    .operands = "[PART...] IMAGE",
    .min_operands = 1,
    .max_operands = OPERANDS_MAX,
    .summary = "Make one image of several in the same store, reading no file",
    .details =
        "IMAGE has the files of every PART, at the same paths, and those of each --at DIR=PART below DIR. It refers "
        "to\n"
        "the parts' packs, so only an index, a catalog and the filesystem's metadata are written. Directories of\n"
        "several parts become one; a file that two of them have ends the join.",
    .interrupted = "what was stored is used by the next run",
    .options = rows,
    .values_size = sizeof(struct join_values),
    .run = cmd_join_run,
};
