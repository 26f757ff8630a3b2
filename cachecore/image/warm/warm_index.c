/* Leaf by leaf, each by the way a read takes to it: inner nodes are few, and come with the first leaf below them. The
 * gets go over connections of their own, which readers find open afterwards.
 */
#include "image/warm/warm_index.h"

#include "base/parallel.h"
#include "image/span.h"

enum { THREADS = 16, MEMORY_SHARE = 2 };

struct index_warming {
    struct image *img;
    int (*step)(void *arg);
    void *arg;
};

static int warm_leaf(void *arg, size_t i)
{
    struct index_warming *w = arg;
    struct span span;
    int rc = span_locate(w->img, i * INDEX_FANOUT, SPAN_KEPT, &span);
    if (!rc)
        node_unref(span.leaf);
    return rc;
}

static int step(void *arg)
{
    struct index_warming *w = arg;
    return w->step(w->arg);
}

int warm_index(struct image *img, int (*on_step)(void *arg), void *arg)
{
    uint64_t leaves = (manifest_chunk_count(&img->manifest) + INDEX_FANOUT - 1) / INDEX_FANOUT;
    if (leaves > node_cache_memory(img->nodes) / MEMORY_SHARE / (INDEX_FANOUT * sizeof(struct chunk_ref)))
        return 0;
    struct index_warming w = {.img = img, .step = on_step, .arg = arg};
    const struct parallel work = {.count = leaves, .threads = THREADS, .item = warm_leaf, .step = step, .arg = &w};
    return parallel_run(&work);
}
