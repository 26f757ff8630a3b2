/* NBD's fixed newstyle handshake, with the fewest messages that serve:
 *
 *     server: greeting (magic, flags)
 *     client: flags, NBD_OPT_GO with the export's name, asking for its description
 *     server: NBD_REP_INFO ... (size and flags, description), then NBD_REP_ACK or an error
 *
 * Structured replies are not negotiated, since the kernel does not know them. The layouts: net/nbd_wire.h. */
#include "attach/device/device_internal.h"

#include <endian.h>
#include <errno.h>
#include <linux/nbd.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/io.h"
#include "net/listen.h"
#include "net/nbd_wire.h"

enum {
    REPLY_MAX = 8192,
    REPLIES_MAX = 64 /* more replies than any honest server sends */
};

/* One option reply; data has a NUL after its len bytes. */
struct reply {
    uint32_t type, len;
    uint8_t data[REPLY_MAX + 1];
};

/* ---- bytes ---- */

/* Receive exactly len bytes. The socket's timeout shows as -EAGAIN. */
static int nbd_dial_receive(int fd, void *out, size_t len)
{
    ssize_t n = io_read_full(fd, out, len);
    if (n == -EAGAIN)
        return error_set(-ETIMEDOUT, "it accepts the connection but does not answer");
    if (n < 0)
        return error_set((int)n, "%s", strerror((int)-n));
    return (size_t)n < len ? error_set(-ECONNRESET, "it closed the connection") : 0;
}

/* Send everything; no SIGPIPE. */
static int transmit(int fd, const void *data, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = send(fd, (const char *)data + done, len - done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(errno == EAGAIN ? -ETIMEDOUT : -errno, "%s",
                             errno == EAGAIN ? "it takes nothing" : strerror(errno));
        done += (size_t)n;
    }
    return 0;
}

/* ---- the handshake ---- */

static int not_nbd(void)
{
    return error_set(-EPROTO, "it does not speak NBD's newstyle protocol");
}

/* Read the greeting. *out_flags: those of the server's handshake flags that we know. */
static int greet(int fd, uint32_t *out_flags)
{
    struct nbd_wire_greeting hello;
    int rc = nbd_dial_receive(fd, &hello, sizeof hello);
    if (rc)
        return rc;
    *out_flags = be16toh(hello.flags) & (NBD_WIRE_FIXED_NEWSTYLE | NBD_WIRE_NO_ZEROES);
    return memcmp(hello.magic, NBD_WIRE_GREETING, sizeof hello.magic) || !(*out_flags & NBD_WIRE_FIXED_NEWSTYLE)
               ? not_nbd()
               : 0;
}

/* Send our flags and NBD_OPT_GO. */
static int nbd_dial_ask(int fd, uint32_t flags, const char *export_name)
{
    CLEANUP_BYTES b = BYTES_INIT(NBD_WIRE_NAME_MAX + 64);
    size_t len = strlen(export_name);
    const uint32_t head[] = {htobe32(NBD_WIRE_OPT_GO), htobe32((uint32_t)len + 8), htobe32((uint32_t)len)};
    const uint16_t infos[] = {htobe16(1), htobe16(NBD_WIRE_INFO_DESCRIPTION)};
    flags = htobe32(flags);
    if (bytes_append(&b, &flags, sizeof flags) || bytes_append(&b, NBD_WIRE_OPTION_MAGIC, 8) ||
        bytes_append(&b, head, sizeof head) || bytes_append(&b, export_name, len) ||
        bytes_append(&b, infos, sizeof infos))
        return error_set(-EINVAL, "the export's name is too long");
    return transmit(fd, b.data, b.len);
}

/* Receive one option reply. One that does not belong to our NBD_OPT_GO means that this is no NBD server. */
static int take_reply(int fd, struct reply *r)
{
    struct nbd_wire_reply_head head;
    int rc = nbd_dial_receive(fd, &head, sizeof head);
    if (rc)
        return rc;
    r->type = be32toh(head.type);
    r->len = be32toh(head.len);
    if (be64toh(head.magic) != NBD_WIRE_REPLY_MAGIC || be32toh(head.option) != NBD_WIRE_OPT_GO || r->len > REPLY_MAX)
        return not_nbd();
    rc = nbd_dial_receive(fd, r->data, r->len);
    r->data[r->len] = 0;
    return rc;
}

/* Turn an error reply into a sentence. */
static int nbd_dial_refused(const struct reply *r, const char *export_name)
{
    switch (r->type) {
    case NBD_WIRE_REP_ERR_UNKNOWN:
        return error_set(-ENOENT, "it has no export '%s'", export_name);
    case NBD_WIRE_REP_ERR_TLS_REQD:
        return error_set(-EACCES, "it wants TLS, which the kernel's nbd cannot; serve on a unix socket");
    case NBD_WIRE_REP_ERR_POLICY:
        return error_set(-EACCES, "it refuses the export '%s': %s", export_name, (const char *)r->data);
    default:
        return error_set(-EIO, "it refuses the export '%s': %s", export_name,
                         r->len ? (const char *)r->data : "it does not say why");
    }
}

