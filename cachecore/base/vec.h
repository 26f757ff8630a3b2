/* A typed growable array:
 *
 *   VEC(int) v = {0};
 *   if (vec_push(&v, 3))
 *       return -ENOMEM;
 *   use(v.items[0], v.len);
 *   vec_release(&v);
 *
 * Pointers to items are valid until the next vec_push or vec_reserve.
 */
#ifndef GRANARY_BASE_VEC_H
#define GRANARY_BASE_VEC_H

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"

#define VEC(type)                                                                                                      \
    struct {                                                                                                           \
        type *items;                                                                                                   \
        size_t len;                                                                                                    \
        size_t cap;                                                                                                    \
    }

/* Make room for n more items. 0, or -ENOMEM with its sentence; the array is unchanged then. */
#define vec_reserve(v, n) vec_reserve_((void **)&(v)->items, &(v)->cap, (v)->len + (n), sizeof *(v)->items)

/* Append one item. 0 or -ENOMEM, as vec_reserve. */
#define vec_push(v, item)                                                                                              \
    ({                                                                                                                 \
        int rc_ = vec_reserve((v), 1);                                                                                 \
        if (!rc_)                                                                                                      \
            (v)->items[(v)->len++] = (item);                                                                           \
        rc_;                                                                                                           \
    })

/* Free the items, but nothing that they point to. The array is empty afterwards and may be used again. */
#define vec_release(v)                                                                                                 \
    do {                                                                                                               \
        free((v)->items);                                                                                              \
        memset((v), 0, sizeof *(v));                                                                                   \
    } while (0)

/* Growing by half keeps appends at constant cost on average and wastes less memory than doubling. */
GR_MUST_CHECK static inline int vec_reserve_(void **items, size_t *cap, size_t need, size_t size)
{
    if (*items && need <= *cap)
        return 0;
    size_t fresh_cap = *cap ? *cap + *cap / 2 + 1 : 16;
    if (fresh_cap < need)
        fresh_cap = need;
    void *fresh = reallocarray(*items, fresh_cap, size);
    if (!fresh)
        return error_no_memory();
    *items = fresh;
    *cap = fresh_cap;
    return 0;
}

#endif
