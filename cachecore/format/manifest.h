/* The manifest: canonical JSON (keys sorted, no white space, integers only); its SHA-256 is the
 * image digest. Holds neither time nor parent, so that equal images have equal digests.
 * docs/reference/format-store.md, "Manifest".
 */
#ifndef GRANARY_FORMAT_MANIFEST_H
#define GRANARY_FORMAT_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "format/index.h"

enum { MANIFEST_MAX = 64 << 10, MANIFEST_VERSION = 1 };

/* The filesystem in the image; manifest.c has the names. */
enum manifest_fs { MANIFEST_EROFS, MANIFEST_EXT4, MANIFEST_FILESYSTEMS };

struct manifest_counts {
    uint64_t files, directories, symlinks, hard_links, others;
    uint64_t bytes; /* sum of the files' sizes, hard links counted once */
};

struct manifest {
    enum manifest_fs fs;
    uint64_t size; /* of the image in bytes, a multiple of 4096 */
    uint32_t chunk_size;
    uint64_t metadata_offset, metadata_len; /* the filesystem's metadata region, to be warmed and pinned */
    uint64_t front_len; /* metadata from address 0 on, beside that region (ext4); 0: none but a superblock */
    unsigned index_levels;
    struct index_child index_root; /* content: the root's content hash */
    struct digest content_root;
    unsigned catalog_levels;           /* 1: the root is a page of entries */
    struct digest catalog_root;        /* object name of the topmost page */
    uint32_t catalog_len, catalog_crc; /* of the topmost page's object */
    uint64_t catalog_entries;
    uint64_t stored_bytes; /* bytes of chunks this image refers to, as stored, each stored chunk
                              counted once a reference */
    struct manifest_counts counts;
};

static inline uint64_t manifest_chunk_count(const struct manifest *m)
{
    return (m->size + m->chunk_size - 1) / m->chunk_size;
}

/* Append the canonical JSON to *out. */
GR_MUST_CHECK int manifest_encode(const struct manifest *m, struct bytes *out);

/* Parse and check every field's range and their agreement (levels against size, content root
 * against its parts). Unknown keys are ignored, a higher version is refused with a sentence.
 * -EBADMSG. Any bytes are safe. */
GR_MUST_CHECK int manifest_decode(const void *data, size_t len, struct manifest *out);

const char *manifest_fs_name(enum manifest_fs fs);

#endif
