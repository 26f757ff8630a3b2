/* Every export is a file that has its image's size and that only its owner may read (inode_table.h).
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
#include "base/error.h"
#include "base/log.h"
#include "base/pages.h"

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

/* ---- the memory of replies ---- */

enum { RESERVE_PART = 4 };

void reply_budget_init(struct reply_budget *r)
{
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->freed, NULL);
}

void reply_budget_release(struct reply_budget *r)
{
    pthread_cond_destroy(&r->freed);
    pthread_mutex_destroy(&r->lock);
}

size_t reply_budget_used(struct reply_budget *r)
{
    SCOPED_LOCK(&r->lock);
    return r->used;
}

/* Take bytes while not more than most are used; a single read always fits, however large. Returns false instead of
 * waiting when wait is false. */
static bool take_budget(struct reply_budget *r, size_t bytes, size_t most, bool wait)
{
    SCOPED_LOCK(&r->lock);
    while (r->used && r->used + bytes > most) {
        if (!wait)
            return false;
        pthread_cond_wait(&r->freed, &r->lock);
    }
    r->used += bytes;
    return true;
}

static void give_back(struct reply_budget *r, size_t bytes)
{
    SCOPED_LOCK(&r->lock);
    r->used -= bytes;
    pthread_cond_broadcast(&r->freed);
}

/* Take memory for a reply. Only when it is short is the cache asked whether it has the range. */
static void wait_for_budget(struct reply_budget *r, struct image *image, uint64_t off, size_t len)
{
    size_t most = FILES_REPLIES_MAX - FILES_REPLIES_MAX / RESERVE_PART;
    if (!take_budget(r, len, most, false))
        take_budget(r, len, image_is_cached(image, off, len) ? FILES_REPLIES_MAX : most, true);
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

/* Read and reply. The budget is held until the reply is written, since the buffer lives as long. */
static void read_for(struct files *f, fuse_req_t req, struct image *image, uint64_t off, size_t len)
{
    CLEANUP_PAGES bytes = {.data = pages_get(len), .len = len};
    int rc = bytes.data ? image_read(image, bytes.data, off, len) : -ENOMEM;
    if (!bytes.data)
        fuse_reply_err(req, ENOMEM);
    else if (rc)
        fuse_reply_err(req, serving_request_failed(f->serving, rc));
    else
        fuse_reply_buf(req, bytes.data, len);
}

/* Reads may extend beyond the end of the file, since the kernel reads whole pages. */
static void on_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    struct files *f = fuse_req_userdata(req);
    CLEANUP(cleanup_stack_export) struct stack_export *e = inode_table_get_open(&f->inode_table, ino);
    if (!e || size > FILES_READ_MAX) {
        fuse_reply_err(req, e ? ENOMEM : ESTALE);
        return;
    }
    struct image *image = stack_export_image(e);
    uint64_t end = image_manifest(image)->size, from = (uint64_t)off;
    size_t len = from < end ? GR_MIN((uint64_t)size, end - from) : 0;
    if (!len) {
        fuse_reply_buf(req, NULL, 0);
        return;
    }
    wait_for_budget(&f->budget, image, from, len);
    read_for(f, req, image, from, len);
    give_back(&f->budget, len);
}

/* ---- the session ---- */

static void on_init(void *arg, struct fuse_conn_info *conn)
{
    const struct files *f = arg;
    conn->max_read = FILES_READ_MAX;
    conn->max_write = FILES_READ_MAX; /* libfuse derives max_pages from it, which bounds reads too */
    conn->max_readahead = FILES_READ_MAX;
    conn->max_background = conn->congestion_threshold = f->requests;
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
