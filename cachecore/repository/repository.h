/* The images of a store: the store's own document, tags, manifests, objects by content, and ancestry. A thin layer over
 * store.h that caches nothing. Any thread. Besides the errors named here, functions return the store's own. */
#ifndef GRANARY_REPOSITORY_REPOSITORY_H
#define GRANARY_REPOSITORY_REPOSITORY_H

#include "base/vec.h"
#include "format/image_ref.h"
#include "format/manifest.h"
#include "format/object.h"
#include "format/tag.h"
#include "store/store.h"

/* Check granary.json, which marks a directory or prefix as a Granary store, and note its id in s. init: write it if it
 * is absent, as the first step of a build. -ENOENT: this is not a Granary store (without init); -EBADMSG: another
 * format or version. */
GR_MUST_CHECK int repository_check(struct store *s, bool init);

/* Resolve a reference to an image's digest: its own, or its tag's. out_tag (may be NULL) gets the tag, zeroed for a
 * reference by digest. -ENOENT: no such tag; the sentence says how to list them. -EBADMSG: the tag is damaged, or as
 * from repository_check_tag. Reads granary.json if the tag names its store and s has not read it. */
GR_MUST_CHECK int repository_resolve(struct store *s, const struct image_ref *ref, struct digest *out,
                                     struct tag *out_tag);
/* The two halves of resolving a tag, for a caller that reads granary.json and the tag at once. */
GR_MUST_CHECK int repository_read_tag(struct store *s, const char *name, const char *tag, struct tag *out);
/* Check that a tag was published in this store under this name. Without that, a tag copied by other tools would make
 * one image pass for another. Old tags, which name less, are checked for what they name. -EBADMSG: it was published
 * elsewhere. */
GR_MUST_CHECK int repository_check_tag(struct store *s, const char *name, const char *tag, const struct tag *t);
/* The same for many tags. now: what granary.json says now, read at the first tag that names another store than s has
 * noted; starts as all zero. */
struct store_id_now {
    bool read;
    char id[STORE_ID_MAX];
};
GR_MUST_CHECK int repository_check_tag_of(struct store *s, struct store_id_now *now, const char *name, const char *tag,
                                          const struct tag *t);
/* Read the tag that stands beside a digest, and keep it in *out if it names that digest: then its time, parent,
 * signature and provenance are the image's. The digest alone decides what is read, so *out stays as it is, without an
 * error, when the tag has moved, is gone, or none is there. Errors otherwise as from repository_resolve. */
GR_MUST_CHECK int repository_tag_beside(struct store *s, const struct image_ref *ref, struct tag *out);

/* Fetch a manifest, verify its SHA-256 and decode it. -ENOENT: the image is not in the store; -EBADMSG: damaged. */
GR_MUST_CHECK int repository_manifest(struct store *s, const struct digest *image, struct manifest *out);
/* The same, and put its text into *text, replacing the contents and maximum. */
GR_MUST_CHECK int repository_manifest_text(struct store *s, const struct digest *image, struct manifest *out,
                                           struct bytes *text);

/* Publish an image: point images/<name>/<tag> at t. On a store that honours conditional puts this is a
 * compare-and-swap, repeated until it succeeds (-EAGAIN if others replace the tag a thousand times). A put that failed
 * but whose document, recognised by our nonce, is in the store counts as success. On other stores the last writer
 * wins, with a warning if a tag is replaced, or -ENOTSUP if strict. Fills in t->nonce and t->created if they are
 * empty, and always t->name, t->tag and t->store, so name and tag must not point there. A signature that was made for
 * another name or tag is dropped. -EINVAL: a name is not valid. */
GR_MUST_CHECK int repository_publish(struct store *s, const char *name, const char *tag, struct tag *t, bool strict);

/* Publish an image under its build tag, whose name (tag_build_name of t, whose time is set) goes to out_unique, and
 * under `tag`; each gets a nonce of its own. Both or neither, as far as the store allows: if the second put fails, the
 * build tag is removed again, unless it was there before. Errors as those of repository_publish. */
GR_MUST_CHECK int repository_publish_both(struct store *s, const char *name, const char *tag, const struct tag *t,
                                          bool strict, char out_unique[TAG_BUILD_NAME_MAX]);

/* Put a signature into a tag, in place of the one that it has. The tag stays as it is otherwise. -ENOENT: no such tag;
 * -ESTALE: it names another image than `image`; else as repository_publish. */
GR_MUST_CHECK int repository_sign(struct store *s, const char *name, const char *tag, const struct digest *image,
                                  const char *signature);

