/* A scratch is a buffer until a write would exceed its memory limit; then the contents move to a file, and the buffer
 * is freed. There is no second cache: the kernel's page cache keeps the file's recent pages in memory. The file has no
 * name, so nothing is left behind however the process ends.
 */
#include "base/spill/scratch.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/io.h"

enum {
    BLOCK = 4096,          /* bytes that a filesystem can give back, at least */
    FORGET_STEP = 1 << 20, /* bytes that a reader gives back at a time, so that there are few calls */
};

struct scratch {
    char *dir;
    size_t memory; /* limit of the buffer, in bytes */
    uint8_t *data; /* the buffer while fd < 0: cap bytes, len of them in use */
    size_t cap;
    int fd; /* the file; -1: the contents are in memory */
    uint64_t len;
};

int scratch_new(const struct scratch_config *config, struct scratch **out)
{
    const char *dir = config->dir ? config->dir : getenv("TMPDIR");
    CLEANUP(cleanup_scratch) struct scratch *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory();
    s->fd = -1;
    s->memory = config->memory ? config->memory : SCRATCH_MEMORY_DEFAULT;
    s->dir = strdup(dir && *dir ? dir : "/var/tmp");
    if (!s->dir)
        return error_no_memory();
    *out = steal_ptr(&s);
    return 0;
}

void scratch_free(struct scratch *s)
{
    if (!s)
        return;
    if (s->fd >= 0)
        close(s->fd);
    free(s->data);
    free(s->dir);
    free(s);
}

/* Set the sentence for a failed write. ENOTDIR, ENOENT, EACCES and EROFS have the same remedy as a full disk. */
static int file_error(const struct scratch *s, int rc)
{
    return error_set(rc,
                     "cannot keep temporary data in %s: %s; make room there or name another directory with --tmpdir",
                     s->dir, strerror(-rc));
}

/* Make a file without a name. On filesystems without O_TMPFILE, make one with a name and unlink it at once. */
static int make_file(struct scratch *s)
{
    s->fd = open(s->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (s->fd >= 0)
        return 0;
    CLEANUP_FREE char *name = NULL;
    if (asprintf(&name, "%s/granary-XXXXXX", s->dir) < 0) {
        name = NULL;
        return error_no_memory();
    }
    s->fd = mkostemp(name, O_CLOEXEC);
    if (s->fd < 0)
        return file_error(s, -errno);
    unlink(name);
    return 0;
}

/* Move the contents from memory to a file. */
static int spill(struct scratch *s)
{
    int rc = make_file(s);
    if (!rc && s->len)
        rc = io_pwrite_full(s->fd, s->data, (size_t)s->len, 0);
    if (rc && s->fd >= 0) { /* drop the file and keep the buffer: the contents can still be read */
        close(steal_fd(&s->fd));
        return file_error(s, rc);
    }
    if (rc)
        return rc;
    free(steal_ptr(&s->data));
    return 0;
}

/* Make room for `end` bytes in memory. The buffer doubles, up to the limit. */
static int grow(struct scratch *s, size_t end)
{
    if (end <= s->cap)
        return 0;
    /* at least 4 KiB, then twice as much each time, but not more than the limit */
    size_t cap = GR_MAX(GR_MIN(GR_MAX(s->cap * 2, (size_t)4096), s->memory), end);
    uint8_t *fresh = realloc(s->data, cap);
    if (!fresh)
        return error_no_memory();
    s->data = fresh;
    s->cap = cap;
    return 0;
}

int scratch_write(struct scratch *s, uint64_t at, const void *data, size_t len)
{
    uint64_t end;
    bool over = __builtin_add_overflow(at, (uint64_t)len, &end);
    assert(!over && end <= INT64_MAX);
    if (!len)
        return 0;
    int rc = 0;
    if (s->fd < 0 && end > s->memory)
        rc = spill(s);
    else if (s->fd < 0)
        rc = grow(s, (size_t)end);
    if (rc)
        return rc;
    if (s->fd >= 0) {
        rc = io_pwrite_full(s->fd, data, len, at);
        if (rc)
            return file_error(s, rc);
    } else {
        if (at > s->len) /* a gap; a file reads it as zeros by itself */
            memset(s->data + s->len, 0, (size_t)(at - s->len));
        memcpy(s->data + at, data, len);
    }
    s->len = GR_MAX(s->len, end);
    return 0;
}

int scratch_read(struct scratch *s, uint64_t at, void *dst, size_t len)
{
    assert(at <= s->len && len <= s->len - at);
    if (!len)
        return 0;
    if (s->fd < 0) {
        memcpy(dst, s->data + at, len);
        return 0;
    }
    ssize_t n = io_pread_full(s->fd, dst, len, at);
    if (n < 0 || (size_t)n < len)
        return error_set(n < 0 ? (int)n : -EIO, "cannot read temporary data back from %s: %s", s->dir,
                         n < 0 ? strerror((int)-n) : "the file is shorter than what was written");
    return 0;
}

void scratch_forget(struct scratch *s, uint64_t start, uint64_t end)
{
    start = GR_ALIGN_UP(start, (uint64_t)BLOCK);
    end -= end % BLOCK;
    if (s->fd >= 0 && start < end) /* a failure only keeps the space in use */
        (void)fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)start, (off_t)(end - start));
}

uint64_t scratch_len(const struct scratch *s)
{
    return s->len;
}

int scratch_reader_init(struct scratch_reader *r, struct scratch *from, uint64_t start, uint64_t end, size_t window)
{
    *r = (struct scratch_reader){.from = from,
                                 .at = start,
                                 .end = end,
                                 .forgotten = start,
                                 .cap = (size_t)GR_MIN(end - start, (uint64_t)window)};
    r->window = malloc(r->cap + 1); /* malloc(0) may be NULL */
    return r->window ? 0 : error_no_memory();
}

void scratch_reader_release(struct scratch_reader *r)
{
    free(r->window);
}

/* Give back what is before the window. The last block belongs to the next round: it may be used in part. */
static void forget(struct scratch_reader *r)
{
    uint64_t used = (r->at - r->len) / BLOCK * BLOCK;
    if (used < r->forgotten + FORGET_STEP)
        return;
    scratch_forget(r->from, r->forgotten, used);
    r->forgotten = used;
}

int scratch_reader_fill(struct scratch_reader *r, size_t need)
{
    if (r->len - r->pos >= need)
        return 0;
    /* keep what is not used yet at the front, and fill up after it */
    memmove(r->window, r->window + r->pos, r->len - r->pos);
    r->len -= r->pos;
    r->pos = 0;
    if (r->forgets)
        forget(r);
    if (need > r->cap) {
        uint8_t *fresh = realloc(r->window, need);
        if (!fresh)
            return error_no_memory();
        r->window = fresh;
        r->cap = need;
    }
    size_t n = (size_t)GR_MIN((uint64_t)(r->cap - r->len), r->end - r->at);
    assert(r->len + n >= need);
    int rc = scratch_read(r->from, r->at, r->window + r->len, n);
    if (rc)
        return rc;
    r->at += n;
    r->len += n;
    return 0;
}
