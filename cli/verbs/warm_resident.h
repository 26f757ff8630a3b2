/* granary warm --resident. */
#ifndef GRANARY_CLI_VERBS_WARM_RESIDENT_H
#define GRANARY_CLI_VERBS_WARM_RESIDENT_H

#include <stdbool.h>

#include "base/compiler.h"

struct warm_resident {
    const char *control;         /* the server's control socket */
    const char *export, *digest; /* the export by its name, its image or both; NULL: the only one */
    bool quiet, json;
};

/* Have the server write the whole image of an export beside its cache, and print its progress and the result. The
 * errors of the server, in its words. */
GR_MUST_CHECK int warm_resident(const struct warm_resident *w);

#endif
