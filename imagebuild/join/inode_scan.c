/* The range is cut into pieces, which threads read ahead; the window holds as many of them as the caller needs at once.
 *
 *   range:  | piece | piece | piece | piece ...
 *                   |   window      | ring: being read
 *                       ^ address
 */
#include "imagebuild/join/join_internal.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "imagebuild/tree/nodes.h"

enum { PIECE = 256 << 10, THREADS = 16, PIECES = 2 * THREADS, STEP_INODES = 1 << 14 };

/* A slot of the ring. */
struct piece {
    uint64_t address;
    size_t len;
    uint8_t *data; /* NULL: `error` says why */
    struct error error;
};

/* Read a piece, in a thread of the ring. */
static void read_piece(void *scan, void *slot)
{
    const struct inode_scan *s = scan;
    struct piece *p = slot;
    p->data = malloc(p->len);
    int rc = p->data ? image_bytes_read(s->bytes, p->address, p->len, p->data) : error_no_memory();
    if (rc) {
        error_take(&p->error, rc);
        free(steal_ptr(&p->data));
    }
}

static void clear_piece(void *slot)
{
    free(((struct piece *)slot)->data);
}

int inode_scan_open(struct inode_scan *s, const struct inodes_config *config, struct sorter *found)
{
    *s = (struct inode_scan){.config = config,
                             .found = found,
                             .window = BYTES_INIT(PIECE + 2 * (size_t)INODE_SCAN_NEED),
                             .xattrs = BYTES_INIT(4 * (size_t)NODE_XATTRS_MAX)};
    return image_bytes_new(config->store, config->manifest, &s->bytes);
}

void inode_scan_release(struct inode_scan *s)
{
    in_order_free(s->ring); /* its threads use the bytes */
    image_bytes_free(s->bytes);
    bytes_release(&s->window);
    bytes_release(&s->xattrs);
    *s = (struct inode_scan){0};
}

int inode_scan_range(struct inode_scan *s, uint64_t from, uint64_t to)
{
    const struct in_order_config ring = {.threads = THREADS,
                                         .slots = PIECES,
                                         .size = sizeof(struct piece),
                                         .work = read_piece,
                                         .clear = clear_piece,
                                         .arg = s};
    if (from > to || to > s->config->manifest->size)
        return inode_scan_damaged("they lie beyond the image");
    s->next = s->begin = from;
    s->end = to;
    return in_order_new(&ring, &s->ring);
}

static void fill_ring(struct inode_scan *s)
{
    struct piece *p;
    while (s->next < s->end && (p = in_order_slot(s->ring))) {
        p->address = s->next;
        p->len = (size_t)GR_MIN(s->end - s->next, (uint64_t)PIECE);
        s->next += p->len;
        in_order_give(s->ring);
    }
}

/* Append the next piece to the window, which loses what lies before `address`. */
static int next_piece(struct inode_scan *s, uint64_t address)
{
    const size_t passed = (size_t)GR_MIN(address - s->begin, (uint64_t)s->window.len);
    if (passed)
        memmove(s->window.data, s->window.data + passed, s->window.len - passed);
    s->window.len -= passed;
    s->begin += passed;
    fill_ring(s);
    struct piece *p = in_order_take(s->ring);
    if (!p)
        return inode_scan_damaged("they end early");
    int rc = p->data ? bytes_append(&s->window, p->data, p->len) : error_restore(&p->error);
    in_order_drop(s->ring);
    return rc;
}

int inode_scan_need(struct inode_scan *s, uint64_t address, size_t len, const uint8_t **out)
{
    if (address < s->begin || address > s->end || len > s->end - address || len > INODE_SCAN_NEED)
        return inode_scan_damaged("one lies where none can be");
    while (s->begin + s->window.len < address + len) {
        int rc = next_piece(s, address);
        if (rc)
            return rc;
    }
    *out = s->window.data + (address - s->begin);
    return 0;
}

int inode_scan_note(struct inode_scan *s, uint64_t number, const struct inode_extra *extra)
{
    struct inode_extra kept = *extra;
    CLEANUP_BYTES value = BYTES_INIT(SORTER_RECORD_MAX);
    const uint64_t key = htobe64(number);
    if (++s->inodes % STEP_INODES == 0) {
        int rc = step_take(&s->config->step);
        if (rc)
            return rc;
    }
    bool is_directory = (extra->mode & S_IFMT) == S_IFDIR;
    if (!s->xattrs.len && !extra->rdev && (is_directory || extra->links < 2))
        return 0;
    kept.xattrs = NULL;
    kept.xattrs_len = s->xattrs.len;
    int rc = bytes_append(&value, &kept, sizeof kept);
    if (!rc)
        rc = bytes_append(&value, s->xattrs.data, s->xattrs.len);
    return rc ? rc : sorter_add(s->found, &key, sizeof key, value.data, value.len);
}

int inode_scan_damaged(const char *what)
{
    return error_set(-EBADMSG,
                     "the inodes are not those that the catalog and manifest say: %s; granary verify --deep says what "
                     "is wrong with the image",
                     what);
}
