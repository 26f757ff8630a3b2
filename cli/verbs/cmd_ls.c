/* granary ls IMAGE [PATH]: paths from the catalog, relative to the image's root, in the byte order of the full path.
 * Only catalog pages that can hold the requested paths are fetched.
 *
 * --at OFFSET is the reverse question: which file has its bytes there? Log lines of failed and slow reads have offsets.
 * The catalog is ordered by path, so all of it is read.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/verbs/verbs.h"
#include "repository/read/catalog_read.h"

struct ls_values {
    bool is_long, recursive, zero, json;
    const char *at;
    struct open_access access;
};

#define AT(field) offsetof(struct ls_values, field), 0, 0

static const struct ls_values defaults = {.access = {.timeout_s = OPEN_LOOKUP_S}};

static const struct option_row rows[] = {
    {OPTION_FLAG, 'l', "long", NULL, AT(is_long), "mode, owner, size and time as well"},
    {OPTION_FLAG, 'R', "recursive", NULL, AT(recursive), "everything below PATH"},
    {OPTION_TEXT, 0, "at", "OFFSET", AT(at), "name the file whose bytes lie at this offset of the image"},
    {OPTION_FLAG, '0', NULL, NULL, AT(zero), "end names with NUL instead of a newline, never escape"},
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print one JSON object per line"},
    LOOKUP_ROWS(struct ls_values),
    {0},
};

/* One listing. */
struct listing {
    const struct ls_values *v;
    const char *prefix; /* of the paths listed: "" or "dir/" */
    size_t prefix_len;
    bool escape;
    uint64_t at; /* of --at: an offset in the image, bytes */
    bool found;
};

/* Types by their letters in `ls -l` and their names in JSON. */
static const struct type {
    uint32_t mode;
    char letter;
    const char *name;
} types[] = {
    {S_IFREG, '-', "file"},         {S_IFDIR, 'd', "directory"},
    {S_IFLNK, 'l', "symlink"},      {S_IFCHR, 'c', "character device"},
    {S_IFBLK, 'b', "block device"}, {S_IFIFO, 'p', "fifo"},
    {S_IFSOCK, 's', "socket"},
};

/* Anything else counts as a socket, the last. */
static const struct type *ls_type_of(uint32_t mode)
{
    size_t i = 0;
    while (i + 1 < GR_ARRAY_SIZE(types) && types[i].mode != (mode & S_IFMT))
        i++;
    return &types[i];
}

/* Write a mode as ls does: "drwxr-xr-x". */
static void mode_text(uint32_t mode, char out[11])
{
    static const char bits[] = "rwxrwxrwx";
    out[0] = ls_type_of(mode)->letter;
    for (int i = 0; i < 9; i++)
        out[1 + i] = mode & (0400u >> i) ? bits[i] : '-';
    if (mode & S_ISUID)
        out[3] = mode & S_IXUSR ? 's' : 'S';
    if (mode & S_ISGID)
        out[6] = mode & S_IXGRP ? 's' : 'S';
    if (mode & S_ISVTX)
        out[9] = mode & S_IXOTH ? 't' : 'T';
    out[10] = 0;
}

/* Print one line; the root's own path is shown as ".". */
static void print_plain(const struct listing *l, const struct catalog_entry *e)
{
    if (l->v->is_long) {
        char mode[11], when[TEXT_TIME_MAX];
        mode_text(e->mode, mode);
        printf("%s %u %u %12llu %s ", mode, e->uid, e->gid, (unsigned long long)e->size,
               text_format_time(e->mtime, when));
    }
    if (e->path_len)
        print_name(stdout, e->path, e->path_len, l->escape);
    else
        putchar('.');
    if (l->v->is_long && e->target_len) {
        fputs(e->hard_link ? " link to " : " -> ", stdout);
        print_name(stdout, e->target, e->target_len, l->escape);
    }
    putchar(l->v->zero ? 0 : '\n');
}

static int print_entry_json(const struct catalog_entry *e)
{
    json_t *extents = json_array();
    for (uint32_t i = 0; i < e->extent_count; i++)
        json_array_append_new(extents, json_pack("{s:I,s:I}", "offset", (json_int_t)e->extents[i].offset, "length",
                                                 (json_int_t)e->extents[i].len));
    json_t *object =
        json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:b,s:o}", "type", ls_type_of(e->mode)->name, "mode",
                  (json_int_t)(e->mode & 07777), "uid", (json_int_t)e->uid, "gid", (json_int_t)e->gid, "size",
                  (json_int_t)e->size, "mtime", (json_int_t)e->mtime, "mtime_nsec", (json_int_t)e->mtime_nsec,
                  "content", print_json_digest(&e->content), "hard_link", e->hard_link, "extents", extents);
    if (object)
        json_name_set(object, "path", e->path, e->path_len);
    if (object && e->target_len)
        json_name_set(object, "target", e->target, e->target_len);
    return print_json(object);
}

/* Print an entry. Returns a positive value, which ends the walk, when the reader of standard output is gone. */
static int print_entry(const struct listing *l, const struct catalog_entry *e)
{
    int rc = 0;
    if (l->v->json)
        rc = print_entry_json(e);
    else
        print_plain(l, e);
    return rc ? rc : ferror(stdout) ? 1 : 0;
}

