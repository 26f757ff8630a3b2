/* What was listed of the archive that is being listed: for its hard links, which name a member that came before.
 * Memory: that of two scratches (scratch.h), about 300 bytes a member there, for one archive at a time. One thread.
 */
#ifndef GRANARY_IMAGEBUILD_TAR_ARCHIVE_INDEX_H
#define GRANARY_IMAGEBUILD_TAR_ARCHIVE_INDEX_H

#include "base/cleanup.h"
#include "imagebuild/tree/listing.h"

struct archive_index;

/* dir: for temporary files, as in struct scratch_config; the caller's. */
GR_MUST_CHECK int archive_index_new(const char *dir, struct archive_index **out);
void archive_index_free(struct archive_index *m); /* NULL is allowed */
DEFINE_CLEANUP(archive_index, struct archive_index *, archive_index_free)

/* e, an entry of an archive, is part of the image, its body there. Forgets all of the archive before. */
GR_MUST_CHECK int archive_index_note(struct archive_index *m, const struct source_entry *e,
                                     const struct listing_written *content);
/* e is left out for what it is: so are its further names. */
GR_MUST_CHECK int archive_index_note_refused(struct archive_index *m, const struct source_entry *e);
/* 1: *out is the entry that `link` is a further name of, as one of several names, and its body; valid until the next
 * call. 0: it was left out for what it is. -EINVAL: it was not noted; the sentence names both. */
GR_MUST_CHECK int archive_index_find(struct archive_index *m, const struct source_entry *link, struct source_entry *out,
                                     struct listing_written *out_written);

#endif
