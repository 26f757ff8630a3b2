/* granary diff A B: the differences between two images. Both catalogs are sorted by path, so one pass merges them.
 * Content is compared by digest; no file is read. */
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "cli/verbs/verbs.h"
#include "repository/read/catalog_read.h"

struct diff_values {
    bool stat, exit_code, zero, json;
    struct open_access access;
};

#define AT(field) offsetof(struct diff_values, field), 0, 0

static const struct diff_values defaults = {.access = {.timeout_s = OPEN_LOOKUP_S}};

static const struct option_row rows[] = {
    {OPTION_FLAG, 0, "stat", NULL, AT(stat), "how many paths of each kind, and their bytes, instead of the paths"},
    {OPTION_FLAG, 0, "exit-code", NULL, AT(exit_code), "exit with 3 when there is a difference"},
    {OPTION_FLAG, '0', NULL, NULL, AT(zero), "end names with NUL instead of a newline, never escape"},
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print one JSON object per line; with --stat one object"},
    LOOKUP_ROWS(struct diff_values),
    {0},
};

/* What became of a path. CHANGED: its content or type; ATTRIBUTES: only mode, owner, time or links. */
enum change { SAME, ADDED, REMOVED, CHANGED, ATTRIBUTES, CHANGES };

static const struct {
    char letter;
    const char *name;
} changes[CHANGES] = {
    {'=', "unchanged"}, {'A', "added"}, {'D', "removed"}, {'M', "changed"}, {'m', "attributes"},
};

/* The sums, and how to print. */
struct diff {
    const struct diff_values *v;
    bool escape;
    uint64_t paths[CHANGES], bytes[CHANGES]; /* bytes of files: A's for removed ones, B's for the others */
};

/* Compare two byte strings; either may be NULL if empty. */
static bool same_text(const char *a, size_t a_len, const char *b, size_t b_len)
{
    return a_len == b_len && (!a_len || !memcmp(a, b, a_len));
}

/* Compare the entries of one path. A directory's time changes with its entries, so it is not compared. */
static enum change compare_entries(const struct catalog_entry *a, const struct catalog_entry *b)
{
    bool content = (a->mode & S_IFMT) == (b->mode & S_IFMT) && digest_equal(&a->content, &b->content);
    if (content && S_ISLNK(a->mode))
        content = same_text(a->target, a->target_len, b->target, b->target_len);
    if (!content)
        return CHANGED;
    bool time = S_ISDIR(a->mode) || (a->mtime == b->mtime && a->mtime_nsec == b->mtime_nsec);
    bool link = a->hard_link == b->hard_link && same_text(a->target, a->target_len, b->target, b->target_len);
    return time && link && a->mode == b->mode && a->uid == b->uid && a->gid == b->gid ? SAME : ATTRIBUTES;
}

/* Count a change and print it. Returns 1 when the reader of standard output is gone. */
static int cmd_diff_take(struct diff *d, const struct catalog_entry *e, enum change change)
{
    d->paths[change]++;
    if (S_ISREG(e->mode) && !e->hard_link)
        d->bytes[change] += e->size;
    if (change == SAME || d->v->stat)
        return 0;
    if (d->v->json) {
        json_t *object = json_pack("{s:s,s:I,s:o}", "change", changes[change].name, "size", (json_int_t)e->size,
                                   "content", print_json_digest(&e->content));
        if (object)
            json_name_set(object, "path", e->path, e->path_len);
        return print_json(object);
    }
    printf("%c ", changes[change].letter);
    if (e->path_len)
        print_name(stdout, e->path, e->path_len, d->escape);
    else
        putchar('.');
    putchar(d->v->zero ? 0 : '\n');
    return ferror(stdout) ? 1 : 0;
}

/* Take the next entry; *e is NULL at the end. */
static int advance(struct catalog_cursor *c, const struct catalog_entry **e)
{
    int rc = catalog_cursor_next(c, e);
    if (!rc)
        *e = NULL;
    return rc < 0 ? rc : 0;
}

