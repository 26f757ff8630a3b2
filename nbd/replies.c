/* One connection's replies, and its end.
 *
 * The thread that has a reply sends it, so a reply needs no second thread unless the client is slow; then the rest
 * waits until the socket accepts more.
 *
 * A waiting reply is only a copy of what can be read again. So it is dropped when another client needs the memory,
 * and a client that takes nothing holds no memory that others could use. A long reply is read and sent in parts, so it
 * holds no more memory than others. The first reply of a client may be half sent (broken_off). It must then be the next
 * to be sent, and nothing else is until its next bytes have been read.
 *
 *    complete --> out --> sent
 *                  |--> dropped (memory needed) --.
 *                  `--> a part of it sent --------+--> waiting[UNSORTED] --> what was not sent is read --> out
 *
 * The end of a connection:  ended (no more input) --> all answered --> dead --> no thread works for it --> freed
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "nbd/server_internal.h"

enum { SEND_AT_ONCE = 16 }; /* replies in one system call */

size_t reply_data_sent(const struct task *t)
{
    return t->sent > t->head_len ? t->sent - t->head_len : 0;
}

/* The bytes of the reply up to the end of the part that is in memory. */
static size_t end_of_part(const struct task *t)
{
    return t->head_len + (t->data ? t->data_at + t->data->len : 0);
}

static bool is_last_part(const struct task *t)
{
    return !t->data || t->data_at + t->data->len >= t->request.len;
}

/* Can the reply be dropped and read again? Messages of the handshake cannot. */
static bool can_be_given_up(const struct task *t)
{
    return t->memory && t->memory_of == &t->connection->server->memory;
}

/* Queue a reply so that what was not sent of it is read. */
static void read_on_locked(struct task *t)
{
    buf_unref(steal_ptr(&t->data));
    task_give_memory_locked(t);
    pool_push_locked(t, WAITING_UNSORTED);
}

/* ---- events ---- */

void connection_wait_locked(struct connection *c)
{
    bool full = c->unanswered >= (c->transmitting ? CONNECTION_UNANSWERED_MAX : 1);
    uint32_t events =
        (c->ended || full || c->stalled || c->kept ? 0u : (uint32_t)EPOLLIN) | (c->blocked ? (uint32_t)EPOLLOUT : 0);
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (events != c->events && !c->dead && !epoll_ctl(c->server->epoll, EPOLL_CTL_MOD, c->fd, &event))
        c->events = events;
}

/* ---- the end ---- */

void connection_left_locked(struct connection *c)
{
    struct nbd_server *s = c->server;
    if (--c->working || !c->dead)
        return;
    while (c->out.first)
        task_free_locked(task_list_pop(&c->out));
    c->next = s->dead;
    s->dead = c;
    eventfd_write(s->wake_fd, 1);
}

