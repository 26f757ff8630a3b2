/* granary images STORE [NAME]: a table of tags, each with figures from its image's manifest. Rows are sorted by digest
 * first, so that each manifest is read once for all its tags, several at a time; then by name for printing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/vec.h"
#include "cli/verbs/verbs.h"
#include "repository/repository.h"

enum { MANIFESTS_AT_ONCE = 16, DIGEST_SHOWN = 12 };

struct images_values {
    struct open_access access;
    bool all, json;
};

static const struct images_values defaults = {.access = {.timeout_s = OPEN_LOOKUP_S}};

static const struct option_row rows[] = {
    LOOKUP_ROWS(struct images_values),
    {OPTION_FLAG, 'a', "all", NULL, offsetof(struct images_values, all), 0, 0, "the unique tags of builds too"},
    {OPTION_FLAG, 0, "json", NULL, offsetof(struct images_values, json), 0, 0, "print one JSON object, of all tags"},
    {0},
};

/* ---- the table ---- */

/* A tag, and what its manifest tells. */
struct image_row {
    char name[IMAGE_NAME_MAX + 1], tag[IMAGE_TAG_MAX + 1];
    struct digest digest;
    int64_t created;
    bool known; /* the manifest could be read */
    uint64_t files, bytes;
};

/* All rows. While manifests are read, each thread writes only the rows of its image. */
struct table {
    struct store *store;
    bool all;
    VEC(struct image_row) rows; /* sorted by digest while manifests are read, then by name */
    VEC(size_t) firsts;         /* index of the first row of each image */
};

static void cmd_images_table_release(struct table *t)
{
    vec_release(&t->rows);
    vec_release(&t->firsts);
}

/* Add a tag; without --all, leave out the unique tags of builds. */
static int add_row(void *arg, const char *name, const char *tag, const struct tag *t)
{
    struct table *table = arg;
    struct image_row row = {.digest = t->digest, .created = t->created};
    if (!table->all && tag_is_build_name(tag, &t->digest))
        return 0;
    snprintf(row.name, sizeof row.name, "%s", name);
    snprintf(row.tag, sizeof row.tag, "%s", tag);
    return vec_push(&table->rows, row);
}

/* Groups the tags of one image. */
static int by_digest(const void *a, const void *b)
{
    const struct image_row *x = a, *y = b;
    return memcmp(&x->digest, &y->digest, sizeof x->digest);
}

/* Order by name, and the newest first within a name. */
static int by_name(const void *a, const void *b)
{
    const struct image_row *x = a, *y = b;
    int names = strcmp(x->name, y->name);
    if (names)
        return names;
    return x->created != y->created ? (x->created < y->created) - (x->created > y->created) : strcmp(x->tag, y->tag);
}

/* Read an image's manifest into all its rows. An image whose manifest is gone or damaged is still listed, so that its
 * tag can be removed. */
static int read_manifest(void *arg, size_t i)
{
    struct table *t = arg;
    size_t first = t->firsts.items[i];
    struct image_row *rows_of = t->rows.items;
    struct manifest m;
    int rc = repository_manifest(t->store, &rows_of[first].digest, &m);
    if (rc == -ENOENT || rc == -EBADMSG)
        return 0;
    for (size_t k = first; !rc && k < t->rows.len && digest_equal(&rows_of[k].digest, &rows_of[first].digest); k++) {
        rows_of[k].known = true;
        rows_of[k].files = m.counts.files;
        rows_of[k].bytes = m.counts.bytes;
    }
    return rc;
}

/* Read the manifest of each distinct image, several at a time. */
static int read_manifests(struct table *t)
{
    if (t->rows.len)
        qsort(t->rows.items, t->rows.len, sizeof *t->rows.items, by_digest);
    for (size_t i = 0; i < t->rows.len; i++)
        if (!i || !digest_equal(&t->rows.items[i].digest, &t->rows.items[i - 1].digest))
            if (vec_push(&t->firsts, i))
                return -ENOMEM;
    const struct parallel work = {
        .count = t->firsts.len, .threads = MANIFESTS_AT_ONCE, .item = read_manifest, .arg = t};
    return t->firsts.len ? parallel_run(&work) : 0;
}

