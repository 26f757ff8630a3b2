/* granary index IMAGE: the regular files of an image, with size, place and digest, for programs that would otherwise
 * walk the mounted tree: a data loader reads the list once, sorts by place, and divides it among its workers. `ls`
 * shows a tree to people, every kind of entry with all its attributes; this lists what can be read.
 *
 *   catalog --cursor, pages fetched ahead--> globs --> a line each --> standard output, or a file that appears when
 * whole
 *
 * Nothing is kept but the pages at hand: memory does not grow with the number of files.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/replace.h"
#include "cli/verbs/verbs.h"
#include "repository/read/catalog_glob.h"
#include "repository/read/catalog_read.h"

struct index_values {
    bool zero, json;
    const char *output;
    struct option_list globs;
    struct open_access access;
};

#define AT(field) offsetof(struct index_values, field), 0, 0

static const struct index_values defaults = {.access = {.timeout_s = OPEN_LOOKUP_S}};

static const struct option_row rows[] = {
    {OPTION_LIST, 0, "path", "GLOB", AT(globs), "only the files whose full paths match; may be repeated"},
    {OPTION_TEXT, 'o', "output", "FILE", AT(output), "write to FILE, which appears under its name when it is whole"},
    {OPTION_FLAG, '0', NULL, NULL, AT(zero), "end lines with NUL instead of a newline, never escape"},
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print one JSON object per line"},
    LOOKUP_ROWS(struct index_values),
    {0},
};

/* A glob, and whether a file has matched it. */
struct wanted {
    struct catalog_glob glob;
    bool matched;
};

/* One list. */
struct listing {
    const struct index_values *v;
    FILE *to;
    bool escape;
    VEC(struct wanted) wanted; /* empty: all files */
    char path[CATALOG_PATH_MAX + 1];
};

static void listing_free(struct listing *l)
{
    vec_release(&l->wanted);
    free(l);
}
DEFINE_CLEANUP(listing, struct listing *, listing_free)

/* ---- which files ---- */

static int take_globs(struct listing *l)
{
    for (size_t i = 0; i < l->v->globs.count; i++) {
        struct wanted w = {.matched = false};
        if (catalog_glob_parse(l->v->globs.items[i], &w.glob))
            return CLI_USAGE;
        if (vec_push(&l->wanted, w))
            return -ENOMEM;
    }
    return 0;
}

/* Return the number of bytes with which the paths of all matches begin: those of the first glob's fixed part that all
 * others share. */
static size_t prefix_of(const struct listing *l)
{
    size_t len = l->wanted.len ? l->wanted.items[0].glob.fixed : 0;
    for (size_t i = 1; i < l->wanted.len; i++) {
        const struct catalog_glob *glob = &l->wanted.items[i].glob;
        size_t shared = 0;
        while (shared < GR_MIN(len, glob->fixed) && glob->text[shared] == l->wanted.items[0].glob.text[shared])
            shared++;
        len = shared;
    }
    return len;
}

/* Every glob is tried, so that one which matches only what others match too counts as matched. */
static bool is_wanted(struct listing *l, const struct catalog_entry *e)
{
    bool found = !l->wanted.len;
    if (!S_ISREG(e->mode) || found)
        return S_ISREG(e->mode);
    memcpy(l->path, e->path, e->path_len);
    l->path[e->path_len] = 0;
    for (size_t i = 0; i < l->wanted.len; i++)
        if (catalog_glob_matches(&l->wanted.items[i].glob, l->path))
            found = l->wanted.items[i].matched = true;
    return found;
}

static int check_matched(const struct listing *l)
{
    for (size_t i = 0; i < l->wanted.len; i++)
        if (!l->wanted.items[i].matched)
            return error_set(-ENOENT, "no file of the image matches --path '%s'; 'granary ls -R' lists what is there",
                             l->wanted.items[i].glob.text);
    return 0;
}

/* ---- lines ---- */

/* Where a file's data begins in the image; 0, where no file can be: it has none. */
static uint64_t place_of(const struct catalog_entry *e)
{
    return e->extent_count ? e->extents[0].offset : 0;
}

static int write_json(const struct listing *l, const struct catalog_entry *e)
{
    json_t *object = json_object();
    json_name_set(object, "path", e->path, e->path_len);
    json_object_set_new(object, "size", INTEGER(e->size));
    json_object_set_new(object, "offset", INTEGER(place_of(e)));
    json_object_set_new(object, "content", print_json_digest(&e->content));
    return print_json_to(l->to, object);
}

