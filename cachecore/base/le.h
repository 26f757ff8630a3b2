/* Read and write little-endian fields of formats in stores and on disk, at any alignment: le32_get(p), le32_put(p, v),
 * and likewise for 16 and 64 bits. memcpy because a cast would break alignment and aliasing rules; compilers make it
 * one instruction.
 */
#ifndef GRANARY_BASE_LE_H
#define GRANARY_BASE_LE_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define LE_DEFINE_(bits)                                                                                               \
    static inline uint##bits##_t le##bits##_get(const void *p)                                                         \
    {                                                                                                                  \
        uint##bits##_t v;                                                                                              \
        memcpy(&v, p, sizeof v);                                                                                       \
        return le##bits##toh(v);                                                                                       \
    }                                                                                                                  \
    static inline void le##bits##_put(void *p, uint##bits##_t v)                                                       \
    {                                                                                                                  \
        v = htole##bits(v);                                                                                            \
        memcpy(p, &v, sizeof v);                                                                                       \
    }

LE_DEFINE_(16)
LE_DEFINE_(32)
LE_DEFINE_(64)

#endif
