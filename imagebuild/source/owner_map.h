/* Names of users and groups as ids: those given, else this host's databases, else 0. Any thread. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_OWNER_MAP_H
#define GRANARY_IMAGEBUILD_SOURCE_OWNER_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/compiler.h"

struct owner_map;

/* "NAME=ID" each; NAME may hold '='. -EINVAL names the option and what is wrong. */
GR_MUST_CHECK int owner_map_new(const char *const *users, size_t user_count, const char *const *groups,
                                size_t group_count, struct owner_map **out);
void owner_map_free(struct owner_map *m);
DEFINE_CLEANUP(owner_map, struct owner_map *, owner_map_free)

uint32_t owner_map_user(struct owner_map *m, const char *name);
uint32_t owner_map_group(struct owner_map *m, const char *name);

/* How many names nobody knew, so far. */
size_t owner_map_unknown(struct owner_map *m);
/* One warning a kind that says how many names nobody knew and names the first of them. */
void owner_map_report(struct owner_map *m, const char *source);

#endif
