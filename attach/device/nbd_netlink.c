/* Two libnl sockets, one for commands and one that receives news of dead connections, so that news never arrives
 * between a command and its answer.
 *
 * The kernel does not tell whether it took a connection: RECONFIGURE answers 0 also when no connection was dead. But it
 * sets the send timeout of a socket that it takes to its own request timeout, and our duplicate of the socket shows
 * that. */
#include "attach/device/device_internal.h"

#include <errno.h>
#include <linux/nbd-netlink.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/error.h"

enum { PROTOCOL_VERSION = 1, NO_INDEX = -1 };

/* One user at a time. The callbacks store what they receive here. */
struct nbd_netlink {
    struct nl_sock *ask, *news; /* for commands; for news, NULL until nbd_netlink_watch */
    int family;
    bool answered; /* set by the callbacks of ask, with answer */
    int answer;    /* 0 or -errno */
    int index;     /* device index in the last message received */
    int watched;   /* the device whose news is noted */
    bool dead;
};

DEFINE_CLEANUP(message, struct nl_msg *, nlmsg_free)

/* ---- messages received ---- */

/* Return the device index in a message, or NO_INDEX. */
static int index_in(struct nl_msg *m, uint8_t *out_command)
{
    struct nlattr *found[NBD_ATTR_MAX + 1];
    struct nlmsghdr *h = nlmsg_hdr(m);
    if (!genlmsg_valid_hdr(h, 0) || genlmsg_parse(h, 0, found, NBD_ATTR_MAX, NULL))
        return NO_INDEX;
    *out_command = genlmsg_hdr(h)->cmd;
    return found[NBD_ATTR_INDEX] ? (int)nla_get_u32(found[NBD_ATTR_INDEX]) : NO_INDEX;
}

/* Note the device index in an answer: after NBD_CMD_CONNECT the one that the kernel chose. */
static int on_message(struct nl_msg *m, void *arg)
{
    struct nbd_netlink *n = arg;
    uint8_t command;
    int index = index_in(m, &command);
    if (index != NO_INDEX)
        n->index = index;
    return NL_OK;
}

/* The command succeeded. */
static int on_ack(struct nl_msg *m, void *arg)
{
    struct nbd_netlink *n = arg;
    n->answered = true;
    n->answer = 0;
    return NL_STOP;
}

/* Keep the kernel's errno: libnl would map it to one of its codes, of which there are fewer. */
static int on_error(struct sockaddr_nl *from, struct nlmsgerr *e, void *arg)
{
    struct nbd_netlink *n = arg;
    n->answered = true;
    n->answer = e->error;
    return NL_STOP;
}

/* Note a dead connection of the watched device; news of other devices is dropped. */
static int on_news(struct nl_msg *m, void *arg)
{
    struct nbd_netlink *n = arg;
    uint8_t command = 0;
    if (index_in(m, &command) == n->watched && command == NBD_CMD_LINK_DEAD)
        n->dead = true;
    return NL_OK;
}

/* ---- asking ---- */

/* Open the socket for commands, and look up nbd's netlink family, whose number the kernel assigns. */
int nbd_netlink_open(struct nbd_netlink **out)
{
    CLEANUP(cleanup_nbd_netlink) struct nbd_netlink *n = calloc(1, sizeof *n);
    if (!n || !(n->ask = nl_socket_alloc()))
        return error_no_memory();
    int rc = genl_connect(n->ask);
    if (rc)
        return error_set(-EIO, "cannot open a netlink socket: %s", nl_geterror(rc));
    n->family = genl_ctrl_resolve(n->ask, NBD_GENL_FAMILY_NAME);
    if (n->family < 0)
        return error_set(n->family == -NLE_OBJ_NOTFOUND ? -ENOTSUP : -EIO,
                         "the kernel's nbd does not answer over netlink (%s): load its module (modprobe nbd); it takes "
                         "Linux 4.12 or later",
                         nl_geterror(n->family));
    nl_socket_modify_cb(n->ask, NL_CB_VALID, NL_CB_CUSTOM, on_message, n);
    nl_socket_modify_cb(n->ask, NL_CB_ACK, NL_CB_CUSTOM, on_ack, n);
    nl_socket_modify_err_cb(n->ask, NL_CB_CUSTOM, on_error, n);
    *out = steal_ptr(&n);
    return 0;
}

