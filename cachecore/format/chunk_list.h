/* The chunks that a ranged GET of a pack or an index node is for, as the value of an HTTP header. A node that keeps
 * chunks, not packs, can answer such a GET from its cache; other servers ignore the header
 * (docs/reference/peer-protocol.md). */
#ifndef GRANARY_FORMAT_CHUNK_LIST_H
#define GRANARY_FORMAT_CHUNK_LIST_H

#include "format/chunk.h"

#define CHUNK_LIST_HEADER "Granary-Chunks"

/* Chunks of a list at most: its header has less than 8 KiB, which is the most that nginx takes of a line. */
enum { CHUNK_LIST_MAX = 118, CHUNK_LIST_ENTRY = 68 /* characters of a chunk */ };
enum { CHUNK_LIST_TEXT_MAX = CHUNK_LIST_MAX * CHUNK_LIST_ENTRY + 1 };
/* "Granary-Chunks: LIST" and its NUL. */
enum { CHUNK_LIST_HEADER_MAX = sizeof CHUNK_LIST_HEADER + 1 + CHUNK_LIST_TEXT_MAX };

/* Write n chunks of one object, 1 to CHUNK_LIST_MAX, as text and a NUL; returns out. */
char *chunk_list_encode(const struct chunk_ref *const *refs, size_t n, char out[CHUNK_LIST_TEXT_MAX]);

/* Decode a list whose chunks lie in the len bytes at off of an object, in ascending order and without overlap.
 * -EBADMSG, without a sentence: it is not such a list. */
GR_MUST_CHECK int chunk_list_decode(const char *text, enum object_kind kind, const struct digest *object, uint64_t off,
                                    uint64_t len, struct chunk_ref out[CHUNK_LIST_MAX], size_t *out_n);

#endif