/* Take the export's size and flags, or its description. Other information is ignored. */
static void take_info(const struct reply *r, struct nbd_export *out, bool *sized)
{
    struct nbd_wire_info_export info;
    if (r->len < sizeof info.type)
        return;
    memcpy(&info, r->data, sizeof info);
    if (be16toh(info.type) == NBD_WIRE_INFO_EXPORT && r->len == sizeof info) {
        out->size = be64toh(info.size);
        out->flags = be16toh(info.flags);
        *sized = true;
    } else if (be16toh(info.type) == NBD_WIRE_INFO_DESCRIPTION)
        out->rooted = !nbd_content_root((const char *)r->data + 2, &out->content_root);
}

/* Run the handshake on a connected socket. */
static int negotiate(int fd, const char *export_name, struct nbd_export *out)
{
    struct reply r;
    bool sized = false;
    uint32_t flags;
    *out = (struct nbd_export){0};
    int rc = greet(fd, &flags);
    if (!rc)
        rc = nbd_dial_ask(fd, flags, export_name);
    for (int i = 0; !rc && i < REPLIES_MAX; i++) {
        rc = take_reply(fd, &r);
        if (rc)
            return rc;
        if (r.type == NBD_WIRE_REP_ACK)
            return sized ? 0 : not_nbd();
        if (r.type & NBD_WIRE_REP_ERROR)
            return nbd_dial_refused(&r, export_name);
        if (r.type == NBD_WIRE_REP_INFO)
            take_info(&r, out, &sized);
    }
    return rc ? rc : not_nbd();
}

/* The socket's time limits hold for the handshake only; the kernel sets its own. */
int nbd_dial(const char *address, const char *export_name, unsigned timeout_s, struct nbd_export *out, int *out_fd)
{
    static const struct timeval none;
    CLEANUP_FD int fd = -1;
    int rc = listen_connect(address, timeout_s, &fd);
    if (rc)
        return rc;
    rc = negotiate(fd, export_name, out);
    if (rc)
        return error_prefix(rc, "the server on %s", address);
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none) ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none))
        return error_set(-errno, "cannot lift the time limits of the connection to %s: %s", address, strerror(errno));
    *out_fd = steal_fd(&fd);
    return 0;
}

/* The description's format is serving_describe's. */
int nbd_content_root(const char *description, struct digest *out)
{
    static const char key[] = "content-root sha256:";
    const char *at = description ? strstr(description, key) : NULL;
    if (!at)
        return -EINVAL;
    at += sizeof key - 1;
    return digest_parse(at, strnlen(at, DIGEST_HEX_SIZE - 1), out);
}

/* Size and content root together identify an image's bytes, whatever its name. */
int nbd_export_check(const char *address, const char *export_name, const struct nbd_export *got, uint64_t size,
                     const struct digest *content_root)
{
    char has[DIGEST_HEX_SIZE], wanted[DIGEST_HEX_SIZE];
    if (!got->rooted)
        return error_set(-ESTALE, "the server on %s is not one of Granary's: its export '%s' carries no content root",
                         address, export_name);
    if (got->size == size && digest_equal(&got->content_root, content_root))
        return 0;
    return error_set(-ESTALE,
                     "the export '%s' of the server on %s is another image: content root sha256:%.16s..., %llu bytes "
                     "instead of sha256:%.16s..., %llu bytes",
                     export_name, address, digest_hex(&got->content_root, has), (unsigned long long)got->size,
                     digest_hex(content_root, wanted), (unsigned long long)size);
}

/* ---- one read ---- */

/* For comparing a few samples, so one request at a time is enough. */
int nbd_read(int fd, uint64_t off, void *out, uint32_t len)
{
    const struct nbd_request request = {
        .magic = htobe32(NBD_REQUEST_MAGIC), .type = htobe32(NBD_CMD_READ), .from = htobe64(off), .len = htobe32(len)};
    struct nbd_reply reply;
    int rc = transmit(fd, &request, sizeof request);
    if (!rc)
        rc = nbd_dial_receive(fd, &reply, sizeof reply);
    if (rc)
        return rc;
    if (be32toh(reply.magic) != NBD_REPLY_MAGIC)
        return not_nbd();
    if (be32toh(reply.error))
        return error_set(-EIO, "it cannot read %u bytes at %llu; its log says why", len, (unsigned long long)off);
    return nbd_dial_receive(fd, out, len);
}
