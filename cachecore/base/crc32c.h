/* CRC-32C (Castagnoli), as in RFC 3720 and erofs: polynomial 0x1EDC6F41 reflected. */
#ifndef GRANARY_BASE_CRC32C_H
#define GRANARY_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The CRC-32C of len bytes. Uses the CPU's instruction where there is one. crc32c("123456789") is
 * 0xE3069283. */
uint32_t crc32c(const void *data, size_t len);

/* Continue a raw register: no inversion before or after, as erofs' superblock checksum wants it
 * (start with ~0). */
uint32_t crc32c_raw(uint32_t reg, const void *data, size_t len);

#endif
