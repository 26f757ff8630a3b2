/* Read the data of files in parallel, and deliver it in the byte order of the full paths.
 *
 * A node's plan says where to read: NODE_READ from the source, NODE_MOVE from the parent's image (or, if that cannot be
 * read, from the source, with a warning). Only regular files with bytes are read, each once for all its names.
 *
 * A file of up to `part` bytes is one part; a larger one is cut. `jobs` threads read; finished parts wait in order
 * within a byte budget (`memory`), which alone bounds how far reading runs ahead. Held bytes never exceed the greater
 * of the budget and one part, plus one part while a file is read again.
 *
 * If a part of a file turns out to be of another version, the file is read again from its start in that version. The
 * parts that were delivered before become dead bytes. After CONTENT_TRIES versions the build fails.
 */
#ifndef GRANARY_IMAGEBUILD_CONTENT_CONTENT_READER_H
#define GRANARY_IMAGEBUILD_CONTENT_CONTENT_READER_H

#include "imagebuild/source/source.h"
#include "imagebuild/tree/nodes.h"

/* CONTENT_PART: bytes. */
enum { CONTENT_PART = 16 << 20, CONTENT_TRIES = 5 };

struct content_reader;

/* Sources and nodes are the caller's and outlive the reader. */
struct content_reader_config {
    struct source *source;
    struct source *parent; /* reads NODE_MOVE files by source_read.address; NULL: none are moved */
    const struct nodes *nodes;
    unsigned jobs; /* concurrent reads; 0: find the number that fills the link (read_concurrency.h) */
    size_t memory; /* budget in bytes */
    size_t part;   /* bytes of a part, at most; 0: CONTENT_PART */
    bool strict;   /* a changed or vanished file is an error that names it */
};

/* A piece of a file. data and version are valid until the next call. */
struct content_part {
    uint32_t rank; /* of the file's node */
    const uint8_t *data;
    size_t len;
    uint64_t offset;                      /* in the file */
    uint64_t size;                        /* of the whole file, in this version */
    bool first, last;                     /* `first` comes twice if the file is read again */
    bool vanished;                        /* the file is gone: no bytes, and no further part of it */
    const struct source_version *version; /* the version that was read; NULL: the node's */
    struct digest content;                /* with the last part: of the whole file; zero if it is empty now */
};

/* Return whether content_reader_next delivers this node's bytes. */
bool content_reader_reads(const struct node *n);

/* Start the readers. -ENOMEM; -EAGAIN with a sentence: no thread can be started; errors of the nodes' scratch. */
GR_MUST_CHECK int content_reader_start(const struct content_reader_config *config, struct content_reader **out);
/* Deliver the next part. 1: *out is it; 0: the end; or -errno, and the same from then on. For each node that
 * content_reader_reads, in order: its parts, from a first to a last one; or a single part without bytes, first and
 * last, if the file is empty now; or, instead of the remaining parts, one that is `vanished`. One thread. -ESTALE:
 * the file changed too often, or at all with `strict`; -ENOENT: it vanished, with `strict`; -ENOMEM; others come from
 * the source. */
GR_MUST_CHECK int content_reader_next(struct content_reader *b, struct content_part *out);

struct content_reader_counts {
    uint64_t changed;     /* files that were read in another version than the node's */
    uint64_t vanished;    /* files */
    uint64_t read_bytes;  /* from the source */
    uint64_t moved_bytes; /* from the parent */
    uint64_t unmovable;   /* parts read from the source because the parent could not be read */
};
/* Return the counts so far. Any thread. */
struct content_reader_counts content_reader_counts(struct content_reader *b);
/* Stop at any moment: cancel the sources' reads and wait for the readers. NULL is allowed. */
void content_reader_free(struct content_reader *b);

#endif