void nbd_netlink_close(struct nbd_netlink *n)
{
    if (!n)
        return;
    nl_socket_free(n->ask);
    nl_socket_free(n->news);
    free(n);
}

/* Begin a command; index NO_INDEX lets the kernel choose the device. */
static int nbd_netlink_begin(struct nbd_netlink *n, uint8_t command, int index, struct nl_msg **out)
{
    CLEANUP(cleanup_message) struct nl_msg *m = nlmsg_alloc();
    if (!m || !genlmsg_put(m, NL_AUTO_PORT, NL_AUTO_SEQ, n->family, 0, NLM_F_ACK, command, PROTOCOL_VERSION) ||
        (index != NO_INDEX && nla_put_u32(m, NBD_ATTR_INDEX, (uint32_t)index)))
        return error_no_memory();
    *out = steal_ptr(&m);
    return 0;
}

/* Append the settings that CONNECT and RECONFIGURE share. */
static int put_link(struct nl_msg *m, const struct nbd_link *link)
{
    if (nla_put_u64(m, NBD_ATTR_TIMEOUT, link->timeout_s) || nla_put_u64(m, NBD_ATTR_DEAD_CONN_TIMEOUT, link->dead_s) ||
        (link->backend && nla_put_string(m, NBD_ATTR_BACKEND_IDENTIFIER, link->backend)))
        return error_no_memory();
    return 0;
}

/* Append the sockets: a nested list of items, each with a descriptor. */
static int put_sockets(struct nl_msg *m, const int *fds, size_t count)
{
    struct nlattr *list = nla_nest_start(m, NBD_ATTR_SOCKETS | NLA_F_NESTED), *item = list;
    for (size_t i = 0; list && item && i < count; i++) {
        item = nla_nest_start(m, NBD_SOCK_ITEM | NLA_F_NESTED);
        if (item && nla_put_u32(m, NBD_SOCK_FD, (uint32_t)fds[i]))
            item = NULL;
        if (item)
            nla_nest_end(m, item);
    }
    if (!item)
        return error_no_memory();
    nla_nest_end(m, list);
    return 0;
}

/* Send a command and wait for the kernel's answer: 0 or -errno. Only -EPERM and netlink's own failures have a sentence.
 */
static int ask(struct nbd_netlink *n, struct nl_msg *m)
{
    int rc = nl_send_auto(n->ask, m);
    n->answered = false;
    n->index = NO_INDEX;
    while (rc >= 0 && !n->answered)
        rc = nl_recvmsgs_default(n->ask);
    if (!n->answered)
        return error_set(-EIO, "cannot ask the kernel by netlink: %s", nl_geterror(rc));
    if (n->answer == -EPERM)
        return error_set(-EPERM, "nbd devices are for root alone (CAP_SYS_ADMIN)");
    return n->answer;
}

/* ---- commands ---- */

/* NBD_CMD_CONNECT without an index: the kernel chooses a free device, which its answer names. */
int nbd_netlink_connect(struct nbd_netlink *n, const struct nbd_link *link, uint64_t size, uint16_t flags,
                        const int *fds, size_t count, int *out_index)
{
    CLEANUP(cleanup_message) struct nl_msg *m = NULL;
    int rc = nbd_netlink_begin(n, NBD_CMD_CONNECT, NO_INDEX, &m);
    if (!rc)
        rc = put_link(m, link);
    if (!rc && (nla_put_u64(m, NBD_ATTR_SIZE_BYTES, size) || nla_put_u64(m, NBD_ATTR_SERVER_FLAGS, flags)))
        rc = error_no_memory();
    if (!rc)
        rc = put_sockets(m, fds, count);
    if (rc)
        return rc;
    rc = ask(n, m);
    if (!rc && n->index == NO_INDEX)
        rc = -EPROTO;
    *out_index = n->index;
    return rc && rc != -EPERM
               ? error_set(rc, "the kernel does not attach an nbd device: %s; 'dmesg' says why", strerror(-rc))
               : rc;
}

