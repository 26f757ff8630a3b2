/* From a URL to a store. This is the module's only file that knows the schemes; format/image_ref.c knows them too, to
 * parse references. Every store gets the retry layer on top, so a backend makes each request once. */
#include "store/store_internal.h"

#include <errno.h>

#include "base/error.h"
#include "base/text.h"
#include "net/hdfs/webhdfs.h"

enum { RETRY_TIMEOUT_MS = 5 * 60 * 1000 };

static int open_plain(const char *url, const struct store_options *options, struct store **out)
{
    if (options->keys && !text_begins_with(url, "s3://"))
        return error_set(-EINVAL, "store %s: keys of an export's own are for s3:// stores", url);
    if (url[0] == '/' || text_begins_with(url, "file://"))
        return store_file_open(url, options, out);
    if (text_begins_with(url, "s3://"))
        return store_s3_open(url, options, out);
    if (hdfs_address_known(url))
        return store_hdfs_open(url, options, out);
    if (text_begins_with(url, "http://") || text_begins_with(url, "https://"))
        return store_http_open(url, options, out);
    return error_set(-EINVAL,
                     "store %s: unknown kind of address; known are file:///DIR, s3://BUCKET/PREFIX, "
                     "hdfs://NAMENODE:9870/PATH and http(s)://HOST/PATH",
                     url);
}

int store_open(const char *url, const struct store_options *options, struct store **out)
{
    static const struct store_options defaults = {0};
    if (!options)
        options = &defaults;
    struct store *plain = NULL;
    int rc = open_plain(url, options, &plain);
    if (rc)
        return rc;
    return store_retry_open(plain, options->timeout_ms ? options->timeout_ms : RETRY_TIMEOUT_MS, options->cancel, out);
}
