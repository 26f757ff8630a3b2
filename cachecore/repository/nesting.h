/* Refuses to create a store inside another one. In such a pair one store's images look like the other's objects, so
 * that neither can be listed or collected any more. It happens when a component of the URL is missing, or one too
 * many. */
#ifndef GRANARY_REPOSITORY_NESTING_H
#define GRANARY_REPOSITORY_NESTING_H

#include "store/store.h"

/* What nesting_check found, for the checks that follow it. All zero: the place may become a store. */
struct nesting {
    const struct store_options *options; /* to open the stores above; outlives this; NULL: the defaults */
    bool is_store;                       /* it was a store already */
};

/* Check, before anything is written into s for the image `name`, that s is a store or may become one. -EINVAL: there
 * is another store above s (a leading part of its URL), or below it at NAME, images or images/NAME; the sentence names
 * it. If s has a granary.json, no other store is searched for; else each place costs one small request. A parent
 * directory that cannot be read counts as no store. options: those that s was opened with. Other errors are those of
 * s. */
GR_MUST_CHECK int nesting_check(struct store *s, const char *name, const struct store_options *options,
                                struct nesting *out);

/* Make s a store, unless it was one: a store that 'granary unnest' has taken apart since nesting_check is not made
 * anew. Errors as those of nesting_check_again and repository_check. */
GR_MUST_CHECK int nesting_enter(struct store *s, const struct nesting *n);

/* Check that s is a store still. A writer does so each time it has written its lease and waited for sweeps, and before
 * it publishes. -ESTALE: it is none any more; the sentence names the store that 'granary unnest' moved its images
 * into. Not -ENOENT, since a lease is renewed within work for which that means a missing object. */
GR_MUST_CHECK int nesting_check_again(struct store *s, const struct nesting *n);

#endif
