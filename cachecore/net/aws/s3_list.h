/* Decode ListObjectsV2 answers (XML, encoding-type=url). No I/O; bounded and fuzzed. */
#ifndef GRANARY_NET_AWS_S3_LIST_H
#define GRANARY_NET_AWS_S3_LIST_H

#include "net/aws/s3.h"

/* Decode a page; the caller frees *out. -EBADMSG: not a page; -EAGAIN: a page that is cut short; -ENOMEM. */
GR_MUST_CHECK int s3_list_decode(const void *xml, size_t len, struct s3_list_page **out);
#endif
