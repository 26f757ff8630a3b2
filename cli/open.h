/* From the words of the command line to stores and images. */
#ifndef GRANARY_CLI_OPEN_H
#define GRANARY_CLI_OPEN_H

#include "format/image_ref.h"
#include "format/manifest.h"
#include "format/tag.h"
#include "store/store.h"

/* How a verb speaks to stores: what its options say. */
struct open_access {
    const char *endpoint; /* NULL: of the environment */
    uint64_t timeout_s;   /* nothing is tried again after so long, nor waited for longer; 0: 5 minutes */
};
void open_store_options(const struct open_access *access, struct store_options *out);

/* An image that a verb works on. */
struct open_image {
    struct image_ref ref;
    struct store *store;
    struct digest digest;
    struct tag tag; /* zero when named by digest */
    struct manifest manifest;
};

/* Parse a reference, open its store, resolve the tag once, load and verify the manifest. 0, a
 * negative errno, or CLI_USAGE for a malformed reference. In every case
 * open_image_release. */
GR_MUST_CHECK int open_image(const char *text, const struct open_access *access, struct open_image *out);
void open_image_release(struct open_image *image);
#define CLEANUP_OPEN_IMAGE CLEANUP(open_image_release) struct open_image

/* Only the reference and its store, checked to be one of Granary's. */
GR_MUST_CHECK int open_image_store(const char *text, const struct open_access *access, struct image_ref *ref,
                                   struct store **out);
/* The same for an operand STORE. */
GR_MUST_CHECK int open_store(const char *text, const struct open_access *access, struct image_ref *ref,
                             struct store **out);

/* CLI_USAGE when the verb is to write into a store that can only be read, whether that answers or not. */
GR_MUST_CHECK int open_check_writable(const struct image_ref *ref);

enum { OPEN_LOOKUP_S = 10 };

/* The rows of every verb that speaks to stores, whose values have a struct open_access `access`: one that has time, and
 * one that somebody waits for, whose defaults say OPEN_LOOKUP_S. */
#define STORE_ROWS(type) OPEN_ENDPOINT_ROW(type), OPEN_TIMEOUT_ROW(type, "5m")
#define LOOKUP_ROWS(type) OPEN_ENDPOINT_ROW(type), OPEN_TIMEOUT_ROW(type, "10s")

#define OPEN_ENDPOINT_ROW(type)                                                                                        \
    {                                                                                                                  \
        OPTION_URL, 0, "endpoint", "URL", offsetof(type, access.endpoint), 0, 0,                                       \
            "S3 server to use (default: AWS_ENDPOINT_URL, then AWS)"                                                   \
    }
#define OPEN_TIMEOUT_ROW(type, usual)                                                                                  \
    {                                                                                                                  \
        OPTION_DURATION, 0, "timeout", "TIME", offsetof(type, access.timeout_s), 0, 0,                                 \
            "give up a request to a store that fails or is silent for so long (default: " usual ")"                    \
    }

#endif
