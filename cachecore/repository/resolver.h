/* Resolves references to digests and manifests, also while the store cannot be reached: servers keep a table of what
 * they resolved beside their cache (format/export_table.h), which then stands in for the store.
 *
 * A tag is always requested from its store. If a table knows the tag, the store gets RESOLVER_ASK_MS to answer; after
 * that the table's digest is used, with one warning. "No such tag" and "access denied" are answers. A reference by
 * digest needs no request, and a manifest that a table holds is not fetched. The check that a store is one of
 * Granary's runs in parallel with the first request to it.
 *
 * A process can pass what it resolved to another one as such a table (resolver_hand, `handed`), which saves the other
 * one the requests for manifests. Each manifest is checked against its digest, so a table need not be trusted.
 *
 * With trusted keys, resolver_resolve refuses an image that none of them has signed. A signature is in the tag's
 * document, and in the tables: so an image that was signed when it was resolved can be served again while its store is
 * away, or when its tag names another image. Tables need not be trusted for that either.
 *
 * Used by one thread. No locks: tables are replaced as a whole. */
#ifndef GRANARY_REPOSITORY_RESOLVER_H
#define GRANARY_REPOSITORY_RESOLVER_H

#include "format/image_ref.h"
#include "format/manifest.h"
#include "repository/trust.h"
#include "store/store.h"

/* For a tag that a table knows: the store's time to answer, and the limit for one request in seconds. */
enum { RESOLVER_ASK_MS = 3000, RESOLVER_REQUEST_S = 3 };

/* Borrowed for the life of the resolver. */
struct resolver_config {
    const char *const *dirs; /* cache directories; each may hold a copy of the table */
    size_t dir_count;
    const char *handed; /* a file written from resolver_hand, for manifests and signatures; NULL or absent: none */
    const struct bytes *proof;  /* the same in memory, instead of `handed`; NULL: none */
    struct store_options store; /* options of the stores */
    const struct trust *trust;  /* the keys that are trusted; NULL: signatures are not looked at */
    int64_t resolved; /* when the tags of references by digest were resolved, seconds since the epoch; 0: now */
};

struct resolver;

/* Create a resolver and read the tables. A damaged table counts as absent, with a warning. No network. config and what
 * it points to must outlive the resolver. -ENOMEM. */
GR_MUST_CHECK int resolver_new(const struct resolver_config *config, struct resolver **out);
void resolver_free(struct resolver *r);
DEFINE_CLEANUP(resolver, struct resolver *, resolver_free)

/* Turn *ref into a reference by digest. Its tag is kept if the store confirmed it now (or ref was by digest already),
 * and cleared if only the table knows it. -EKEYREJECTED: no trusted key has signed it. Other errors are those of
 * repository_resolve and repository_check. */
GR_MUST_CHECK int resolver_resolve(struct resolver *r, struct image_ref *ref);

/* Request in parallel what resolver_resolve and, with manifests, resolver_manifest would request for these references
 * one after the other. Those calls then return these results, failures included. References that a table knows are
 * left to them. -ENOMEM. */
GR_MUST_CHECK int resolver_ahead(struct resolver *r, const struct image_ref *refs, size_t n, bool manifests);

/* Get the manifest of a reference by digest, and note it for resolver_save. Errors are those of repository_manifest. */
GR_MUST_CHECK int resolver_manifest(struct resolver *r, const struct image_ref *ref, struct manifest *out);

/* Append to *out the table of all images for which resolver_manifest succeeded. -ENOMEM. */
GR_MUST_CHECK int resolver_hand(const struct resolver *r, struct bytes *out);

/* Read the tables again, before a long-lived process adds to a table that others may have changed. */
void resolver_reread(struct resolver *r);

/* Write the table into every directory, if it changed: first the images that resolver_manifest returned, then those
 * known before. Only for the owner of the directories. A failure to write is logged, and not returned. */
void resolver_save(struct resolver *r);

#endif
