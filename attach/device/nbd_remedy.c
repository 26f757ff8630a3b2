/* Which package of a distribution has the nbd module. A distribution is recognised by ID and ID_LIKE of os-release(5),
 * which is passed in, so that tests need no machine of each kind. */
#include "attach/device/nbd_remedy.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"

enum { VALUE_MAX = 128 };

/* Return the value of KEY= without its quotes; "" when it is not there. */
static void value_of(const char *text, const char *key, char out[VALUE_MAX])
{
    size_t len = strlen(key);
    *out = 0;
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) != 0 || line[len] != '=')
            continue;
        const char *value = line + len + 1;
        value += *value == '"' || *value == '\'';
        snprintf(out, VALUE_MAX, "%.*s", (int)strcspn(value, "\"'\n"), value);
        return;
    }
}

/* Whether a list separated by spaces has that word. */
static bool has_word(const char *words, const char *word)
{
    size_t len = strlen(word);
    for (const char *p = words; *p;) {
        size_t n = strcspn(p, " ");
        if (n == len && !memcmp(p, word, len))
            return true;
        p += n + (p[n] != 0);
    }
    return false;
}

const char *nbd_remedy(const char *os_release, const char *release, char out[NBD_REMEDY_MAX])
{
    /* The first match counts, so a derived distribution stands before the one it is like. %s: the kernel's release. */
    static const struct {
        const char *id, *text;
    } table[] = {
        {"ubuntu", "Ubuntu: apt install linux-modules-extra-%s, then modprobe nbd"},
        {"debian", "Debian: modprobe nbd; where that fails, apt install linux-image-amd64 or -arm64: kernel %s is "
                   "without, as cloud kernels are"},
        {"fedora", "Fedora: dnf install kernel-modules-%s, then modprobe nbd"},
        {"rhel", "RHEL and its relatives have no nbd in their kernels, nor has %s"},
        {"suse",
         "SUSE: zypper install kernel-default in place of kernel-default-base (%s is running), then modprobe nbd"},
    };
    char id[VALUE_MAX], like[VALUE_MAX];
    value_of(os_release, "ID", id);
    value_of(os_release, "ID_LIKE", like);
    bool rhel = !strcmp(id, "centos") || has_word(like, "rhel");
    for (size_t i = 0; i < GR_ARRAY_SIZE(table); i++) {
        bool fits = !strcmp(id, table[i].id) || has_word(like, table[i].id);
        if (!strcmp(table[i].id, "fedora"))
            fits = !strcmp(id, "fedora"); /* RHEL is like it, and has no such package */
        if (!strcmp(table[i].id, "rhel"))
            fits = fits || rhel;
        if (fits) {
            snprintf(out, NBD_REMEDY_MAX, table[i].text, release);
            return out;
        }
    }
    snprintf(out, NBD_REMEDY_MAX, "modprobe nbd, or a kernel with CONFIG_BLK_DEV_NBD in place of %s", release);
    return out;
}
