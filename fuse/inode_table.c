/* A table of open files, searched from the front: a mount has a few. Connecting to an export takes the stack's lock and
 * may compute digests, so it is done without the table's lock; the table is looked at again afterwards, and the
 * connection is dropped when another thread was faster. */
#include "fuse/files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "base/digest.h"
#include "base/le.h"

void inode_table_init(struct inode_table *s, struct stack *stack)
{
    *s = (struct inode_table){.stack = stack};
    pthread_rwlock_init(&s->lock, NULL);
}

void inode_table_release(struct inode_table *s)
{
    for (size_t i = 0; i < s->files.len; i++)
        stack_disconnect(s->files.items[i].export);
    vec_release(&s->files);
    pthread_rwlock_destroy(&s->lock);
}

/* The highest bit keeps the number away from FUSE's reserved ones, 0 and 1. */
uint64_t inode_table_number(const struct stack_export *e)
{
    char text[DIGEST_HEX_SIZE + NAME_MAX + 2], hex[DIGEST_HEX_SIZE];
    int len = snprintf(text, sizeof text, "%s %s", digest_hex(image_digest(stack_export_image(e)), hex),
                       stack_export_name(e));
    struct digest d = digest_of(text, GR_MIN((size_t)len, sizeof text - 1));
    return le64_get(&d) | 1ull << 63;
}

static struct inode_table_file *inode_table_find_locked(struct inode_table *s, uint64_t number)
{
    for (size_t i = 0; i < s->files.len; i++)
        if (s->files.items[i].number == number)
            return &s->files.items[i];
    return NULL;
}

/* Return the export of a file that is in the table, or NULL. */
static struct stack_export *get_known(struct inode_table *s, uint64_t number)
{
    pthread_rwlock_rdlock(&s->lock);
    const struct inode_table_file *f = inode_table_find_locked(s, number);
    struct stack_export *e = f ? stack_ref(f->export) : NULL;
    pthread_rwlock_unlock(&s->lock);
    return e;
}

struct stack_export *inode_table_get(struct inode_table *s, uint64_t number)
{
    struct stack_export *e = get_known(s, number);
    if (e)
        return e;
    while ((e = stack_next(s->stack, e)) && inode_table_number(e) != number)
        ;
    return e;
}

/* Connect to the export with that number. Between the lookup by number and the connect by name the export may be
 * replaced by another image under the same name; that is not the file. */
static struct stack_export *inode_table_connect_to(struct inode_table *s, uint64_t number)
{
    struct stack_export *listed = inode_table_get(s, number);
    struct stack_export *e = listed ? stack_connect(s->stack, stack_export_name(listed)) : NULL;
    stack_put(listed);
    if (e && inode_table_number(e) != number) { /* replaced in between */
        stack_disconnect(e);
        return NULL;
    }
    return e;
}

/* Enter a file, or add opens to it. -ESTALE: the export is gone; -ENOMEM. */
static int inode_table_note(struct inode_table *s, uint64_t number, unsigned opens)
{
    struct stack_export *e = inode_table_connect_to(s, number);
    if (!e)
        return -ESTALE;
    pthread_rwlock_wrlock(&s->lock);
    struct inode_table_file *f = inode_table_find_locked(s, number);
    int rc = 0;
    if (f)
        f->opens += opens;
    else
        rc = vec_push(&s->files, ((struct inode_table_file){.number = number, .export = e, .opens = opens}));
    pthread_rwlock_unlock(&s->lock);
    if (f || rc)
        stack_disconnect(e);
    return rc;
}

struct stack_export *inode_table_get_open(struct inode_table *s, uint64_t number)
{
    struct stack_export *e;
    while (!(e = get_known(s, number)) && !inode_table_note(s, number, 0)) /* a release in between removes it again */
        ;
    return e;
}

int inode_table_open(struct inode_table *s, uint64_t number)
{
    return inode_table_note(s, number, 1);
}

void inode_table_close(struct inode_table *s, uint64_t number)
{
    struct stack_export *done = NULL;
    pthread_rwlock_wrlock(&s->lock);
    struct inode_table_file *f = inode_table_find_locked(s, number);
    if (f && f->opens > 1)
        f->opens--;
    else if (f) {
        done = f->export;
        *f = s->files.items[--s->files.len];
    }
    pthread_rwlock_unlock(&s->lock);
    if (done)
        stack_disconnect(done);
}
