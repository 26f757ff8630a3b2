/* What a server says about itself and its images, without asking a store.
 *
 * It says how much of an image is cached only while it serves the image. But pods should come back to the node that has
 * the data, so an image that is no longer served keeps a lower bound: the chunks that were cached then, minus all
 * chunks, of any image, that have left the cache since. The chunks that have left it are those that were written minus
 * those that are there. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "attach/attach.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "labels/labels.h"

enum { MEASURED_MAX = 1 << 20 }; /* bytes */

void label_facts_release(struct label_facts *f)
{
    vec_release(&f->images);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

void label_facts_take_status(struct label_facts *f, const json_t *status)
{
    static const char *const words[] = {"healthy", "degraded"};
    const json_t *counters = json_object_get(status, "counters");
    uint64_t capacity = control_number(counters, "granary_cache_capacity_bytes");
    uint64_t filled = control_number(counters, "granary_cache_fills_total");
    const char *health = "failing"; /* also for the word of a later version, which this program does not know */
    for (size_t i = 0; i < GR_ARRAY_SIZE(words); i++)
        if (!strcmp(text_of(status, "health"), words[i]))
            health = words[i];
    snprintf(f->health, sizeof f->health, "%s", health);
    f->free = capacity - GR_MIN(capacity, control_number(counters, "granary_cache_used_bytes"));
    if (filled < f->filled) /* a new server of the same cache counts from 0 again */
        f->filled_before += f->filled;
    f->filled = filled;
    f->gone = f->filled_before + filled - control_number(counters, "granary_cache_entries");
    for (size_t i = 0; i < f->images.len; i++)
        f->images.items[i].age++;
}

/* Return the image's place among those that are known, which may be a new one; NULL: out of memory. */
static struct label_image *place_of(struct label_facts *f, const struct label_image *image)
{
    for (size_t i = 0; i < f->images.len; i++)
        if (!strcmp(f->images.items[i].digits, image->digits) && !strcmp(f->images.items[i].name, image->name))
            return &f->images.items[i];
    if (f->images.len == LABEL_KNOWN_MAX)
        memmove(f->images.items, f->images.items + 1, --f->images.len * sizeof *image);
    return vec_push(&f->images, *image) ? NULL : &f->images.items[f->images.len - 1];
}

/* Chunks whose index node is not cached count as not cached. */
int label_facts_take_image(struct label_facts *f, const json_t *image)
{
    struct label_image one = {.gone = f->gone};
    uint64_t cached = control_number(image, "cached_chunks");
    uint64_t all = control_number(image, "chunks") + control_number(image, "unknown_chunks");
    const char *digest = text_of(image, "digest");
    const size_t kind = strlen("sha256:");
    if (strlen(digest) < kind + LABEL_DIGITS || strspn(digest + kind, "0123456789abcdef") < LABEL_DIGITS || !all ||
        all > INT64_MAX / 100)
        return 0; /* no label either for an image without data, which every node has */
    label_name(text_of(image, "export"), one.name);
    snprintf(one.digits, sizeof one.digits, "%.*s", LABEL_DIGITS, digest + kind);
    one.cached = (int64_t)GR_MIN(cached, all);
    one.all = (int64_t)all;
    one.percent = (unsigned)(100 * one.cached / one.all);
    struct label_image *place = place_of(f, &one);
    if (!place)
        return error_no_memory();
    *place = one;
    return 0;
}

/* Every chunk that has left the cache may have been one of the image. */
void label_facts_end(struct label_facts *f)
{
    size_t kept = 0;
    for (size_t k = 0; k < f->images.len; k++) {
        struct label_image *i = &f->images.items[k];
        int64_t since =
            (int64_t)(f->gone - i->gone); /* its parts are read one after the other, so it may be negative */
        int64_t left = i->cached - GR_MAX(since, 0);
        if (i->age)
            i->percent = left > 0 ? (unsigned)(100 * left / i->all) : 0;
        if (!i->age || left > 0)
            f->images.items[kept++] = *i;
    }
    f->images.len = kept;
}

static int take_line(void *arg, const char *line, size_t len)
{
    json_t *object;
    int rc = control_object(line, len, &object);
    const json_t *image = json_object_get(object, "image");
    if (!rc && image)
        rc = label_facts_take_image(arg, image);
    json_decref(object);
    return rc;
}

int label_facts_read(const char *control, struct label_facts *out)
{
    const char *const params[] = {"known", "1", NULL};
    CLEANUP_JSON json_t *status = NULL;
    int rc = control_status(control, &status);
    if (rc)
        return rc;
    label_facts_take_status(out, status);
    rc = control_call(control, "GET", "/cache", params, take_line, out);
    label_facts_end(out);
    return rc;
}

void label_facts_silent(struct label_facts *f)
{
    label_facts_take_status(f, NULL);
    vec_release(&f->images);
}

int label_facts_measured(const char *path, struct label_facts *out)
{
    CLEANUP_BYTES text = BYTES_INIT(MEASURED_MAX);
    int rc = io_read_file(path, &text);
    if (rc)
        return rc;
    CLEANUP_JSON json_t *bench = json_loadb((const char *)text.data, text.len, 0, NULL);
    const json_t *figures = json_object_get(bench, "figures");
    uint64_t disk = control_number(json_object_get(figures, "read"), "granary");
    uint64_t link = control_number(json_object_get(figures, "read_many"), "raw");
    if (!strcmp(text_of(bench, "kind"), "dir") && disk)
        out->disk_per_s = disk;
    else if (!strcmp(text_of(bench, "kind"), "store") && link)
        out->link_per_s = link;
    else
        return error_set(-EINVAL,
                         "%s has no figures; it is what 'granary bench --json' prints of a directory or a store", path);
    return 0;
}
