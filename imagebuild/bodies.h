/* Bodies: the files' bytes, read in parallel, handed on in the byte order of the full path.
 *
 * A file up to `part` bytes is one part, a larger one is cut. `jobs` threads read; parts wait in
 * order within a byte budget (`memory`), which is the only bound on how far reading runs ahead. What
 * is held never exceeds the greater of the budget and one part, plus one part while a file is read
 * again. A file of which any part turns out to be another version is read again from its start as
 * that version (its earlier parts were handed on and are dead bytes); after BODY_TRIES versions the
 * build fails. Files that are empty in the listing are not read.
 */
#ifndef GRANARY_IMAGEBUILD_BODIES_H
#define GRANARY_IMAGEBUILD_BODIES_H

#include "imagebuild/source.h"
#include "imagebuild/tree.h"

enum { BODY_PART = 16 << 20, BODY_TRIES = 5 };

struct bodies;

struct bodies_config {
    struct source *source;
    struct tree *tree; /* sealed; sizes, validators and digests of changed files are updated in it */
    unsigned jobs;
    size_t memory;
    size_t part; /* bytes of a part at most; 0: BODY_PART */
    bool strict; /* a changed or vanished file is an error naming it */
};

struct body_part {
    node_id node;
    const uint8_t *data; /* valid until the next call */
    size_t len;
    uint64_t offset;  /* in the file */
    uint64_t size;    /* of the file in this version */
    bool first, last; /* `first` twice for one node: it began again */
};

GR_MUST_CHECK int bodies_start(const struct bodies_config *config, struct bodies **out);
/* The next part: 1, the end: 0, or -errno (and the same from then on). Only regular files with
 * bytes, hard links once. At a file's last part node->content is set (for whole files already at the
 * first). A file may end without a last part: it vanished (it is dropped from the tree), or it is
 * empty in the version that is there now (its node says so). One thread. */
GR_MUST_CHECK int bodies_next(struct bodies *b, struct body_part *out);
/* Any thread. Changed: files of which another version than the listing's was taken. */
uint64_t bodies_changed(const struct bodies *b);
uint64_t bodies_vanished(const struct bodies *b);
uint64_t bodies_read_bytes(const struct bodies *b);
/* At any moment: cancels what the source has running and waits for the readers. NULL is allowed. */
void bodies_free(struct bodies *b);

#endif
