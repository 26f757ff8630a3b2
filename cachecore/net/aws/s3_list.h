/* Decoder of ListObjectsV2 answers (XML, encoding-type=url): pure, bounded, fuzzed. */
#ifndef GRANARY_NET_AWS_S3_LIST_H
#define GRANARY_NET_AWS_S3_LIST_H

#include "net/aws/s3.h"

/* -EBADMSG: no page; -EAGAIN: the beginning of one. */
GR_MUST_CHECK int s3_list_decode(const void *xml, size_t len, struct s3_list_page **out);
#endif
