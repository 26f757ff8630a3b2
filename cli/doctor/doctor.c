/* The report: lines as checks find them, or a list for JSON. */
#include "cli/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>

#include "format/json_name.h"

static const char *const level_names[] = {[DOCTOR_OK] = "OK", [DOCTOR_WARN] = "WARN", [DOCTOR_FAIL] = "FAIL"};

void doctor_add(struct doctor_report *r, enum doctor_level level, const char *check, const char *remedy,
                const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    r->counts[level]++;
    json_array_append_new(r->findings,
                          json_pack("{s:s,s:s,s:o,s:o}", "level", level_names[level], "check", check, "text",
                                    json_lossy(text), "remedy", remedy ? json_string(remedy) : json_null()));
    if (r->quiet)
        return;
    printf("%-4s  %-13s  %s%s%s\n", level_names[level], check, text, remedy ? ": " : "", remedy ? remedy : "");
    (void)fflush(stdout); /* the next check may take a while; main reports a failed write */
}

json_t *doctor_json(const struct doctor_report *r)
{
    return json_pack("{s:O,s:i,s:i,s:i}", "findings", r->findings, "ok", (int)r->counts[DOCTOR_OK], "warn",
                     (int)r->counts[DOCTOR_WARN], "fail", (int)r->counts[DOCTOR_FAIL]);
}
