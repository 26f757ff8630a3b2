/* Two sorted tables, users and groups, filled by the options and by the host's answers, so that each name is looked
 * up on the host once. A cluster has few owners, so a binary search over a vector does.
 *
 * The mutex guards the tables. It is not held during a lookup on the host, which may ask an LDAP server. Two threads
 * may then look up the same name at once; the table keeps one of the equal answers.
 */
#include "imagebuild/source/owner_map.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/accounts.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/vec.h"

/* A name and its id. unknown: neither the options nor the host know it; the id is 0. */
struct owner {
    char *name;
    uint32_t id;
    bool unknown;
};

/* Users, or groups. */
struct owner_table {
    VEC(struct owner) owners; /* by name */
    size_t unknown;           /* number of unknown names */
    char first_unknown[64];   /* truncated */
};

struct owner_map {
    pthread_mutex_t mutex;
    struct owner_table users, groups;
};

/* Return the index of the name, or where it must be inserted. */
static size_t place_of(const struct owner_table *t, const char *name, bool *out_found)
{
    size_t low = 0, high = t->owners.len;
    *out_found = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(t->owners.items[middle].name, name);
        *out_found |= !order;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Add a name; one that the table has already keeps its id. When memory is short the name is not added: the next
 * lookup asks the host again. */
static void owner_map_add(struct owner_table *t, const char *name, uint32_t id, bool unknown)
{
    bool found;
    size_t at = place_of(t, name, &found);
    struct owner fresh = {.name = found ? NULL : strdup(name), .id = id, .unknown = unknown};
    if (!fresh.name || vec_push(&t->owners, fresh)) {
        free(fresh.name);
        return;
    }
    memmove(&t->owners.items[at + 1], &t->owners.items[at], (t->owners.len - 1 - at) * sizeof fresh);
    t->owners.items[at] = fresh;
    if (unknown && !t->unknown++)
        memccpy(t->first_unknown, name, 0, sizeof t->first_unknown - 1);
}

/* Add the names of an option. */
static int add_given(struct owner_table *t, const char *option, const char *const *given, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        /* the last '=', since an id has none and a name may */
        const char *equals = strrchr(given[i], '=');
        uint64_t id;
        if (!equals || equals == given[i])
            return error_set(-EINVAL, "%s: '%s' is not NAME=ID", option, given[i]);
        int rc = text_parse_uint(option, equals + 1, 0, UINT32_MAX - 1, &id);
        char *name = rc ? NULL : strndup(given[i], (size_t)(equals - given[i]));
        if (!name)
            return rc ? rc : error_no_memory();
        owner_map_add(t, name, (uint32_t)id, false);
        free(name);
    }
    return 0;
}

int owner_map_new(const char *const *users, size_t user_count, const char *const *groups, size_t group_count,
                  struct owner_map **out)
{
    CLEANUP(cleanup_owner_map) struct owner_map *m = calloc(1, sizeof *m);
    if (!m)
        return error_no_memory();
    pthread_mutex_init(&m->mutex, NULL);
    int rc = add_given(&m->users, "--map-user", users, user_count);
    if (!rc)
        rc = add_given(&m->groups, "--map-group", groups, group_count);
    if (!rc)
        *out = steal_ptr(&m);
    return rc;
}

static void owner_map_table_release(struct owner_table *t)
{
    for (size_t i = 0; i < t->owners.len; i++)
        free(t->owners.items[i].name);
    vec_release(&t->owners);
}

void owner_map_free(struct owner_map *m)
{
    owner_map_table_release(&m->users);
    owner_map_table_release(&m->groups);
    pthread_mutex_destroy(&m->mutex);
    free(m);
}

/* Return the id of a name, from the table or from the host. */
static uint32_t look_up(struct owner_map *m, struct owner_table *t, const char *name,
                        bool (*host)(const char *, uint32_t *))
{
    uint32_t id = 0;
    {
        bool found;
        SCOPED_LOCK(&m->mutex);
        size_t at = place_of(t, name, &found);
        if (found)
            return t->owners.items[at].id;
    }
    bool known = *name && host(name, &id);
    SCOPED_LOCK(&m->mutex);
    owner_map_add(t, name, id, !known);
    return id;
}

uint32_t owner_map_user(struct owner_map *m, const char *name)
{
    return look_up(m, &m->users, name, account_user);
}

uint32_t owner_map_group(struct owner_map *m, const char *name)
{
    return look_up(m, &m->groups, name, account_group);
}

size_t owner_map_unknown(struct owner_map *m)
{
    SCOPED_LOCK(&m->mutex);
    return m->users.unknown + m->groups.unknown;
}

static void owner_map_report_unknown(const struct owner_table *t, const char *source, const char *kind,
                                     const char *option)
{
    if (t->unknown)
        log_warning("source: %s: %s names not known here: %zu, '%s' among them; their id is 0: give %s NAME=ID", source,
                    kind, t->unknown, t->first_unknown, option);
}

void owner_map_report(struct owner_map *m, const char *source)
{
    SCOPED_LOCK(&m->mutex);
    owner_map_report_unknown(&m->users, source, "user", "--map-user");
    owner_map_report_unknown(&m->groups, source, "group", "--map-group");
}
