/* Every export is a file that has its image's size and that only its owner may read (inode_table.c).
 *
 * Exports come and go, so names are never cached: the entry timeout is zero and the kernel looks up each time. But what
 * an inode number stands for never changes, so attributes and pages may be cached without end (attr_timeout,
 * keep_cache).
 *
 * A reply's memory is taken from a budget before the image is read:
 *
 *     free budget left              any read takes it
 *     only the reserve left         reads of cached data take it, the others wait
 *
 * Otherwise reads that wait for a silent store would hold all of it, and cached data could not be read. */
#include "fuse/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/share.h"
#include "format/image_ref.h"

enum { DIR_MODE = S_IFDIR | 0500, FILE_MODE = S_IFREG | 0400, BLOCK_SIZE = 4096, NAME_MAX_BYTES = 255, BLOCK = 512 };

static const double forever_s = 1e6;
static const char attribute[] = "user.granary"; /* extended attribute of each file: its export's description */

/* Whether an export's name can be a file's name. */
static bool can_be_shown(const char *name)
{
    return *name && strlen(name) <= NAME_MAX_BYTES && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

/* ---- attributes ---- */

/* Return the attributes of an export's file, or of the directory when e is NULL. */
static struct stat attributes(fuse_ino_t ino, const struct stack_export *e)
{
    struct stat st = {.st_ino = ino,
                      .st_mode = e ? FILE_MODE : DIR_MODE,
                      .st_nlink = e ? 1 : 2,
                      .st_uid = geteuid(),
                      .st_gid = getegid(),
                      .st_blksize = FILES_READ_MAX};
    if (e) {
        st.st_size = (off_t)image_manifest(stack_export_image(e))->size;
        st.st_blocks = (st.st_size + BLOCK - 1) / BLOCK;
    }
    return st;
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    const struct files *f = fuse_req_userdata(req);
    bool possible = parent == FUSE_ROOT_ID && can_be_shown(name);
    CLEANUP(cleanup_stack_export) struct stack_export *e = possible ? stack_get(f->serving->stack, name) : NULL;
    if (!e) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    struct fuse_entry_param entry = {.ino = inode_table_number(e), .generation = 1, .attr_timeout = forever_s};
    entry.attr = attributes(entry.ino, e);
    fuse_reply_entry(req, &entry);
}

static void on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct files *f = fuse_req_userdata(req);
    CLEANUP(cleanup_stack_export)
    struct stack_export *e = ino == FUSE_ROOT_ID ? NULL : inode_table_get(&f->inode_table, ino);
    if (!e && ino != FUSE_ROOT_ID) {
        fuse_reply_err(req, ESTALE);
        return;
    }
    struct stat st = attributes(ino, e);
    fuse_reply_attr(req, &st, forever_s);
}

static void on_statfs(fuse_req_t req, fuse_ino_t ino)
{
    const struct files *f = fuse_req_userdata(req);
    struct statvfs st = {
        .f_bsize = BLOCK_SIZE, .f_frsize = BLOCK_SIZE, .f_namemax = NAME_MAX_BYTES, .f_flag = ST_RDONLY};
    for (struct stack_export *e = NULL; (e = stack_next(f->serving->stack, e)); st.f_files++)
        st.f_blocks += image_manifest(stack_export_image(e))->size / BLOCK_SIZE;
    fuse_reply_statfs(req, &st);
}

static void on_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    struct files *f = fuse_req_userdata(req);
    char text[SERVING_DESCRIPTION_MAX];
    CLEANUP(cleanup_stack_export)
    struct stack_export *e = strcmp(name, attribute) ? NULL : inode_table_get(&f->inode_table, ino);
    size_t len = e ? strlen(serving_describe(e, text)) : 0;
    if (!e)
        fuse_reply_err(req, ENODATA);
    else if (!size)
        fuse_reply_xattr(req, len);
    else if (size < len)
        fuse_reply_err(req, ERANGE);
    else
        fuse_reply_buf(req, text, len);
}

/* ---- the directory ---- */

/* An entry's offset is its export's number in the stack: it ascends, so a listing that goes on later misses nothing
 * that stays. */
