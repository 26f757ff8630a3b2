/* Members of a status that an older server does not have read as 0 or "?", so that a new client can show an old server.
 *
 * Rates are the difference between two answers. A restart sets the server's counters to 0; the process number in the
 * status shows that it happened. The difference is then taken to 0, over the time since the restart.
 */
#include "cli/servers.h"

#include <errno.h>
#include <string.h>

#include "attach/attach.h"
#include "base/error.h"

uint64_t server_status_counter(json_t *status, const char *name)
{
    return control_number(json_object_get(status, "counters"), name);
}

/* Linear: the list is printed as well, so it is short enough. */
json_t *server_status_export(json_t *status, const char *name)
{
    size_t i;
    json_t *export;
    json_array_foreach(json_object_get(status, "exports"), i, export)
    {
        if (!strcmp(server_status_text(export, "name"), name))
            return export;
    }
    return NULL;
}

const char *server_status_text(json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "?";
}

/* ---- rates ---- */

const char *const server_rate_names[] = {"reads",      "read_bytes", "memory_bytes", "disk_bytes",
                                         "peer_bytes", "l2_bytes",   "store_bytes",  NULL};

/* Whether another process answers now. */
static bool was_restarted(json_t *now, json_t *before)
{
    return control_number(now, "pid") != control_number(before, "pid");
}

/* The rates are added to `now`, in the same form as the server's own. */
void server_rates_add(json_t *now, json_t *before)
{
    bool restarted = was_restarted(now, before);
    json_t *export, *sums = json_object();
    uint64_t ms = control_number(now, "uptime_ms") - (restarted ? 0 : control_number(before, "uptime_ms"));
    double seconds = (double)ms / 1000;
    json_object_set_new(now, "rates", sums);
    for (const char *const *name = server_rate_names; *name; name++)
        json_object_set_new(sums, *name, json_real(0));
    size_t i;
    json_array_foreach(json_object_get(now, "exports"), i, export)
    {
        json_t *rates = json_object();
        json_t *then = restarted ? NULL : server_status_export(before, server_status_text(export, "name"));
        json_object_set_new(export, "rates", rates);
        for (const char *const *name = server_rate_names; *name; name++) {
            uint64_t sum = control_number(export, *name), old = control_number(then, *name);
            double rate = sum > old && seconds > 0 ? (double)(sum - old) / seconds : 0;
            json_object_set_new(rates, *name, json_real(rate));
            json_object_set_new(sums, *name, json_real(json_number_value(json_object_get(sums, *name)) + rate));
        }
    }
}

double server_rate(json_t *object, const char *name)
{
    return json_number_value(json_object_get(json_object_get(object, "rates"), name));
}

/* Return the reads that ended in bucket i between the two answers. */
static uint64_t bucket_reads(json_t *latency, json_t *then, size_t i)
{
    json_int_t n = json_integer_value(json_array_get(json_object_get(latency, "counts"), i));
    json_int_t old = json_integer_value(json_array_get(json_object_get(then, "counts"), i));
    return n > old ? (uint64_t)(n - old) : 0;
}

/* The bucket in which the percentile falls: its upper bound, since the exact times are unknown. */
uint64_t server_latency_us(json_t *now, json_t *before, unsigned percent)
{
    json_t *latency = json_object_get(now, "read_latency");
    json_t *then = was_restarted(now, before) ? NULL : json_object_get(before, "read_latency");
    json_t *bounds = json_object_get(latency, "bounds_us");
    size_t buckets = json_array_size(json_object_get(latency, "counts"));
    uint64_t all = 0, ended = 0;
    for (size_t i = 0; i < buckets; i++)
        all += bucket_reads(latency, then, i);
    for (size_t i = 0; all && i < json_array_size(bounds); i++) {
        ended += bucket_reads(latency, then, i);
        if ((double)ended * 100 >= (double)all * percent)
            return (uint64_t)json_integer_value(json_array_get(bounds, i));
    }
    return all ? UINT64_MAX : 0;
}

/* -1 without traffic: a ratio of nothing. */
double server_hit_percent(json_t *rates_of)
{
    double here = server_rate(rates_of, "memory_bytes") + server_rate(rates_of, "disk_bytes");
    double all = here + server_rate(rates_of, "peer_bytes") + server_rate(rates_of, "l2_bytes") +
                 server_rate(rates_of, "store_bytes");
    return all > 0 ? 100 * here / all : -1;
}