/* Format how long ago: "5 min", "3 d". */
static const char *format_age(int64_t created, char out[TEXT_TIME_MAX])
{
    enum { MINUTE = 60, HOUR = 60 * MINUTE, DAY = 24 * HOUR };
    int64_t age = (int64_t)time(NULL) - created;
    if (age < 0)
        snprintf(out, TEXT_TIME_MAX, "future");
    else if (age < 2 * MINUTE)
        snprintf(out, TEXT_TIME_MAX, "%d s", (int)age);
    else if (age < 2 * HOUR)
        snprintf(out, TEXT_TIME_MAX, "%d min", (int)(age / MINUTE));
    else if (age < 2 * DAY)
        snprintf(out, TEXT_TIME_MAX, "%d h", (int)(age / HOUR));
    else
        snprintf(out, TEXT_TIME_MAX, "%lld d", (long long)(age / DAY));
    return out;
}

/* "?" stands for figures of a manifest that cannot be read. */
static void print_row(const struct image_row *r, int name_width, int tag_width)
{
    char files[32] = "?", size[TEXT_SIZE_MAX] = "?", age[TEXT_TIME_MAX], hex[DIGEST_HEX_SIZE];
    if (r->known) {
        snprintf(files, sizeof files, "%llu", (unsigned long long)r->files);
        text_format_size(r->bytes, size);
    }
    printf("%-*s  %-*s  %10s  %10s  %7s  %.*s\n", name_width, r->name, tag_width, r->tag, files, size,
           format_age(r->created, age), DIGEST_SHOWN, digest_hex(&r->digest, hex));
}

/* Print the table, with columns as wide as the longest name and tag. */
static int print_table(struct store *store, const char *name, bool all)
{
    struct table table CLEANUP(cmd_images_table_release) = {.store = store, .all = all};
    int name_width = sizeof "NAME" - 1, tag_width = sizeof "TAG" - 1;
    int rc = repository_tags(store, name, add_row, &table);
    if (!rc)
        rc = read_manifests(&table);
    if (rc || !table.rows.len)
        return rc;
    qsort(table.rows.items, table.rows.len, sizeof *table.rows.items, by_name);
    for (size_t i = 0; i < table.rows.len; i++) {
        name_width = GR_MAX(name_width, (int)strlen(table.rows.items[i].name));
        tag_width = GR_MAX(tag_width, (int)strlen(table.rows.items[i].tag));
    }
    printf("%-*s  %-*s  %10s  %10s  %7s  %s\n", name_width, "NAME", tag_width, "TAG", "FILES", "SIZE", "AGE", "DIGEST");
    for (size_t i = 0; i < table.rows.len; i++)
        print_row(&table.rows.items[i], name_width, tag_width);
    return 0;
}

/* ---- JSON ---- */

/* Add a tag to the JSON. Manifests are not read for it. */
static int append_tag(void *arg, const char *name, const char *tag, const struct tag *t)
{
    json_t *image = json_pack("{s:s,s:s,s:o,s:o,s:o,s:o}", "name", name, "tag", tag, "digest",
                              print_json_digest(&t->digest), "content_root", print_json_digest(&t->content_root),
                              "created", print_json_time(t->created), "parent", print_json_digest(&t->parent));
    return json_array_append_new(arg, image) ? error_no_memory() : 0;
}

/* With --json no manifest is read, only the tags. */
static int cmd_images_run(const struct invocation *inv)
{
    const struct images_values *v = inv->values;
    const char *name = inv->operand_count > 1 ? inv->operands[1] : NULL;
    struct image_ref ref;
    CLEANUP(cleanup_store) struct store *store = NULL;
    int rc = open_store(inv->operands[0], &v->access, &ref, &store);
    if (rc)
        return rc;
    if (!v->json)
        return print_table(store, name, v->all);
    json_t *images = json_array();
    rc = repository_tags(store, name, append_tag, images);
    if (rc) {
        json_decref(images);
        return rc;
    }
    return print_json(json_pack("{s:o,s:o}", "store", json_lossy(ref.store), "images", images));
}

const struct verb verb_images = {
    .name = "images",
    .operands = "STORE [NAME]",
    .min_operands = 1,
    .max_operands = 2,
    .summary = "List the images of a store and their tags",
    .options = rows,
    .values_size = sizeof(struct images_values),
    .defaults = &defaults,
    .run = cmd_images_run,
};
