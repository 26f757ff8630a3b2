/* Decoder of ListObjectsV2 answers (XML, encoding-type=url): pure, bounded, fuzzed. */
#ifndef GRANARY_NET_AWS_S3_LIST_H
#define GRANARY_NET_AWS_S3_LIST_H

#include "net/aws/s3.h"

struct s3_list_page; /* the objects of one page and the continuation token */

/* -EBADMSG: no page; -EAGAIN: the beginning of one. */
GR_MUST_CHECK int s3_list_decode(const void *xml, size_t len, struct s3_list_page **out);
void s3_list_page_free(struct s3_list_page *p);
DEFINE_CLEANUP(s3_list_page, struct s3_list_page *, s3_list_page_free)
size_t s3_list_page_count(const struct s3_list_page *p);
const struct s3_object *s3_list_page_object(const struct s3_list_page *p, size_t i);
/* NULL: this was the last page. */
const char *s3_list_page_token(const struct s3_list_page *p);

#endif
