/* A stack's images, for tests that remove none while they use it: borrowed. */
#ifndef GRANARY_TESTS_UNIT_EXPORTS_H
#define GRANARY_TESTS_UNIT_EXPORTS_H

#include "stack.h"

/* NULL: there is none of that name. */
static inline struct image *image_named(struct stack *s, const char *name)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = stack_get(s, name);
    return e ? stack_export_image(e) : NULL;
}

/* The i-th, in the order in which they came; NULL: there are fewer. */
static inline struct image *image_at(struct stack *s, size_t i)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = stack_next(s, NULL);
    while (e && i--)
        e = stack_next(s, e);
    return e ? stack_export_image(e) : NULL;
}

#endif
