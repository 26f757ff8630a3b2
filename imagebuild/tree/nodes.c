/* Nodes lie back to back in a scratch. Each is stored as what differs from the node before (base/spill/pack.h), since
 * neighbours in path order share most: of the head its changed words, where the rank is expected to be the next one; of
 * the path the end, from where it differs.
 *
 *   | u32 len of the rest | flags | struct head, packed | [content] | rest of path | validator | target | xattrs |
 *
 * The head says how long each part is: shared, rest, validator_len ...
 *
 * A directory that was not listed has its head in full, because its mtime is set later, and the next node does not
 * build on it. The bytes never outlive the process, so they are in native order.
 */
#include "imagebuild/tree/nodes.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/le.h"
#include "base/spill/pack.h"
#include "format/catalog.h"

enum {
    WINDOW = 256 << 10, /* bytes of the writer's buffer and of each cursor's */
    LEN = 4,            /* bytes of a node's length */
    LINKED = 1,         /* flags: */
    IMPLICIT = 2,       /* the head is in full */
    CONTENT = 4,
};

/* The fixed part of a node, in words of 8 bytes that mostly change together. */
struct head {
    uint32_t rank, link;
    uint32_t parent, uid;
    uint32_t gid, rdev;
    int64_t mtime;
    uint64_t size, address;
    uint32_t mtime_nsec, xattrs_len;
    uint16_t shared, rest; /* bytes of the path: shared with the path before; stored */
    uint16_t validator_len, target_len;
    uint32_t plan;
    uint16_t mode, zero;
};

/* A sequence; `last` is the path added last. */
struct nodes {
    struct scratch *scratch;
    struct bytes buffer; /* whole nodes on their way to the scratch */
    uint64_t count;
    uint32_t last_rank;
    bool ended;
    struct head before; /* what the next head is expected to be */
    size_t last_len;
    char last[CATALOG_PATH_MAX];
};

struct nodes_cursor {
    struct scratch_reader in;
    struct head before;
    size_t path_len;
    char path[CATALOG_PATH_MAX];
};

int nodes_new(const struct scratch_config *config, struct nodes **out)
{
    CLEANUP(cleanup_nodes) struct nodes *n = calloc(1, sizeof *n);
    if (!n)
        return error_no_memory();
    n->buffer.max = SIZE_MAX / 2; /* no limit is needed: it never holds more than a window and one node */
    int rc = scratch_new(config, &n->scratch);
    if (rc)
        return rc;
    *out = steal_ptr(&n);
    return 0;
}

void nodes_free(struct nodes *n)
{
    if (!n)
        return;
    scratch_free(n->scratch);
    bytes_release(&n->buffer);
    free(n);
}

/* ------------------------------------------------------------------ writing */

/* Write the buffered nodes to the scratch. */
static int nodes_flush(struct nodes *n)
{
    int rc = scratch_write(n->scratch, scratch_len(n->scratch), n->buffer.data, n->buffer.len);
    bytes_clear(&n->buffer);
    return rc;
}

/* Return the head of a node that has `shared` bytes of its path in common with the node before. */
static struct head head_of(const struct node *node, size_t shared)
{
    return (struct head){
        .rank = node->rank,
        .parent = node->parent,
        .link = node->link,
        .uid = node->uid,
        .gid = node->gid,
        .rdev = node->rdev,
        .mtime_nsec = node->mtime_nsec,
        .mtime = node->mtime,
        .size = node->size,
        .address = node->address,
        .xattrs_len = (uint32_t)node->xattrs_len,
        .mode = node->mode,
        .shared = (uint16_t)shared,
        .rest = (uint16_t)(node->path_len - shared),
        .validator_len = (uint16_t)node->validator_len,
        .target_len = (uint16_t)node->target_len,
        .plan = (uint32_t)node->plan,
    };
}

static uint8_t flags_of(const struct node *node)
{
    bool content = !digest_is_zero(&node->content);
    return (uint8_t)((node->linked ? LINKED : 0) | (node->implicit ? IMPLICIT : 0) | (content ? CONTENT : 0));
}

/* Make *before what the head after h is expected to be. h may still change if it is in full. */
static void expect(struct head *before, const struct head *h, uint8_t flags)
{
    if (!(flags & IMPLICIT))
        *before = *h;
    before->rank = before->link = h->rank + 1;
}

/* Copy len bytes to p, which may be none from NULL, and return the position after them. */
static uint8_t *nodes_put(uint8_t *p, const void *data, size_t len)
{
    return len ? mempcpy(p, data, len) : p;
}

