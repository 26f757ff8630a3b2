/* An image replicated from one store into another: the same objects under the same names, so the same digest. What the
 * target has already is not sent, which is also how an interrupted copy goes on.
 *
 * The manifest comes last but for the tags, so that there is no image in the target before it is whole, and a lease
 * keeps a gc there from sweeping meanwhile.
 */
#ifndef GRANARY_UPKEEP_COPY_H
#define GRANARY_UPKEEP_COPY_H

#include "format/tag.h"
#include "store/store.h"

enum { COPY_THREADS = 8, COPY_MEMORY = 256 << 20 };

struct copy_options {
    unsigned threads; /* objects looked at or copied at the same time; 0: COPY_THREADS */
    size_t memory;    /* bytes of objects held at a time, one larger object may exceed it by itself; 0: COPY_MEMORY */
    bool strict_tags; /* as in repository_publish */
    /* From the calling thread, every so often: of what has to be sent. total 0: still being found out. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
    const volatile int *cancel; /* may be NULL; -ECANCELED */
};

/* What the copy is called in the target. */
struct copy_name {
    const char *name, *tag;
    int64_t created;      /* of the tags; 0: now */
    struct digest parent; /* of the tags; zero: none */
};

struct copy_result {
    uint64_t objects, bytes;               /* of the image, without its manifest */
    uint64_t objects_copied, bytes_copied; /* of those: that were not there */
    char unique_tag[TAG_BUILD_NAME_MAX];   /* the build tag put beside the one asked for */
};

/* to may be an empty place: it becomes a store. Every object's bytes are compared with its name on the way. -EBADMSG:
 * something is damaged or missing in `from`; -EAGAIN: a gc took something from `to` meanwhile, run it again. Memory:
 * options->memory, and 56 bytes an object. */
GR_MUST_CHECK int copy_image(struct store *from, const struct digest *image, struct store *to,
                             const struct copy_name *name, const struct copy_options *options, struct copy_result *out);

#endif
