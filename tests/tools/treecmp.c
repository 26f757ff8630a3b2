/* treecmp [--ignore LIST] A B: is the tree B a faithful copy of A?
 *
 * Compares, for every path: names as bytes, type, mode, owner, mtime to the nanosecond, size, device number, link
 * target, extended attributes, bytes, and which names are links of one file. Link counts of B are compared with what
 * is seen in A's tree, since A's own count includes names outside of it (and some filesystems do not count
 * subdirectories): a file's is its number of names, a directory's 2 plus its subdirectories, or 1.
 *
 * LIST: any of mode,owner,mtime,nlink,links,xattr separated by commas: what the source cannot hold.
 * Prints one line a difference (the first 20) and a summary; exit 0 equal, 1 different, 2 could not compare.
 * Directories are walked by descriptors, so a path may be longer than PATH_MAX.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { SHOWN_MAX = 20, PIECE = 1 << 20, XATTR_ROOM = 128 << 10 };
enum { IGNORE_MODE = 1, IGNORE_OWNER = 2, IGNORE_MTIME = 4, IGNORE_NLINK = 8, IGNORE_LINKS = 16, IGNORE_XATTR = 32 };

/* A file of A with several names: the inode it must be in B. */
struct link_group {
    dev_t dev;
    ino_t a, b;
    uint64_t names, b_nlink;
    bool used;
};

struct compare {
    unsigned ignore;
    uint64_t paths, bytes, differences;
    struct link_group *groups; /* open addressing */
    size_t group_count, group_cap;
    char *path; /* of what is being compared, for messages */
    size_t path_len, path_cap;
    char *piece_a, *piece_b;
};

/* One directory on both sides. */
struct pair {
    int a, b;
};

struct names {
    char **items;
    size_t len, cap;
};

