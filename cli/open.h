/* From the words of the command line to stores and images. */
#ifndef GRANARY_CLI_OPEN_H
#define GRANARY_CLI_OPEN_H

#include "format/image_ref.h"
#include "format/manifest.h"
#include "format/tag.h"
#include "store/store.h"

/* An image that a verb works on. */
struct open_image {
    struct image_ref ref;
    struct store *store;
    struct digest digest;
    struct tag tag; /* zero when named by digest */
    struct manifest manifest;
};

/* Parse a reference, open its store, resolve the tag once, load and verify the manifest. 0, a
 * negative errno, or CLI_USAGE for a malformed reference. endpoint may be NULL. In every case
 * open_image_release. */
GR_MUST_CHECK int open_image(const char *text, const char *endpoint, struct open_image *out);
void open_image_release(struct open_image *image);
#define CLEANUP_OPEN_IMAGE CLEANUP(open_image_release) struct open_image

/* Only the reference and its store, checked to be one of Granary's. */
GR_MUST_CHECK int open_image_store(const char *text, const char *endpoint, struct image_ref *ref, struct store **out);
/* The same for an operand STORE. */
GR_MUST_CHECK int open_store(const char *text, const char *endpoint, struct image_ref *ref, struct store **out);

/* CLI_USAGE when the verb is to write into a store that can only be read, whether that answers or not. */
GR_MUST_CHECK int open_check_writable(const struct image_ref *ref);

/* The row every verb has that may speak to S3. */
#define ENDPOINT_ROW(type)                                                                                             \
    {                                                                                                                  \
        OPTION_URL, 0, "endpoint", "URL", offsetof(type, endpoint), 0, 0,                                              \
            "S3 server to use (default: AWS_ENDPOINT_URL, then AWS)"                                                   \
    }

#endif
