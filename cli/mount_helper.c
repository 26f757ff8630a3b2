/*   mount.granary IMAGE DIR [-fnrsvw] [-o OPTION,...] [-t TYPE]  ->  granary mount [--OPTION...] IMAGE DIR
 *   umount.granary DIR [-flnrv] [-t TYPE]                        ->  granary umount DIR
 *
 * mount(8) runs the helper for a filesystem of type "granary", from the command line or /etc/fstab. A word of -o is
 * either one of mount(8)'s for every filesystem, which is ignored, or an option of `granary mount`. The helper has no
 * table of options of its own; the verb checks them.
 */
#include <stdlib.h>
#include <string.h>

#include "attach/attach.h"
#include "base/error.h"
#include "cli/verbs/verbs.h"

/* Options to ignore: a mount is always read-only, nodev and nosuid, and mount(8) passes rw by default. Those that would
 * take a right away (nosymfollow, context=) are not among them. */
static const char *const passed_over[] = {
    "ro",         "rw",       "nodev",      "dev",         "nosuid",        "suid",     "exec",       "defaults",
    "auto",       "noauto",   "user",       "nouser",      "users",         "owner",    "group",      "nofail",
    "_netdev",    "_rnetdev", "async",      "sync",        "dirsync",       "atime",    "noatime",    "diratime",
    "nodiratime", "relatime", "norelatime", "strictatime", "nostrictatime", "lazytime", "nolazytime", "iversion",
    "noiversion", "mand",     "nomand",     "silent",      "loud"};
static const char *const passed_over_beginnings[] = {"x-", "X-", "comment=", "user=", "helper=", "uhelper="};

/* By the last component of the name: mount(8) calls /sbin/mount.granary. */
bool mount_helper_called(const char *program)
{
    const char *slash = strrchr(program, '/');
    const char *name = slash ? slash + 1 : program;
    return !strcmp(name, "mount.granary") || !strcmp(name, "umount.granary");
}

/* Return HELPER_USAGE with a sentence. */
static int usage(const char *sentence)
{
    (void)error_set(0, "%s", sentence);
    return HELPER_USAGE;
}

static bool is_passed_over(const char *word)
{
    for (size_t i = 0; i < GR_ARRAY_SIZE(passed_over); i++)
        if (!strcmp(word, passed_over[i]))
            return true;
    for (size_t i = 0; i < GR_ARRAY_SIZE(passed_over_beginnings); i++)
        if (!strncmp(word, passed_over_beginnings[i], strlen(passed_over_beginnings[i])))
            return true;
    return false;
}

/* Translate one word of -o. sloppy (-s): ignore unknown options. */
static int add_option(const struct verb *verb, const char *word, bool sloppy, string_list *out)
{
    if (!*word || is_passed_over(word))
        return 0;
    if (!strcmp(word, "remount"))
        return usage("a mounted image has nothing to change; umount it and mount it anew");
    if (!strcmp(word, "foreground"))
        return usage("mount -t granary returns when it is mounted; run 'granary mount --foreground' itself");
    if (sloppy && !options_known(verb, word))
        return 0;
    return string_list_add(out, "--%s", word);
}

/* ---- mounted already ---- */

/* A mount that may exist already. */
struct wanted {
    const char *image;
    char *dir;
};

static int is_wanted(void *arg, const struct mount_state *s)
{
    const struct wanted *w = arg;
    return !strcmp(s->dir, w->dir) && !strcmp(s->image, w->image);
}

static int is_followed(void *arg, const struct follow_state *f)
{
    const struct wanted *w = arg;
    return !strcmp(f->dir, w->dir) && !strcmp(f->image, w->image) && follow_is_alive(f);
}

/* Whether the image is mounted there already, or followed. mount(8) compares devices, not images, and so calls the
 * helper again at every `mount -a`. */
static bool is_mounted(const char *image, const char *dir)
{
    struct wanted w = {.image = image, .dir = realpath(dir, NULL)};
    bool found = w.dir && (mount_each(is_wanted, &w) > 0 || follow_each(is_followed, &w) > 0);
    free(w.dir);
    return found;
}

/* ---- the words ---- */

/* The parsed call. */
struct call {
    const struct verb *verb;
    const char *operands[2];
    size_t operand_count;
    char *options; /* the last -o; mount(8) passes only one */
    bool sloppy, nothing;
};

/* Parse a word of letters; o, t and N take a value. Options that would mislead if they were ignored (-N, -l) are
 * refused. */
static int take_letters(struct call *c, const char *letters, int *next, int argc, char **argv)
{
    for (; *letters; letters++) {
        if (strchr("otN", *letters)) {
            char *value = letters[1] ? (char *)letters + 1 : *next < argc ? argv[(*next)++] : NULL;
            if (!value || *letters == 'N')
                return usage(value ? "-N is not supported; run it in that namespace (nsenter)"
                                   : "an option needs a word");
            if (*letters == 'o')
                c->options = value;
            return 0;
        }
        if (*letters == 's')
            c->sloppy = true;
        else if (*letters == 'f' && c->verb == &verb_mount)
            c->nothing = true;
        else if (*letters == 'l')
            return usage(
                "a lazy umount would take the device from under the processes that still read; end them first");
        else if (!strchr("fnrvw", *letters))
            return usage("usage: mount.granary IMAGE DIR [-fnrsvw] [-o OPTION[,OPTION...]]; umount.granary DIR [-nrv]");
    }
    return 0;
}

/* Parse the call as mount(8) and umount(8) make it. */
static int mount_helper_parse(int argc, char **argv, struct call *c)
{
    int rc = 0;
    for (int next = 1; !rc && next < argc;) {
        const char *word = argv[next++];
        if (*word == '-' && word[1])
            rc = take_letters(c, word + 1, &next, argc, argv);
        else if (c->operand_count < c->verb->max_operands)
            c->operands[c->operand_count++] = word;
        else
            rc = usage("too many operands");
    }
    return !rc && c->operand_count < c->verb->min_operands ? usage("an operand is missing") : rc;
}

int mount_helper_words(int argc, char **argv, string_list *out, bool *out_nothing)
{
    const char *slash = strrchr(argv[0], '/');
    bool umount = *(slash ? slash + 1 : argv[0]) == 'u';
    struct call c = {.verb = umount ? &verb_umount : &verb_mount};
    int rc = mount_helper_parse(argc, argv, &c);
    if (!rc)
        rc = string_list_add(out, "granary");
    if (!rc)
        rc = string_list_add(out, "%s", c.verb->name);
    for (char *rest = umount ? NULL : c.options, *word; !rc && (word = strsep(&rest, ","));)
        rc = add_option(c.verb, word, c.sloppy, out);
    if (!rc)
        rc = string_list_add(out, "--");
    for (size_t i = 0; !rc && i < c.operand_count; i++)
        rc = string_list_add(out, "%s", c.operands[i]);
    if (!rc)
        rc = vec_push(out, NULL);
    *out_nothing = c.nothing || (!rc && !umount && is_mounted(c.operands[0], c.operands[1]));
    return rc < 0 ? HELPER_FAILED : rc;
}
