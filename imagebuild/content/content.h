/* File data, from the source into the image. There are two writers: content_writer_run reads the listed files in path
 * order; a content stream takes data that comes with the listing. Both store equal files once, and take addresses from
 * placement.c. */
#ifndef GRANARY_IMAGEBUILD_CONTENT_CONTENT_H
#define GRANARY_IMAGEBUILD_CONTENT_CONTENT_H

#include "format/manifest.h"
#include "imagebuild/checkpoint.h"
#include "imagebuild/fs/fs.h"
#include "imagebuild/rebuild/live_map.h"
#include "imagebuild/source/source.h"
#include "imagebuild/tree/listing.h"
#include "imagebuild/tree/nodes.h"

/* ---- reading (content_reader.c) ---- */

/* Read file data in parallel, and deliver it sorted by full path, byte by byte.
 *
 * A node's plan says where to read: NODE_READ from the source, NODE_MOVE from the parent's image (or, if that cannot be
 * read, from the source, with a warning). Only regular files with bytes are read, each once for all its names.
 *
 * Files of more than `part` bytes are cut into parts of that size. `jobs` threads read; finished parts wait in order
 * within a byte budget (`memory`), which alone bounds how far reading runs ahead. Held bytes never exceed the greater
 * of the budget and one part, plus one part while a file is read again. Of a near source (source.h) less is held, and
 * files that are cut come in shorter parts.
 *
 * If a part of a file turns out to be of another version, the file is read again from its start in that version. The
 * parts that were delivered before become dead bytes. After CONTENT_TRIES versions the build fails. */

/* CONTENT_PART: bytes. */
enum { CONTENT_PART = 16 << 20, CONTENT_TRIES = 5 };

struct content_reader;

/* Sources and nodes are the caller's and outlive the reader. */
struct content_reader_config {
    struct source *source;
    struct source *parent; /* reads NODE_MOVE files by source_read.address; NULL: none are moved */
    const struct nodes *nodes;
    unsigned jobs; /* concurrent reads; 0: find the number that fills the link (read_concurrency.c) */
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

/* ---- writing in path order (content_writer.c) ---- */

/* Return how many bytes the gaps may take that are left between files, so that these touch no more chunks than their
 * sizes need (placement.c): a chunk, and an eighth of the files' bytes, each file rounded up to LIVE_BLOCK. After a
 * checkpoint another chunk. */
uint64_t content_gaps_most(uint64_t bytes, uint32_t chunk_size);

/* Turn planned nodes into final ones: read file data ahead, share the blocks of equal files, give addresses, and
 * write the data into the sink, in path order. What was read of each file becomes its final node. One thread calls
 * it.
 */

/* All pointers are the caller's. */
struct content_writer_config {
    struct source *source, *parent; /* as in struct content_reader_config */
    const struct nodes *planned;
    const struct live_map *live; /* as in struct alloc_config; NULL: nothing is kept of a parent */
    const struct fs *fs;
    struct sink *sink;
    struct checkpoint *checkpoint; /* written to on the way; NULL: none */
    uint64_t written_end;          /* as in struct alloc_config */
    bool gaps;                     /* as in struct alloc_config */
    uint32_t chunk_size;
    unsigned jobs; /* as in struct content_reader_config */
    size_t memory; /* bytes of file data read ahead */
    bool strict, keep_special;
    const char *dir; /* for temporary files; as in struct scratch_config */
    /* Called between any two pieces of work, with the files and bytes done since the last call; non-zero ends the
     * run. */
    int (*step)(void *arg, uint64_t files, uint64_t bytes);
    void *step_arg;
};

struct content_writer_result {
    struct nodes *nodes; /* final nodes, ended, without vanished files; the caller's */
    uint64_t data_end;   /* address after all file data */
    struct manifest_counts counts;
    struct content_reader_counts read;
    uint64_t dedupe_files, dedupe_bytes; /* files read that share an equal file's blocks */
};

/* Write all file data. Memory: that of the reader, 12 MiB to find equal files, and about 300 bytes and a path for each
 * hard-linked file. -EFBIG: over the filesystem's limit; -ESTALE, -ENOENT: as from content_reader_next; -EBADMSG:
 * bytes do not have the digest that was promised; -EIO: a bug; others come from source, sink and step. All have a
 * sentence. */
GR_MUST_CHECK int content_writer_run(const struct content_writer_config *config, struct content_writer_result *out);

/* ---- writing while the source is listed (content_stream.c) ---- */

/* Write file data that comes with the listing (source_entry.content). Each file is written when it comes, at the next
 * address (placement.c), or shares the blocks of an equal one. One thread. */

/* All pointers are the caller's. */
struct content_stream_config {
    struct sink *sink;
    const struct fs *fs;
    uint32_t chunk_size;
    const struct live_map *live; /* what may be kept of a parent; NULL: nothing */
    bool gaps;                   /* as in struct alloc_config */
    /* Called between any two pieces of work with the bytes done since the last call; non-zero ends it. files is 0. */
    int (*step)(void *arg, uint64_t files, uint64_t bytes);
    void *step_arg;
};

struct content_stream_counts {
    uint64_t bytes, dedupe_files, dedupe_bytes; /* taken; part of that: shared an equal file's blocks */
};

struct content_stream;

/* -ENOMEM. */
GR_MUST_CHECK int content_stream_new(const struct content_stream_config *config, struct content_stream **out);
void content_stream_free(struct content_stream *s); /* NULL is allowed */
/* Take the data of entry e into *out (address 0: it is empty). -EBADMSG: there are not as many bytes as e says;
 * -EFBIG: the filesystem's limit; others come from the source, the sink and step. */
GR_MUST_CHECK int content_stream_take(struct content_stream *s, const struct source_entry *e,
                                      struct listing_written *out);
/* Return the address after all data written and all that may be kept; 0: nothing was written. */
uint64_t content_stream_end(const struct content_stream *s);
struct content_stream_counts content_stream_counts(const struct content_stream *s);

#endif
