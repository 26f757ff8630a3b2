/* A small image written into a fake store by the format's own encoders: what readers are tested on
 * where a build would only be in the way. Every byte is a function of its offset.
 */
#ifndef GRANARY_TESTS_FAKE_IMAGE_FAKE_H
#define GRANARY_TESTS_FAKE_IMAGE_FAKE_H

#include "fake/store_fake.h"
#include "format/catalog.h"
#include "format/manifest.h"

struct image_fake {
    uint64_t seed; /* other seeds, other bytes */
    uint64_t size; /* a multiple of 4096 */
    uint32_t chunk_size;
    uint64_t pack_chunks;             /* chunks a pack; 0: 16 */
    bool (*hole)(uint64_t chunk);     /* NULL: no holes */
    uint64_t (*from)(uint64_t chunk); /* a chunk has the bytes that this number stands for; NULL: its own */
    /* An image as large, whose bytes it has, but for the first eight of each chunk: its chunks are deltas. NULL: none
     */
    const struct image_fake *deltas_of;
    /* The catalog, in order; none: the manifest names one that is not there. */
    const struct catalog_entry *entries;
    size_t entry_count;
    const struct image_fake *upon; /* whose pages those of the catalog are deltas of; NULL: none are */
    const struct digest *content;  /* that the index's root claims for its content; NULL: the true one */

    /* Results. */
    struct digest digest;
    struct manifest manifest;
    struct chunk_ref *refs; /* of every chunk */
};

/* Write packs, index, manifest, granary.json and the tag images/<name>/latest (name NULL: no tag).
 * Aborts when something fails: it is a test's own fault. image_fake_release frees refs. */
void image_fake_put(struct image_fake *img, struct store_fake *store, const char *name);
void image_fake_release(struct image_fake *img);

/* Write everything the fake store holds under a directory, as a file:// store. Aborts likewise. */
void image_fake_save(struct store_fake *store, const char *dir);

/* The image's bytes [off, off+len). */
void image_fake_bytes(const struct image_fake *img, uint64_t off, void *out, size_t len);

#endif
