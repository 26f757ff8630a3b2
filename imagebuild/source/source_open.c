/* Find the kind of source that an address means, by its scheme. An address without a scheme is a local directory.
 * For schemes of other systems that can be read as S3 (gs://, s3a://) the error says how. */
#include "imagebuild/source/source.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "format/image_ref.h"
#include "imagebuild/source/source_internal.h"
#include "net/hdfs/webhdfs.h"

/* For messages: the forms of an address. */
static const char known[] =
    "/dir, file:///dir, s3://bucket/prefix, hdfs://namenode:9870/path, http://host/path, or tar: before one of them";

int source_open(const char *url, const struct source_options *options, struct source **out)
{
    if (!strncmp(url, "tar:", 4))
        return source_tar_open(url, url + 4, options, source_open, out);
    if (!strncmp(url, "s3://", 5))
        return source_s3_open(url, url + 5, options, out);
    if (!strncmp(url, "http://", 7) || !strncmp(url, "https://", 8))
        return source_http_open(url, options, out);
    if (hdfs_address_known(url))
        return source_hdfs_open(url, options, out);
    if (!strncmp(url, "file:///", 8))
        return source_local_open(url, url + 7, options, out);
    if (strstr(url, "://") && image_ref_advice(url))
        return error_set(-EINVAL, "source: '%s': %s", url, image_ref_advice(url));
    if (strstr(url, "://"))
        return error_set(-EINVAL, "source: '%s' is of no known kind; write %s", url, known);
    if (!*url)
        return error_set(-EINVAL, "source: an empty address; write %s", known);
    return source_local_open(url, url, options, out);
}
