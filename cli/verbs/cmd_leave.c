/* granary leave [TARGET]: tells a node that it leaves the cluster, and waits until the others have asked it for what
 * they take over. It does not stop the server: it may change its mind by a restart.
 *
 * Nobody knows when the others have all they want. What is known is when they have not asked for QUIET_S seconds, or
 * for all of a shorter wait. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "attach/attach.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/servers.h"
#include "cli/verbs/verbs.h"

enum { WAIT_S = 300, QUIET_S = 10, LOOK_MS = 1000 };

struct leave_values {
    uint64_t wait_s;
    bool json;
};

static const struct leave_values defaults = {.wait_s = WAIT_S};

#define AT(field) offsetof(struct leave_values, field), 0, 0

static const struct option_row rows[] = {
    {OPTION_DURATION, 0, "wait", "TIME", AT(wait_s), "wait for the others at most this long (default 5m)"},
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print one JSON object"},
    {0},
};

/* Wait until the server, which has answered `served` requests, answers none for a while, or the time is over: then
 * *out_quiet is false. *out: its last status; json_decref it. */
static int wait_for_others(const char *control, uint64_t wait_s, uint64_t served, json_t **out, bool *out_quiet)
{
    uint64_t end = clock_now_ms() + wait_s * 1000, quiet_since = clock_now_ms(), now;
    const uint64_t quiet_ms = GR_MIN(wait_s, (uint64_t)QUIET_S) * 1000;
    for (;;) {
        json_decref(*out);
        *out = NULL;
        int rc = control_status(control, out);
        if (rc)
            return rc;
        now = clock_now_ms();
        const uint64_t total = server_status_counter(*out, "granary_peer_served_total");
        if (total != served)
            quiet_since = now;
        served = total;
        *out_quiet = now - quiet_since >= quiet_ms;
        if (*out_quiet || now >= end || interrupt_came())
            return cancel_check(interrupt_flag());
        interrupt_pause_until(GR_MIN(now + LOOK_MS, end));
    }
}

/* bytes: all that the node sent the others meanwhile, ordinary answers included. */
static int print_left(const struct leave_values *v, uint64_t bytes, bool quiet)
{
    char size[TEXT_SIZE_MAX];
    int rc = 0;
    text_format_size(bytes, size);
    if (v->json)
        rc = print_json(json_pack("{s:I,s:b}", "bytes", (json_int_t)bytes, "quiet", quiet));
    else if (quiet)
        printf("it has sent the other nodes %s since, and they ask no more: its server can be stopped now\n", size);
    if (rc || quiet)
        return rc;
    return error_set(-ETIMEDOUT,
                     "after %llu s, in which it has sent them %s, the other nodes still ask; run this again, with a "
                     "longer --wait, or stop the server: they fetch the rest from the store",
                     (unsigned long long)v->wait_s, size);
}

static int cmd_leave_run(const struct invocation *inv)
{
    const struct leave_values *v = inv->values;
    char control[PATH_MAX];
    bool quiet = false;
    json_t *before = NULL, *after = NULL;
    if (!v->wait_s)
        return options_wrong("--wait must be at least 1s");
    int rc = control_target_find(inv->operand_count ? inv->operands[0] : NULL, control, sizeof control);
    if (!rc)
        rc = control_status(control, &before);
    (void)interrupt_watch();
    if (!rc)
        rc = control_call(control, "POST", "/leave", (const char *const[]){NULL}, control_check_line, NULL);
    if (!rc)
        rc = wait_for_others(control, v->wait_s, server_status_counter(before, "granary_peer_served_total"), &after,
                             &quiet);
    uint64_t bytes = rc ? 0
                        : server_status_counter(after, "granary_peer_served_bytes_total") -
                              server_status_counter(before, "granary_peer_served_bytes_total");
    json_decref(before);
    json_decref(after);
    return rc ? rc : print_left(v, bytes, quiet);
}

const struct verb verb_leave = {
    .name = "leave",
    .operands = "[TARGET]",
    .max_operands = 1,
    .summary = "Have the other nodes take over what this node keeps for them, before it stops",
    .details = "TARGET is a server's socket, its control socket or a mount point (default: that of 'granary serve',\n"
               "else the only one) with --peer-listen. It answers from its cache until it is stopped, but fetches\n"
               "nothing more for others. The command ends when no node has asked for 10 seconds. Exit code 1 when\n"
               "they still ask after --wait.",
    .interrupted = "the node is still leaving; only a restart of its server undoes that",
    .options = rows,
    .values_size = sizeof(struct leave_values),
    .defaults = &defaults,
    .run = cmd_leave_run,
};
