/* From a reference to its digest and manifest, also while the store cannot be reached: what servers
 * noted beside their cache (format/export_table.h) then stands in for it.
 *
 * A tag is asked of its store, always. Only where a table knows the tag, the store gets RESOLVER_ASK_MS
 * to answer, and when it gives no answer by then the table's digest counts, with one warning. "There is
 * no such tag" and "access denied" are answers. A digest is never asked for, nor a manifest that a table
 * holds. That a store is one of Granary's is asked beside the first question to it, not before.
 *
 * What one process has resolved another is handed as such a table (resolver_hand, `handed`): it has the manifests then
 * without asking. Each is checked against its digest, whoever wrote the table.
 *
 * One thread. Nothing is locked: tables are replaced as a whole.
 */
#ifndef GRANARY_STORE_RESOLVER_H
#define GRANARY_STORE_RESOLVER_H

#include "format/image_ref.h"
#include "format/manifest.h"
#include "store/store.h"

enum { RESOLVER_ASK_MS = 3000, RESOLVER_REQUEST_S = 3 };

struct resolver_config {
    const char *const *dirs; /* cache directories, each with a copy of the table, or none yet */
    size_t dir_count;
    const char *handed;         /* a file by resolver_hand, for manifests alone; NULL, or not there: none */
    struct store_options store; /* for what only the store knows */
    int64_t resolved;           /* when the tags beside digests were resolved, seconds since the epoch; 0: now */
};

struct resolver;

/* Reads the tables; one that is damaged counts as absent, with a warning. No network. config and what
 * it points to must outlive the resolver. -ENOMEM. */
GR_MUST_CHECK int resolver_new(const struct resolver_config *config, struct resolver **out);
void resolver_free(struct resolver *r);
DEFINE_CLEANUP(resolver, struct resolver *, resolver_free)

/* Make *ref one by digest. Its tag stays if the store confirmed it now (or ref was by digest), and goes
 * if only the table knows it. The first question to a store that no table knows checks that it is one of
 * Granary's. Errors are repository_resolve's. */
GR_MUST_CHECK int resolver_resolve(struct resolver *r, struct image_ref *ref);

/* Ask the stores at once, several requests at a time, for what resolver_resolve and, with manifests, resolver_manifest
 * of these references would ask them one after the other. Those then answer from it, failures too. References that the
 * table knows are left to them. -ENOMEM. */
GR_MUST_CHECK int resolver_ahead(struct resolver *r, const struct image_ref *refs, size_t n, bool manifests);

/* The manifest of a reference by digest; it is noted for resolver_save. Errors are
 * repository_manifest's. */
GR_MUST_CHECK int resolver_manifest(struct resolver *r, const struct image_ref *ref, struct manifest *out);

/* Append the table of the images whose manifests were asked for. -ENOMEM. */
GR_MUST_CHECK int resolver_hand(const struct resolver *r, struct bytes *out);

/* Read the tables again: who lives long and adds to a table, when others may have done so, begins with what is there.
 */
void resolver_reread(struct resolver *r);

/* Write the table with the images whose manifests were asked for in front, into every directory, if
 * it changed. For the owner of the directories. What cannot be written is warned of, and not more. */
void resolver_save(struct resolver *r);

#endif