int nodes_add(struct nodes *n, const struct node *node)
{
    assert(!n->ended && node->path_len <= CATALOG_PATH_MAX);
    assert(node->validator_len <= UINT16_MAX && node->target_len <= UINT16_MAX && node->xattrs_len <= NODE_XATTRS_MAX);
    /* the whole build relies on this order: ranks index arrays, and merges expect paths to ascend */
    assert(!n->count ||
           (node->rank > n->last_rank && catalog_path_compare(n->last, n->last_len, node->path, node->path_len) < 0));
    size_t shared = pack_shared(n->last, n->last_len, node->path, node->path_len);
    struct head h = head_of(node, shared);
    uint8_t flags = flags_of(node), *start;
    int rc = bytes_reserve(&n->buffer,
                           LEN + 1 + pack_changes_max(sizeof h) + DIGEST_SIZE + h.rest + h.validator_len +
                               h.target_len + h.xattrs_len,
                           &start);
    if (rc)
        return rc;
    uint8_t *p = start + LEN;
    *p++ = flags;
    p = flags & IMPLICIT ? nodes_put(p, &h, sizeof h) : pack_changes(p, &h, sizeof h, &n->before, sizeof h);
    if (flags & CONTENT)
        p = nodes_put(p, &node->content, DIGEST_SIZE);
    p = nodes_put(p, node->path + shared, h.rest);
    p = nodes_put(p, node->validator, h.validator_len);
    p = nodes_put(p, node->target, h.target_len);
    p = nodes_put(p, node->xattrs, h.xattrs_len);
    uint32_t len = (uint32_t)(p - start - LEN);
    memcpy(start, &len, LEN);
    n->buffer.len += LEN + len;
    expect(&n->before, &h, flags);
    nodes_put((uint8_t *)n->last + shared, node->path + shared, h.rest);
    n->last_len = node->path_len;
    n->last_rank = node->rank;
    n->count++;
    /* flushed only here and at the end, so nodes_place stays valid for every node */
    return n->buffer.len >= WINDOW ? nodes_flush(n) : 0;
}

/* The next node begins here, whether the buffer is flushed before or after. */
uint64_t nodes_place(const struct nodes *n)
{
    return scratch_len(n->scratch) + n->buffer.len;
}

/* Read bytes of a node. Nodes are flushed whole, so one lies either in the buffer or in the scratch. */
static int get_at(struct nodes *n, uint64_t at, void *out, size_t len)
{
    assert(!n->ended && at < nodes_place(n));
    if (at < scratch_len(n->scratch))
        return scratch_read(n->scratch, at, out, len);
    memcpy(out, n->buffer.data + (at - scratch_len(n->scratch)), len);
    return 0;
}

/* Write back bytes of a node that get_at has read. */
static int set_at(struct nodes *n, uint64_t at, const void *data, size_t len)
{
    if (at < scratch_len(n->scratch))
        return scratch_write(n->scratch, at, data, len);
    memcpy(n->buffer.data + (at - scratch_len(n->scratch)), data, len);
    return 0;
}

int nodes_set_mtime(struct nodes *n, uint64_t place, int64_t mtime, uint32_t mtime_nsec)
{
    uint8_t flags;
    struct head h;
    int rc = get_at(n, place + LEN, &flags, sizeof flags);
    if (!rc) {
        assert(flags & IMPLICIT);
        rc = get_at(n, place + LEN + 1, &h, sizeof h);
    }
    if (rc)
        return rc;
    h.mtime = mtime;
    h.mtime_nsec = mtime_nsec;
    return set_at(n, place + LEN + 1, &h, sizeof h);
}

int nodes_set_linked(struct nodes *n, uint64_t place)
{
    uint8_t flags;
    int rc = get_at(n, place + LEN, &flags, sizeof flags);
    if (rc)
        return rc;
    flags |= LINKED;
    return set_at(n, place + LEN, &flags, sizeof flags);
}

int nodes_end(struct nodes *n)
{
    assert(!n->ended);
    n->ended = true;
    int rc = nodes_flush(n);
    bytes_release(&n->buffer);
    return rc;
}

uint64_t nodes_count(const struct nodes *n)
{
    return n->count;
}

uint32_t nodes_rank_end(const struct nodes *n)
{
    return n->count ? n->last_rank + 1 : 0;
}

/* ------------------------------------------------------------------ reading */

int nodes_cursor_new(const struct nodes *n, struct nodes_cursor **out)
{
    assert(n->ended);
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *c = calloc(1, sizeof *c);
    if (!c)
        return error_no_memory();
    int rc = scratch_reader_init(&c->in, n->scratch, 0, scratch_len(n->scratch), WINDOW);
    if (rc)
        return rc;
    *out = steal_ptr(&c);
    return 0;
}

void nodes_cursor_free(struct nodes_cursor *c)
{
    if (!c)
        return;
    scratch_reader_release(&c->in);
    free(c);
}

/* Step over len bytes; NULL if there are none. */
static const void *nodes_take(const uint8_t **p, size_t len)
{
    const uint8_t *at = *p;
    *p += len;
    return len ? at : NULL;
}

