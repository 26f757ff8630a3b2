#include "cli/open.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "cli/options.h"
#include "store/repository.h"

static int open_checked(const struct image_ref *ref, const char *endpoint, struct store **out)
{
    CLEANUP(cleanup_store) struct store *store = NULL;
    struct store_options options = {.endpoint = endpoint};
    int rc = store_open(ref->store, &options, &store);
    if (!rc)
        rc = repository_check(store, false);
    if (rc)
        return rc;
    *out = steal_ptr(&store);
    return 0;
}

int open_check_writable(const struct image_ref *ref)
{
    if (strncmp(ref->store, "http://", 7) != 0 && strncmp(ref->store, "https://", 8) != 0)
        return 0;
    (void)error_set(0,
                    "%s: a store behind plain HTTP can only be read; write to what the web server serves, by file://, "
                    "s3:// or hdfs://",
                    ref->store);
    return CLI_USAGE;
}

int open_image_store(const char *text, const char *endpoint, struct image_ref *ref, struct store **out)
{
    if (image_ref_parse(text, ref))
        return CLI_USAGE;
    return open_checked(ref, endpoint, out);
}

int open_store(const char *text, const char *endpoint, struct image_ref *ref, struct store **out)
{
    if (image_ref_parse_store(text, ref))
        return CLI_USAGE;
    return open_checked(ref, endpoint, out);
}

int open_image(const char *text, const char *endpoint, struct open_image *out)
{
    *out = (struct open_image){0};
    int rc = open_image_store(text, endpoint, &out->ref, &out->store);
    if (!rc)
        rc = repository_resolve(out->store, &out->ref, &out->digest, &out->tag);
    if (!rc)
        rc = repository_manifest(out->store, &out->digest, &out->manifest);
    return rc;
}

void open_image_release(struct open_image *image)
{
    store_close(image->store);
    image->store = NULL;
}
