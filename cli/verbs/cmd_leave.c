/* granary leave [TARGET]: tells a node that it leaves the cluster, and waits until the others have asked it for what
 * they take over. It does not stop the server: it may change its mind by a restart.
 *
 * Nobody knows when the others have all they want; they have when they ask no more for QUIET_S seconds. */
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

/* Wait until the server has answered no request for QUIET_S, or the time is over. *out: its last status; json_decref
 * it. */
static int wait_for_others(const char *control, uint64_t wait_s, json_t **out)
{
    uint64_t end = clock_now_ms() + wait_s * 1000, quiet_since = clock_now_ms(), served = 0, now;
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
        if (now - quiet_since >= QUIET_S * 1000 || now >= end || interrupt_came())
            return cancel_check(interrupt_flag());
        interrupt_pause_until(GR_MIN(now + LOOK_MS, end));
    }
}

static int cmd_leave_run(const struct invocation *inv)
{
    const struct leave_values *v = inv->values;
    char control[PATH_MAX], size[TEXT_SIZE_MAX];
    json_t *before = NULL, *after = NULL;
    int rc = control_target_find(inv->operand_count ? inv->operands[0] : NULL, control, sizeof control);
    if (!rc)
        rc = control_status(control, &before);
    (void)interrupt_watch();
    if (!rc)
        rc = control_call(control, "POST", "/leave", (const char *const[]){NULL}, control_check_line, NULL);
    if (!rc)
        rc = wait_for_others(control, v->wait_s, &after);
    uint64_t bytes = rc ? 0
                        : server_status_counter(after, "granary_peer_served_bytes_total") -
                              server_status_counter(before, "granary_peer_served_bytes_total");
    json_decref(before);
    json_decref(after);
    if (rc)
        return rc;
    if (v->json)
        return print_json(json_pack("{s:I}", "bytes", (json_int_t)bytes));
    printf("the other nodes have taken %s from it; its server can be stopped now\n", text_format_size(bytes, size));
    return 0;
}

const struct verb verb_leave = {
    .name = "leave",
    .operands = "[TARGET]",
    .max_operands = 1,
    .summary = "Have the other nodes take over what this node keeps for them, before it stops",
    .details = "TARGET is a server's socket, its control socket or a mount point (default: that of 'granary serve',\n"
               "else the only one) with --peer-listen. It answers from its cache until it is stopped, but fetches\n"
               "nothing more for others. The command ends when no node has asked for 10 seconds.",
    .interrupted = "the node is still leaving; only a restart of its server undoes that",
    .options = rows,
    .values_size = sizeof(struct leave_values),
    .defaults = &defaults,
    .run = cmd_leave_run,
};