/* Return a node without its strings. */
static struct node node_of(const struct head *h, uint8_t flags)
{
    return (struct node){
        .rank = h->rank,
        .parent = h->parent,
        .link = h->link,
        .linked = flags & LINKED,
        .implicit = flags & IMPLICIT,
        .plan = (enum node_plan)h->plan,
        .mode = h->mode,
        .uid = h->uid,
        .gid = h->gid,
        .rdev = h->rdev,
        .mtime = h->mtime,
        .mtime_nsec = h->mtime_nsec,
        .size = h->size,
        .address = h->address,
        .validator_len = h->validator_len,
        .target_len = h->target_len,
        .xattrs_len = h->xattrs_len,
    };
}

/* The strings of *out point into the window and the cursor's path, which the next call changes. */
int nodes_next(struct nodes_cursor *c, struct node *out)
{
    if (scratch_reader_ended(&c->in))
        return 0;
    uint32_t len;
    int rc = scratch_reader_fill(&c->in, LEN);
    if (rc)
        return rc;
    memcpy(&len, c->in.window + c->in.pos, LEN);
    /* may move the window, so pointers into it are taken only afterwards */
    rc = scratch_reader_fill(&c->in, LEN + (size_t)len);
    if (rc)
        return rc;
    const uint8_t *p = c->in.window + c->in.pos + LEN;
    c->in.pos += LEN + (size_t)len;
    uint8_t flags = *p++;
    struct head h = c->before;
    if (flags & IMPLICIT)
        memcpy(&h, nodes_take(&p, sizeof h), sizeof h);
    else
        p = unpack_changes(p, &h, sizeof h, sizeof h);
    expect(&c->before, &h, flags);
    *out = node_of(&h, flags);
    if (flags & CONTENT)
        memcpy(&out->content, nodes_take(&p, DIGEST_SIZE), DIGEST_SIZE);
    /* the path before is still in c->path, so only what differs is copied */
    nodes_put((uint8_t *)c->path + h.shared, nodes_take(&p, h.rest), h.rest);
    c->path_len = (size_t)h.shared + h.rest;
    out->validator = nodes_take(&p, h.validator_len);
    out->target = nodes_take(&p, h.target_len);
    out->xattrs = nodes_take(&p, h.xattrs_len);
    out->path = c->path;
    out->path_len = c->path_len;
    const char *slash = c->path_len ? memrchr(c->path, '/', c->path_len) : NULL;
    out->name = slash ? slash + 1 : c->path;
    out->name_len = c->path_len - (size_t)(out->name - c->path);
    return 1;
}

/* ------------------------------------------------------------------ extended attributes */

/* The numbers of the prefixes are the same in erofs and ext4 (EROFS_XATTR_INDEX_*, EXT4_XATTR_INDEX_*). Lengths are
 * not checked here: filter_xattrs in listing.c has checked them.
 *
 *   | le16 name length | le32 value length | name | value | next attribute ...
 */

static const struct prefix {
    const char *text;
    uint8_t number;
} prefixes[] = {
    {"user.", 1},
    {"system.posix_acl_access", XATTR_ACL_ACCESS},
    {"system.posix_acl_default", XATTR_ACL_DEFAULT},
    {"trusted.", 4},
    {"security.", 6},
};

/* Replace a known prefix of the name by its number; false: none is known. An ACL's name is all prefix. */
static bool take_prefix(struct xattr *x)
{
    for (size_t i = 0; i < GR_ARRAY_SIZE(prefixes); i++) {
        size_t n = strlen(prefixes[i].text);
        if (x->name_len < n || memcmp(x->name, prefixes[i].text, n))
            continue;
        x->prefix = prefixes[i].number;
        x->name += n;
        x->name_len -= n;
        return true;
    }
    return false;
}

bool xattr_next(const uint8_t **p, const uint8_t *end, struct xattr *out)
{
    while (end - *p >= 6) {
        out->name_len = le16_get(*p);
        out->value_len = le32_get(*p + 2);
        out->name = (const char *)*p + 6;
        out->value = *p + 6 + out->name_len;
        *p = out->value + out->value_len;
        if (take_prefix(out))
            return true;
    }
    return false;
}

int xattr_append(struct bytes *out, const struct xattr *x)
{
    const struct prefix *prefix = NULL;
    for (size_t i = 0; i < GR_ARRAY_SIZE(prefixes) && !prefix; i++)
        prefix = prefixes[i].number == x->prefix ? &prefixes[i] : NULL;
    if (!prefix || strlen(prefix->text) + x->name_len > UINT16_MAX || x->value_len > UINT32_MAX)
        return error_set(-EBADMSG, "an extended attribute has a prefix of number %u, or too long a name", x->prefix);
    uint8_t *head;
    int rc = bytes_extend(out, 6, &head);
    if (rc)
        return rc;
    le16_put(head, (uint16_t)(strlen(prefix->text) + x->name_len));
    le32_put(head + 2, (uint32_t)x->value_len);
    rc = bytes_append(out, prefix->text, strlen(prefix->text));
    if (!rc)
        rc = bytes_append(out, x->name, x->name_len);
    return rc ? rc : bytes_append(out, x->value, x->value_len);
}