/* RECONFIGURE: repeat the link's settings, and offer count connections. */
static int reconfigure(struct nbd_netlink *n, const struct nbd_link *link, const int *fds, size_t count)
{
    CLEANUP(cleanup_message) struct nl_msg *m = NULL;
    int rc = nbd_netlink_begin(n, NBD_CMD_RECONFIGURE, link->index, &m);
    if (!rc)
        rc = put_link(m, link);
    if (!rc && count)
        rc = put_sockets(m, fds, count);
    if (rc)
        return rc;
    rc = ask(n, m);
    if (!rc || rc == -EPERM)
        return rc;
    if (rc == -EINVAL)
        return error_set(rc,
                         "the kernel refuses to change /dev/nbd%d: it is not attached, or to another image, or by "
                         "'nbd-client -nonetlink' (attach it without -nonetlink)",
                         link->index);
    return error_set(rc, "the kernel refuses to change /dev/nbd%d: %s; 'dmesg' says why", link->index, strerror(-rc));
}

int nbd_netlink_policy(struct nbd_netlink *n, const struct nbd_link *link)
{
    return reconfigure(n, link, NULL, 0);
}

/* After a successful RECONFIGURE, the socket's send timeout shows whether the kernel took it; see the top. */
int nbd_netlink_hand_over(struct nbd_netlink *n, const struct nbd_link *link, int fd, bool *out_taken)
{
    struct timeval limit = {0};
    socklen_t len = sizeof limit;
    int rc = reconfigure(n, link, &fd, 1);
    if (!rc && getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, &len))
        rc = error_set(-errno, "cannot ask whether /dev/nbd%d took the connection: %s", link->index, strerror(errno));
    *out_taken = limit.tv_sec || limit.tv_usec;
    return rc;
}

int nbd_netlink_disconnect(struct nbd_netlink *n, int index)
{
    CLEANUP(cleanup_message) struct nl_msg *m = NULL;
    int rc = nbd_netlink_begin(n, NBD_CMD_DISCONNECT, index, &m);
    if (!rc)
        rc = ask(n, m);
    return rc && rc != -EPERM ? error_set(rc, "the kernel does not detach /dev/nbd%d: %s", index, strerror(-rc)) : rc;
}

/* ---- news ---- */

/* News comes without being requested, so sequence numbers are not checked. */
int nbd_netlink_watch(struct nbd_netlink *n)
{
    n->news = nl_socket_alloc();
    if (!n->news)
        return error_no_memory();
    nl_socket_disable_seq_check(n->news);
    nl_socket_modify_cb(n->news, NL_CB_VALID, NL_CB_CUSTOM, on_news, n);
    int rc = genl_connect(n->news);
    int group = rc ? rc : genl_ctrl_resolve_grp(n->ask, NBD_GENL_FAMILY_NAME, NBD_GENL_MCAST_GROUP_NAME);
    if (group >= 0)
        group = nl_socket_add_membership(n->news, group);
    return group < 0 ? error_set(-EIO, "cannot hear of dead nbd connections: %s", nl_geterror(group)) : 0;
}

/* An interrupted wait reports nothing dead; callers call again. */
int nbd_netlink_wait_dead(struct nbd_netlink *n, int index, int timeout_ms, bool *out_dead)
{
    struct pollfd p = {.fd = nl_socket_get_fd(n->news), .events = POLLIN};
    n->watched = index;
    n->dead = false;
    int rc = poll(&p, 1, timeout_ms);
    if (rc < 0 && errno != EINTR)
        return error_set(-errno, "cannot wait for news of dead nbd connections: %s", strerror(errno));
    if (rc > 0) {
        rc = nl_recvmsgs_default(n->news);
        if (rc == -NLE_NOMEM) /* the socket's buffer overflowed: news was lost, perhaps of our device */
            n->dead = true;
        else if (rc < 0)
            return error_set(-EIO, "cannot hear of dead nbd connections: %s", nl_geterror(rc));
    }
    *out_dead = n->dead;
    return 0;
}
