/* The fixed newstyle handshake of the NBD protocol, an option at a time. An option is answered when it is complete.
 * One whose data are longer than any known option's is skipped and refused.
 *
 *    greeting -> flags -> option -> answer -> ... -> GO or EXPORT_NAME -> requests
 *                            `-> STARTTLS -> TLS -> options again
 */
#include "nbd/handshake.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "net/nbd_wire.h"

enum {
    ZEROES = 124,
    REQUEST_MIN = 1,
    INFO_HEAD = 6 /* bytes of INFO's data beside the name: its length, and the number of infos */
};

/* ---- bytes ---- */

static uint16_t get16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return be16toh(v);
}

static uint32_t get32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return be32toh(v);
}

/* Append a reply to an option; `data` is its payload. */
static int append_reply(struct bytes *out, uint32_t option, uint32_t type, const void *data, size_t len)
{
    const struct nbd_wire_reply_head head = {.magic = htobe64(NBD_WIRE_REPLY_MAGIC),
                                             .option = htobe32(option),
                                             .type = htobe32(type),
                                             .len = htobe32((uint32_t)len)};
    int rc = bytes_append(out, &head, sizeof head);
    return rc ? rc : bytes_append(out, data, len);
}

static int append_refusal(struct bytes *out, uint32_t option, uint32_t type, const char *sentence)
{
    return append_reply(out, option, type, sentence, strlen(sentence));
}

static int append_ack(struct bytes *out, uint32_t option)
{
    return append_reply(out, option, NBD_WIRE_REP_ACK, "", 0);
}

int handshake_greet(struct bytes *out)
{
    struct nbd_wire_greeting hello = {.flags = htobe16(NBD_WIRE_FIXED_NEWSTYLE | NBD_WIRE_NO_ZEROES)};
    memcpy(hello.magic, NBD_WIRE_GREETING, sizeof hello.magic);
    return bytes_append(out, &hello, sizeof hello);
}

/* The client's flags, the first thing it sends. An unknown flag ends the connection, as the protocol demands. */
static int take_flags(struct handshake *h, const uint8_t *data)
{
    uint32_t flags = get32(data);
    if (flags & ~(uint32_t)(NBD_WIRE_FIXED_NEWSTYLE | NBD_WIRE_NO_ZEROES))
        return error_set(-EPROTO, "the client asks for unknown handshake flags 0x%x", flags);
    h->greeted = true;
    h->no_zeroes = flags & NBD_WIRE_NO_ZEROES;
    return 0;
}

/* ---- options ---- */

/* A complete option. */
struct option {
    struct handshake *h;
    uint32_t number;
    const uint8_t *data;
    uint32_t len;
    struct bytes *out;
};

/* One reply for each export: the length of its name, the name, the description. */
static int visit_listed(void *arg, const struct handshake_export *e)
{
    const struct option *o = arg;
    CLEANUP_BYTES text = BYTES_INIT(2 * NBD_WIRE_NAME_MAX);
    uint32_t name_len = htobe32((uint32_t)strlen(e->name));
    int rc = bytes_append(&text, &name_len, sizeof name_len);
    if (!rc)
        rc = bytes_append(&text, e->name, strlen(e->name));
    if (!rc)
        rc = bytes_append(&text, e->description, strlen(e->description));
    return rc ? rc : append_reply(o->out, o->number, NBD_WIRE_REP_SERVER, text.data, text.len);
}

static int answer_list(struct option *o)
{
    if (o->len)
        return append_refusal(o->out, o->number, NBD_WIRE_REP_ERR_INVALID, "NBD_OPT_LIST has no data");
    int rc = o->h->exports->list(o->h->arg, visit_listed, o);
    return rc ? rc : append_ack(o->out, o->number);
}

/* Copy an export's name and end it by NUL. -EINVAL: it cannot be one. */
static int copy_name(const uint8_t *data, uint32_t len, char out[NBD_WIRE_NAME_MAX + 1])
{
    if (len > NBD_WIRE_NAME_MAX || memchr(data, 0, len))
        return error_set(-EINVAL, "the name of an export has at most %d bytes, none of them NUL", NBD_WIRE_NAME_MAX);
    memcpy(out, data, len);
    out[len] = 0;
    return 0;
}

/* Append an INFO reply whose payload is a text. */
static int append_text(const struct option *o, uint16_t type, const char *text)
{
    CLEANUP_BYTES data = BYTES_INIT(2 * NBD_WIRE_NAME_MAX);
    uint16_t sent = htobe16(type);
    int rc = bytes_append(&data, &sent, sizeof sent);
    if (!rc)
        rc = bytes_append(&data, text, strlen(text));
    return rc ? rc : append_reply(o->out, o->number, NBD_WIRE_REP_INFO, data.data, data.len);
}

/* Return the flags of an export, in the network's order. */
static uint16_t flags_of(const struct handshake_export *e)
{
    return htobe16(NBD_WIRE_HAS_FLAGS | NBD_WIRE_READ_ONLY | NBD_WIRE_SEND_CACHE |
                   (e->single ? 0 : NBD_WIRE_CAN_MULTI_CONN));
}

