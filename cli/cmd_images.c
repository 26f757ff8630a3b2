/* granary images STORE */
#include <errno.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/open.h"
#include "cli/options.h"
#include "cli/print.h"
#include "cli/verbs.h"
#include "store/repository.h"

struct images_values {
    struct open_access access;
    bool json;
};

static const struct images_values defaults = {.access = {.timeout_s = OPEN_LOOKUP_S}};

static const struct option_row rows[] = {
    LOOKUP_ROWS(struct images_values),
    {OPTION_FLAG, 0, "json", NULL, offsetof(struct images_values, json), 0, 0, "print one JSON object"},
    {0},
};

static int print_tag(void *arg, const char *name, const char *tag, const struct tag *t)
{
    char digest[PRINT_DIGEST_MAX], created[TEXT_TIME_MAX];
    printf("%s  %s  %s:%s\n", print_digest(&t->digest, digest), text_format_time(t->created, created), name, tag);
    return 0;
}

static int append_tag(void *arg, const char *name, const char *tag, const struct tag *t)
{
    json_t *image = json_pack("{s:s,s:s,s:o,s:o,s:o,s:o}", "name", name, "tag", tag, "digest",
                              print_json_digest(&t->digest), "content_root", print_json_digest(&t->content_root),
                              "created", print_json_time(t->created), "parent", print_json_digest(&t->parent));
    return json_array_append_new(arg, image) ? error_set(-ENOMEM, "out of memory while listing images") : 0;
}

static int run(const struct invocation *inv)
{
    const struct images_values *v = inv->values;
    struct image_ref ref;
    CLEANUP(cleanup_store) struct store *store = NULL;
    int rc = open_store(inv->operands[0], &v->access, &ref, &store);
    if (rc)
        return rc;
    if (!v->json)
        return repository_tags(store, NULL, print_tag, NULL);
    json_t *images = json_array();
    rc = repository_tags(store, NULL, append_tag, images);
    if (rc) {
        json_decref(images);
        return rc;
    }
    return print_json(json_pack("{s:s,s:o}", "store", ref.store, "images", images));
}

const struct verb verb_images = {
    .name = "images",
    .operands = "STORE",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "List the images of a store and their tags",
    .options = rows,
    .values_size = sizeof(struct images_values),
    .defaults = &defaults,
    .run = run,
};