/* Visit every tag of image `name` (NULL: of every image), in byte order of name and tag. visit runs in the calling
 * thread; its non-zero result ends the walk and is returned. A tag that cannot be decoded ends it with -EBADMSG. Other
 * documents, which are there when a store was made inside this one, are skipped with a warning; a tag copied from
 * another name is visited, with a warning. */
typedef int repository_tag_visit(void *arg, const char *name, const char *tag, const struct tag *t);
GR_MUST_CHECK int repository_tags(struct store *s, const char *name, repository_tag_visit *visit, void *arg);

/* Remove a tag. -ENOENT: no such tag; -EINVAL: a name is not valid. */
GR_MUST_CHECK int repository_remove_tag(struct store *s, const char *name, const char *tag);

/* What is stored under an object's key. An object of the right length is compared by its MD5 if the store reports one,
 * else by its last REPOSITORY_COMPARED bytes. That detects a truncated or replaced object without reading a whole
 * pack. Objects that are no longer than those of an index or a catalog may be are compared as a whole. */
enum { REPOSITORY_COMPARED = 128 << 10 };
enum repository_found { REPOSITORY_ABSENT, REPOSITORY_DAMAGED, REPOSITORY_WHOLE };

/* Read the last REPOSITORY_COMPARED bytes (or all) of an object of `len` bytes into *out, replacing its contents and
 * maximum. */
GR_MUST_CHECK int repository_read_end(struct store *s, const char *key, uint64_t len, struct bytes *out);
/* Set *out to whether an object of this length ends with these n bytes, which repository_read_end read elsewhere.
 * False for an object that is shorter or absent. */
GR_MUST_CHECK int repository_has_end(struct store *s, const char *key, uint64_t len, const void *end, size_t n,
                                     bool *out);

/* Set *out to whether the store's MD5s are the MD5s of its objects, by the example of granary.json. To be called when
 * one differs, since a store that encrypts objects reports something else. False if granary.json is absent. */
GR_MUST_CHECK int repository_says_md5(struct store *s, bool *out);

/* Set *out to what is stored under the key of these bytes. */
GR_MUST_CHECK int repository_look(struct store *s, const char *key, const void *data, size_t len,
                                  enum repository_found *out);

/* Store an immutable object unless it is there already, undamaged; *out_found says what was there before. The key is
 * made from kind and name, the SHA-256 of the data (NULL: computed here). out_name may be NULL. */
GR_MUST_CHECK int repository_put_object(struct store *s, enum object_kind kind, const void *data, size_t len,
                                        const struct digest *name, struct digest *out_name,
                                        enum repository_found *out_found);

/* Read a whole object into *out, replacing its contents, and its maximum by max. The SHA-256 is checked against the
 * name. -ENOENT: absent; -EBADMSG: damaged, or longer than max. */
GR_MUST_CHECK int repository_get_object(struct store *s, enum object_kind kind, const struct digest *name, size_t max,
                                        struct bytes *out);

/* ---- the chain of parents of an image, and the newest image of a name, as its tags record them (lineage.c) ---- */

enum { LINEAGE_MAX = 1000 }; /* steps; several years of daily builds */

/* One ancestor of an image. */
struct lineage_step {
    struct digest image;
    char tag[IMAGE_TAG_MAX + 1]; /* its oldest tag; empty: no tag names it any more, and the chain ends here */
    int64_t created;             /* seconds since the epoch, of that tag */
};

/* A chain of ancestors; starts as all zero. */
struct lineage {
    VEC(struct lineage_step) steps; /* the parent first */
};

void lineage_release(struct lineage *l);
#define CLEANUP_LINEAGE CLEANUP(lineage_release) struct lineage

/* Append the ancestors of `image` to out, the parent first. parent: what the image's tag names, or zero for the one
 * that any of the image's tags names. A build from unchanged sources gives the same image again, which is not a step.
 * Errors are those of repository_tags, including -ENOTSUP or -EACCES for a store that cannot be listed; -ENOMEM. */
GR_MUST_CHECK int lineage_read(struct store *s, const char *name, const struct digest *image,
                               const struct digest *parent, struct lineage *out);

/* Find the newest image of the name that was built from that source (struct tag): the one of the tag with the latest
 * time; within one second, the image that was built upon the others. out_tag gets one of its tags, preferably a
 * signed one, and not a build's. -ENOENT: there is none; *out_other_source then says whether the name has images that
 * are not known to be of that source. Otherwise errors of repository_tags. */
GR_MUST_CHECK int lineage_newest(struct store *s, const char *name, const struct digest *source,
                                 char out_tag[IMAGE_TAG_MAX + 1], struct tag *out, bool *out_other_source);

#endif