/* Walk both catalogs in path order. A path in only one of them was added or removed. */
static int merge(struct diff *d, struct catalog_cursor *from, struct catalog_cursor *to)
{
    const struct catalog_entry *a, *b;
    int rc = advance(from, &a);
    if (!rc)
        rc = advance(to, &b);
    while (!rc && (a || b)) {
        int order = !a ? 1 : !b ? -1 : catalog_path_compare(a->path, a->path_len, b->path, b->path_len);
        if (order)
            rc = order < 0 ? cmd_diff_take(d, a, REMOVED) : cmd_diff_take(d, b, ADDED);
        else
            rc = cmd_diff_take(d, b, compare_entries(a, b));
        if (!rc && order <= 0)
            rc = advance(from, &a);
        if (!rc && order >= 0)
            rc = advance(to, &b);
    }
    return rc < 0 ? rc : 0;
}

/* Print the sums of --stat. */
static int print_stat(const struct diff *d)
{
    if (d->v->json) {
        json_t *object = json_object();
        for (enum change c = SAME; c < CHANGES; c++)
            json_object_set_new(
                object, changes[c].name,
                json_pack("{s:I,s:I}", "paths", (json_int_t)d->paths[c], "bytes", (json_int_t)d->bytes[c]));
        return print_json(object);
    }
    for (enum change c = SAME; c < CHANGES; c++) {
        char bytes[TEXT_SIZE_MAX], paths[TEXT_COUNT_MAX];
        printf("%-12s %s, files of %s\n", changes[c].name, text_format_count(d->paths[c], "path", paths),
               text_format_size(d->bytes[c], bytes));
    }
    return 0;
}

/* Pages are fetched ahead, so that the pass does not wait for each. */
static int open_cursor(const struct open_image *image, struct catalog_cursor **out)
{
    return catalog_cursor_new(image->store, &image->manifest, NULL, 0, CATALOG_CURSOR_AHEAD, out);
}

/* Compare, and print. CLI_DIFFERENT with --exit-code, like diff(1). */
static int cmd_diff_run(const struct invocation *inv)
{
    const struct diff_values *v = inv->values;
    if (v->zero && v->json)
        return options_exclude("-0", "--json", "names are escaped in JSON");
    if (v->zero && v->stat)
        return options_exclude("-0", "--stat", "no names are printed");
    struct diff d = {.v = v, .escape = !v->zero && print_escapes(stdout)};
    CLEANUP_OPEN_IMAGE a = {.store = NULL};
    CLEANUP_OPEN_IMAGE b = {.store = NULL};
    CLEANUP(cleanup_catalog_cursor) struct catalog_cursor *from = NULL;
    CLEANUP(cleanup_catalog_cursor) struct catalog_cursor *to = NULL;
    int rc = open_image(inv->operands[0], &v->access, &a);
    if (!rc)
        rc = open_image(inv->operands[1], &v->access, &b);
    if (!rc)
        rc = open_cursor(&a, &from);
    if (!rc)
        rc = open_cursor(&b, &to);
    if (!rc)
        rc = merge(&d, from, to);
    if (!rc && v->stat)
        rc = print_stat(&d);
    bool differ = d.paths[ADDED] || d.paths[REMOVED] || d.paths[CHANGED] || d.paths[ATTRIBUTES];
    if (!rc && !differ && !v->stat && !v->json)
        fprintf(stderr, "no differences\n"); /* standard output has only the list, which is empty */
    return !rc && differ && v->exit_code ? CLI_DIFFERENT : rc;
}

const struct verb verb_diff = {
    .name = "diff",
    .operands = "A B",
    .min_operands = 2,
    .max_operands = 2,
    .summary = "Show how image B differs from image A",
    .details = "One line per path: 'A' added, 'D' removed, 'M' changed in content or kind, 'm' in attributes alone\n"
               "(mode, owner, time, which names are links of one file; not a directory's time). Contents are compared\n"
               "by their digests in the catalogs: no file is read.",
    .options = rows,
    .values_size = sizeof(struct diff_values),
    .defaults = &defaults,
    .run = cmd_diff_run,
};
