/* Images named by digest, so that a server that starts again serves the same bytes whatever its tags
 * say by then. */
#ifndef GRANARY_CLI_PIN_H
#define GRANARY_CLI_PIN_H

#include "base/vec.h"
#include "cli/server_options.h"
#include "store/resolver.h"

#define PIN_RUN_DIR "/run/granary"
#define PIN_SOCKET PIN_RUN_DIR "/nbd.sock"
#define PIN_CONTROL PIN_SOCKET ".control"

enum { PIN_PATH_MAX = 256 };

struct pin {
    const char *given; /* the operand */
    struct image_ref ref;
    char text[IMAGE_REF_MAX]; /* the same by digest; with its tag if the store confirmed it */
};

/* What resolves the operands of one command: it looks at the tables of exports in the cache
 * directories, whether or not a server owns them. */
struct pinner {
    struct resolver_config config;
    struct resolver *resolver;
    VEC(char *) dirs;
};

/* server: what was given, the default cache where nothing was. In every case pinner_release. 0, -errno or
 * CLI_USAGE. */
GR_MUST_CHECK int pinner_init(struct pinner *p, const struct server_values *server);
void pinner_release(struct pinner *p);
#define CLEANUP_PINNER CLEANUP(pinner_release) struct pinner

/* Resolve the tag of a reference; one by digest is taken as it is, without asking the store. 0,
 * -errno, or CLI_USAGE. */
GR_MUST_CHECK int pin_resolve(struct pinner *p, const char *given, struct pin *out);

#endif
