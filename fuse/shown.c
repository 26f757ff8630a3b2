#include "fuse/shown.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "base/digest.h"
#include "base/le.h"

void shown_init(struct shown *s, struct stack *stack)
{
    *s = (struct shown){.stack = stack};
    pthread_rwlock_init(&s->lock, NULL);
}

void shown_release(struct shown *s)
{
    for (size_t i = 0; i < s->files.len; i++)
        stack_disconnect(s->files.items[i].export);
    vec_release(&s->files);
    pthread_rwlock_destroy(&s->lock);
}

uint64_t shown_number(const struct stack_export *e)
{
    char text[DIGEST_HEX_SIZE + NAME_MAX + 2], hex[DIGEST_HEX_SIZE];
    int len = snprintf(text, sizeof text, "%s %s", digest_hex(image_digest(stack_export_image(e)), hex),
                       stack_export_name(e));
    struct digest d = digest_of(text, GR_MIN((size_t)len, sizeof text - 1));
    return le64_get(&d) | 1ull << 63;
}

static struct shown_file *find_locked(struct shown *s, uint64_t number)
{
    for (size_t i = 0; i < s->files.len; i++)
        if (s->files.items[i].number == number)
            return &s->files.items[i];
    return NULL;
}

static struct stack_export *get_known(struct shown *s, uint64_t number)
{
    pthread_rwlock_rdlock(&s->lock);
    const struct shown_file *f = find_locked(s, number);
    struct stack_export *e = f ? stack_ref(f->export) : NULL;
    pthread_rwlock_unlock(&s->lock);
    return e;
}

struct stack_export *shown_get(struct shown *s, uint64_t number)
{
    struct stack_export *e = get_known(s, number);
    if (e)
        return e;
    while ((e = stack_next(s->stack, e)) && shown_number(e) != number)
        ;
    return e;
}

/* An export that is shown by that number, held against removal. */
static struct stack_export *connect_to(struct shown *s, uint64_t number)
{
    struct stack_export *listed = shown_get(s, number);
    struct stack_export *e = listed ? stack_connect(s->stack, stack_export_name(listed)) : NULL;
    stack_put(listed);
    if (e && shown_number(e) != number) { /* replaced in between */
        stack_disconnect(e);
        return NULL;
    }
    return e;
}

static int note(struct shown *s, uint64_t number, unsigned opens)
{
    struct stack_export *e = connect_to(s, number);
    if (!e)
        return -ESTALE;
    pthread_rwlock_wrlock(&s->lock);
    struct shown_file *f = find_locked(s, number);
    int rc = 0;
    if (f)
        f->opens += opens;
    else
        rc = vec_push(&s->files, ((struct shown_file){.number = number, .export = e, .opens = opens}));
    pthread_rwlock_unlock(&s->lock);
    if (f || rc)
        stack_disconnect(e);
    return rc;
}

struct stack_export *shown_get_open(struct shown *s, uint64_t number)
{
    struct stack_export *e;
    while (!(e = get_known(s, number)) && !note(s, number, 0)) /* another's release may come in between */
        ;
    return e;
}

int shown_open(struct shown *s, uint64_t number)
{
    return note(s, number, 1);
}

void shown_close(struct shown *s, uint64_t number)
{
    struct stack_export *done = NULL;
    pthread_rwlock_wrlock(&s->lock);
    struct shown_file *f = find_locked(s, number);
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