static void die(const char *what)
{
    fprintf(stderr, "treecmp: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void *must(void *p)
{
    if (!p)
        die("memory");
    return p;
}

__attribute__((format(printf, 2, 3))) static void differ(struct compare *c, const char *fmt, ...)
{
    if (++c->differences > SHOWN_MAX)
        return;
    va_list ap;
    va_start(ap, fmt);
    fputs("differs: /", stdout);
    for (size_t i = 0; i < c->path_len; i++) {
        unsigned char ch = (unsigned char)c->path[i];
        if (ch < 0x20 || ch >= 0x7f)
            printf("\\x%02x", ch);
        else
            putchar(ch);
    }
    fputs(": ", stdout);
    vprintf(fmt, ap);
    putchar('\n');
    va_end(ap);
}

static size_t path_push(struct compare *c, const char *name)
{
    size_t before = c->path_len, n = strlen(name);
    if (before + n + 2 > c->path_cap) {
        c->path_cap = 2 * (before + n + 2);
        c->path = must(realloc(c->path, c->path_cap));
    }
    if (before)
        c->path[c->path_len++] = '/';
    memcpy(c->path + c->path_len, name, n);
    c->path_len += n;
    return before;
}

static struct link_group *group_slot(struct compare *c, dev_t dev, ino_t ino)
{
    size_t i = (ino * UINT64_C(0x9E3779B97F4A7C15) + dev) % c->group_cap;
    while (c->groups[i].used && (c->groups[i].a != ino || c->groups[i].dev != dev))
        i = (i + 1) % c->group_cap;
    return &c->groups[i];
}

static void groups_grow(struct compare *c)
{
    struct link_group *old = c->groups;
    size_t old_cap = c->group_cap;
    c->group_cap = old_cap ? 2 * old_cap : 1024;
    c->groups = must(calloc(c->group_cap, sizeof *c->groups));
    for (size_t i = 0; i < old_cap; i++)
        if (old[i].used)
            *group_slot(c, old[i].dev, old[i].a) = old[i];
    free(old);
}

/* True when this is the first name of the file: its bytes are still to be compared. */
static bool compare_links(struct compare *c, const struct stat *a, const struct stat *b)
{
    if (a->st_nlink < 2) {
        if (b->st_nlink != 1 && !(c->ignore & IGNORE_NLINK))
            differ(c, "1 name, but %ju links", (uintmax_t)b->st_nlink);
        return true;
    }
    if (c->ignore & IGNORE_LINKS)
        return true;
    if (2 * (c->group_count + 1) > c->group_cap)
        groups_grow(c);
    struct link_group *g = group_slot(c, a->st_dev, a->st_ino);
    if (!g->used) {
        *g = (struct link_group){
            .dev = a->st_dev, .a = a->st_ino, .b = b->st_ino, .names = 1, .b_nlink = b->st_nlink, .used = true};
        c->group_count++;
        return true;
    }
    g->names++;
    if (g->b != b->st_ino)
        differ(c, "is not a link of the file it should be");
    return g->b != b->st_ino;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void names_add(struct names *l, const char *name)
{
    if (l->len == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 64;
        l->items = must(realloc(l->items, l->cap * sizeof *l->items));
    }
    l->items[l->len++] = must(strdup(name));
}

static void names_free(struct names *l)
{
    for (size_t i = 0; i < l->len; i++)
        free(l->items[i]);
    free(l->items);
}

static struct names list_directory(int fd)
{
    struct names l = {0};
    int copy = dup(fd);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    if (!d)
        die("open a directory");
    struct dirent *e;
    while (errno = 0, (e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            names_add(&l, e->d_name);
    if (errno)
        die("read a directory");
    closedir(d);
    if (l.len)
        qsort(l.items, l.len, sizeof *l.items, by_bytes);
    return l;
}

/* A path through which the l*xattr calls reach dir/name whatever its length. */
static void proc_path(int dir, const char *name, char out[512])
{
    snprintf(out, 512, "/proc/self/fd/%d/%s", dir, name);
}

static struct names list_xattrs(const char *path, char *room)
{
    struct names l = {0};
    ssize_t n = llistxattr(path, room, XATTR_ROOM);
    for (char *k = room; k < room + n; k += strlen(k) + 1)
        names_add(&l, k);
    if (l.len)
        qsort(l.items, l.len, sizeof *l.items, by_bytes);
    return l;
}

static void compare_xattrs(struct compare *c, struct pair dir, const char *name)
{
    char pa[512], pb[512];
    proc_path(dir.a, name, pa);
    proc_path(dir.b, name, pb);
    struct names a = list_xattrs(pa, c->piece_a), b = list_xattrs(pb, c->piece_b);
    if (a.len != b.len)
        differ(c, "%zu extended attributes, %zu expected", b.len, a.len);
    for (size_t i = 0; i < a.len && a.len == b.len; i++) {
        ssize_t na = lgetxattr(pa, a.items[i], c->piece_a, XATTR_ROOM);
        ssize_t nb = lgetxattr(pb, a.items[i], c->piece_b, XATTR_ROOM);
        if (na != nb || (na > 0 && memcmp(c->piece_a, c->piece_b, (size_t)na)))
            differ(c, "extended attribute %s", a.items[i]);
    }
    names_free(&a);
    names_free(&b);
}

static ssize_t read_piece(int fd, char *out)
{
    ssize_t got = 0, n = 1;
    while (got < PIECE && (n = read(fd, out + got, (size_t)(PIECE - got))) > 0)
        got += n;
    return n < 0 ? -1 : got;
}

static void compare_bytes(struct compare *c, struct pair dir, const char *name)
{
    int a = openat(dir.a, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC),
        b = openat(dir.b, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (a < 0 || b < 0)
        differ(c, "cannot be opened: %s", strerror(errno));
    uint64_t off = 0;
    for (ssize_t n = 1; a >= 0 && b >= 0 && n > 0;) {
        n = read_piece(a, c->piece_a);
        ssize_t m = read_piece(b, c->piece_b);
        if (n < 0 || n != m || memcmp(c->piece_a, c->piece_b, (size_t)n)) {
            differ(c, "bytes near %" PRIu64 "%s", off, n < 0 || m < 0 ? " (read failed)" : "");
            break;
        }
        off += (uint64_t)n;
    }
    c->bytes += off;
    if (a >= 0)
        close(a);
    if (b >= 0)
        close(b);
}

static void compare_target(struct compare *c, struct pair dir, const char *name)
{
    ssize_t n = readlinkat(dir.a, name, c->piece_a, PIECE), m = readlinkat(dir.b, name, c->piece_b, PIECE);
    if (n < 0 || n != m || memcmp(c->piece_a, c->piece_b, (size_t)n))
        differ(c, "link target");
}

static void compare_stat(struct compare *c, const struct stat *a, const struct stat *b)
{
    if (a->st_mode != b->st_mode && !(c->ignore & IGNORE_MODE))
        differ(c, "mode %o, %o expected", b->st_mode, a->st_mode);
    if ((a->st_uid != b->st_uid || a->st_gid != b->st_gid) && !(c->ignore & IGNORE_OWNER))
        differ(c, "owner %u:%u, %u:%u expected", b->st_uid, b->st_gid, a->st_uid, a->st_gid);
    if ((a->st_mtim.tv_sec != b->st_mtim.tv_sec || a->st_mtim.tv_nsec != b->st_mtim.tv_nsec) &&
        !(c->ignore & IGNORE_MTIME))
        differ(c, "mtime %jd.%09ld, %jd.%09ld expected", (intmax_t)b->st_mtim.tv_sec, b->st_mtim.tv_nsec,
               (intmax_t)a->st_mtim.tv_sec, a->st_mtim.tv_nsec);
    if (!S_ISDIR(a->st_mode) && a->st_size != b->st_size)
        differ(c, "size %jd, %jd expected", (intmax_t)b->st_size, (intmax_t)a->st_size);
    if ((S_ISCHR(a->st_mode) || S_ISBLK(a->st_mode)) && a->st_rdev != b->st_rdev)
        differ(c, "device number");
}

static void compare_directories(struct compare *c, struct pair d, const struct stat *b);

/* name of dir, which both sides have. Returns true when it is a directory in A. */
static bool compare_entry(struct compare *c, struct pair dir, const char *name)
{
    struct stat a, b;
    if (fstatat(dir.a, name, &a, AT_SYMLINK_NOFOLLOW) || fstatat(dir.b, name, &b, AT_SYMLINK_NOFOLLOW)) {
        differ(c, "stat: %s", strerror(errno));
        return false;
    }
    c->paths++;
    bool is_dir = S_ISDIR(a.st_mode);
    if ((a.st_mode & S_IFMT) != (b.st_mode & S_IFMT)) {
        differ(c, "type %o, %o expected", b.st_mode & S_IFMT, a.st_mode & S_IFMT);
        return is_dir;
    }
    compare_stat(c, &a, &b);
    if (!(c->ignore & IGNORE_XATTR))
        compare_xattrs(c, dir, name);
    bool first = is_dir || compare_links(c, &a, &b);
    if (S_ISLNK(a.st_mode))
        compare_target(c, dir, name);
    else if (S_ISREG(a.st_mode) && first)
        compare_bytes(c, dir, name);
    else if (is_dir) {
        struct pair sub = {openat(dir.a, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                           openat(dir.b, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
        if (sub.a < 0 || sub.b < 0)
            die("open a directory");
        compare_directories(c, sub, &b);
        close(sub.a);
        close(sub.b);
    }
    return is_dir;
}

static void compare_directories(struct compare *c, struct pair d, const struct stat *b)
{
    struct names la = list_directory(d.a), lb = list_directory(d.b);
    uint64_t subdirectories = 0;
    for (size_t i = 0, j = 0; i < la.len || j < lb.len;) {
        int order = i == la.len ? 1 : j == lb.len ? -1 : strcmp(la.items[i], lb.items[j]);
        size_t before = path_push(c, order <= 0 ? la.items[i] : lb.items[j]);
        if (order < 0)
            differ(c, "is missing");
        else if (order > 0)
            differ(c, "should not be there");
        else
            subdirectories += compare_entry(c, d, la.items[i]);
        c->path_len = before;
        i += order <= 0;
        j += order >= 0;
    }
    if (!(c->ignore & IGNORE_NLINK) && b->st_nlink != 1 && b->st_nlink != 2 + subdirectories)
        differ(c, "%ju links, %" PRIu64 " expected", (uintmax_t)b->st_nlink, 2 + subdirectories);
    names_free(&la);
    names_free(&lb);
}

static void compare_link_counts(struct compare *c)
{
    for (size_t i = 0; i < c->group_cap; i++) {
        const struct link_group *g = &c->groups[i];
        if (g->used && g->names != g->b_nlink && !(c->ignore & IGNORE_NLINK))
            differ(c, "inode %ju has %" PRIu64 " names, but %" PRIu64 " links", (uintmax_t)g->b, g->names, g->b_nlink);
    }
}

static unsigned parse_ignore(char *list)
{
    static const char *const words[] = {"mode", "owner", "mtime", "nlink", "links", "xattr"};
    unsigned out = 0;
    for (char *w = strtok(list, ","); w; w = strtok(NULL, ",")) {
        size_t i = 0;
        while (i < 6 && strcmp(w, words[i]))
            i++;
        if (i == 6) {
            fprintf(stderr, "treecmp: --ignore knows mode, owner, mtime, nlink, links, xattr, not %s\n", w);
            exit(2);
        }
        out |= 1u << i;
    }
    return out;
}

int main(int argc, char **argv)
{
    struct compare c = {0};
    if (argc == 5 && !strcmp(argv[1], "--ignore")) {
        c.ignore = parse_ignore(argv[2]);
        argv += 2;
        argc -= 2;
    }
    if (argc != 3) {
        fprintf(stderr, "usage: treecmp [--ignore mode,owner,mtime,nlink,links,xattr] A B\n");
        return 2;
    }
    struct rlimit files;
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    c.piece_a = must(malloc(PIECE));
    c.piece_b = must(malloc(PIECE));
    struct pair top = {open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                       open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (top.a < 0 || top.b < 0)
        die(top.a < 0 ? argv[1] : argv[2]);
    compare_entry(&c, top, ".");
    compare_link_counts(&c);
    printf("compared %" PRIu64 " paths, %" PRIu64 " bytes: %" PRIu64 " differences\n", c.paths, c.bytes, c.differences);
    return c.differences ? 1 : 0;
}
