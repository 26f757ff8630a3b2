/* hostile_tree DIR [full]: fills an empty directory with what a filesystem image may get wrong: names of any bytes,
 * sizes around every border, a sparse file of 200 MiB (full: over 4 GiB), hard links, attributes, owners and times at
 * their limits, device nodes, directories of 6,000 entries (full: 100,000) and of 1,000 subdirectories (66,000).
 *
 * Deterministic but for the times of directories. What the filesystem below DIR or the user's rights do not allow
 * (attributes, device nodes, owners) is left out with a line on standard error.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

static void die(const char *what, const char *name)
{
    fprintf(stderr, "hostile_tree: %s %.60s: %s\n", what, name, strerror(errno));
    exit(1);
}

static void left_out(const char *what, const char *name)
{
    fprintf(stderr, "hostile_tree: left out: %s %.60s: %s\n", what, name, strerror(errno));
}

/* Bytes that differ from file to file and do not compress to nothing. */
static void write_bytes(int fd, uint64_t len, uint64_t seed)
{
    static uint8_t piece[1 << 16];
    uint64_t x = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    while (len) {
        size_t n = len < sizeof piece ? (size_t)len : sizeof piece;
        for (size_t i = 0; i < n; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            piece[i] = (uint8_t)("abcdefghijklmnop"[x & 15]);
        }
        if (write(fd, piece, n) != (ssize_t)n)
            die("write", "a file");
        len -= n;
    }
}

static void file(const char *name, uint64_t len, uint64_t seed)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0)
        die("create", name);
    write_bytes(fd, len, seed);
    close(fd);
}

static void enter(const char *name)
{
    if (mkdir(name, 0755) || chdir(name))
        die("mkdir", name);
}

static void leave(void)
{
    if (chdir(".."))
        die("chdir", "..");
}

static void make_crowds(bool full)
{
    char name[64];
    enter("crowd");
    for (unsigned i = 0; i < (full ? 100000u : 6000u); i++) {
        snprintf(name, sizeof name, "%x-%u", i * 2654435761u, i);
        file(name, 0, 0);
    }
    leave();
    enter("subdirectories");
    for (unsigned i = 0; i < (full ? 66000u : 1000u); i++) {
        snprintf(name, sizeof name, "s%u", i);
        if (mkdir(name, 0755))
            die("mkdir", name);
    }
    leave();
    enter("deep");
    for (unsigned i = 0; i < 60; i++) {
        snprintf(name, sizeof name, "level%u", i);
        enter(name);
    }
    file("bottom", 77, 1);
    for (unsigned i = 0; i < 61; i++)
        leave();
}

/* Directories whose entries end around the border of what fits beside the inode, and of a block. */
static void make_tails(void)
{
    char name[256];
    memset(name, 'n', 255);
    enter("tails");
    for (int len = 160; len <= 255; len++) {
        char dir[16];
        snprintf(dir, sizeof dir, "d%03d", len);
        enter(dir);
        name[200] = 0;
        for (int i = 0; i < 18; i++) {
            name[0] = (char)('a' + i);
            file(name, 0, 0);
        }
        name[0] = 'z';
        name[200] = 'n';
        name[len] = 0;
        file(name, 0, 0);
        name[len] = 'n';
        leave();
    }
    leave();
}

static void make_names(void)
{
    static const char *const names[] = {"!before the dots",
                                        "-dash",
                                        " ",
                                        "  two",
                                        "new\nline",
                                        "tab\t",
                                        "\xff\xfe not UTF-8",
                                        "\x01",
                                        "\x7f",
                                        "caf\xc3\xa9",
                                        "e\xcc\x81 apart",
                                        "...",
                                        ".hidden",
                                        "a",
                                        "a-b",
                                        "a.c",
                                        "a0",
                                        "back\\slash",
                                        "quote\"'",
                                        "*?[x]",
                                        "$(echo)",
                                        "%s%n",
                                        "+plus",
                                        "a b"};
    char longest[256];
    enter("names");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        file(names[i], i, i);
    memset(longest, 'N', 255);
    longest[255] = 0;
    file(longest, 10, 99);
    memset(longest, 0xff, 255);
    enter(longest);
    file(longest, 11, 98);
    leave();
    enter("a~"); /* path order is not name order: "a~/x" comes after "a~b" only by the slash */
    file("x", 1, 5);
    leave();
    leave();
}

static void make_sizes(bool full)
{
    static const uint64_t sizes[] = {0,     1,      4095,          4096,    4097,          8192,           65535,
                                     65536, 131072, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 9 * 1000 * 1000};
    char name[64];
    enter("sizes");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(name, sizeof name, "%llu", (unsigned long long)sizes[i]);
        file(name, sizes[i], 1000 + i);
    }
    for (unsigned i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "same%u", i);
        file(name, 100000, 7);
    }
    const off_t sparse = (off_t)(full ? 4300 : 200) << 20;
    int fd = open("sparse", O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0 || ftruncate(fd, sparse))
        die("create", "sparse");
    write_bytes(fd, 5000, 3);
    lseek(fd, sparse / 2 + 12345, SEEK_SET);
    write_bytes(fd, 70000, 4);
    lseek(fd, sparse - 3, SEEK_SET);
    write_bytes(fd, 3, 5);
    close(fd);
    leave();
}

