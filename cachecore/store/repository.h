/* What a store holds, as images: manifests, tags, the store's own document. Sits on store.h; no
 * caching. */
#ifndef GRANARY_STORE_REPOSITORY_H
#define GRANARY_STORE_REPOSITORY_H

#include "format/image_ref.h"
#include "format/manifest.h"
#include "format/object.h"
#include "format/tag.h"
#include "store/store.h"

/* Check granary.json. init: write it where it is absent (a build's first step). -EBADMSG: another
 * format or version; -ENOENT: not a Granary store (and !init). */
GR_MUST_CHECK int repository_check(struct store *s, bool init);

/* The digest a reference names: its own, or its tag's (out_tag may be NULL; zeroed for a digest
 * reference). -ENOENT: a sentence that names image and tag and says how to list them. -EBADMSG: among others, a tag
 * that was put under another name and copied there. */
GR_MUST_CHECK int repository_resolve(struct store *s, const struct image_ref *ref, struct digest *out,
                                     struct tag *out_tag);

/* Fetch, verify (SHA-256 == digest) and decode a manifest. */
GR_MUST_CHECK int repository_manifest(struct store *s, const struct digest *image, struct manifest *out);
/* The same, and its text, which replaces *text's contents (and maximum). */
GR_MUST_CHECK int repository_manifest_text(struct store *s, const struct digest *image, struct manifest *out,
                                           struct bytes *text);

/* Publish: point images/<name>/<tag> at t. Where the store honours conditions this is a
 * compare-and-swap against what is there now, repeated until it holds; an -EEXIST whose document
 * carries our nonce is success, and so is any failed put that did arrive. Where it does not: last
 * writer wins, with a warning when a tag is replaced, or -ENOTSUP when strict. t->nonce and t->created are filled in
 * here when empty, t->name and t->tag always (so name and tag must not be those). */
GR_MUST_CHECK int repository_publish(struct store *s, const char *name, const char *tag, struct tag *t, bool strict);

/* Visit every tag (name NULL: of every image) in byte order of name, tag. A tag that cannot be
 * decoded ends the walk with -EBADMSG, visit's non-zero result too. A document of another kind, as a store inside this
 * one has there, is passed over with a warning; a tag that was copied from another name is visited with one. */
typedef int repository_tag_visit(void *arg, const char *name, const char *tag, const struct tag *t);
GR_MUST_CHECK int repository_tags(struct store *s, const char *name, repository_tag_visit *visit, void *arg);

/* -ENOENT: no such tag. */
GR_MUST_CHECK int repository_remove_tag(struct store *s, const char *name, const char *tag);

/* What stands under an object's key. It is compared by its length and its MD5, where the store says that, else by its
 * last REPOSITORY_COMPARED bytes, which tells one that was cut short, or replaced, without reading a pack. */
enum { REPOSITORY_COMPARED = 128 << 10 };
enum repository_found { REPOSITORY_ABSENT, REPOSITORY_DAMAGED, REPOSITORY_WHOLE };

/* The last REPOSITORY_COMPARED bytes (or all) of an object that is len long, in the place of *out's contents and
 * maximum. */
GR_MUST_CHECK int repository_read_end(struct store *s, const char *key, uint64_t len, struct bytes *out);
/* Does an object of this length end with these n bytes, as repository_read_end gave them? One that is shorter, or not
 * there, does not. */
GR_MUST_CHECK int repository_has_end(struct store *s, const char *key, uint64_t len, const void *end, size_t n,
                                     bool *out);

/* Are the MD5s that the store says of its objects what they look like? It is asked of granary.json, for whoever found
 * one that differs. */
GR_MUST_CHECK int repository_says_md5(struct store *s, bool *out);

/* Look for the object of these bytes. */
GR_MUST_CHECK int repository_look(struct store *s, const char *key, const void *data, size_t len,
                                  enum repository_found *out);

/* Put an immutable object unless it is there, whole; *out_found says what was there before. The key is made from kind
 * and the SHA-256, computed here when name is NULL; out_name may be NULL. */
GR_MUST_CHECK int repository_put_object(struct store *s, enum object_kind kind, const void *data, size_t len,
                                        const struct digest *name, struct digest *out_name,
                                        enum repository_found *out_found);

/* Replace *out's contents (and its maximum, by max) with a whole object, its SHA-256 checked
 * against its name. -EBADMSG: damaged, or longer than max. */
GR_MUST_CHECK int repository_get_object(struct store *s, enum object_kind kind, const struct digest *name, size_t max,
                                        struct bytes *out);

#endif
