/* Copies an image from one store into another: the same objects under the same names, so the digest is the same.
 * Objects that the target has already are not sent, so an interrupted copy continues when it is run again.
 *
 * The manifest is put last before the tags, so the target never has an incomplete image, and a lease keeps a gc there
 * from sweeping meanwhile. */
#ifndef GRANARY_UPKEEP_COPY_H
#define GRANARY_UPKEEP_COPY_H

#include "format/tag.h"
#include "repository/nesting.h"
#include "store/store.h"

enum { COPY_THREADS = 8, COPY_MEMORY = 256 << 20 };

/* Options of copy_image; all zero is valid. */
struct copy_options {
    struct nesting place; /* what nesting_check found about `to`; all zero: it is made a store if it is none */
    unsigned threads;     /* threads that compare and copy objects; 0: COPY_THREADS */
    size_t memory;        /* bytes of objects in memory, which one larger object may exceed alone; 0: COPY_MEMORY */
    bool strict_tags;     /* as in repository_publish */
    /* Called now and then from the calling thread: bytes sent and to send; total 0: not known yet. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
    const volatile int *cancel; /* set asynchronously: ends with -ECANCELED; may be NULL */
};

/* The copy's name in the target. */
struct copy_name {
    const char *name, *tag;
    int64_t created;      /* of the tags, seconds since the epoch; 0: now */
    struct digest parent; /* recorded in the tags; zero: none */
};

/* What was copied. */
struct copy_result {
    uint64_t objects, bytes;               /* all objects of the image, without its manifest */
    uint64_t objects_copied, bytes_copied; /* of those: not in the target before */
    char unique_tag[TAG_BUILD_NAME_MAX];   /* the build tag that was put next to the requested one */
};

/* Copy an image. `to` may be an empty place, which becomes a store. Every object's bytes are checked against its name
 * on the way. -EBADMSG: something is damaged or missing in `from`; -EAGAIN: a gc removed something from `to`
 * meanwhile, run it again; -ENOTSUP: strict_tags, and `to` does not honour conditional puts; -ECANCELED; else the
 * errors of the stores and of lease_begin. Memory: options->memory, and 56 bytes for each object. */
GR_MUST_CHECK int copy_image(struct store *from, const struct digest *image, struct store *to,
                             const struct copy_name *name, const struct copy_options *options, struct copy_result *out);

#endif
