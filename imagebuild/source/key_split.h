/* A key between two keys, to divide what is left of a listing. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_KEY_SPLIT_H
#define GRANARY_IMAGEBUILD_SOURCE_KEY_SPLIT_H

#include "base/bytes.h"

/* Replace *out by a key behind `after` and before `end`, about half way by the bytes they differ in: printable ASCII
 * behind what they share, valid UTF-8 if they are. end NULL: what begins with the first prefix_len bytes of after
 * (which end begins with too) may follow. 1: found; 0: there is none to be had; -ENOMEM. */
GR_MUST_CHECK int key_split(const char *after, size_t after_len, const char *end, size_t end_len, size_t prefix_len,
                            struct bytes *out);

#endif
