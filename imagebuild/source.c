/* Which source an address means. */
#include "imagebuild/source.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "imagebuild/source_kinds.h"

int source_open(const char *url, const struct source_options *options, struct source **out)
{
    if (!strncmp(url, "s3://", 5))
        return source_s3_open(url, url + 5, options, out);
    if (!strncmp(url, "file:///", 8))
        return source_local_open(url, url + 7, out);
    if (strstr(url, "://"))
        return error_set(-EINVAL, "source: '%s' is of no known kind; write /dir, file:///dir or s3://bucket/prefix",
                         url);
    if (!*url)
        return error_set(-EINVAL, "source: an empty address; write /dir, file:///dir or s3://bucket/prefix");
    return source_local_open(url, url, out);
}
