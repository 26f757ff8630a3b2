/* granary doctor [IMAGE]
 *
 *   node -> configuration and caches -> mounts -> the image and its store
 *
 * Every check runs, whatever the ones before it found. The exit status is 1 if one of them failed.
 */
#include <stdio.h>

#include "cli/doctor/doctor.h"
#include "cli/verbs/verbs.h"

struct doctor_values {
    struct open_access access;
    const char *bundle;
    bool json;
};

static const struct doctor_values defaults = {.access.timeout_s = OPEN_LOOKUP_S};

static const struct option_row rows[] = {
    LOOKUP_ROWS(struct doctor_values),
    {OPTION_TEXT, 0, "bundle", "FILE", offsetof(struct doctor_values, bundle), 0, 0,
     "write a .tar.gz for a bug report: findings, versions, settings, status, metrics, logs; no secrets"},
    {OPTION_FLAG, 0, "json", NULL, offsetof(struct doctor_values, json), 0, 0, "print one JSON object"},
    {0},
};

static int cmd_doctor_run(const struct invocation *inv)
{
    const struct doctor_values *v = inv->values;
    struct doctor_report r = {.findings = json_array(), .quiet = v->json};
    doctor_check_node(&r);
    doctor_check_caches(&r);
    doctor_check_mounts(&r);
    if (inv->operand_count)
        doctor_check_image(&r, inv->operands[0], &v->access);
    int rc = v->bundle ? doctor_bundle(&r, v->bundle) : 0;
    if (!rc && v->json)
        rc = print_json(doctor_json(&r));
    else if (!rc && v->bundle)
        printf("\nbundle: %s\n", v->bundle);
    json_decref(r.findings);
    return rc ? rc : r.counts[DOCTOR_FAIL] ? CLI_FAILED : CLI_DONE;
}

const struct verb verb_doctor = {
    .name = "doctor",
    .operands = "[IMAGE]",
    .max_operands = 1,
    .summary = "Check this node, and that it can read an image",
    .details =
        "Checks kernel, programs, limits, cache directories and mounts; with IMAGE its store, too: credentials,\n"
        "latency, speed. A line is OK, WARN or FAIL and says what to do. Exit 1 if something failed.\n"
        "Run it as root: modules are loaded as a mount would load them.",
    .options = rows,
    .values_size = sizeof(struct doctor_values),
    .defaults = &defaults,
    .run = cmd_doctor_run,
};