static void make_links(void)
{
    static const int lengths[] = {1, 59, 60, 1000, 4000, 4032, 4033, 4094, 4095};
    char target[4097], name[64];
    enter("links");
    file("one", 5000, 20);
    enter("below");
    if (link("../one", "two") || link("../one", "../zz three"))
        die("link", "one");
    leave();
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memset(target, 't', sizeof target);
        for (int k = 200; k < lengths[i]; k += 200)
            target[k] = '/';
        target[lengths[i]] = 0;
        snprintf(name, sizeof name, "symlink%d", lengths[i]);
        if (symlink(target, name))
            left_out("symlink", name);
    }
    if (symlink("../names/a", "to a") || symlink("\xff\xfe", "raw") || link("raw", "raw too"))
        die("symlink", "links");
    leave();
}

static void set_time(const char *name, int64_t seconds, long nanoseconds)
{
    struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = seconds, .tv_nsec = nanoseconds}};
    file(name, 3, (uint64_t)seconds);
    if (utimensat(AT_FDCWD, name, t, 0))
        die("utimensat", name);
}

static void make_times(void)
{
    enter("times");
    set_time("epoch", 0, 0);
    set_time("nanosecond", 1700000000, 1);
    set_time("almost a second", 1700000000, 999999999);
    set_time("1969", -5, 0);
    set_time("1901", -2147483648, 500000000);
    set_time("2039", INT64_C(2177452800), 7);
    set_time("2200", INT64_C(7258118400), 123456789);
    leave();
}

static void own(const char *name, uid_t uid, gid_t gid, mode_t mode)
{
    file(name, 2, uid);
    if (chown(name, uid, gid))
        left_out("chown", name);
    if (chmod(name, mode))
        die("chmod", name);
}

static void make_owners(void)
{
    enter("owners");
    own("65535", 65535, 65536, 0600);
    own("70000", 70000, 4294967294u, 0);
    own("suid", 7, 8, 06755);
    own("sticky", 0, 0, 01777);
    if (chmod(".", 03770))
        die("chmod", "owners");
    leave();
    enter("special");
    if (mkfifo("fifo", 0640))
        left_out("fifo", "fifo");
    if (mknod("socket", S_IFSOCK | 0755, 0))
        left_out("socket", "socket");
    if (mknod("null", S_IFCHR | 0666, makedev(1, 3)))
        left_out("device", "null");
    if (mknod("block", S_IFBLK | 0660, makedev(259, 70000)))
        left_out("device", "block");
    leave();
}

static void attribute(const char *name, const char *key, const void *value, size_t len)
{
    if (lsetxattr(name, key, value, len, 0))
        left_out(key, name);
}

static void make_attributes(void)
{
    /* version 2; rwx for the owner, r-- for user 70000, r-x group, r-x mask, --- others */
    static const uint8_t acl[] = {2, 0,    0,    0,    1,    0,    7,    0, 0xff, 0xff, 0xff, 0xff, 2,    0,    4,
                                  0, 0x70, 0x11, 1,    0,    4,    0,    5, 0,    0xff, 0xff, 0xff, 0xff, 0x10, 0,
                                  5, 0,    0xff, 0xff, 0xff, 0xff, 0x20, 0, 0,    0,    0xff, 0xff, 0xff, 0xff};
    static char big[40000];
    char key[64];
    memset(big, 'v', sizeof big);
    enter("attributes");
    file("few", 100, 30);
    attribute("few", "user.a", "1", 1);
    attribute("few", "user.empty", "", 0);
    attribute("few", "user.binary", "\0\1\xff", 3);
    attribute("few", "trusted.t", "zz", 2);
    attribute("few", "security.s", "label", 6);
    file("many", 5000, 31);
    for (int i = 0; i < 60; i++) {
        snprintf(key, sizeof key, "user.key%d", i * 37 % 60);
        attribute("many", key, big, (size_t)i);
    }
    file("large", 10, 32);
    attribute("large", "user.large", big, 3000);
    file("huge", 10, 33);
    for (int i = 0; i < 5; i++) {
        snprintf(key, sizeof key, "user.huge%d", i);
        attribute("huge", key, big, 9000);
    }
    file("acl", 10, 34);
    attribute("acl", "system.posix_acl_access", acl, sizeof acl);
    enter("acl directory");
    leave();
    attribute("acl directory", "system.posix_acl_default", acl, sizeof acl);
    attribute("acl directory", "user.directory", big, 3990); /* leaves no room for the entries beside the inode */
    file("after", 10, 35);
    leave();
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3 || (argc == 3 && strcmp(argv[2], "full"))) {
        fprintf(stderr, "usage: hostile_tree DIR [full]\n");
        return 2;
    }
    umask(0);
    if (chdir(argv[1]))
        die("chdir", argv[1]);
    make_crowds(argc == 3);
    make_tails();
    make_names();
    make_sizes(argc == 3);
    make_links();
    make_times();
    make_owners();
    make_attributes();
    if (mkdir("empty", 0755))
        die("mkdir", "empty");
    file("empty file", 0, 0);
    return 0;
}
