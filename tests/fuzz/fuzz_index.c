/* An index node that decodes is written again to something that decodes, with the same content. */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "format/index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    CLEANUP(cleanup_index_node) struct index_node *node = NULL;
    CLEANUP(cleanup_index_node) struct index_node *again = NULL;
    int rc = index_decode(data, len, &node);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG);
    if (rc)
        return 0;
    CLEANUP_BYTES object = BYTES_INIT(INDEX_NODE_MAX);
    struct digest before, after;
    FUZZ_CHECK(index_node_content(node, &before) == 0);
    rc = node->level ? index_encode_inner(node->level, node->children, node->count, &object, &after)
                     : index_encode_leaf(node->chunks, node->count, &object, &after);
    FUZZ_CHECK(rc == 0 && !memcmp(&before, &after, sizeof before));
    FUZZ_CHECK(index_decode(object.data, object.len, &again) == 0 && again->count == node->count);
    rc = index_node_check(node, node->level, 0, len * UINT64_C(4096), 64 << 10);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG);
    return 0;
}
