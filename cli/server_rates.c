/* After a restart the counters begin at 0 again, which the process id tells. */
#include "cli/server_rates.h"

#include <stdbool.h>

#include "attach/attach.h"
#include "cli/server_status.h"

const char *const server_rate_names[] = {"reads",       "read_bytes", "memory_bytes", "disk_bytes", "tier_bytes",
                                         "store_bytes", NULL};

static double rate_of(json_t *export, json_t *before, const char *name, double seconds)
{
    uint64_t now = control_number(export, name), then = control_number(before, name);
    return now > then && seconds > 0 ? (double)(now - then) / seconds : 0;
}

void server_rates_add(json_t *now, json_t *before)
{
    bool restarted = control_number(now, "pid") != control_number(before, "pid");
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
            double rate = rate_of(export, then, *name, seconds);
            json_object_set_new(rates, *name, json_real(rate));
            json_object_set_new(sums, *name, json_real(json_number_value(json_object_get(sums, *name)) + rate));
        }
    }
}

double server_rate(json_t *object, const char *name)
{
    return json_number_value(json_object_get(json_object_get(object, "rates"), name));
}