static void on_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t from, struct fuse_file_info *fi)
{
    const struct files *f = fuse_req_userdata(req);
    CLEANUP_FREE char *listing = malloc(size);
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    size_t len = 0;
    if (!listing) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    while ((e = stack_next(f->serving->stack, e))) {
        off_t number = (off_t)stack_export_number(e);
        if (number <= from || !can_be_shown(stack_export_name(e)))
            continue;
        struct stat st = attributes(inode_table_number(e), e);
        size_t more = fuse_add_direntry(req, listing + len, size - len, stack_export_name(e), &st, number);
        if (more > size - len)
            break;
        len += more;
    }
    fuse_reply_buf(req, listing, len);
}

/* ---- the budget of reads ---- */

enum { RESERVE_PART = 4 };

/* A read, from the request to its reply. */
struct file_read {
    fuse_req_t req;
    struct stack_export *export; /* a reference */
    uint64_t off;
    size_t len;
    struct read_share *store;
    bool cached; /* takes no part of the store's share */
};

struct waiting_read {
    struct file_read read;
    struct waiting_read *next;
};

void read_budget_init(struct read_budget *b, unsigned threads)
{
    *b = (struct read_budget){.threads = threads};
    pthread_mutex_init(&b->lock, NULL);
}

static struct waiting_read *pop_waiting(struct read_list *l)
{
    struct waiting_read *w = l->first;
    if (w)
        l->first = w->next;
    return w;
}

static void drop_waiting(struct read_list *l)
{
    for (struct waiting_read *w; (w = pop_waiting(l)); free(w)) {
        fuse_reply_none(w->read.req);
        stack_put(w->read.export);
    }
}

void read_budget_release(struct read_budget *b)
{
    drop_waiting(&b->cached);
    for (size_t i = 0; i < FILES_STORES; i++)
        drop_waiting(&b->stores[i].waiting);
    pthread_mutex_destroy(&b->lock);
}

size_t read_budget_used(struct read_budget *b)
{
    SCOPED_LOCK(&b->lock);
    return b->bytes;
}

static bool fits_locked(const struct read_budget *b, const struct file_read *r)
{
    if (!b->reads)
        return true;
    if (r->cached)
        return b->bytes + r->len <= FILES_REPLIES_MAX && b->reads < b->threads;
    return share_allows_part(r->store->bytes, r->len, b->bytes, FILES_REPLIES_MAX - FILES_REPLIES_MAX / RESERVE_PART) &&
           share_allows_part(r->store->reads, 1, b->reads, b->threads - b->threads / RESERVE_PART);
}

static void take_locked(struct read_budget *b, const struct file_read *r)
{
    b->bytes += r->len;
    b->reads++;
    r->store->bytes += r->cached ? 0 : r->len;
    r->store->reads += !r->cached;
}

static void give_back_locked(struct read_budget *b, const struct file_read *r)
{
    b->bytes -= r->len;
    b->reads--;
    r->store->bytes -= r->cached ? 0 : r->len;
    r->store->reads -= !r->cached;
}

/* Returns true when the read may go on; else it waits, and the thread that makes room for it answers it. */
static bool take_or_wait(struct read_budget *b, struct file_read *r)
{
    {
        SCOPED_LOCK(&b->lock);
        if (fits_locked(b, r)) {
            take_locked(b, r);
            return true;
        }
    }
    struct waiting_read *w = malloc(sizeof *w);
    if (!w) {
        fuse_reply_err(r->req, ENOMEM);
        stack_put(r->export);
        return false;
    }
    /* Whether the data is cached matters only when room is short. */
    r->cached = image_is_cached(stack_export_image(r->export), r->off, r->len);
    SCOPED_LOCK(&b->lock);
    if (fits_locked(b, r)) {
        take_locked(b, r);
        free(w);
        return true;
    }
    struct read_list *l = r->cached ? &b->cached : &r->store->waiting;
    *w = (struct waiting_read){.read = *r};
    if (l->first)
        l->last->next = w;
    else
        l->first = w;
    l->last = w;
    return false;
}

/* The first of a list that fits now. */
static struct waiting_read *take_first_locked(struct read_budget *b, struct read_list *l)
{
    if (!l->first || !fits_locked(b, &l->first->read))
        return NULL;
    struct waiting_read *w = pop_waiting(l);
    take_locked(b, &w->read);
    return w;
}

/* Give back an answered read's part, and take the next waiting read that fits: cached data first, then the store with
 * the fewest bytes in flight. Returns false when there is none. */