/* Append one kind of info; kinds that the server does not know are left out. */
static int append_info(const struct option *o, uint16_t type, const struct handshake_export *e)
{
    const struct nbd_wire_info_block_size sizes = {.type = htobe16(NBD_WIRE_INFO_BLOCK_SIZE),
                                                   .minimum = htobe32(REQUEST_MIN),
                                                   .preferred = htobe32(e->preferred),
                                                   .maximum = htobe32(e->request_max)};
    switch (type) {
    case NBD_WIRE_INFO_NAME:
        return append_text(o, type, e->name);
    case NBD_WIRE_INFO_DESCRIPTION:
        return append_text(o, type, e->description);
    case NBD_WIRE_INFO_BLOCK_SIZE:
        return append_reply(o->out, o->number, NBD_WIRE_REP_INFO, &sizes, sizeof sizes);
    default:
        return 0;
    }
}

/* Append the infos that the client asked for; INFO_EXPORT always. An info asked for twice is sent once, so the answer
 * is bounded by the number of kinds. */
static int append_infos(const struct option *o, const uint8_t *asked, unsigned count, const struct handshake_export *e)
{
    const struct nbd_wire_info_export always = {
        .type = htobe16(NBD_WIRE_INFO_EXPORT), .size = htobe64(e->size), .flags = flags_of(e)};
    int rc = append_reply(o->out, o->number, NBD_WIRE_REP_INFO, &always, sizeof always);
    for (uint16_t type = NBD_WIRE_INFO_NAME; !rc && type <= NBD_WIRE_INFO_BLOCK_SIZE; type++) {
        bool wanted = false;
        for (unsigned i = 0; i < count; i++)
            wanted |= get16(asked + (size_t)2 * i) == type;
        rc = wanted ? append_info(o, type, e) : 0;
    }
    return rc ? rc : append_ack(o->out, o->number);
}

static int refuse_export(const struct option *o, int rc)
{
    uint32_t type = rc == -ENOENT   ? NBD_WIRE_REP_ERR_UNKNOWN
                    : rc == -EINVAL ? NBD_WIRE_REP_ERR_INVALID
                                    : NBD_WIRE_REP_ERR_POLICY;
    return append_refusal(o->out, o->number, type, error_text());
}

/* Answer NBD_OPT_INFO and NBD_OPT_GO, which differ only in what follows. */
static int answer_info(struct option *o, enum handshake_step *step)
{
    char name[NBD_WIRE_NAME_MAX + 1];
    struct handshake_export e;
    uint32_t name_len = o->len >= INFO_HEAD ? get32(o->data) : 0;
    bool whole = o->len >= INFO_HEAD && name_len <= o->len - INFO_HEAD;
    unsigned count = whole ? get16(o->data + sizeof name_len + name_len) : 0;
    if (!whole || o->len != INFO_HEAD + name_len + 2 * count)
        return append_refusal(o->out, o->number, NBD_WIRE_REP_ERR_INVALID, "the lengths in the option do not agree");
    int rc = copy_name(o->data + sizeof name_len, name_len, name);
    if (!rc)
        rc = o->h->exports->open(o->h->arg, name, &e);
    if (rc)
        return refuse_export(o, rc);
    if (o->number == NBD_WIRE_OPT_GO)
        *step = HANDSHAKE_READY;
    return append_infos(o, o->data + INFO_HEAD + name_len, count, &e);
}

/* NBD_OPT_EXPORT_NAME, the old way: the only answers are the export and the end of the connection. */
static int answer_export_name(struct option *o, enum handshake_step *step)
{
    static const uint8_t zeroes[ZEROES];
    char name[NBD_WIRE_NAME_MAX + 1];
    struct handshake_export e;
    int rc = copy_name(o->data, o->len, name);
    if (!rc)
        rc = o->h->exports->open(o->h->arg, name, &e);
    if (rc)
        return error_set(-EPROTO, "%s", error_text());
    uint64_t size = htobe64(e.size);
    uint16_t flags = flags_of(&e);
    rc = bytes_append(o->out, &size, sizeof size);
    if (!rc)
        rc = bytes_append(o->out, &flags, sizeof flags);
    if (!rc && !o->h->no_zeroes)
        rc = bytes_append(o->out, zeroes, sizeof zeroes);
    *step = HANDSHAKE_READY;
    return rc;
}

/* Answer NBD_OPT_STARTTLS. It is refused without TLS, and a second time. */
static int answer_starttls(struct option *o, enum handshake_step *step)
{
    if (o->h->tls == HANDSHAKE_TLS_NONE)
        return append_refusal(o->out, o->number, NBD_WIRE_REP_ERR_UNSUP,
                              "this server does not speak TLS; 'granary serve --listen --tls-certificates' does");
    if (o->h->tls == HANDSHAKE_TLS_SECURED || o->len)
        return append_refusal(o->out, o->number, NBD_WIRE_REP_ERR_INVALID,
                              o->len ? "NBD_OPT_STARTTLS has no data" : "the connection speaks TLS already");
    o->h->tls = HANDSHAKE_TLS_SECURED;
    *step = HANDSHAKE_SECURES;
    return append_ack(o->out, o->number);
}

