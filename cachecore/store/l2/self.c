/* Whether a member of a list is this node. Every node of a cluster has the same list, so each finds itself in it by its
 * addresses, without a name that it would have to be told. */
#include "store/l2/l2_internal.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "net/listen.h"

enum { HOST_SIZE = 256, PORT_SIZE = 8 };

/* HOST:PORT or [V6]:PORT, up to a slash. */
struct host_port {
    char host[HOST_SIZE], port[PORT_SIZE];
};

static bool host_port_parse(const char *text, struct host_port *out)
{
    size_t len = strcspn(text, "/");
    const char *colon = memrchr(text, ':', len);
    if (!colon)
        return false;
    size_t host_len = (size_t)(colon - text), port_len = len - host_len - 1;
    if (host_len >= 2 && *text == '[' && colon[-1] == ']') {
        text++;
        host_len -= 2;
    }
    if (host_len >= sizeof out->host || !port_len || port_len >= sizeof out->port)
        return false;
    snprintf(out->host, sizeof out->host, "%.*s", (int)host_len, text);
    snprintf(out->port, sizeof out->port, "%.*s", (int)port_len, colon + 1);
    return true;
}

/* Parse a numeric address. */
static bool address_parse(const char *host, struct in6_addr *out)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *found = NULL;
    if (getaddrinfo(host, NULL, &hints, &found))
        return false;
    bool good = listen_ip(found->ai_addr, out);
    freeaddrinfo(found);
    return good;
}

static bool same(const struct in6_addr *a, const struct in6_addr *b)
{
    return !memcmp(a, b, sizeof *a);
}

static bool is_wildcard(const struct in6_addr *a)
{
    static const struct in6_addr v4 = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    return same(a, &in6addr_any) || same(a, &v4);
}

/* Is it an address of one of this machine's interfaces? */
static bool is_local(const struct in6_addr *a)
{
    struct ifaddrs *all = NULL;
    struct in6_addr own;
    bool found = false;
    if (getifaddrs(&all))
        return false;
    for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next)
        found = listen_ip(i->ifa_addr, &own) && same(&own, a);
    freeifaddrs(all);
    return found;
}

bool member_is_self(const char *url, const char *self)
{
    const char *behind_scheme = strstr(url, "://");
    struct host_port there, here;
    struct in6_addr a, b;
    if (!behind_scheme || !host_port_parse(behind_scheme + 3, &there) || !host_port_parse(self, &here) ||
        strcmp(there.port, here.port) != 0)
        return false;
    bool numeric = address_parse(there.host, &a), bound = address_parse(here.host, &b) && !is_wildcard(&b);
    if (bound && numeric)
        return same(&a, &b);
    if (numeric)
        return is_local(&a);
    char name[HOST_SIZE] = "";
    bool named = !gethostname(name, sizeof name - 1) && !strcmp(name, there.host);
    return named || !strcmp(there.host, "localhost") || !strcmp(there.host, here.host);
}
