/* One way into a fake store through upload and sink, and bytes to write. */
#ifndef GRANARY_TESTS_UNIT_SINK_WORLD_H
#define GRANARY_TESTS_UNIT_SINK_WORLD_H

#include <stdlib.h>
#include <string.h>

#include "fake/store_fake.h"
#include "imagebuild/sink/sink.h"
#include "unit/cmocka_all.h"

enum { CHUNK = CHUNK_SIZE_MIN, PACK = 300 << 10 };

/* One way into a fake store. */
struct pipeline {
    struct store_fake *store;
    struct upload *upload;
    struct sink *sink;
};

/* `sink` has what is not the same in all tests. */
static inline struct pipeline open_pipeline_as(struct store_fake *store, unsigned uploads, struct sink_config sink)
{
    struct pipeline w = {.store = store};
    struct upload_config upload = {
        .store = store_fake_store(store), .threads = uploads, .memory = uploads * sink.pack_size};
    assert_int_equal(upload_new(&upload, &w.upload), 0);
    sink.upload = w.upload;
    sink.chunk_size = CHUNK;
    sink.zstd_level = 3;
    assert_int_equal(sink_new(&sink, &w.sink), 0);
    return w;
}

static inline struct pipeline open_pipeline_full(struct store_fake *store, unsigned workers, unsigned uploads,
                                                 size_t pack_size, const struct sink_parent *parent,
                                                 uint64_t repack_budget)
{
    return open_pipeline_as(
        store, uploads,
        (struct sink_config){
            .workers = workers, .pack_size = pack_size, .parent = parent, .repack_budget = repack_budget});
}

static inline struct pipeline open_pipeline_upon(struct store_fake *store, unsigned workers, unsigned uploads,
                                                 size_t pack_size, const struct sink_parent *parent)
{
    return open_pipeline_full(store, workers, uploads, pack_size, parent, 0);
}

static inline struct pipeline open_pipeline(struct store_fake *store, unsigned workers, unsigned uploads,
                                            size_t pack_size)
{
    return open_pipeline_upon(store, workers, uploads, pack_size, NULL);
}

static inline void close_pipeline(struct pipeline *w)
{
    sink_free(w->sink);
    upload_free(w->upload);
}

/* Bytes that compress to about half, different at every address. */
static inline void fill(uint8_t *p, uint64_t address, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        uint64_t x = (address + i) * UINT64_C(0x9E3779B97F4A7C15);
        x = (x ^ x >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
        p[i] = (uint8_t)((x >> 40 & 15) + 1);
    }
}

/* Spans written into the image and into a model of it. */
struct model {
    uint8_t *data;
    uint64_t size;
};

static inline void write_span(struct pipeline *w, struct model *m, uint64_t at, size_t len, size_t piece)
{
    fill(m->data + at, at, len);
    for (size_t done = 0; done < len; done += piece)
        assert_int_equal(sink_write(w->sink, SINK_DATA, at + done, m->data + at + done, GR_MIN(piece, len - done)), 0);
}

#endif
