/* Checks an image in its store: whether everything is there and intact. */
#ifndef GRANARY_UPKEEP_VERIFY_H
#define GRANARY_UPKEEP_VERIFY_H

#include "format/manifest.h"
#include "store/store.h"

/* Options of verify_image; all zero is valid. Callbacks get arg. */
struct verify_options {
    bool deep;        /* read, decode and hash every chunk, and compare every file's digest */
    unsigned threads; /* 0: CHUNK_STREAM_THREADS */
    /* Called for each problem with a sentence, by one thread at a time; may be NULL. */
    void (*problem)(void *arg, const char *sentence);
    /* Called for each pack that is missing, truncated or (deep) has a bad chunk, once or more, by one thread at a
     * time; may be NULL. */
    void (*bad_pack)(void *arg, const struct digest *pack);
    /* Deep: called after every chunk from the calling thread, with bytes. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
    const volatile int *cancel; /* set asynchronously: ends with -ECANCELED; may be NULL */
};

/* What was found. */
struct verify_result {
    uint64_t problems; /* 0: no problem in what was checked */
    uint64_t packs, packs_bad;
    uint64_t chunks, holes, chunks_bad; /* deep: chunks read, and those wrong or unreadable */
    uint64_t entries;                   /* catalog entries */
    uint64_t files, files_bad;          /* deep: compared by digest */
    uint64_t bytes;                     /* deep: uncompressed bytes hashed */
};

/* Check an image. Always: the index nodes and content hashes against the manifest, every page of the catalog, and the
 * presence and length of every pack. Deep: also every byte. The caller has verified the manifest by loading it. Return
 * 0 when the check has finished, whatever it found (out->problems), or -errno when it could not (a failing store,
 * -ECANCELED, -ENOMEM). Memory: 48 bytes for each pack; deep: that of chunk_stream.h, 64 MiB and 56 bytes for each
 * damaged file; above that, 56 bytes for each file in the directory for temporary files. */
GR_MUST_CHECK int verify_image(struct store *s, const struct manifest *m, const struct verify_options *options,
                               struct verify_result *out);

#endif
