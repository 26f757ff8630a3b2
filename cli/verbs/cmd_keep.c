/* granary keep /dev/nbdN: the reconnect daemon, which lets an attached device outlive its server (attach/keeper). Its
 * state comes from
 *
 *   --socket, --connect   the server that nbd-client attached the device to: compared with the device, then adopted
 *   neither               the file that a mount or an earlier keeper saved
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach.h"
#include "base/error.h"
#include "cli/keep_options.h"
#include "cli/verbs/verbs.h"

struct keep_values {
    struct keep_times times;
    const char *socket, *connect, *export;
};

#define AT(field) offsetof(struct keep_values, field), 0, 0

static const struct option_row rows[] = {
    {OPTION_TEXT, 0, "socket", "PATH", AT(socket), "the unix socket of the server that it was attached to"},
    {OPTION_TEXT, 0, "connect", "HOST:PORT", AT(connect), "the same, over TCP"},
    {OPTION_TEXT, 0, "export", "NAME", AT(export), "the export on it (default: the nameless one)"},
    KEEP_ROWS(struct keep_values, times),
    {0},
};

static const struct keep_values defaults = {.times = KEEP_TIMES_UNSET};

/* Load the state that the mount or an earlier keeper saved. */
static int load_state(const struct keep_values *v, const char *device, struct keep_state *s)
{
    int rc = keep_state_load(device, s);
    if (rc == -ENOENT)
        return error_set(rc,
                         "%s was not attached by 'granary mount'; say by --socket or --connect, and --export, what it "
                         "was attached to",
                         device);
    if (!rc && keep_times_apply(&v->times, &s->timeout_s, &s->dead_s))
        rc = keep_state_save(s);
    return rc;
}

/* Make a state from the options, and check it against what the device shows. */
static int adopt(const struct keep_values *v, const char *device, struct keep_state *s)
{
    *s = (struct keep_state){.timeout_s = DEVICE_NBD_TIMEOUT_S, .dead_s = DEVICE_NBD_DEAD_S};
    (void)keep_times_apply(&v->times, &s->timeout_s, &s->dead_s);
    snprintf(s->device, sizeof s->device, "%s", device);
    snprintf(s->export_name, sizeof s->export_name, "%s", v->export ? v->export : "");
    if (v->connect)
        snprintf(s->address, sizeof s->address, "%s", v->connect);
    else if (!realpath(v->socket, s->address)) /* the server may be found from anywhere */
        return error_set(-errno, "no server listens on %s: %s", v->socket, strerror(errno));
    int rc = keeper_adopt(s);
    return rc ? rc : keep_state_save(s);
}

/* Find out what to keep: from the options, if they name the server, else from the saved state. -EBUSY: the device is
 * kept. */
static int find_state(const struct keep_values *v, const char *device, struct keep_state *s)
{
    pid_t holder = keep_holder(device);
    if (holder)
        return error_set(-EBUSY, "process %d keeps %s already", (int)holder, device);
    return v->socket || v->connect ? adopt(v, device, s) : load_state(v, device, s);
}

/* Announce it, to the log and to systemd. */
static void on_ready(void *arg)
{
    const struct keep_state *s = arg;
    printf("keeping %s (export '%s' of %s)\n", s->device, s->export_name, s->address);
    fflush(stdout);
    notify("READY=1");
}

/* All options are checked before the device is touched. */
static int cmd_keep_run(const struct invocation *inv)
{
    const struct keep_values *v = inv->values;
    const char *device = inv->operands[0];
    struct keep_state state;
    int number;
    if (v->socket && v->connect)
        return options_exclude("--socket", "--connect", "a server is in one place");
    if (v->export && !v->socket && !v->connect) {
        (void)error_set(0, "--export goes with --socket or --connect");
        return CLI_USAGE;
    }
    if (keep_times_check(&v->times) || device_nbd_number(device, &number))
        return CLI_USAGE;
    int rc = find_state(v, device, &state);
    return rc ? rc : keeper_run(&state, on_ready, &state);
}

const struct verb verb_keep = {
    .name = "keep",
    .operands = "DEVICE",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Keep an attached /dev/nbdN alive when its server ends",
    .details = "Gives the kernel new connections in place of dead ones, only to the same image, until the device is\n"
               "detached. 'granary mount' starts one by itself; one that was killed is started again by this, and a\n"
               "device that nbd-client attached is adopted with --socket or --connect.",
    .options = rows,
    .service = true,
    .values_size = sizeof(struct keep_values),
    .defaults = &defaults,
    .run = cmd_keep_run,
};
