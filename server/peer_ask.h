/* What a node asks another one for: a range of an object, and the chunks that it consists of
 * (docs/reference/peer-protocol.md). */
#ifndef GRANARY_SERVER_PEER_ASK_H
#define GRANARY_SERVER_PEER_ASK_H

#include <stdbool.h>
#include <stdint.h>

#include "format/chunk_list.h"
#include "format/object.h"

enum { PEER_RANGE_MAX = 8 << 20 /* bytes of an answer; nodes ask for 4 MiB and one chunk at most */ };

struct peer_ask {
    enum object_kind kind;
    struct digest object;
    uint64_t off, len;
};

/* Does the URL end with the key of a pack or an index node? Whatever stands before the key is the path of the URL that
 * the node has for this one. */
bool peer_ask_key(const char *url, struct peer_ask *out);
/* The range of a Range header (NULL: there is none): "bytes=FIRST-LAST", nothing else, of at most PEER_RANGE_MAX. */
bool peer_ask_range(const char *text, struct peer_ask *out);
/* The chunks of the list (NULL: there is none), which fill the range but for gaps. */
bool peer_ask_chunks(const char *list, const struct peer_ask *ask, struct chunk_ref out[CHUNK_LIST_MAX], size_t *out_n);

#endif
