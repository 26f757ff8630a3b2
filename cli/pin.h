/* Images named by digest, so that a server that starts again serves the same bytes whatever its tags
 * say by then. */
#ifndef GRANARY_CLI_PIN_H
#define GRANARY_CLI_PIN_H

#include "base/compiler.h"
#include "format/image_ref.h"

#define PIN_RUN_DIR "/run/granary"
#define PIN_SOCKET PIN_RUN_DIR "/nbd.sock"
#define PIN_CONTROL PIN_SOCKET ".control"

enum { PIN_TEXT_MAX = IMAGE_STORE_MAX + IMAGE_NAME_MAX + DIGEST_HEX_SIZE + 16, PIN_PATH_MAX = 256 };

struct pin {
    const char *given; /* the operand */
    struct image_ref ref;
    char text[PIN_TEXT_MAX]; /* STORE/NAME@sha256:DIGEST */
};

/* Resolve the tag of a reference; one by digest is taken as it is, without asking the store. 0,
 * -errno, or CLI_USAGE. */
GR_MUST_CHECK int pin_resolve(const char *given, const char *endpoint, struct pin *out);
/* The text for a digest that is known. */
void pin_set(const char *given, const struct image_ref *ref, const struct digest *digest, struct pin *out);

#endif
