/* From facts to labels. Values are rounded, since each change of a label is a write to the cluster's database, and the
 * scheduler of every cluster reads it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/text.h"
#include "labels/labels.h"

enum {
    SHARE_STEP = 10,             /* percent */
    WAIT_MAX_MS = 5 * 60 * 1000, /* after failures */
};

/* ---- names ---- */

/* Letters and digits as Kubernetes and NFD take them, in any locale. */
static bool is_alphanumeric(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static bool is_in_name(char c)
{
    return is_alphanumeric(c) || c == '.' || c == '_' || c == '-';
}

/* The part of the key after "cached." must end with a letter or digit; it need not begin with one. */
void label_name(const char *export, char out[LABEL_NAME_MAX + 1])
{
    char hex[DIGEST_HEX_SIZE];
    size_t len = strcspn(export, "@"), kept = 0;
    while (kept < len && is_in_name(export[kept]))
        kept++;
    if (len && kept == len && len <= LABEL_NAME_MAX && is_alphanumeric(export[len - 1])) {
        snprintf(out, LABEL_NAME_MAX + 1, "%.*s", (int)len, export);
        return;
    }
    struct digest digest = digest_of(export, len);
    kept = GR_MIN(len, (size_t)(LABEL_NAME_MAX - LABEL_DIGITS - 1));
    for (size_t i = 0; i < kept; i++)
        out[i] = is_in_name(export[i]) ? export[i] : '_';
    snprintf(out + kept, LABEL_NAME_MAX + 1 - kept, "-%.*s", LABEL_DIGITS, digest_hex(&digest, hex));
}

/* ---- labels ---- */

static int set(json_t *labels, const char *kind, const char *name, uint64_t value)
{
    char key[sizeof LABEL_PREFIX + 63], text[24];
    snprintf(key, sizeof key, LABEL_PREFIX "%s%s", kind, name);
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return json_object_set_new(labels, key, json_string(text));
}

static uint64_t power_of_two(uint64_t n)
{
    uint64_t power = n ? 1 : 0;
    while (n >>= 1)
        power <<= 1;
    return power;
}

/* Sort by name; of one name, the image that counts comes first: the one served last, and of several such images the one
 * with the smallest cached share, since a pod may read any of them. */
static int by_name(const void *a, const void *b)
{
    const struct label_image *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (!order)
        order = (x->age > y->age) - (x->age < y->age);
    return order ? order : (x->percent > y->percent) - (x->percent < y->percent);
}

/* The largest cached share comes first. The rest of the order only has to be the same each time. */
static int by_share(const void *a, const void *b)
{
    const struct label_image *x = a, *y = b;
    int order = (x->percent < y->percent) - (x->percent > y->percent);
    return order ? order : strcmp(x->digits, y->digits) ? strcmp(x->digits, y->digits) : strcmp(x->name, y->name);
}

static int add_images(json_t *labels, const struct label_image *images, size_t count, const struct label_rules *rules,
                      bool names)
{
    int rc = 0;
    size_t before = json_object_size(labels);
    for (const struct label_image *i = images; i < images + count && !rc; i++)
        if (i->percent >= rules->min_share && json_object_size(labels) - before < rules->max_images)
            rc = set(labels, names ? LABEL_CACHED : "cached-digest.", names ? i->name : i->digits,
                     i->percent / SHARE_STEP * SHARE_STEP);
    return rc;
}

/* Leave the first image of each name; return how many there are. */
static size_t one_of_each_name(struct label_image *images, size_t count)
{
    size_t names = 0;
    qsort(images, count, sizeof *images, by_name);
    for (size_t i = 0; i < count; i++)
        if (!names || strcmp(images[i].name, images[names - 1].name) != 0)
            images[names++] = images[i];
    return names;
}

json_t *labels_make(const struct label_facts *f, const struct label_rules *rules)
{
    CLEANUP_JSON json_t *labels = json_object();
    size_t count = f->images.len;
    CLEANUP_FREE struct label_image *images = malloc((count + 1) * sizeof *images);
    if (!images || !labels)
        return NULL;
    if (count)
        memcpy(images, f->images.items, count * sizeof *images);
    qsort(images, count, sizeof *images, by_share);
    int rc = add_images(labels, images, count, rules, false);
    count = one_of_each_name(images, count);
    qsort(images, count, sizeof *images, by_share);
    rc |= add_images(labels, images, count, rules, true);
    rc |= json_object_set_new(labels, LABEL_PREFIX "health", json_string(f->health));
    rc |= set(labels, "cache-free-gib", "", power_of_two(f->free >> 30));
    if (f->disk_per_s)
        rc |= set(labels, "disk-mib-per-s", "", power_of_two(f->disk_per_s >> 20));
    if (f->link_per_s)
        rc |= set(labels, "link-mib-per-s", "", power_of_two(f->link_per_s >> 20));
    return rc ? NULL : steal_ptr(&labels);
}

/* ---- how they are written ---- */

json_t *labels_patch(const json_t *now, const json_t *wanted, bool *out_none)
{
    const char *key;
    json_t *value, *labels = json_object();
    int rc = labels ? 0 : -1;
    json_object_foreach((json_t *)wanted, key, value)
    {
        if (!json_equal(json_object_get(now, key), value))
            rc |= json_object_set(labels, key, value);
    }
    json_object_foreach((json_t *)now, key, value)
    {
        if (text_begins_with(key, LABEL_PREFIX) && !json_object_get(wanted, key))
            rc |= json_object_set_new(labels, key, json_null());
    }
    *out_none = !json_object_size(labels);
    CLEANUP_JSON json_t *patch = json_pack("{s:{s:o}}", "metadata", "labels", labels);
    return rc ? NULL : steal_ptr(&patch);
}

/* jansson iterates over members in the order in which they were added. */
int labels_feature_file(const json_t *labels, int64_t expires, struct bytes *out)
{
    char time[TEXT_TIME_MAX];
    const char *key;
    json_t *value;
    int rc = bytes_printf(out, "# +expiry-time=%s\n", text_format_time(expires, time));
    json_object_foreach((json_t *)labels, key, value)
    {
        if (!rc)
            rc = bytes_printf(out, "%s=%s\n", key, json_string_value(value));
    }
    return rc;
}

uint64_t labels_wait_ms(uint64_t interval_ms, unsigned failures, uint32_t random)
{
    uint64_t ms = interval_ms;
    for (unsigned i = 0; i < failures && ms < WAIT_MAX_MS; i++)
        ms = GR_MIN(2 * ms, (uint64_t)WAIT_MAX_MS);
    return ms - ms / 4 + random % (ms / 2 + 1); /* a quarter more or less */
}
