/* Ids for the user and group names of a source: those given by options, else those of this host's databases, else 0.
 * Any thread. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_OWNER_MAP_H
#define GRANARY_IMAGEBUILD_SOURCE_OWNER_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/compiler.h"

struct owner_map;

/* Make a map from "NAME=ID" texts; NAME may contain '='. Of two with the same name the first counts. -EINVAL: a text
 * is malformed; the sentence names the option. -ENOMEM. */
GR_MUST_CHECK int owner_map_new(const char *const *users, size_t user_count, const char *const *groups,
                                size_t group_count, struct owner_map **out);
void owner_map_free(struct owner_map *m);
DEFINE_CLEANUP(owner_map, struct owner_map *, owner_map_free)

/* Return the id of a name; 0 if neither the options nor the host know it. May block: the host's databases can be
 * on a server. */
uint32_t owner_map_user(struct owner_map *m, const char *name);
uint32_t owner_map_group(struct owner_map *m, const char *name);

/* Return the number of different names without an id so far. */
size_t owner_map_unknown(struct owner_map *m);
/* Log a warning each for users and for groups with the number of names without an id and the first of them. */
void owner_map_report(struct owner_map *m, const char *source);

#endif