void connection_kill_locked(struct connection *c)
{
    struct nbd_server *s = c->server;
    if (c->dead)
        return;
    c->dead = true;
    client_set_disconnected(&c->client);
    pool_forget_locked(c);
    epoll_ctl(s->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    shutdown(c->fd, SHUT_RDWR);
    *(c->prev ? &c->prev->next : &s->first) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->working++;
    connection_left_locked(c);
}

/* Call it after each change: disconnects if the input ended and everything is answered, else updates the events. */
static void connection_complete_locked(struct connection *c)
{
    if (c->ended && !c->unanswered)
        connection_kill_locked(c);
    else
        connection_wait_locked(c);
}

void connection_end_locked(struct connection *c)
{
    c->ended = true;
    c->heard_ms = clock_now_ms();
    connection_complete_locked(c);
}

/* Over TCP, a client that closed its connection looks like one that shut down its sending direction until something
 * is sent to it, and a silent store leaves nothing to send: its reads would hold threads and a place for as long. */
bool connection_is_lost_locked(const struct connection *c, uint64_t now_ms)
{
    return c->ended && !c->out.first && !c->blocked && now_ms >= c->heard_ms + LEAVING_MS;
}

void connection_free(struct connection *c)
{
    tls_session_free(c->tls);
    if (c->export)
        serving_disconnect(c->export);
    client_release(&c->client);
    close(c->fd);
    free(c);
}

/* ---- sending ---- */

/* Collect the replies to send, up to one with more parts. Over TLS only one: a record that the socket did not accept
 * must be sent unchanged, whatever is dropped meanwhile. */
static size_t gather(const struct connection *c, struct iovec out[2 * SEND_AT_ONCE])
{
    struct task *t = c->out.first;
    size_t n = 0;
    for (int i = 0; t && i < (c->tls ? 1 : SEND_AT_ONCE); t = is_last_part(t) ? t->next : NULL, i++) {
        if (t->sent < t->head_len)
            out[n++] = (struct iovec){(uint8_t *)&t->head + t->sent, t->head_len - t->sent};
        if (t->data) {
            size_t in_part = reply_data_sent(t) - t->data_at;
            out[n++] = (struct iovec){t->data->data + in_part, t->data->len - in_part};
        }
    }
    return n;
}

/* Account for bytes that the socket accepted. Free the replies that are complete, and have the next part of a long one
 * read. */
static void sent_locked(struct connection *c, size_t bytes)
{
    c->watched_taken += bytes;
    if (c->ended)
        c->heard_ms = clock_now_ms();
    for (struct task *t; bytes && (t = c->out.first);) {
        size_t now = GR_MIN(bytes, end_of_part(t) - t->sent);
        t->sent += now;
        bytes -= now;
        if (t->sent < end_of_part(t))
            continue;
        task_list_pop(&c->out);
        c->out_memory -= can_be_given_up(t) ? t->memory : 0;
        if (is_last_part(t) || c->dead)
            task_free_locked(t);
        else {
            c->broken_off = t;
            read_on_locked(t);
            pool_wake_locked(c->server);
        }
    }
}

/* Begin to watch whether the client takes its replies. */
static void watch_locked(struct connection *c)
{
    c->watched_ms = clock_now_ms();
    c->watched_taken = c->watched_waiting = 0;
    for (const struct task *t = c->out.first; t; t = t->next)
        c->watched_waiting += end_of_part(t) - t->sent;
}

/* One thread sends at a time (c->sending). The lock is released around the system call, and c->working keeps the
 * connection alive meanwhile. */
void connection_send_locked(struct connection *c)
{
    struct nbd_server *s = c->server;
    if (c->sending || c->blocked || c->dead)
        return;
    c->sending = true;
    c->working++;
    while (c->out.first && !c->broken_off && !c->blocked && !c->dead) {
        struct iovec parts[2 * SEND_AT_ONCE];
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = gather(c, parts)};
        pthread_mutex_unlock(&s->lock);
        ssize_t n = c->tls ? tls_session_send(c->tls, parts, message.msg_iovlen)
                           : sendmsg(c->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        int code = n < 0 ? errno : 0;
        pthread_mutex_lock(&s->lock);
        if (n >= 0)
            sent_locked(c, (size_t)n);
        else if (code == EAGAIN)
            c->blocked = true;
        else if (code != EINTR)
            connection_kill_locked(c);
    }
    c->sending = false;
    if (!c->blocked)
        c->watched_ms = 0;
    else if (!c->watched_ms)
        watch_locked(c);
    if (!c->dead)
        connection_complete_locked(c);
    connection_left_locked(c);
}

void connection_unblock_locked(struct connection *c)
{
    c->blocked = c->given_up = false;
    c->heard_ms = clock_now_ms();
    connection_send_locked(c);
    pool_wake_locked(c->server); /* its requests may be read again, and what waits for it may be dropped again */
}

/* ---- dropping replies that are not taken ---- */

/* Drop a client's last reply: its first is wanted soonest. */
static void give_up_last_locked(struct connection *c)
{
    struct task_list kept = {0};
    struct task *last = NULL;
    for (struct task *t = c->out.first; t; t = t->next)
        last = can_be_given_up(t) ? t : last;
    c->given_up = c->blocked;
    if (last == c->out.first && !c->broken_off)
        c->broken_off = last;
    for (struct task *t; (t = task_list_pop(&c->out));)
        if (t != last)
            task_list_push(&kept, t);
    c->out = kept;
    c->out_memory -= last->memory;
    read_on_locked(last);
}

/* `least` is what the other client must hold for an exchange to help (server_internal.h says why). */
bool replies_give_up_locked(const struct connection *by, size_t need)
{
    struct connection *most = NULL;
    for (struct connection *c = by->blocked ? NULL : by->server->first; c; c = c->next) {
        size_t least = by->memory && c != by ? by->memory + need : 0;
        if ((c->blocked || c->broken_off) && !c->sending && c->out_memory > GR_MAX(least, most ? most->out_memory : 0))
            most = c;
    }
    if (most)
        give_up_last_locked(most);
    return most;
}

/* ---- slow clients ---- */

/* Slow: it took less than a quarter of what waited, and its memory was needed. Watching starts again each time. */
bool connection_is_slow_locked(struct connection *c, uint64_t now_ms)
{
    enum { PART = 4 };
    if (!c->watched_ms || now_ms < c->watched_ms + c->server->config.slow_ms)
        return false;
    bool needed = c->given_up || c->server->short_ms >= c->watched_ms;
    bool slow = needed && c->watched_taken < c->watched_waiting / PART;
    watch_locked(c);
    return slow;
}

/* An error reply has no data, so its memory is released at once. */
void connection_reply_locked(struct connection *c, struct task *t)
{
    t->head = (struct nbd_wire_simple_reply){
        .magic = htobe32(NBD_WIRE_SIMPLE_MAGIC), .error = htobe32(t->request.error), .cookie = t->request.cookie};
    t->head_len = sizeof t->head;
    if (!t->data)
        task_give_memory_locked(t);
    c->out_memory += can_be_given_up(t) ? t->memory : 0;
    if (t == c->broken_off) {
        c->broken_off = NULL;
        task_list_push_first(&c->out, t);
    } else
        task_list_push(&c->out, t);
}

void connection_answer_locked(struct connection *c, struct task *t)
{
    connection_reply_locked(c, t);
    connection_send_locked(c);
}
