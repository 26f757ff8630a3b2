/* The sources that source_open chooses from. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_KINDS_H
#define GRANARY_IMAGEBUILD_SOURCE_KINDS_H

#include "imagebuild/source.h"

/* A directory of this machine. url is kept for messages. */
GR_MUST_CHECK int source_local_open(const char *url, const char *path, struct source **out);

/* What follows "s3://". */
GR_MUST_CHECK int source_s3_open(const char *url, const char *bucket_and_prefix, const struct source_options *options,
                                 struct source **out);

#endif
