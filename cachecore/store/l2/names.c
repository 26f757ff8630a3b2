/* A DNS name whose addresses are the members.
 *
 * getaddrinfo() has no deadline: without a name server it waits for as long as /etc/resolv.conf says, and for minutes
 * where a long answer needs a TCP connection that nobody accepts. So each look-up is made by a thread of its own, of
 * which a name has one at most. Who asked looks at the result when it likes; when it stops first, the thread goes on
 * alone and frees what it has. */
#include "store/l2/l2_internal.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/error.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/vec.h"

/* ---- the address ---- */

int name_url_parse(const char *text, bool any_name, struct name_url *out)
{
    const char *url = text + strlen(NAME_SCHEME);
    const char *scheme = text_begins_with(url, "http://")                ? "http://"
                         : any_name && text_begins_with(url, "https://") ? "https://"
                                                                         : NULL;
    if (!scheme)
        return error_set(-EINVAL,
                         "shared cache proxies by name: write dns+http://NAME:PORT/PATH; https is possible only among "
                         "nodes (peer-tls), since certificates are for names and proxies are addresses");
    int rc = http_check_url("shared cache proxies by name:", text, "restrict access by network");
    if (rc)
        return rc;
    const char *host = url + strlen(scheme);
    size_t host_len = strcspn(host, ":/");
    if (*host == '[' || !host_len)
        return error_set(-EINVAL, "%s: write a name after dns+%s, or leave dns+ out before an address", text, scheme);
    *out = (struct name_url){.scheme = scheme, .host = strndup(host, host_len), .rest = strdup(host + host_len)};
    if (out->host && out->rest)
        return 0;
    name_url_release(out);
    return error_no_memory();
}

void name_url_release(struct name_url *n)
{
    free(n->host);
    free(n->rest);
    *n = (struct name_url){0};
}

/* ---- the addresses ---- */

static int compare_addresses(const void *a, const void *b)
{
    return strcmp(((const struct address *)a)->text, ((const struct address *)b)->text);
}

/* All nodes must get the same members from one answer, in whatever order it comes: sorted, each once, and of one family
 * only, since a proxy that has an address of each would be two members. */
int name_members(const struct name_url *name, struct addresses *found, struct members *out)
{
    bool any_ipv4 = false;
    int rc = 0;
    if (found->len)
        qsort(found->items, found->len, sizeof *found->items, compare_addresses);
    for (size_t i = 0; i < found->len; i++)
        any_ipv4 |= *found->items[i].text != '[';
    for (size_t i = 0; !rc && i < found->len; i++) {
        const char *address = found->items[i].text;
        CLEANUP_FREE char *url = NULL;
        if ((any_ipv4 && *address == '[') || (i && !strcmp(address, found->items[i - 1].text)))
            continue;
        if (out->len == STORE_L2_MAX)
            rc = error_set(-EINVAL, "%s has more than %d addresses", name->host, STORE_L2_MAX);
        else if (asprintf(&url, "%s%s%s", name->scheme, address, name->rest) < 0)
            rc = error_no_memory();
        else
            rc = members_add(out, url, strlen(url), 0);
    }
    if (!rc && !out->len)
        rc = error_set(-ENOENT, "%s has no address", name->host);
    return rc;
}

int name_look_up_system(void *arg, const char *host, struct addresses *out)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(host, NULL, &hints, &found);
    if (rc)
        return error_set(-EAGAIN, "the addresses of %s are not known: %s", host,
                         rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
    rc = 0;
    for (struct addrinfo *i = found; !rc && i; i = i->ai_next) {
        char text[NI_MAXHOST];
        struct address address;
        if (getnameinfo(i->ai_addr, i->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST) || strchr(text, '%'))
            continue; /* a link-local address means something else on each node */
        snprintf(address.text, sizeof address.text, i->ai_family == AF_INET6 ? "[%.45s]" : "%.45s", text);
        rc = vec_push(out, address);
    }
    freeaddrinfo(found);
    return rc;
}

/* ---- a look-up ---- */

/* Its thread has a reference, and who asked has one. */
struct look_up {
    _Atomic unsigned refs;
    name_look_up *look;
    void *arg;
    char *host;
    pthread_t thread;
    struct addresses found; /* the thread's, until it has ended; so is `failure` */
    struct error failure;
    _Atomic bool ended;
};

static void look_up_unref(struct look_up *l)
{
    if (atomic_fetch_sub(&l->refs, 1) > 1)
        return;
    vec_release(&l->found);
    free(l->host);
    free(l);
}

static void *look_up_run(void *arg)
{
    struct look_up *l = arg;
    int rc = l->look(l->arg, l->host, &l->found);
    if (rc)
        error_take(&l->failure, rc);
    atomic_store(&l->ended, true);
    look_up_unref(l);
    return NULL;
}

int look_up_start(name_look_up *look, void *arg, const char *host, struct look_up **out)
{
    struct look_up *l = calloc(1, sizeof *l);
    if (!l || !(l->host = strdup(host))) {
        free(l);
        return error_no_memory();
    }
    l->refs = 2;
    l->look = look;
    l->arg = arg;
    int rc = thread_start(&l->thread, look_up_run, l);
    if (rc) {
        l->refs = 1;
        look_up_unref(l);
        return rc;
    }
    *out = l;
    return 0;
}

bool look_up_ended(const struct look_up *l)
{
    return atomic_load(&l->ended);
}

int look_up_end(struct look_up *l, struct addresses *out)
{
    pthread_join(l->thread, NULL);
    *out = l->found;
    l->found = (struct addresses){0};
    int rc = l->failure.code ? error_restore(&l->failure) : 0;
    look_up_unref(l);
    return rc;
}

void look_up_abandon(struct look_up *l)
{
    pthread_detach(l->thread);
    look_up_unref(l);
}
