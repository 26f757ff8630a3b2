/* The report: lines as checks find them, or a list for JSON. */
#include "cli/doctor/doctor.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "attach/attach.h"
#include "base/error.h"
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
                                    json_lossy(text), "remedy", remedy ? json_lossy(remedy) : json_null()));
    if (r->quiet)
        return;
    printf("%-4s  %-13s  %s%s%s\n", level_names[level], check, text, remedy ? ": " : "", remedy ? remedy : "");
    (void)fflush(stdout); /* the next check may take a while; main reports a failed write */
}

/* ---- checks in a child process ---- */

enum { SHARED = 1 << 20 /* bytes for the child's findings */ };

struct child_check {
    int (*check)(struct doctor_report *r, const void *arg);
    const void *arg;
    char *findings; /* shared with the child: the findings as JSON */
};

static int check_in_child(void *arg)
{
    const struct child_check *c = arg;
    struct doctor_report r = {.findings = json_array(), .quiet = true};
    int rc = c->check(&r, c->arg);
    json_dumpb(r.findings, c->findings, SHARED - 1, 0); /* the rest of the memory is zeros */
    return rc;
}

/* Add a finding that the child has made. */
static void take_over(struct doctor_report *r, json_t *finding)
{
    const char *level = json_string_value(json_object_get(finding, "level"));
    size_t i = 0;
    while (level && i < DOCTOR_LEVELS && strcmp(level, level_names[i]) != 0)
        i++;
    if (level && i < DOCTOR_LEVELS)
        doctor_add(r, (enum doctor_level)i, json_string_value(json_object_get(finding, "check")),
                   json_string_value(json_object_get(finding, "remedy")), "%s",
                   json_string_value(json_object_get(finding, "text")));
}

int doctor_within(struct doctor_report *r, int (*check)(struct doctor_report *r, const void *arg), const void *arg,
                  uint64_t ms)
{
    void *shared = mmap(NULL, SHARED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return error_no_memory();
    struct child_check c = {.check = check, .arg = arg, .findings = shared};
    int rc = deadline_call(check_in_child, &c, ms);
    json_t *findings = rc == -ETIMEDOUT ? NULL : json_loads(c.findings, 0, NULL), *finding;
    size_t i;
    json_array_foreach(findings, i, finding)
    {
        take_over(r, finding);
    }
    json_decref(findings);
    munmap(shared, SHARED);
    return rc;
}

json_t *doctor_json(const struct doctor_report *r)
{
    return json_pack("{s:O,s:i,s:i,s:i}", "findings", r->findings, "ok", (int)r->counts[DOCTOR_OK], "warn",
                     (int)r->counts[DOCTOR_WARN], "fail", (int)r->counts[DOCTOR_FAIL]);
}
