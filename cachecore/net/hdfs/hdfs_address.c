/* Addresses and identities of HDFS. A token is a secret: every buffer that contained one is wiped before it is freed.
 */
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/text.h"
#include "net/hdfs/webhdfs_internal.h"

static const char plain_scheme[] = "hdfs://", tls_scheme[] = "swebhdfs://";

bool hdfs_address_known(const char *url)
{
    return text_begins_with(url, plain_scheme) || text_begins_with(url, tls_scheme);
}

void hdfs_address_release(struct hdfs_address *a)
{
    for (size_t i = 0; i < a->count; i++)
        free(a->namenodes[i]);
    free(a->name);
    free(a->path);
    *a = (struct hdfs_address){.count = 0};
}

/* Is this a host name, an IPv4 address or an IPv6 address in brackets, perhaps with a port? */
static bool host_ok(const char *host, size_t len, bool *out_port)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    size_t name = len && host[0] == '[' ? strcspn(host, "]") + 1 : strspn(host, letters);
    if (host[0] == '[' && strspn(host + 1, "0123456789abcdefABCDEF:.") + 2 != name)
        return false;
    *out_port = name < len;
    if (!name || name > len || (name < len && host[name] != ':'))
        return false;
    size_t digits = name < len ? strspn(host + name + 1, "0123456789") : 1;
    return digits && digits <= 5 && (name == len || name + 1 + digits == len);
}

/* Add one NameNode, with the default port if none is given. */
static int add_namenode(struct hdfs_address *a, const char *host, size_t len)
{
    bool port;
    if (a->count == HDFS_NAMENODES_MAX)
        return error_set(-EINVAL, "%s: more than %d NameNodes", a->name, HDFS_NAMENODES_MAX);
    if (!host_ok(host, len, &port))
        return error_set(-EINVAL,
                         "%s: '%.*s' is no host; write hdfs://NAMENODE:9870/PATH, several NameNodes divided by commas",
                         a->name, (int)len, host);
    int n = asprintf(&a->namenodes[a->count], "%.*s%s", (int)len, host, port ? "" : a->tls ? ":9871" : ":9870");
    if (n < 0)
        return error_no_memory();
    a->count++;
    return 0;
}

static int hdfs_address_parse_url(const char *url, struct hdfs_address *a)
{
    a->tls = text_begins_with(url, tls_scheme);
    const char *host = url + strlen(a->tls ? tls_scheme : plain_scheme);
    size_t len = strcspn(host, "/"), path_len = strlen(host + len);
    if (memchr(host, '@', len))
        return error_set(-EINVAL, "HDFS: a user does not belong in the address; set HADOOP_USER_NAME");
    while (path_len && host[len + path_len - 1] == '/')
        path_len--;
    a->name = strndup(url, (size_t)(host - url) + len);
    a->path = strndup(host + len, path_len);
    if (!a->name || !a->path)
        return error_no_memory();
    for (const char *p = host;; p++) {
        size_t one = strcspn(p, ",/");
        int rc = add_namenode(a, p, one);
        p += one;
        if (rc || *p != ',')
            return rc;
    }
}

int hdfs_address_parse(const char *url, struct hdfs_address *out)
{
    *out = (struct hdfs_address){.count = 0};
    int rc =
        hdfs_address_known(url) ? hdfs_address_parse_url(url, out) : error_set(-EINVAL, "%s: no hdfs:// address", url);
    if (rc)
        hdfs_address_release(out);
    return rc;
}

/* Make "NAME=VALUE" with the value escaped. */
static int parameter(const char *name, const char *value, char **out)
{
    CLEANUP(bytes_wipe) struct bytes text = BYTES_INIT(3 * HADOOP_TOKEN_TEXT_MAX + 64);
    int rc = bytes_printf(&text, "%s=", name);
    if (!rc)
        rc = http_percent_encode(&text, value, strlen(value), false);
    const char *whole = rc ? NULL : bytes_string(&text);
    *out = whole ? strdup(whole) : NULL;
    return *out ? 0 : error_no_memory();
}

/* Make "delegation=TOKEN" from a token file. */
static int token_parameter(const struct hdfs_address *a, const char *file, char **out)
{
    CLEANUP(bytes_wipe) struct bytes data = BYTES_INIT(HADOOP_TOKEN_FILE_MAX);
    char *token = NULL;
    int rc = io_read_file(file, &data);
    if (rc)
        return error_set(rc, "Hadoop token file %s cannot be read: %s", file, strerror(-rc));
    rc = hadoop_token_decode(data.data, data.len, (const char *const *)a->namenodes, a->count, &token);
    if (rc)
        return error_prefix(rc, "%s", file);
    rc = parameter("delegation", token, out);
    text_wipe(&token);
    return rc;
}

/* Make "user.name=NAME", which a cluster without Kerberos believes. */
static int user_parameter(char **out)
{
    const char *user = text_of_environment("HADOOP_USER_NAME");
    struct passwd entry, *found = NULL;
    char room[16384];
    if (user)
        return parameter("user.name", user, out);
    int err = getpwuid_r(geteuid(), &entry, room, sizeof room, &found);
    if (!found)
        return error_set(err ? -err : -ENOENT, "HDFS: the user id %u has no name here; set HADOOP_USER_NAME",
                         (unsigned)geteuid());
    return parameter("user.name", found->pw_name, out);
}

int hdfs_address_identity(const struct hdfs_address *a, const char *token_file, char **out, bool *out_secret)
{
    if (!token_file)
        token_file = getenv("HADOOP_TOKEN_FILE_LOCATION");
    *out_secret = token_file && *token_file;
    return *out_secret ? token_parameter(a, token_file, out) : user_parameter(out);
}
