/* CRC-32C (Castagnoli), as in RFC 3720 and erofs: the reflected polynomial 0x1EDC6F41. Any thread. */
#ifndef GRANARY_BASE_CRC32C_H
#define GRANARY_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Return the CRC-32C of len bytes; crc32c("123456789", 9) is 0xE3069283. Uses the CPU's instruction if there is one. */
uint32_t crc32c(const void *data, size_t len);

/* Continue the raw register reg over len bytes and return it, without the inversion before and after. erofs defines its
 * superblock checksum that way; start with ~0. */
uint32_t crc32c_raw(uint32_t reg, const void *data, size_t len);

#endif