/* Print an entry below the directory; without -R only its children. */
static int visit_below(void *arg, const struct catalog_entry *e)
{
    struct listing *l = arg;
    if (e->path_len <= l->prefix_len) /* the root itself */
        return 0;
    if (!l->v->recursive && memchr(e->path + l->prefix_len, '/', e->path_len - l->prefix_len))
        return 0;
    return print_entry(l, e);
}

/* Looks for the entry of exactly one path. */
struct one {
    const struct listing *l;
    size_t path_len;
    bool found, directory;
    int rc; /* of printing it: the walk's own result is 1, to stop it */
};

/* Take the entry with exactly this path. In the catalog's order it comes before all paths that continue it, so the
 * first entry decides. */
static int visit_one(void *arg, const struct catalog_entry *e)
{
    struct one *one = arg;
    one->found = e->path_len == one->path_len;
    one->directory = one->found && S_ISDIR(e->mode);
    if (one->found && !one->directory)
        one->rc = print_entry(one->l, e);
    return 1;
}

/* List a file, or the children of a directory. The entry itself is looked up first, in the catalog's order the first
 * with the path as prefix. */
static int list_path(const struct open_image *image, struct listing *l, const char *path)
{
    size_t len = strlen(path);
    while (len && path[len - 1] == '/')
        len--;
    while (len && *path == '/')
        path++, len--;
    struct one one = {.l = l, .path_len = len};
    int rc = catalog_walk(image->store, &image->manifest, path, len, visit_one, &one);
    if (rc < 0 || one.rc < 0)
        return rc < 0 ? rc : one.rc;
    if (!one.found)
        return error_set(-ENOENT, "%s/%s holds no path '%.*s'", image->ref.store, image->ref.name, (int)len, path);
    if (!one.directory)
        return 0;
    CLEANUP_BYTES prefix = BYTES_INIT(CATALOG_PATH_MAX + 1);
    if (len && (bytes_append(&prefix, path, len) || bytes_append(&prefix, "/", 1)))
        return error_no_memory();
    l->prefix = len ? (const char *)prefix.data : "";
    l->prefix_len = prefix.len;
    rc = catalog_walk(image->store, &image->manifest, l->prefix, l->prefix_len, visit_below, l);
    return rc < 0 ? rc : 0;
}

/* Print a file if its data covers the offset. Hard links are skipped: the file they link to is printed. */
static int visit_at(void *arg, const struct catalog_entry *e)
{
    struct listing *l = arg;
    for (uint32_t i = 0; i < e->extent_count && !e->hard_link; i++)
        if (l->at >= e->extents[i].offset && l->at - e->extents[i].offset < e->extents[i].len) {
            l->found = true;
            int rc = print_entry(l, e);
            if (rc)
                return rc;
        }
    return 0;
}

/* List the files that have bytes at the offset; files of equal content may share them. The catalog is in path order, so
 * all of it is read. */
static int list_at(const struct open_image *image, struct listing *l)
{
    const struct manifest *m = &image->manifest;
    if (l->at >= m->size)
        return error_set(-EINVAL, "--at: offset %llu lies past the image's end at %llu", (unsigned long long)l->at,
                         (unsigned long long)m->size);
    int rc = catalog_walk(image->store, m, "", 0, visit_at, l);
    if (rc || l->found)
        return rc < 0 ? rc : 0;
    bool metadata =
        l->at < m->front_len || (l->at >= m->metadata_offset && l->at - m->metadata_offset < m->metadata_len);
    return error_set(-ENOENT, "no file has bytes at offset %llu: %s", (unsigned long long)l->at,
                     metadata ? "it lies in the filesystem's metadata"
                              : "it lies in padding, dead bytes or the superblock");
}

/* Escapes are only for a terminal, and never with -0, whose output another program reads. */
static int cmd_ls_run(const struct invocation *inv)
{
    const struct ls_values *v = inv->values;
    struct listing l = {.v = v, .escape = !v->zero && print_escapes(stdout)};
    if (v->at && text_parse_size("--at", v->at, &l.at))
        return CLI_USAGE;
    if (v->zero && v->json)
        return options_exclude("-0", "--json", "names are escaped in JSON");
    if (v->at && (v->recursive || inv->operand_count > 1))
        return options_exclude("--at", v->recursive ? "-R" : "PATH", "the files are found wherever they are");
    CLEANUP_OPEN_IMAGE image;
    int rc = open_image(inv->operands[0], &v->access, &image);
    if (rc)
        return rc;
    return v->at ? list_at(&image, &l) : list_path(&image, &l, inv->operand_count > 1 ? inv->operands[1] : "");
}

const struct verb verb_ls = {
    .name = "ls",
    .operands = "IMAGE [PATH]",
    .min_operands = 1,
    .max_operands = 2,
    .summary = "List the paths of an image",
    .details = "Paths are printed relative to the image's root, as bytes; on a terminal what is not printable is\n"
               "escaped. Without -R only the children of PATH (the root by default) are listed.",
    .options = rows,
    .values_size = sizeof(struct ls_values),
    .defaults = &defaults,
    .run = cmd_ls_run,
};
