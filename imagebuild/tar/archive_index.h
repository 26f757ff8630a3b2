/* An index of the members of the current archive listed so far. Hard links in an archive name a member that came before
 * them. Memory: two scratches (scratch.h), about 300 bytes a member, for one archive at a time. One thread. */
#ifndef GRANARY_IMAGEBUILD_TAR_ARCHIVE_INDEX_H
#define GRANARY_IMAGEBUILD_TAR_ARCHIVE_INDEX_H

#include "base/cleanup.h"
#include "imagebuild/tree/listing.h"

struct archive_index;

/* dir: for temporary files, as in struct scratch_config; the caller's. -ENOMEM; errors of scratch_new. */
GR_MUST_CHECK int archive_index_new(const char *dir, struct archive_index **out);
void archive_index_free(struct archive_index *m); /* NULL is allowed */
DEFINE_CLEANUP(archive_index, struct archive_index *, archive_index_free)

/* Note that e, an entry of an archive, is part of the image, and where its data lies. The first entry of another
 * archive makes the index forget the former one. Errors of the scratch. */
GR_MUST_CHECK int archive_index_note(struct archive_index *m, const struct source_entry *e,
                                     const struct listing_written *content);
/* Note that e was left out, and so will be its further names. Errors of the scratch. */
GR_MUST_CHECK int archive_index_note_refused(struct archive_index *m, const struct source_entry *e);
/* Find the entry that `link` is a further name of. 1: *out is it, with the identity of a file with several names, and
 * *out_written its data; valid until the next call. 0: it was left out. -EINVAL: it was never noted; the sentence
 * names both. Others come from the scratch. */
GR_MUST_CHECK int archive_index_find(struct archive_index *m, const struct source_entry *link, struct source_entry *out,
                                     struct listing_written *out_written);

#endif
