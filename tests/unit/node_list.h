/* All nodes of a listing in memory, for tests. */
#ifndef GRANARY_TESTS_UNIT_NODE_LIST_H
#define GRANARY_TESTS_UNIT_NODE_LIST_H

#include <string.h>

#include "base/error.h"
#include "base/vec.h"
#include "imagebuild/tree/listing.h"

struct node_list {
    struct listing_stats stats;
    VEC(struct node) nodes; /* in path order; their bytes are owned */
};

static void *node_list_copy(const void *p, size_t len)
{
    char *copy = calloc(1, len + 1);
    assert_non_null(copy);
    if (len)
        memcpy(copy, p, len);
    return copy;
}

static inline void node_list_load(struct node_list *list, const struct nodes *nodes)
{
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *cursor = NULL;
    struct node n;
    int rc;
    assert_int_equal(nodes_cursor_new(nodes, &cursor), 0);
    while ((rc = nodes_next(cursor, &n)) == 1) {
        n.path = node_list_copy(n.path, n.path_len);
        n.name = n.path + n.path_len - n.name_len;
        n.validator = node_list_copy(n.validator, n.validator_len);
        n.target = node_list_copy(n.target, n.target_len);
        n.xattrs = node_list_copy(n.xattrs, n.xattrs_len);
        assert_int_equal(vec_push(&list->nodes, n), 0);
    }
    assert_int_equal(rc, 0);
}

static inline int node_list_add(void *listing, const struct source_entry *e)
{
    return listing_add(listing, e);
}

/* What the source lists. */
static inline struct node_list node_list_of(struct source *s, const struct listing_options *options)
{
    CLEANUP(cleanup_listing) struct listing *listing = NULL;
    CLEANUP(cleanup_nodes) struct nodes *nodes = NULL;
    struct node_list list = {0};
    assert_int_equal(listing_new(options, &listing), 0);
    if (source_list(s, node_list_add, listing) || listing_seal(listing, &nodes))
        fail_msg("%s", error_text());
    list.stats = listing_stats(listing);
    node_list_load(&list, nodes);
    return list;
}

static inline void node_list_free(struct node_list *list)
{
    for (size_t i = 0; i < list->nodes.len; i++) {
        struct node *n = &list->nodes.items[i];
        free((char *)n->path);
        free((char *)n->validator);
        free((char *)n->target);
        free((void *)n->xattrs);
    }
    vec_release(&list->nodes);
}

/* NULL: no such path. */
static inline const struct node *node_list_find(const struct node_list *list, const char *path)
{
    for (size_t i = 0; i < list->nodes.len; i++)
        if (!strcmp(list->nodes.items[i].path, path))
            return &list->nodes.items[i];
    return NULL;
}

static inline const struct node *node_list_must_find(const struct node_list *list, const char *path)
{
    const struct node *n = node_list_find(list, path);
    if (!n)
        fail_msg("not listed: %s", path);
    return n;
}

#endif
