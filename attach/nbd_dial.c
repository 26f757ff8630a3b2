/* NBD's fixed newstyle handshake: the server greets, we say what we understand, ask by NBD_OPT_GO for the export, its
 * description with it, and read what comes until the server says yes or no. Everything is big-endian.
 *
 *   server:  "NBDMAGIC" "IHAVEOPT" flags:16
 *   client:  flags:32
 *   client:  "IHAVEOPT" option:32 length:32 data
 *   server:  REPLY_MAGIC:64 option:32 type:32 length:32 data     until ACK, or an error
 */
#include "attach/nbd_dial.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "attach/export_check.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/io.h"
#include "net/listen.h"

#define GREETING "NBDMAGICIHAVEOPT"
#define OPTION_MAGIC "IHAVEOPT"
static const uint64_t REPLY_MAGIC = 0x3e889045565a9;

enum {
    FIXED_NEWSTYLE = 1,
    NO_ZEROES = 2,
    OPT_GO = 7,
    REP_ACK = 1,
    REP_INFO = 3,
    INFO_EXPORT = 0,
    INFO_DESCRIPTION = 2,
    INFO_EXPORT_LEN = 12,
    NAME_MAX_LEN = 4096, /* as NBD has it */
    REPLY_MAX = 8192,
    REPLIES_MAX = 64 /* a server that says more than this says nothing */
};
#define REQUEST_MAGIC 0x25609513u
#define SIMPLE_REPLY_MAGIC 0x67446698u
#define REP_ERROR 0x80000000u
#define REP_ERR_POLICY (REP_ERROR + 2)
#define REP_ERR_TLS_REQD (REP_ERROR + 5)
#define REP_ERR_UNKNOWN (REP_ERROR + 6)

struct reply {
    uint32_t type, len;
    uint8_t data[REPLY_MAX + 1];
};

/* ---- bytes ---- */

static uint16_t be16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)be16(p) << 16 | be16(p + 2);
}

static uint64_t be64(const uint8_t *p)
{
    return (uint64_t)be32(p) << 32 | be32(p + 4);
}

static int receive(int fd, void *out, size_t len)
{
    ssize_t n = io_read_full(fd, out, len);
    if (n == -EAGAIN)
        return error_set(-ETIMEDOUT, "it accepts the connection but does not answer");
    if (n < 0)
        return error_set((int)n, "%s", strerror((int)-n));
    return (size_t)n < len ? error_set(-ECONNRESET, "it closed the connection") : 0;
}

static int transmit(int fd, const struct bytes *b)
{
    for (size_t done = 0; done < b->len;) {
        ssize_t n = send(fd, b->data + done, b->len - done, MSG_NOSIGNAL);
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

static int greet(int fd, uint32_t *out_flags)
{
    uint8_t hello[18];
    int rc = receive(fd, hello, sizeof hello);
    if (rc)
        return rc;
    *out_flags = be16(hello + 16) & (FIXED_NEWSTYLE | NO_ZEROES);
    return memcmp(hello, GREETING, 16) || !(*out_flags & FIXED_NEWSTYLE) ? not_nbd() : 0;
}

static int ask(int fd, uint32_t flags, const char *export_name)
{
    CLEANUP_BYTES b = BYTES_INIT(NAME_MAX_LEN + 64);
    size_t len = strlen(export_name);
    const uint32_t head[] = {htobe32(OPT_GO), htobe32((uint32_t)len + 8), htobe32((uint32_t)len)};
    const uint16_t infos[] = {htobe16(1), htobe16(INFO_DESCRIPTION)};
    flags = htobe32(flags);
    if (bytes_append(&b, &flags, sizeof flags) || bytes_append(&b, OPTION_MAGIC, 8) ||
        bytes_append(&b, head, sizeof head) || bytes_append(&b, export_name, len) ||
        bytes_append(&b, infos, sizeof infos))
        return error_set(-EINVAL, "the export's name is too long");
    return transmit(fd, &b);
}

static int take_reply(int fd, struct reply *r)
{
    uint8_t head[20];
    int rc = receive(fd, head, sizeof head);
    if (rc)
        return rc;
    r->type = be32(head + 12);
    r->len = be32(head + 16);
    if (be64(head) != REPLY_MAGIC || be32(head + 8) != OPT_GO || r->len > REPLY_MAX)
        return not_nbd();
    rc = receive(fd, r->data, r->len);
    r->data[r->len] = 0;
    return rc;
}

static int refused(const struct reply *r, const char *export_name)
{
    switch (r->type) {
    case REP_ERR_UNKNOWN:
        return error_set(-ENOENT, "it has no export '%s'", export_name);
    case REP_ERR_TLS_REQD:
        return error_set(-EACCES, "it wants TLS, which the kernel's nbd cannot; serve on a unix socket");
    case REP_ERR_POLICY:
        return error_set(-EACCES, "it refuses the export '%s': %s", export_name, (const char *)r->data);
    default:
        return error_set(-EIO, "it refuses the export '%s': %s", export_name,
                         r->len ? (const char *)r->data : "it does not say why");
    }
}

static void take_info(const struct reply *r, struct nbd_export *out, bool *sized)
{
    uint16_t type = r->len >= 2 ? be16(r->data) : UINT16_MAX;
    if (type == INFO_EXPORT && r->len == INFO_EXPORT_LEN) {
        out->size = be64(r->data + 2);
        out->flags = be16(r->data + 10);
        *sized = true;
    } else if (type == INFO_DESCRIPTION)
        out->rooted = !export_content_root((const char *)r->data + 2, &out->content_root);
}

static int negotiate(int fd, const char *export_name, struct nbd_export *out)
{
    struct reply r;
    bool sized = false;
    uint32_t flags;
    *out = (struct nbd_export){0};
    int rc = greet(fd, &flags);
    if (!rc)
        rc = ask(fd, flags, export_name);
    for (int i = 0; !rc && i < REPLIES_MAX; i++) {
        rc = take_reply(fd, &r);
        if (rc)
            return rc;
        if (r.type == REP_ACK)
            return sized ? 0 : not_nbd();
        if (r.type & REP_ERROR)
            return refused(&r, export_name);
        if (r.type == REP_INFO)
            take_info(&r, out, &sized);
    }
    return rc ? rc : not_nbd();
}

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
        return error_set(-errno, "setsockopt: %s", strerror(errno));
    *out_fd = steal_fd(&fd);
    return 0;
}

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

int nbd_read(int fd, uint64_t off, void *out, uint32_t len)
{
    CLEANUP_BYTES b = BYTES_INIT(64);
    const uint32_t magic = htobe32(REQUEST_MAGIC), be_len = htobe32(len);
    const uint64_t be_off = htobe64(off);
    static const uint8_t read_and_cookie[12]; /* no flags, NBD_CMD_READ is 0, and so is the number of this request */
    uint8_t reply[16];
    if (bytes_append(&b, &magic, sizeof magic) || bytes_append(&b, read_and_cookie, sizeof read_and_cookie) ||
        bytes_append(&b, &be_off, sizeof be_off) || bytes_append(&b, &be_len, sizeof be_len))
        return error_set(-ENOMEM, "out of memory");
    int rc = transmit(fd, &b);
    if (!rc)
        rc = receive(fd, reply, sizeof reply);
    if (rc)
        return rc;
    if (be32(reply) != SIMPLE_REPLY_MAGIC)
        return not_nbd();
    if (be32(reply + 4))
        return error_set(-EIO, "it cannot read %u bytes at %llu; its log says why", len, (unsigned long long)off);
    return receive(fd, out, len);
}
