/* The manifest of an image (docs/reference/format-store.md, "Manifest"): canonical JSON with sorted keys, no white
 * space and only integers as numbers. Its SHA-256 is the image's digest. It contains neither a time nor the parent, so
 * that equal images have equal digests. No I/O, any thread.
 */
#ifndef GRANARY_FORMAT_MANIFEST_H
#define GRANARY_FORMAT_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "format/index.h"

/* MANIFEST_MAX: bytes. Version 2 says only that the index has deltas, version 3 that some are split: a program that
 * does not know them refuses the image when it opens it, and not in the middle of a read. */
enum { MANIFEST_MAX = 64 << 10, MANIFEST_VERSION = 3 };

/* The largest erofs image, in bytes, whose block numbers have 32 bits; in a larger one they have 48, which takes Linux
 * 6.15. */
#define MANIFEST_EROFS_32BIT_MAX (((UINT64_C(1) << 32) - 2) * 4096)

/* The filesystem in the image; manifest_fs_name has the names. */
enum manifest_fs { MANIFEST_EROFS, MANIFEST_EXT4, MANIFEST_FILESYSTEMS };

struct manifest_counts {
    uint64_t files, directories, symlinks, hard_links, others;
    uint64_t bytes; /* sum of the files' sizes; a file with several names counts once */
};

struct manifest {
    enum manifest_fs fs;
    uint64_t size;                          /* bytes of the image, a multiple of 4096 */
    uint32_t chunk_size;                    /* bytes; chunk_size_valid */
    uint64_t metadata_offset, metadata_len; /* the filesystem's metadata region, which is warmed and pinned */
    uint64_t front_len; /* bytes of further metadata from address 0 on (ext4); 0: only a superblock */
    unsigned index_levels;
    unsigned deltas; /* of enum chunk_flags: CHUNK_DELTA if leaves of the index may have deltas, and CHUNK_SPLIT too if
                        some may be split */
    struct index_child index_root; /* content: the root's content hash */
    struct digest content_root;
    unsigned catalog_levels;           /* 1: the root is a page of entries */
    struct digest catalog_root;        /* name of the root page's object */
    uint32_t catalog_len, catalog_crc; /* bytes and CRC-32C of that object */
    uint64_t catalog_entries;          /* paths in the catalog */
    uint64_t stored_bytes;             /* bytes, as stored, of all chunks that the image refers to; a chunk that several
                                          places refer to counts once for each */
    struct manifest_counts counts;
};

/* Return the number of chunks, holes included; the last may be shorter than chunk_size. */
static inline uint64_t manifest_chunk_count(const struct manifest *m)
{
    return (m->size + m->chunk_size - 1) / m->chunk_size;
}

/* Append the canonical JSON to *out. -EINVAL: a value that manifest_decode would refuse; -EMSGSIZE: out's maximum is
 * too small; -ENOMEM; all with a sentence. */
GR_MUST_CHECK int manifest_encode(const struct manifest *m, struct bytes *out);

/* Parse a manifest; any bytes are safe. Checks the range of every field and that the fields agree (levels with size,
 * content root with its parts). Ignores unknown keys; refuses a newer version. -EBADMSG with a sentence; *out is
 * unchanged then. */
GR_MUST_CHECK int manifest_decode(const void *data, size_t len, struct manifest *out);

/* Return the filesystem's name as mount(8) knows it: "erofs", "ext4"; "unknown" for any other number. */
const char *manifest_fs_name(enum manifest_fs fs);

/* Return whether the image is erofs with 48-bit block numbers (docs/reference/format-erofs.md, "Above 16 TiB"). */
static inline bool manifest_erofs_48bit(const struct manifest *m)
{
    return m->fs == MANIFEST_EROFS && m->size > MANIFEST_EROFS_32BIT_MAX;
}

/* Return the first release of Linux that mounts the image: "5.4". */
const char *manifest_linux(const struct manifest *m);

/* ---- checkpoints ----
 *
 * builds/<key>.checkpoint: how far an interrupted build came, so that the next one continues from there
 * (docs/reference/format-store.md, "Checkpoints"). The part of the image whose file data is stored is described as an
 * image itself, one without filesystem metadata. */

enum { CHECKPOINT_DOC_MAX = 64 << 10, CHECKPOINT_KEY_MAX = 96 }; /* bytes */

struct checkpoint_doc {
    struct digest key; /* identifies the build; also part of the object's key */
    /* image.size: the address where file data continues, the start of a chunk. image.front_len: the address where file
     * data began. The metadata region is empty and lies at the end; the counts are zero. */
    struct manifest image;
};

/* Append the document to *out. -EINVAL: the image breaks a manifest's rules; -EMSGSIZE, -ENOMEM. */
GR_MUST_CHECK int checkpoint_doc_encode(const struct checkpoint_doc *c, struct bytes *out);
/* Decode a document; any bytes are safe. -EBADMSG or -ENOMEM, with a sentence; *out is unchanged then. */
GR_MUST_CHECK int checkpoint_doc_decode(const void *data, size_t len, struct checkpoint_doc *out);
/* Write the object's key; returns out. */
char *checkpoint_doc_key(const struct digest *key, char out[CHECKPOINT_KEY_MAX]);

#endif