/* A name may contain tabs, so it comes last. One with a newline would be read as two lines, the second of which may
 * look like a file of its own: it is refused rather than written. */
static int write_plain(const struct listing *l, const struct catalog_entry *e)
{
    if (!l->v->zero && !l->escape && memchr(e->path, '\n', e->path_len))
        return error_set(-EILSEQ, "a name has a newline, after '%.*s'; use -0 or --json", (int)strcspn(e->path, "\n"),
                         e->path);
    fprintf(l->to, "%llu\t%llu\t", (unsigned long long)e->size, (unsigned long long)place_of(e));
    print_name(l->to, e->path, e->path_len, l->escape);
    putc(l->v->zero ? 0 : '\n', l->to);
    return 0;
}

/* Write a file's line. Positive: the reader of standard output is gone, which main reports. */
static int write_entry(const struct listing *l, const struct catalog_entry *e)
{
    int rc = l->v->json ? write_json(l, e) : write_plain(l, e);
    if (rc || !ferror(l->to))
        return rc;
    return l->v->output ? error_set(-errno, "cannot write %s: %s", l->v->output, strerror(errno)) : 1;
}

/* Open the image, and write the lines of its files. */
static int write_all(const char *name, struct listing *l)
{
    CLEANUP_OPEN_IMAGE image;
    int rc = open_image_or_mount(name, &l->v->access, &image);
    if (rc)
        return rc;
    CLEANUP(cleanup_catalog_cursor) struct catalog_cursor *c = NULL;
    const struct catalog_entry *e;
    const char *prefix = l->wanted.len ? l->wanted.items[0].glob.text : "";
    rc = catalog_cursor_new(image.store, &image.manifest, prefix, prefix_of(l), CATALOG_CURSOR_AHEAD, &c);
    while (!rc && (rc = catalog_cursor_next(c, &e)) == 1) {
        rc = is_wanted(l, e) ? write_entry(l, e) : 0;
        if (!rc)
            rc = cancel_check(interrupt_flag());
    }
    if (rc > 0)
        return 0;
    return rc ? rc : check_matched(l);
}

/* ---- where to ---- */

static void close_file(FILE *f)
{
    fclose(f);
}
DEFINE_CLEANUP(file, FILE *, close_file)

/* The file is begun first: one that cannot be made is reported before a store is asked. The stream has a descriptor of
 * its own, since it is closed after the file has its name. */
static int write_to_file(const char *name, struct listing *l)
{
    CLEANUP_REPLACEMENT file = REPLACEMENT_NONE;
    (void)interrupt_watch();
    int rc = replacement_begin(l->v->output, &file);
    if (rc)
        return rc;
    CLEANUP_FD int fd = fcntl(file.fd, F_DUPFD_CLOEXEC, 0);
    CLEANUP(cleanup_file) FILE *to = fd < 0 ? NULL : fdopen(fd, "w");
    if (!to)
        return error_set(-errno, "cannot write %s: %s", l->v->output, strerror(errno));
    (void)steal_fd(&fd);
    l->to = to;
    rc = write_all(name, l);
    if (!rc && fflush(to))
        rc = error_set(-errno, "cannot write %s: %s", l->v->output, strerror(errno));
    return rc ? rc : replacement_finish(&file);
}

static int cmd_index_run(const struct invocation *inv)
{
    const struct index_values *v = inv->values;
    CLEANUP(cleanup_listing) struct listing *l = calloc(1, sizeof *l);
    if (!l)
        return error_no_memory();
    l->v = v;
    l->to = stdout;
    l->escape = !v->output && !v->zero && print_escapes(stdout);
    if (v->zero && v->json)
        return options_exclude("-0", "--json", "names are escaped in JSON");
    int rc = take_globs(l);
    if (rc)
        return rc;
    return v->output ? write_to_file(inv->operands[0], l) : write_all(inv->operands[0], l);
}

const struct verb verb_index = {
    .name = "index",
    .operands = "IMAGE",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "List the files of an image for a data loader: size, place, path",
    .details = "IMAGE may also be a mount point: the image mounted there. A line is SIZE, OFFSET and PATH, with tabs\n"
               "between them: a file's bytes, where they begin in the image (0: an empty file), and its path from the\n"
               "image's root. Lines are in the byte order of the paths; sorted by OFFSET, the files lie as they are\n"
               "stored. In a GLOB * also matches /; a directory that matches stands for all below it.",
    .interrupted = "with -o nothing was written, and a file that was there is as it was",
    .options = rows,
    .values_size = sizeof(struct index_values),
    .defaults = &defaults,
    .run = cmd_index_run,
};
