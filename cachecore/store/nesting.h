/* Refuses to create a store inside another one. In such a pair one store's images look like the other's objects, so
 * that neither can be listed or collected any more. It happens when a component of the URL is missing, or one too
 * many. */
#ifndef GRANARY_STORE_NESTING_H
#define GRANARY_STORE_NESTING_H

#include "store/store.h"

/* Check, before anything is written into s for the image `name`, that s is a store or may become one. -EINVAL: there
 * is another store above s (a leading part of its URL), or below it at NAME, images or images/NAME; the sentence names
 * it. If s has a granary.json, no other store is searched for; else each place costs one small request. A parent
 * directory that cannot be read counts as no store. options: those that s was opened with. Other errors are those of
 * s. */
GR_MUST_CHECK int nesting_check(struct store *s, const char *name, const struct store_options *options);

#endif
