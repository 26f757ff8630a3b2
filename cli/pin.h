/* Images named by digest, so that a server that is restarted serves the same bytes whatever its tags say by then. */
#ifndef GRANARY_CLI_PIN_H
#define GRANARY_CLI_PIN_H

#include "base/vec.h"
#include "cli/server_options.h"
#include "store/resolver.h"

/* An operand, resolved. */
struct pin {
    const char *given; /* the operand */
    struct image_ref ref;
    char text[IMAGE_REF_MAX]; /* the reference by digest, with its tag if the store confirmed that */
};

/* Resolves the operands of one command. It also uses the export tables in the cache directories, whether or not a
 * server runs on them. */
struct pinner {
    struct resolver_config config;
    struct resolver *resolver;
    VEC(char *) dirs;
};

/* Prepare. server: the server's options; without a cache among them, the default cache is used. pinner_release it in
 * any case. Returns 0, -errno, or CLI_USAGE. */
GR_MUST_CHECK int pinner_init(struct pinner *p, const struct server_values *server);
void pinner_release(struct pinner *p);
#define CLEANUP_PINNER CLEANUP(pinner_release) struct pinner

/* Resolve the tag of a reference. A reference by digest is taken as it is, without contacting the store. Returns 0,
 * -errno, or CLI_USAGE. */
GR_MUST_CHECK int pin_resolve(struct pinner *p, const char *given, struct pin *out);

#endif