static bool is_refused_in_plaintext(const struct option *o)
{
    return o->h->tls == HANDSHAKE_TLS_REQUIRED && o->number != NBD_WIRE_OPT_STARTTLS && o->number != NBD_WIRE_OPT_ABORT;
}

/* In plaintext a client learns nothing, not even which exports exist. The old way has no reply for that, so the
 * connection ends. */
static int refuse_plaintext(const struct option *o)
{
    static const char why[] = "this server requires TLS";
    if (o->number == NBD_WIRE_OPT_EXPORT_NAME)
        return error_set(-EPROTO, "%s, and the client asks for an export without it", why);
    return append_refusal(o->out, o->number, NBD_WIRE_REP_ERR_TLS_REQD, why);
}

/* Answer one complete option. */
static int answer(struct option *o, enum handshake_step *step)
{
    if (is_refused_in_plaintext(o))
        return refuse_plaintext(o);
    switch (o->number) {
    case NBD_WIRE_OPT_EXPORT_NAME:
        return answer_export_name(o, step);
    case NBD_WIRE_OPT_ABORT:
        *step = HANDSHAKE_OVER;
        return append_ack(o->out, o->number);
    case NBD_WIRE_OPT_LIST:
        return answer_list(o);
    case NBD_WIRE_OPT_INFO:
    case NBD_WIRE_OPT_GO:
        return answer_info(o, step);
    case NBD_WIRE_OPT_STARTTLS:
        return answer_starttls(o, step);
    default:
        return append_refusal(o->out, o->number, NBD_WIRE_REP_ERR_UNSUP, "this server does not know the option");
    }
}

/* ---- steps ---- */

/* Take one option: `data` holds its head, and its data unless they are to be skipped. */
static int take_option(struct handshake *h, const uint8_t *data, size_t *used, struct bytes *out,
                       enum handshake_step *step)
{
    struct nbd_wire_option_head head;
    memcpy(&head, data, sizeof head);
    struct option o = {
        .h = h, .number = be32toh(head.option), .data = data + sizeof head, .len = be32toh(head.len), .out = out};
    *used = sizeof head;
    if (++h->options > HANDSHAKE_OPTIONS_MAX)
        return error_set(-EPROTO, "the client has sent more than %d options", HANDSHAKE_OPTIONS_MAX);
    if (o.len > HANDSHAKE_OPTION_MAX) {
        h->skip = o.len;
        if (is_refused_in_plaintext(&o))
            return refuse_plaintext(&o);
        return append_refusal(out, o.number, NBD_WIRE_REP_ERR_TOO_BIG, "the option is too long");
    }
    *used += o.len;
    return answer(&o, step);
}

/* Compute the bytes needed for the next step. -EPROTO: not the newstyle protocol, or too long an option. */
static int needed(const struct handshake *h, const uint8_t *data, size_t len, size_t *out)
{
    struct nbd_wire_option_head head;
    *out = h->greeted ? sizeof head : sizeof(uint32_t);
    if (!h->greeted || len < sizeof head)
        return 0;
    memcpy(&head, data, sizeof head);
    uint32_t option_len = be32toh(head.len);
    if (memcmp(head.magic, NBD_WIRE_OPTION_MAGIC, sizeof head.magic) != 0)
        return error_set(-EPROTO, "the client does not speak NBD's newstyle protocol");
    if (option_len > HANDSHAKE_SKIP_MAX)
        return error_set(-EPROTO, "the client has announced an option of %u bytes", option_len);
    if (option_len <= HANDSHAKE_OPTION_MAX)
        *out += option_len;
    return 0;
}

int handshake_take(struct handshake *h, const uint8_t *data, size_t len, size_t *used, struct bytes *out,
                   enum handshake_step *step)
{
    size_t need;
    *used = 0;
    *step = HANDSHAKE_GOES_ON;
    if (h->skip && len) {
        *used = GR_MIN(len, (size_t)h->skip);
        h->skip -= (uint32_t)*used;
        return 0;
    }
    int rc = needed(h, data, len, &need);
    if (!rc && len < need)
        *step = HANDSHAKE_WAITS;
    if (rc || len < need)
        return rc;
    if (!h->greeted) {
        *used = sizeof(uint32_t);
        return take_flags(h, data);
    }
    rc = take_option(h, data, used, out, step);
    /* Plaintext after STARTTLS may be injected by an attacker on the path, to be taken for input that came by TLS. */
    if (!rc && *step == HANDSHAKE_SECURES && *used < len)
        rc = error_set(-EPROTO, "plaintext has come after NBD_OPT_STARTTLS");
    return rc;
}
