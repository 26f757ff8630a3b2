/* What was listed of the archive that is being listed: for its hard links, which name a member that came before.
 * Memory: that of two scratches (scratch.h), about 300 bytes a member there, for one archive at a time. One thread.
 */
#ifndef GRANARY_IMAGEBUILD_TAR_MEMBERS_H
#define GRANARY_IMAGEBUILD_TAR_MEMBERS_H

#include "base/cleanup.h"
#include "imagebuild/tree/listing.h"

struct members;

/* dir: for temporary files, as in struct scratch_config; the caller's. */
GR_MUST_CHECK int members_new(const char *dir, struct members **out);
void members_free(struct members *m); /* NULL is allowed */
DEFINE_CLEANUP(members, struct members *, members_free)

/* e, an entry of an archive, is part of the image, its body there. Forgets all of the archive before. */
GR_MUST_CHECK int members_note(struct members *m, const struct source_entry *e, const struct listing_body *body);
/* e is left out for what it is: so are its further names. */
GR_MUST_CHECK int members_note_refused(struct members *m, const struct source_entry *e);
/* 1: *out is the entry that `link` is a further name of, as one of several names, and its body; valid until the next
 * call. 0: it was left out for what it is. -EINVAL: it was not noted; the sentence names both. */
GR_MUST_CHECK int members_find(struct members *m, const struct source_entry *link, struct source_entry *out,
                               struct listing_body *out_body);

#endif
