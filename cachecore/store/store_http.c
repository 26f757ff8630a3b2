/* Placeholder until the network is in. */
#include "store/store_impl.h"

#include <errno.h>

#include "base/error.h"

int store_http_open(const char *url, const struct store_options *options, struct store **out)
{
    return error_set(-ENOTSUP, "store %s: http stores are not supported by this version", url);
}
