/* From the words of a command line to open stores and images. --timeout limits a whole request with its retries. A
 * single attempt and a connect are limited further, so that there is time for another attempt. */
#include "cli/open.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "store/repository.h"

enum { REQUEST_MOST_S = 30, CONNECT_MOST_S = 10 };

/* 0 seconds mean the store's own default. */
void open_store_options(const struct open_access *access, struct store_options *out)
{
    uint64_t most_s = access->timeout_s ? access->timeout_s : UINT64_MAX;
    out->endpoint = access->endpoint;
    out->timeout_ms = access->timeout_s * 1000;
    out->request_s = (unsigned)GR_MIN(most_s, (uint64_t)REQUEST_MOST_S);
    out->cancel = interrupt_flag();
    out->connect_ms = (unsigned)GR_MIN(most_s, (uint64_t)CONNECT_MOST_S) * 1000;
}

/* Open the store, and check that it is one of Granary's. */
static int open_checked(const struct image_ref *ref, const struct open_access *access, struct store **out)
{
    CLEANUP(cleanup_store) struct store *store = NULL;
    struct store_options options = {0};
    open_store_options(access, &options);
    int rc = store_open(ref->store, &options, &store);
    if (!rc)
        rc = repository_check(store, false);
    if (rc)
        return rc;
    *out = steal_ptr(&store);
    return 0;
}

/* By the URL alone, before any request. */
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

int open_image_store(const char *text, const struct open_access *access, struct image_ref *ref, struct store **out)
{
    if (image_ref_parse(text, ref))
        return CLI_USAGE;
    return open_checked(ref, access, out);
}

int open_store(const char *text, const struct open_access *access, struct image_ref *ref, struct store **out)
{
    if (image_ref_parse_store(text, ref))
        return CLI_USAGE;
    return open_checked(ref, access, out);
}

/* The tag is resolved once; from then on only the digest counts, whatever happens to the tag. */
int open_image(const char *text, const struct open_access *access, struct open_image *out)
{
    *out = (struct open_image){0};
    int rc = open_image_store(text, access, &out->ref, &out->store);
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
