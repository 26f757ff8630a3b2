/* granary doctor [IMAGE] [DIR]
 *
 *   node -> configuration and caches, DIR -> mounts -> the image and its store
 *
 * Every check runs, whatever the ones before it found. The exit status is 1 if one of them failed.
 */
#include <stdio.h>
#include <string.h>

#include "cli/doctor/doctor.h"
#include "cli/verbs/verbs.h"

enum { OPERANDS_MAX = 2 };

struct doctor_values {
    struct open_access access;
    const char *bundle;
    bool write, json;
};

static const struct doctor_values defaults = {.access.timeout_s = OPEN_LOOKUP_S};

static const struct option_row rows[] = {
    LOOKUP_ROWS(struct doctor_values),
    {OPTION_TEXT, 0, "bundle", "FILE", offsetof(struct doctor_values, bundle), 0, 0,
     "write a .tar.gz for a bug report: findings, settings, status, logs, journal; read it before sending it on"},
    {OPTION_FLAG, 0, "write", NULL, offsetof(struct doctor_values, write), 0, 0,
     "try conditional puts in IMAGE's store: a few small objects below probe/, which are removed"},
    {OPTION_FLAG, 0, "json", NULL, offsetof(struct doctor_values, json), 0, 0, "print one JSON object"},
    {0},
};

/* An operand is the directory that it names, else an image. */
static int cmd_doctor_run(const struct invocation *inv)
{
    const struct doctor_values *v = inv->values;
    struct doctor_report r = {.findings = json_array(), .quiet = v->json};
    const char *images[OPERANDS_MAX];
    size_t count = 0;
    doctor_check_node(&r);
    doctor_check_caches(&r);
    for (size_t i = 0; i < inv->operand_count; i++)
        if (strstr(inv->operands[i], "://") || !doctor_check_directory(&r, inv->operands[i]))
            images[count++] = inv->operands[i];
    doctor_check_mounts(&r);
    for (size_t i = 0; i < count; i++)
        doctor_check_image(&r, images[i], &v->access, v->write);
    if (v->write && !count)
        doctor_add(&r, DOCTOR_FAIL, "store-write", "name an image of the store", "--write needs an IMAGE");
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
    .operands = "[IMAGE] [DIR]",
    .max_operands = OPERANDS_MAX,
    .summary = "Check this node, and that it can read an image",
    .details =
        "Checks kernel, programs, limits, cache directories (with DIR that one, too) and mounts; with IMAGE its "
        "store,\n"
        "too: credentials, ranges, clock, latency, speed. A line is OK, WARN or FAIL and says what to do. Exit 1 if "
        "something failed.\n"
        "Run it as root: modules are loaded as a mount would load them.",
    .options = rows,
    .values_size = sizeof(struct doctor_values),
    .defaults = &defaults,
    .run = cmd_doctor_run,
};
