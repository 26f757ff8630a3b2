/* The first row of a table that fits counts. A distribution is recognised by ID and ID_LIKE of os-release(5), which is
 * passed in, so that tests need no machine of each kind. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "attach/device/device.h"
#include "attach/device/device_internal.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/io.h"

enum { VALUE_MAX = 128, OS_RELEASE_MAX = 64 << 10 };

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

/* Every distribution has these two in the package of the kernel itself: where one is missing, another kernel runs. */
/* clang-format off */
#define OF_THE_KERNEL(module, option)                                                                                  \
    {module, "ubuntu", 0, "Ubuntu: its kernels have " module " built in; boot one in place of %s"},                    \
    {module, "debian", 0, "Debian: modprobe " module "; where that fails, apt install linux-image-amd64 or -arm64 "    \
                          "and boot it in place of %s"},                                                               \
    {module, "fedora", 0, "Fedora: modprobe " module "; where that fails, dnf install kernel-core and boot it in "     \
                          "place of %s"},                                                                              \
    {module, "rhel", 0, "RHEL and its relatives: modprobe " module "; where that fails, dnf install kernel-core and "  \
                        "boot it in place of %s"},                                                                     \
    {module, "suse", 0, "SUSE: modprobe " module "; where that fails, zypper install kernel-default and boot it in "   \
                        "place of %s"},                                                                                \
    {module, "", 0, "modprobe " module ", or a kernel with " option " in place of %s"}
/* clang-format on */

/* %s: the kernel's release. */
static const struct remedy {
    const char *module, *id; /* "": any distribution */
    unsigned before;         /* only kernels before this version; 0: all */
    const char *text;
} remedies[] = {
    /* A derived distribution stands before the one it is like. */
    {"nbd", "ubuntu", 0, "Ubuntu: apt install linux-modules-%s, then modprobe nbd"},
    {"nbd", "debian", 0,
     "Debian: modprobe nbd; where that fails, apt install linux-image-amd64 or -arm64 and boot it: kernel %s "
     "has no nbd"},
    {"nbd", "fedora", 0, "Fedora: dnf install kernel-modules-%s, then modprobe nbd"},
    {"nbd", "rhel", 0, "RHEL and its relatives have no nbd in their kernels, nor has %s"},
    {"nbd", "suse", 0,
     "SUSE: zypper install kernel-default in place of kernel-default-base (%s is running), then modprobe nbd"},
    {"nbd", "", 0, "modprobe nbd, or a kernel with CONFIG_BLK_DEV_NBD in place of %s"},
    /* No such package since 7.0. Before, kernels for AWS and Oracle have erofs in it, others in linux-modules. */
    {"erofs", "ubuntu", 7, "Ubuntu: apt install linux-modules-extra-%s, then modprobe erofs"},
    {"erofs", "", 0, "modprobe erofs, or a kernel with CONFIG_EROFS_FS in place of %s"},
    {"ext4", "", 0, "modprobe ext4, or a kernel with CONFIG_EXT4_FS in place of %s"},
    OF_THE_KERNEL("fuse", "CONFIG_FUSE_FS"),
    OF_THE_KERNEL("loop", "CONFIG_BLK_DEV_LOOP"),
    {"ublk_drv", "", 0, "modprobe ublk_drv, or a kernel with CONFIG_BLK_DEV_UBLK in place of %s"},
};

/* Whether os_release is of that distribution, or of one like it. */
static bool is_distribution(const char *os_release, const char *distribution)
{
    char id[VALUE_MAX], like[VALUE_MAX];
    value_of(os_release, "ID", id);
    value_of(os_release, "ID_LIKE", like);
    if (!*distribution || !strcmp(id, distribution))
        return true;
    if (!strcmp(distribution, "fedora"))
        return false; /* RHEL is like it, and has no such package */
    return has_word(like, distribution) || (!strcmp(distribution, "rhel") && !strcmp(id, "centos"));
}

const char *module_remedy(const char *module, const char *os_release, const char *release, char out[MODULE_REMEDY_MAX])
{
    const struct remedy *r = remedies;
    *out = 0;
    for (; r < remedies + GR_ARRAY_SIZE(remedies); r++)
        if (!strcmp(r->module, module) && (!r->before || strtoul(release, NULL, 10) < r->before) &&
            is_distribution(os_release, r->id)) {
            snprintf(out, MODULE_REMEDY_MAX, r->text, release);
            break;
        }
    return out;
}

const char *module_remedy_here(const char *module, char out[MODULE_REMEDY_MAX])
{
    CLEANUP_BYTES os = BYTES_INIT(OS_RELEASE_MAX);
    struct utsname kernel = {.release = ""};
    if (io_read_file("/etc/os-release", &os) || !bytes_string(&os))
        os.len = 0;
    uname(&kernel);
    return module_remedy(module, os.len ? (const char *)os.data : "", kernel.release, out);
}
