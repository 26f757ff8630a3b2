/* A store inside another one: what one calls its images, the other may call its own objects, so neither can be listed
 * or collected any more. It comes about by a component of the URL that was forgotten, or was one too many.
 */
#ifndef GRANARY_STORE_NESTING_H
#define GRANARY_STORE_NESTING_H

#include "store/store.h"

/* Before anything is written into s for the image `name`: 0 when s is a store already, or may become one. -EINVAL,
 * naming the other store, when one stands above s (its URL's leading part), or below it at NAME, images or images/NAME.
 * Only when s has no granary.json are other stores looked for, with one small get each; what refuses to be looked at
 * counts as none. options: s was opened with them. Other errors are s's own. */
GR_MUST_CHECK int nesting_check(struct store *s, const char *name, const struct store_options *options);

#endif
