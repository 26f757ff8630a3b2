/* From words of the command line to stores and images. */
#ifndef GRANARY_CLI_OPEN_H
#define GRANARY_CLI_OPEN_H

#include "format/image_ref.h"
#include "format/manifest.h"
#include "format/tag.h"
#include "net/aws/s3_keys.h"
#include "repository/trust.h"
#include "store/store.h"

/* How a verb's options say to access stores. */
struct open_access {
    const char *endpoint; /* S3 server; NULL: environment, then configuration file */
    uint64_t timeout_s;   /* limit of waiting and retries for a request; 0: 5 minutes */
};
void open_store_options(const struct open_access *access, struct store_options *out);

/* An image that a verb works on, opened. */
struct open_image {
    struct image_ref ref;
    struct store *store;
    struct digest digest;
    struct tag tag; /* zero when the image is named by a digest, without a tag that names it too */
    struct manifest manifest;
};

/* Parse a reference, open its store, resolve the tag once, load and verify the manifest. Returns 0, a negative errno,
 * or CLI_USAGE for a malformed reference. open_image_release it in any case. Of NAME:TAG@sha256:DIGEST the tag is read
 * too; that it names another image or is gone is no error. */
GR_MUST_CHECK int open_image(const char *text, const struct open_access *access, struct open_image *out);
/* The same for text that may be a mount point instead: it means the image mounted there, by its digest, in the store
 * from which it was mounted. -EACCES: only root may know what is mounted there. */
GR_MUST_CHECK int open_image_or_mount(const char *text, const struct open_access *access, struct open_image *out);
/* Check that a trusted key has signed the image. A reference by digest must have a tag that named that digest when the
 * image was opened. No keys: 0. -EKEYREJECTED. */
GR_MUST_CHECK int open_check_trust(const struct open_image *image, const struct trust *trust);
void open_image_release(struct open_image *image);
#define CLEANUP_OPEN_IMAGE CLEANUP(open_image_release) struct open_image

/* Parse a reference and open its store, which must be one of Granary's. *out: store_close it. */
GR_MUST_CHECK int open_image_store(const char *text, const struct open_access *access, struct image_ref *ref,
                                   struct store **out);
/* The same for an operand STORE. */
GR_MUST_CHECK int open_store(const char *text, const struct open_access *access, struct image_ref *ref,
                             struct store **out);

/* Return CLI_USAGE if the reference's store is of a kind that can only be read; the store is not contacted. */
GR_MUST_CHECK int open_check_writable(const struct image_ref *ref);

/* Parse the reference of an image to be made: with a tag, in a store that can be written. CLI_USAGE, with a sentence.
 */
GR_MUST_CHECK int open_new_ref(const char *text, struct image_ref *out);
/* Parse the reference of an image whose packs the new image refers to: one of the same store. -EINVAL. */
GR_MUST_CHECK int open_same_store_ref(const char *text, const struct image_ref *made, struct image_ref *out);

enum { OPEN_LOOKUP_S = 10 };

/* The rows of every verb that accesses stores; its values have a struct open_access `access`. LOOKUP_ROWS is for verbs
 * that a user waits for; their defaults set timeout_s to OPEN_LOOKUP_S. */
#define STORE_ROWS(type) OPEN_ENDPOINT_ROW(type), OPEN_TIMEOUT_ROW(type, "5m")
#define LOOKUP_ROWS(type) OPEN_ENDPOINT_ROW(type), OPEN_TIMEOUT_ROW(type, "10s")

/* clang-format off */
#define OPEN_ENDPOINT_ROW(type)                                                                                        \
    {OPTION_URL, 0, "endpoint", "URL", offsetof(type, access.endpoint), 0, 0,                                          \
     "S3 server to use (default: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, then /etc/granary.conf, then AWS)"}
#define OPEN_TIMEOUT_ROW(type, usual)                                                                                  \
    {OPTION_DURATION, 0, "timeout", "TIME", offsetof(type, access.timeout_s), 0, 0,                                    \
     "give up a request to a store that fails or is silent for this long (default: " usual ")"}
/* clang-format on */

/* Put the NAME=VALUE lines of a file (credentials, the S3 server) into the environment, replacing what is there. Blank
 * lines and lines that begin with # or ; are skipped, and quotes around a value are removed. -EINVAL names the file and
 * the line, and never quotes it. */
GR_MUST_CHECK int env_file_load(const char *path);

/* Read a file of S3 keys (s3_keys_parse), which may be a pipe, and check it. *out, empty before, has room for
 * S3_KEYS_TEXT_MAX bytes; bytes_wipe it in any case. The caller drops *out_keys with s3_keys_unref. -EINVAL: it is no
 * such file; no sentence has a value in it. */
GR_MUST_CHECK int keys_file_load(const char *path, struct bytes *out, struct s3_keys **out_keys);

#endif
