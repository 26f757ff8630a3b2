/* Checking an image in its store: is everything there, and is it what it must be. */
#ifndef GRANARY_UPKEEP_VERIFY_H
#define GRANARY_UPKEEP_VERIFY_H

#include "format/manifest.h"
#include "store/store.h"

struct verify_options {
    bool deep;        /* read, decode and hash every chunk, and compare every file's digest */
    unsigned threads; /* 0: CHUNK_STREAM_THREADS */
    /* Called for each problem found, with a sentence; may be NULL. */
    void (*problem)(void *arg, const char *sentence);
    /* Called for each pack that is missing, cut short or (deep) has a bad chunk, once or more; may be NULL. One thread
     * at a time. */
    void (*bad_pack)(void *arg, const struct digest *pack);
    /* Deep: after every chunk. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
    const volatile int *cancel; /* may be NULL; -ECANCELED */
};

struct verify_result {
    uint64_t problems; /* 0: the image is sound as far as was looked */
    uint64_t packs, packs_bad;
    uint64_t chunks, holes, chunks_bad; /* deep: chunks read, and those wrong or unreadable */
    uint64_t entries;                   /* of the catalog */
    uint64_t files, files_bad;          /* deep: compared by digest */
    uint64_t bytes;                     /* deep: plain bytes hashed */
};

/* Plain: the index's nodes and content hashes against the manifest, every page of the catalog, and
 * every pack's presence and length. Deep: also every byte. The manifest was verified when it was
 * loaded. 0 when the check ran to its end, whatever it found (out->problems); -errno when it could
 * not (the store fails, -ECANCELED, -ENOMEM). Memory: 48 bytes a pack; deep: chunk_stream.h's, 64 MiB and
 * 56 bytes for each damaged file, beyond that 56 bytes a file in the directory for temporary files. */
GR_MUST_CHECK int verify_image(struct store *s, const struct manifest *m, const struct verify_options *options,
                               struct verify_result *out);

#endif
