/* Planned nodes in, final nodes out: bodies are read ahead, shared with equal ones, given addresses and written into
 * the sink, in path order; what was read of each file becomes its final node.
 */
#ifndef GRANARY_IMAGEBUILD_CONTENT_CONTENT_WRITER_H
#define GRANARY_IMAGEBUILD_CONTENT_CONTENT_WRITER_H

#include "format/manifest.h"
#include "imagebuild/checkpoint.h"
#include "imagebuild/content/content_reader.h"
#include "imagebuild/fs/fs.h"
#include "imagebuild/rebuild/live_map.h"

struct content_writer_config {
    struct source *source, *parent; /* as in struct content_reader_config */
    const struct nodes *planned;
    const struct live_map *live; /* as in struct alloc_config: NULL when nothing is kept of a parent */
    const struct fs *fs;
    struct sink *sink;
    struct checkpoint *checkpoint; /* left on the way; NULL: none */
    uint64_t written_end;          /* as in struct alloc_config */
    uint32_t chunk_size;
    unsigned jobs;
    size_t memory; /* of bodies read ahead */
    bool strict, keep_special;
    const char *dir; /* for temporary files; as in struct scratch_config */
    /* Called between any two pieces of work with the files and bytes done since the last call; not 0 ends it. */
    int (*step)(void *arg, uint64_t files, uint64_t bytes);
    void *step_arg;
};

struct content_writer_result {
    struct nodes *nodes; /* final, ended, the caller's: without what vanished */
    uint64_t data_end;   /* no body lies at or behind it */
    struct manifest_counts counts;
    struct content_reader_counts read;
    uint64_t dedupe_files, dedupe_bytes; /* read, but shared another's blocks */
};

/* Write all bodies. Memory: those read ahead, the table of dedupe.h, and about 300 bytes and a path for each file of
 * several names. -EFBIG: the filesystem's limit, with a sentence naming it. */
GR_MUST_CHECK int content_writer_run(const struct content_writer_config *config, struct content_writer_result *out);

#endif
