#include "cli/server_options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/rate.h"
#include "cache/evict.h"
#include "format/cache_spec.h"
#include "net/listen.h"

static const struct option_row rows[] = {SERVER_ROWS, {0}};

static const void *value_of(const struct server_values *v, const struct option_row *row)
{
    return (const char *)v + row->offset;
}

static size_t count_of(const struct server_values *v, const struct option_row *row)
{
    switch (row->kind) {
    case OPTION_FLAG:
        return *(const bool *)value_of(v, row);
    case OPTION_LIST:
        return ((const struct option_list *)value_of(v, row))->count;
    default:
        return *(const char *const *)value_of(v, row) != NULL;
    }
}

const char *server_options_given(const struct server_values *v)
{
    for (const struct option_row *row = rows; row->kind; row++)
        if (row->offset != offsetof(struct server_values, endpoint) && count_of(v, row))
            return row->name;
    return NULL;
}

/* ---- checks ---- */

static int check_lists(const struct server_values *v)
{
    size_t name_len;
    uint64_t size;
    int rc = 0;
    for (size_t i = 0; !rc && i < v->quotas.count; i++)
        rc = quota_spec_parse("--quota ", v->quotas.items[i], &name_len, &size);
    for (size_t i = 0; !rc && i < v->tiers.count; i++)
        rc = tier_spec_check("--l2 ", v->tiers.items[i]);
    return rc;
}

static int check_words(const struct server_values *v)
{
    uint64_t size; /* or milliseconds */
    uint32_t ms;
    unsigned high, low, connections;
    enum evict_policy policy;
    bool on;
    int rc = v->eviction ? evict_policy_parse(v->eviction, &policy) : 0;
    if (!rc && v->memory)
        rc = memory_spec_parse("--memory ", v->memory, &size);
    if (!rc && v->watermark)
        rc = watermark_spec_parse("--watermark ", v->watermark, &high, &low);
    if (!rc && v->disk_timeout)
        rc = disk_timeout_spec_parse("--disk-timeout ", v->disk_timeout, &ms);
    if (!rc && v->bwlimit)
        rc = rate_parse("--bwlimit", v->bwlimit, &size);
    if (!rc && v->timeout)
        rc = timeout_spec_parse("--timeout ", v->timeout, &size);
    if (!rc && v->slow_read)
        rc = slow_read_spec_parse("--slow-read ", v->slow_read, &size);
    if (!rc && v->readahead)
        rc = readahead_spec_parse("--readahead ", v->readahead, &size);
    if (!rc && v->fill)
        rc = fill_spec_parse("--fill ", v->fill, &on);
    if (!rc && v->hedge)
        rc = hedge_spec_parse("--hedge ", v->hedge, &high);
    if (!rc && v->store_connections)
        rc = connections_spec_parse("--store-connections ", v->store_connections, &connections);
    if (!rc && v->fence)
        rc = fence_spec_parse("--fence ", v->fence, &on);
    if (!rc && v->warm)
        rc = warm_spec_parse("--warm ", v->warm, &on);
    if (!rc && v->metrics && (rc = listen_tcp_check(v->metrics)))
        (void)error_prefix(rc, "--metrics");
    return rc ? rc : check_lists(v);
}

int server_options_check(const struct server_values *v)
{
    const char *of_cache = v->quotas.count       ? "quota"
                           : v->watermark        ? "watermark"
                           : v->disk_timeout     ? "disk-timeout"
                           : v->eviction         ? "eviction"
                           : v->cache_compressed ? "cache-compressed"
                                                 : NULL;
    if (v->fence && !v->caches.count && !v->memory) {
        (void)error_set(0, "--fence needs --cache DIR:SIZE or --memory SIZE: nothing else can be read");
        return CLI_USAGE;
    }
    if (of_cache && !v->caches.count) {
        (void)error_set(0, "--%s needs --cache DIR:SIZE", of_cache);
        return CLI_USAGE;
    }
    return check_words(v) ? CLI_USAGE : 0;
}

/* ---- words ---- */

void server_words_release(server_words *words)
{
    for (size_t i = 0; i < words->len; i++)
        free(words->items[i]);
    vec_release(words);
}

static const char *parameter_of(const struct option_row *row)
{
    return row->offset == offsetof(struct server_values, store_connections) ? "connections" : row->name;
}

static int add_word(server_words *out, enum server_form form, const struct option_row *row, const char *value)
{
    char *word = NULL;
    int len = form == SERVER_FOR_NBDKIT ? asprintf(&word, "%s=%s", parameter_of(row), value ? value : "yes")
                                        : asprintf(&word, "--%s%s%s", row->name, value ? "=" : "", value ? value : "");
    if (len >= 0 && !vec_push(out, word))
        return 0;
    if (len >= 0)
        free(word);
    return error_set(-ENOMEM, "out of memory");
}

int server_options_words(const struct server_values *v, enum server_form form, server_words *out)
{
    int rc = 0;
    for (const struct option_row *row = rows; row->kind; row++)
        for (size_t i = 0; !rc && i < count_of(v, row); i++) {
            const void *value = value_of(v, row);
            const char *text = row->kind == OPTION_FLAG   ? NULL
                               : row->kind == OPTION_LIST ? ((const struct option_list *)value)->items[i]
                                                          : *(const char *const *)value;
            rc = add_word(out, form, row, text);
        }
    return rc;
}
