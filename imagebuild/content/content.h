/* Turn planned nodes into final ones: read file data ahead, share the blocks of equal files, give addresses, and
 * write the data into the sink, in path order. What was read of each file becomes its final node. One thread calls
 * it.
 */
#ifndef GRANARY_IMAGEBUILD_CONTENT_CONTENT_H
#define GRANARY_IMAGEBUILD_CONTENT_CONTENT_H

#include "format/manifest.h"
#include "imagebuild/checkpoint.h"
#include "imagebuild/content/content_reader.h"
#include "imagebuild/fs/fs.h"
#include "imagebuild/rebuild/live_map.h"

/* All pointers are the caller's. */
struct content_writer_config {
    struct source *source, *parent; /* as in struct content_reader_config */
    const struct nodes *planned;
    const struct live_map *live; /* as in struct alloc_config; NULL: nothing is kept of a parent */
    const struct fs *fs;
    struct sink *sink;
    struct checkpoint *checkpoint; /* written to on the way; NULL: none */
    uint64_t written_end;          /* as in struct alloc_config */
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
    uint64_t data_end;   /* address behind all file data */
    struct manifest_counts counts;
    struct content_reader_counts read;
    uint64_t dedupe_files, dedupe_bytes; /* files read that share an equal file's blocks */
};

/* Write all file data. Memory: that of content_reader.h and dedupe.h, and about 300 bytes and a path for each
 * hard-linked file. -EFBIG: over the filesystem's limit; -ESTALE, -ENOENT: as from content_reader_next; -EBADMSG:
 * bytes do not have the digest that was promised; -EIO: a bug; others come from source, sink and step. All have a
 * sentence. */
GR_MUST_CHECK int content_writer_run(const struct content_writer_config *config, struct content_writer_result *out);

#endif