static bool give_back_and_take(struct read_budget *b, struct file_read *r)
{
    SCOPED_LOCK(&b->lock);
    give_back_locked(b, r);
    struct waiting_read *w = take_first_locked(b, &b->cached);
    struct read_share *least = NULL;
    for (struct read_share *s = b->stores; !w && s < b->stores + FILES_STORES; s++)
        if (s->waiting.first && fits_locked(b, &s->waiting.first->read) && (!least || s->bytes < least->bytes))
            least = s;
    if (least)
        w = take_first_locked(b, &least->waiting);
    if (w)
        *r = w->read;
    free(w);
    return w;
}

/* ---- reading ---- */

static void on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct files *f = fuse_req_userdata(req);
    int rc = (fi->flags & O_ACCMODE) == O_RDONLY ? inode_table_open(&f->inode_table, ino) : -EROFS;
    if (rc) {
        fuse_reply_err(req, -rc);
        return;
    }
    fi->keep_cache = 1;
    if (fuse_reply_open(req, fi) == -ENOENT) /* the open was interrupted: the kernel will send no release */
        inode_table_close(&f->inode_table, ino);
}

static void on_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct files *f = fuse_req_userdata(req);
    inode_table_close(&f->inode_table, ino);
    fuse_reply_err(req, 0);
}

static void answer_read(const struct files *f, const struct file_read *r)
{
    CLEANUP_PAGES bytes = {.data = pages_get(r->len), .len = r->len};
    int rc = bytes.data ? image_read(stack_export_image(r->export), bytes.data, r->off, r->len) : -ENOMEM;
    if (!bytes.data)
        fuse_reply_err(r->req, ENOMEM);
    else if (rc)
        fuse_reply_err(r->req, serving_request_failed(f->serving, rc));
    else
        fuse_reply_buf(r->req, bytes.data, r->len);
    stack_put(r->export);
}

/* Reads may extend beyond the end of the file, since the kernel reads whole pages. */
static void on_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    struct files *f = fuse_req_userdata(req);
    CLEANUP(cleanup_stack_export) struct stack_export *e = inode_table_get_open(&f->inode_table, ino);
    if (!e || size > FILES_READ_MAX) {
        fuse_reply_err(req, e ? EINVAL : ESTALE); /* the kernel keeps to max_read */
        return;
    }
    uint64_t end = image_manifest(stack_export_image(e))->size, from = (uint64_t)off;
    size_t len = from < end ? GR_MIN((uint64_t)size, end - from) : 0;
    if (!len) {
        fuse_reply_buf(req, NULL, 0);
        return;
    }
    struct read_budget *b = &f->budget;
    const char *store = stack_export_ref(e)->store;
    struct file_read r = {.req = req,
                          .export = steal_ptr(&e),
                          .off = from,
                          .len = len,
                          .store = &b->stores[crc32c(store, strlen(store)) % FILES_STORES]};
    if (!take_or_wait(b, &r))
        return;
    do
        answer_read(f, &r);
    while (give_back_and_take(b, &r));
}

/* ---- the session ---- */

static void on_init(void *arg, struct fuse_conn_info *conn)
{
    conn->max_read = FILES_READ_MAX;
    conn->max_write = FILES_READ_MAX; /* libfuse derives max_pages from it, which bounds reads too */
    conn->max_readahead = FILES_READ_MAX;
    conn->max_background = conn->congestion_threshold = FILES_REQUESTS_MAX;
    conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
}

static const struct fuse_lowlevel_ops operations = {
    .init = on_init,
    .lookup = on_lookup,
    .getattr = on_getattr,
    .statfs = on_statfs,
    .getxattr = on_getxattr,
    .readdir = on_readdir,
    .open = on_open,
    .release = on_release,
    .read = on_read,
};

int files_session(struct files *f, struct fuse_session **out)
{
    char max_read[32];
    snprintf(max_read, sizeof max_read, "max_read=%d", FILES_READ_MAX); /* must equal conn->max_read of on_init */
    char *words[] = {"granary", "-o", max_read, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(3, words);
    *out = fuse_session_new(&args, &operations, sizeof operations, f);
    fuse_opt_free_args(&args);
    return *out ? 0 : error_set(-EINVAL, "libfuse makes no session");
}
