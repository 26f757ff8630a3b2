/* Bodies: the files' bytes, read in parallel, handed on in the byte order of the full path.
 *
 * Read is what the plan says: NODE_READ from the source, NODE_MOVE from the parent's image (when that cannot be read,
 * from the source after all, with a warning), both for regular files with bytes and once for all names of a file.
 *
 * A file up to `part` bytes is one part, a larger one is cut. `jobs` threads read; parts wait in order within a byte
 * budget (`memory`), which is the only bound on how far reading runs ahead. What is held never exceeds the greater of
 * the budget and one part, plus one part while a file is read again. A file of which any part turns out to be another
 * version is read again from its start as that version (its earlier parts were handed on and are dead bytes); after
 * CONTENT_TRIES versions the build fails.
 */
#ifndef GRANARY_IMAGEBUILD_CONTENT_CONTENT_READER_H
#define GRANARY_IMAGEBUILD_CONTENT_CONTENT_READER_H

#include "imagebuild/source/source.h"
#include "imagebuild/tree/nodes.h"

enum { CONTENT_PART = 16 << 20, CONTENT_TRIES = 5 };

struct content_reader;

struct content_reader_config {
    struct source *source;
    struct source *parent; /* its read gives bytes of NODE_MOVE files (source_read.address); NULL: there are none */
    const struct nodes *nodes;
    unsigned jobs; /* reads at a time; 0: as many as fill the link (read_concurrency.h) */
    size_t memory;
    size_t part; /* bytes of a part at most; 0: CONTENT_PART */
    bool strict; /* a changed or vanished file is an error naming it */
};

struct content_part {
    uint32_t rank;       /* of the file's node */
    const uint8_t *data; /* like version valid until the next call */
    size_t len;
    uint64_t offset;                      /* in the file */
    uint64_t size;                        /* of the file in this version */
    bool first, last;                     /* `first` twice for one file: it began again */
    bool vanished;                        /* no bytes (any more): the file vanished, nothing follows of it */
    const struct source_version *version; /* another than the node's was taken; NULL: the node's */
    struct digest content;                /* of the whole file, with its last part; zero when it is empty now */
};

/* Will content_reader_next hand on this node's bytes? */
bool content_reader_reads(const struct node *n);

GR_MUST_CHECK int content_reader_start(const struct content_reader_config *config, struct content_reader **out);
/* The next part: 1, the end: 0, or -errno (and the same from then on). For each node that content_reader_reads, in
 * order: its parts from a first to a last one; a single one without bytes (first and last) when the file is empty in
 * the version that is there now; and instead of (further) parts one that is `vanished`. One thread. */
GR_MUST_CHECK int content_reader_next(struct content_reader *b, struct content_part *out);

struct content_reader_counts {
    uint64_t changed;    /* files of which another version than the node's was taken */
    uint64_t vanished;   /* files */
    uint64_t read_bytes; /* from the source */
    uint64_t moved_bytes;
    uint64_t unmovable; /* parts that had to be read from the source instead of the parent */
};
/* Any thread. */
struct content_reader_counts content_reader_counts(struct content_reader *b);
/* At any moment: cancels what the sources have running and waits for the readers. NULL is allowed. */
void content_reader_free(struct content_reader *b);

#endif
