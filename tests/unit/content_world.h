/* A content reader over a fake source, and what it handed on of each path. */
#ifndef GRANARY_TESTS_UNIT_CONTENT_WORLD_H
#define GRANARY_TESTS_UNIT_CONTENT_WORLD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "fake/source_fake.h"
#include "imagebuild/content/content_internal.h"
#include "imagebuild/tree/listing.h"

enum { PART = 1 << 20, MEMORY = 4 * PART };

/* What became of one path. */
struct outcome {
    char path[64];
    uint32_t link;
    uint64_t size; /* as handed on */
    struct digest content;
    bool begun, ended, vanished, other_version;
};

struct setup {
    struct source *source;
    struct nodes *nodes;
    struct content_reader *reader;
    struct source *parent;
    uint32_t ranks;
    struct outcome outcomes[400]; /* by rank */
};

static inline int add(void *arg, const struct source_entry *e)
{
    return listing_add(arg, e);
}

static inline void load(struct setup *s)
{
    CLEANUP(cleanup_listing) struct listing *listing = NULL;
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *cursor = NULL;
    struct listing_options options = {0};
    struct node n;
    int rc;
    assert_int_equal(listing_new(&options, &listing), 0);
    assert_int_equal(source_list(s->source, add, listing), 0);
    assert_int_equal(listing_seal(listing, &s->nodes), 0);
    s->ranks = nodes_rank_end(s->nodes);
    assert_true(s->ranks <= GR_ARRAY_SIZE(s->outcomes));
    assert_int_equal(nodes_cursor_new(s->nodes, &cursor), 0);
    while ((rc = nodes_next(cursor, &n)) == 1) {
        struct outcome *o = &s->outcomes[n.rank];
        *o = (struct outcome){.link = n.link};
        snprintf(o->path, sizeof o->path, "%.*s", (int)n.path_len, n.path);
    }
    assert_int_equal(rc, 0);
}

static inline void start_with(struct setup *s, unsigned jobs, size_t memory, bool strict)
{
    struct content_reader_config config = {.source = s->source,
                                           .parent = s->parent,
                                           .nodes = s->nodes,
                                           .jobs = jobs,
                                           .memory = memory,
                                           .part = PART,
                                           .strict = strict};
    assert_int_equal(content_reader_start(&config, &s->reader), 0);
}

static inline void end(struct setup *s)
{
    content_reader_free(s->reader);
    nodes_free(s->nodes);
    source_close(s->source);
    *s = (struct setup){0};
}

static const struct outcome *of(const struct setup *s, const char *path)
{
    for (uint32_t rank = 0; rank < s->ranks; rank++)
        if (!strcmp(s->outcomes[rank].path, path))
            return &s->outcomes[rank];
    fail_msg("no such path: %s", path);
    return NULL;
}

/* content_reader_next, and what it says of the file. */
static inline int next(struct setup *s, struct content_part *p)
{
    int rc = content_reader_next(s->reader, p);
    if (rc != 1)
        return rc;
    assert_true(p->rank < s->ranks);
    struct outcome *o = &s->outcomes[p->rank];
    assert_false(o->ended);
    assert_true(p->first || o->begun || p->vanished);
    o->begun = true;
    o->vanished = p->vanished;
    o->ended = p->last || p->vanished;
    o->size = p->size;
    o->other_version = p->version;
    if (p->last)
        o->content = p->content;
    if (p->version)
        assert_int_equal(p->version->size, p->size);
    return 1;
}

static inline struct digest digest_of_seed(unsigned seed, uint64_t size)
{
    CLEANUP_FREE uint8_t *data = malloc(size);
    source_fake_bytes(seed, 0, data, size);
    return digest_of(data, size);
}

static inline void assert_content(const struct setup *s, const char *path, unsigned seed, uint64_t size)
{
    struct digest d = digest_of_seed(seed, size);
    assert_true(of(s, path)->ended);
    assert_int_equal(of(s, path)->size, size);
    assert_true(digest_equal(&of(s, path)->content, &d));
}

/* Read until the end or an error, which is returned. */
static inline int drain(struct setup *s, unsigned *out_parts)
{
    struct content_part p;
    int rc;
    *out_parts = 0;
    while ((rc = next(s, &p)) == 1)
        *out_parts += !p.vanished;
    return rc;
}

#endif
