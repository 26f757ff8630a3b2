/* The list is kept in memory and written as a whole to a new file after each change. The file: a first line with the
 * version, then for each export three strings, each ended by NUL: what it was added for ("user" or "mounts", with
 * "-keys" for keys of its own, then "-fenced" for cache-only mode), its name, its image by digest. Before these, for an
 * export that has any: "unwarmed" and "quota=BYTES", its name, no image; an earlier version, which takes this for an
 * export that cannot be served, passes over it. An empty list has no file. The keys themselves are in memory only
 * (kept_keys.c).
 *
 * Two locks, so that no lock that readers of the list need is held across I/O:
 *
 *     writing    the file; held across I/O, taken before lock
 *     lock       the list, and its agreement with the stack's table. An export is in both or in neither; one that
 *                waits for its keys is in the list only
 *
 * Each writer encodes the list only after it has got `writing`, so the last one writes all changes before it. */
#include "server/server_internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/map.h"
#include "base/safe_dir.h"
#include "base/text.h"
#include "base/vec.h"
#include "format/image_ref.h"
#include "image/warm/warm_run.h"

enum { FILE_MAX_BYTES = 32 << 20, KEPT_MAX_BYTES = 64 << 20 };

static const char first_line[] = "granary added exports 1\n";
/* By purpose, whether the export has keys of its own, and whether it is in cache-only mode. */
static const char *const purposes[][2][2] = {
    [ADDED_FOR_USER] = {{"user", "user-fenced"}, {"user-keys", "user-keys-fenced"}},
    [ADDED_FOR_MOUNTS] = {{"mounts", "mounts-fenced"}, {"mounts-keys", "mounts-keys-fenced"}}};

/* One added export. */
struct added {
    enum added_for purpose;
    char *name, *ref; /* owned; ref is by digest */
    bool own_keys, fenced, unwarmed;
    uint64_t quota;
    bool waiting; /* its keys are gone, and the stack does not have it */
};

/* The exports that were added to a running server. */
struct added_exports {
    struct stack *stack;
    const char *file;                  /* not owned; NULL: exports are not noted */
    int keys_fd;                       /* not owned; -1: keys are not kept */
    _Atomic(struct start_warm *) warm; /* told of new exports; NULL: metadata is not warmed */
    pthread_mutex_t writing;           /* the file; taken before lock */
    pthread_mutex_t lock;
    VEC(struct added) list; /* under lock */
};
DEFINE_CLEANUP(added_exports, struct added_exports *, added_exports_close)

/* ---- the list ---- */

/* Return the export of that name; NULL: it is not on the list. */
static struct added *find_locked(struct added_exports *a, const char *name)
{
    for (size_t i = 0; i < a->list.len; i++)
        if (!strcmp(a->list.items[i].name, name))
            return &a->list.items[i];
    return NULL;
}

/* Drop an entry. The order stays: after a restart the oldest version of a followed image is still the first. */
static void forget_locked(struct added_exports *a, struct added *e)
{
    size_t after = (size_t)(a->list.items + a->list.len - e) - 1;
    free(e->name);
    free(e->ref);
    memmove(e, e + 1, after * sizeof *e);
    a->list.len--;
}

/* Put a copy of an entry on the list. */
static int note_locked(struct added_exports *a, const struct added *e)
{
    struct added fresh = *e;
    fresh.name = strdup(e->name);
    fresh.ref = strdup(e->ref);
    if (fresh.name && fresh.ref && !vec_push(&a->list, fresh))
        return 0;
    free(fresh.name);
    free(fresh.ref);
    return error_no_memory();
}

/* Is it the name of a version of a followed image? */
static bool is_version(const struct added_exports *a, const char *name)
{
    const char *followed;
    for (size_t i = 0; (followed = stack_followed(a->stack, i)); i++)
        if (image_ref_is_version(name, followed))
            return true;
    return false;
}

/* Put an export on the list, or change what it is there for: a user's claim replaces a mount's, never the reverse.
 * -EBUSY: the stack does not have the export any more. */
static int list(struct added_exports *a, const struct stack_export *export, enum added_for purpose)
{
    char ref[IMAGE_REF_MAX];
    struct image_ref noted = *stack_export_ref(export);
    /* A version of a followed image may be an older one: restoring it must not tell the tables that the tag names it.
     */
    if (is_version(a, stack_export_name(export)))
        *noted.tag = 0;
    SCOPED_LOCK(&a->lock);
    CLEANUP(cleanup_stack_export) struct stack_export *now = stack_get(a->stack, stack_export_name(export));
    if (now != export)
        return error_set(-EBUSY, "the export '%s' has just been removed; add it again", stack_export_name(export));
    struct added *there = find_locked(a, stack_export_name(export));
    if (there && there->waiting) { /* perhaps for another image */
        purpose = there->purpose == ADDED_FOR_USER ? there->purpose : purpose;
        forget_locked(a, there);
    } else if (there) {
        there->purpose = purpose == ADDED_FOR_USER ? purpose : there->purpose;
        return 0;
    }
    return note_locked(a, &(struct added){.purpose = purpose,
                                          .name = (char *)stack_export_name(export),
                                          .ref = image_ref_text(&noted, ref),
                                          .own_keys = stack_export_keys(export),
                                          .fenced = stack_export_fenced(export),
                                          .unwarmed = stack_export_unwarmed(export),
                                          .quota = stack_export_quota(export)});
}

/* Remove an export from the stack and the list in one step, so that a concurrent put sees it in both or in neither. */
static int take_out(struct added_exports *a, const char *name)
{
    SCOPED_LOCK(&a->lock);
    int rc = stack_remove(a->stack, name);
    struct added *e = rc ? NULL : find_locked(a, name);
    if (e)
        forget_locked(a, e);
    return rc;
}

/* Take an export off the list that waits for its keys. */
static bool take_waiting(struct added_exports *a, const char *name, enum added_for purpose)
{
    SCOPED_LOCK(&a->lock);
    struct added *e = find_locked(a, name);
    if (!e || !e->waiting || (purpose == ADDED_FOR_MOUNTS && e->purpose != purpose))
        return false;
    forget_locked(a, e);
    return true;
}

bool added_exports_waits(struct added_exports *a, const char *name)
{
    SCOPED_LOCK(&a->lock);
    const struct added *e = find_locked(a, name);
    return e && e->waiting;
}

bool added_exports_waiting(struct added_exports *a, size_t i, char name[STACK_EXPORT_NAME_MAX + 1],
                           char image[IMAGE_REF_MAX])
{
    if (!a)
        return false;
    SCOPED_LOCK(&a->lock);
    for (size_t k = 0; k < a->list.len; k++) {
        const struct added *at = &a->list.items[k];
        if (at->waiting && !i--) {
            snprintf(name, STACK_EXPORT_NAME_MAX + 1, "%s", at->name);
            snprintf(image, IMAGE_REF_MAX, "%s", at->ref);
            return true;
        }
    }
    return false;
}

/* Whether an export is on the list, and what for. */
static bool added_exports_look(struct added_exports *a, const char *name, enum added_for *out_purpose)
{
    SCOPED_LOCK(&a->lock);
    const struct added *e = find_locked(a, name);
    *out_purpose = e ? e->purpose : ADDED_FOR_USER;
    return e;
}

/* ---- the keys, for the process after this one ---- */

/* Append the keys of every export that has its own. They get their room at once. */
static int collect_keys_locked(struct added_exports *a, struct bytes *out)
{
    uint8_t *room;
    size_t size = 0;
    int rc = 0;
    for (int pass = 0; !rc && pass < 2; pass++) {
        for (size_t i = 0; !rc && i < a->list.len; i++) {
            const struct added *at = &a->list.items[i];
            CLEANUP(cleanup_stack_export)
            struct stack_export *e = at->own_keys && !at->waiting ? stack_get(a->stack, at->name) : NULL;
            if (e && !pass)
                size += kept_keys_size(e);
            else if (e)
                rc = kept_keys_add(out, e);
        }
        if (!rc && !pass)
            rc = bytes_reserve(out, size, &room);
    }
    return rc;
}

/* A failure is only logged: the exports are served, and wait for their keys after a restart. */
static void keep_keys(struct added_exports *a)
{
    struct bytes kept CLEANUP(bytes_wipe) = BYTES_INIT(KEPT_MAX_BYTES);
    if (a->keys_fd < 0)
        return;
    pthread_mutex_lock(&a->lock);
    int rc = collect_keys_locked(a, &kept);
    pthread_mutex_unlock(&a->lock);
    if (!rc)
        rc = kept_keys_write(a->keys_fd, &kept);
    if (rc)
        log_warning("%s", error_text());
}

/* ---- the file ---- */

enum { WORDS_MAX = 64 }; /* bytes */

/* Append an export's three strings, after those of what else it brought. */
static int append_strings(struct bytes *text, const struct added *e)
{
    char quota[WORDS_MAX] = "", words[WORDS_MAX];
    if (e->quota)
        snprintf(quota, sizeof quota, "quota=%llu", (unsigned long long)e->quota);
    snprintf(words, sizeof words, "%s%s%s", e->unwarmed ? "unwarmed" : "", e->unwarmed && e->quota ? " " : "", quota);
    const char *const strings[] = {words, e->name, "", purposes[e->purpose][e->own_keys][e->fenced], e->name, e->ref};
    int rc = 0;
    for (size_t k = *words ? 0 : 3; !rc && k < GR_ARRAY_SIZE(strings); k++)
        rc = bytes_append(text, strings[k], strlen(strings[k]) + 1);
    return rc;
}

/* Write the list to the file, or remove the file when the list is empty. */
static int added_exports_save(struct added_exports *a)
{
    CLEANUP_BYTES text = BYTES_INIT(FILE_MAX_BYTES);
    SCOPED_LOCK(&a->writing);
    keep_keys(a);
    if (!a->file)
        return 0;
    int rc = bytes_append(&text, first_line, sizeof first_line - 1);
    pthread_mutex_lock(&a->lock);
    size_t count = a->list.len;
    for (size_t i = 0; !rc && i < count; i++)
        rc = append_strings(&text, &a->list.items[i]);
    pthread_mutex_unlock(&a->lock);
    if (rc)
        return rc == -EMSGSIZE ? error_set(rc, "exports: there are too many to be noted") : rc;
    if (count)
        return io_write_file_atomic(a->file, text.data, text.len, false);
    if (unlink(a->file) && errno != ENOENT)
        return error_set(-errno, "cannot remove %s: %s", a->file, strerror(errno));
    return 0;
}

/* What a file's exports are added with. */
struct restoring {
    struct stack_adding *adding; /* of those without keys of their own */
    struct bytes kept;           /* keys of the others, from the process before */
};

static void restoring_release(struct restoring *r)
{
    stack_adding_end(r->adding);
    bytes_wipe(&r->kept);
}

/* Is this error the same at the next start? */
static bool lasts(int rc)
{
    return rc == -ESTALE || rc == -ENOENT || rc == -EBADMSG || rc == -EINVAL || rc == -EEXIST || rc == -EPERM ||
           rc == -EKEYREJECTED;
}

static struct stack_image image_of(const struct added *noted)
{
    return (struct stack_image){.ref = noted->ref,
                                .export_name = noted->name,
                                .fenced = noted->fenced,
                                .unwarmed = noted->unwarmed,
                                .quota = noted->quota};
}

/* After -EDQUOT: drop the quota, and return whether to try again. The server was started anew with another quota of the
 * image, or without a cache directory: an export of mounts is served all the same, and its quota is forgotten. */
static bool drop_quota(int rc, struct stack_image *image)
{
    if (rc != -EDQUOT || !image->quota)
        return false;
    log_warning("export '%s': its quota is dropped: %s", image->export_name, error_text());
    image->quota = 0;
    return true;
}

/* Refuse to start when a followed name is that of an added export: mounts would get other images by it, and the list
 * would forget the export. */
static int check_followed(const struct added_exports *a, const struct added *noted)
{
    if (!stack_followed_as(a->stack, noted->name))
        return 0;
    return error_set(-EEXIST,
                     "'%s' cannot follow a tag here: mounts or users have added an export of that name (%s); start the "
                     "server without following, and unmount or remove it, or follow the tag by another server",
                     noted->name, a->file);
}

/* Serve an export with keys of its own again, with the keys that the process before has kept. Their proof makes a
 * request to the store needless. Without keys it is only noted. */
static int restore_with_keys(struct added_exports *a, const struct restoring *r, const struct added *noted)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    CLEANUP(cleanup_s3_keys) struct s3_keys *keys = NULL;
    struct bytes proof;
    bool added;
    CLEANUP(cleanup_stack_export) struct stack_export *given = stack_get(a->stack, noted->name);
    if (given) {
        log_warning("export '%s', noted in %s, is not served any more: an image given at this start has its name",
                    noted->name, a->file);
        return 0;
    }
    int rc = kept_keys_find(&r->kept, noted->name, &keys, &proof);
    bool kept = !rc;
    struct stack_image image = image_of(noted);
    image.keys = keys;
    image.proof = &proof;
    if (kept)
        rc = stack_add(a->stack, &image, NULL, &e, &added);
    if (kept && drop_quota(rc, &image))
        rc = stack_add(a->stack, &image, NULL, &e, &added);
    if (!rc)
        return list(a, e, noted->purpose);
    if (kept && lasts(rc)) {
        log_warning("export '%s', noted in %s, is not served any more: %s", noted->name, a->file, error_text());
        return 0;
    }
    log_warning("export '%s' waits for its keys: %s; add it again with keys", noted->name, error_text());
    struct added waiting = *noted;
    waiting.waiting = true;
    SCOPED_LOCK(&a->lock);
    return note_locked(a, &waiting);
}

/* Serve one export of the file again. It is left out after an error that would be the same at the next start: refusing
 * to start would not help. */
static int restore(struct added_exports *a, const struct restoring *r, const struct added *noted)
{
    struct stack_image image = image_of(noted);
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    bool added;
    int rc = check_followed(a, noted);
    if (rc)
        return rc;
    if (noted->own_keys)
        return restore_with_keys(a, r, noted);
    rc = stack_adding_add(r->adding, &image, &e, &added);
    if (drop_quota(rc, &image))
        rc = stack_adding_add(r->adding, &image, &e, &added);
    if (!rc) /* not added: given at this start too, so it is no added export */
        return added ? list(a, e, noted->purpose) : 0;
    if (!lasts(rc))
        return error_prefix(rc, "export '%s', noted in %s", noted->name, a->file);
    log_warning("export '%s', noted in %s, is not served any more: %s", noted->name, a->file, error_text());
    return 0;
}

/* Set what an export was added for. An unknown word of a later version counts as a user's. */
static void take_purpose(const char *word, struct added *out)
{
    for (size_t i = 0; i < GR_ARRAY_SIZE(purposes); i++)
        for (size_t k = 0; k < 4; k++)
            if (!strcmp(word, purposes[i][k / 2][k % 2])) {
                out->purpose = (enum added_for)i;
                out->own_keys = k / 2;
                out->fenced = k % 2;
            }
}

/* Set what else an export brought. Unknown words are a later version's. */
static void take_brought(const char *words, struct added *out)
{
    static const char quota[] = "quota=";
    char word[WORDS_MAX];
    size_t len;
    for (const char *at = words; *at; at += len) {
        at += strspn(at, " ");
        len = strcspn(at, " ");
        snprintf(word, sizeof word, "%.*s", (int)GR_MIN(len, sizeof word - 1), at);
        if (!strcmp(word, "unwarmed"))
            out->unwarmed = true;
        else if (text_begins_with(word, quota) &&
                 text_parse_uint("quota", word + sizeof quota - 1, 1, UINT64_MAX - 1, &out->quota))
            log_warning("export '%s': %s", out->name, error_text());
    }
}

/* Return the string at *at and move *at after its NUL; NULL when there is no NUL before end. */
static const char *added_exports_take_string(const char **at, const char *end)
{
    const char *string = *at, *nul = memchr(string, 0, (size_t)(end - string));
    if (nul)
        *at = nul + 1;
    return nul ? string : NULL;
}

/* Restore what the file lists. A file that is not ours is an error and not ignored: starting without its exports would
 * fail mounts. The stack is asked to write its own tables once, at the end. */
static int added_exports_load(struct added_exports *a)
{
    CLEANUP_BYTES text = BYTES_INIT(FILE_MAX_BYTES);
    struct restoring r CLEANUP(restoring_release) = {.kept = BYTES_INIT(KEPT_MAX_BYTES)};
    int rc = safe_file_read(a->file, geteuid(), &text);
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    if (text.len < sizeof first_line - 1 || memcmp(text.data, first_line, sizeof first_line - 1) != 0)
        return error_set(-EBADMSG, "%s is no list of exports, or of a later version; remove it to start without",
                         a->file);
    const char *at = (const char *)text.data, *end = at + text.len;
    if (a->keys_fd >= 0 && kept_keys_read(a->keys_fd, &r.kept))
        log_warning("%s", error_text());
    const char *brought = NULL, *of = NULL;
    rc = stack_adding_begin(a->stack, NULL, &r.adding);
    for (at += sizeof first_line - 1; !rc && at < end;) {
        const char *purpose = added_exports_take_string(&at, end),
                   *name = purpose ? added_exports_take_string(&at, end) : NULL;
        const char *ref = name ? added_exports_take_string(&at, end) : NULL;
        if (!ref)
            return error_set(-EBADMSG, "%s is damaged; remove it to start without the exports it notes", a->file);
        if (!*ref) { /* of the export after it */
            brought = purpose;
            of = name;
            continue;
        }
        struct added noted = {.purpose = ADDED_FOR_USER, .name = (char *)name, .ref = (char *)ref};
        take_purpose(purpose, &noted);
        if (of && !strcmp(of, name))
            take_brought(brought, &noted);
        rc = restore(a, &r, &noted);
    }
    return rc;
}

/* ---- life ---- */

int added_exports_open(struct stack *stack, const char *file, int keys_fd, struct added_exports **out)
{
    CLEANUP(cleanup_added_exports) struct added_exports *a = calloc(1, sizeof *a);
    if (!a)
        return error_no_memory();
    a->stack = stack;
    a->file = file;
    a->keys_fd = keys_fd;
    pthread_mutex_init(&a->writing, NULL);
    pthread_mutex_init(&a->lock, NULL);
    int rc = file ? added_exports_load(a) : 0;
    if (!rc)
        *out = steal_ptr(&a);
    return rc;
}

void added_exports_close(struct added_exports *a)
{
    if (!a)
        return;
    while (a->list.len)
        forget_locked(a, &a->list.items[a->list.len - 1]);
    vec_release(&a->list);
    pthread_mutex_destroy(&a->writing);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

/* The thread is woken for the exports that were just restored. */
void added_exports_warm(struct added_exports *a, struct start_warm *warm)
{
    atomic_store(&a->warm, warm);
    start_warm_added(warm);
}

/* ---- changes ---- */

/* A request without keys does not serve, with those of the process, what was added with others. One with keys brings
 * the export back as it was: *wanted. *out_listed: it is in the list. */
static int check_listed(struct added_exports *a, const struct stack_image *image, struct stack_image *wanted,
                        bool *out_listed)
{
    SCOPED_LOCK(&a->lock);
    const struct added *e = image->export_name ? find_locked(a, image->export_name) : NULL;
    *out_listed = e;
    if (!e || !e->waiting)
        return 0;
    wanted->fenced = wanted->fenced || e->fenced;
    wanted->unwarmed = wanted->unwarmed || e->unwarmed;
    wanted->quota = wanted->quota ? wanted->quota : e->quota;
    if (image->keys)
        return 0;
    return error_set(-EPERM, "the export '%s' waits for its keys; send keys that read its image", image->export_name);
}

/* Either the export is served and noted, or neither: a failure takes back what was added. An export that was served
 * before stays. */
int added_exports_put(struct added_exports *a, const struct stack_image *image, enum added_for purpose,
                      const volatile int *cancel, struct stack_export **out)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    struct stack_image wanted = *image;
    enum added_for before;
    bool added, listed;
    int rc = check_listed(a, image, &wanted, &listed);
    if (!rc)
        rc = stack_add(a->stack, &wanted, cancel, &e, &added);
    if (listed && image->keys && purpose == ADDED_FOR_MOUNTS && drop_quota(rc, &wanted)) /* new keys of a mount */
        rc = stack_add(a->stack, &wanted, cancel, &e, &added);
    if (rc)
        return rc;
    /* An export given at the start is neither new nor listed: it is not noted, since the next start has it anyway. */
    if (added || added_exports_look(a, stack_export_name(e), &before)) {
        rc = list(a, e, purpose);
        if (!rc)
            rc = added_exports_save(a);
    }
    if (rc) {
        struct error first; /* undoing may fail too; the caller gets the first sentence */
        error_take(&first, rc);
        if (added && take_out(a, stack_export_name(e)))
            log_warning("%s", error_text());
        return error_restore(&first);
    }
    start_warm_added(atomic_load(&a->warm));
    *out = steal_ptr(&e);
    return 0;
}

/* End the pins of the metadata of an image that is gone, but for what other exports have of it: a server that follows a
 * tag for months would reach the limit of pins. A warming of the image that still runs may pin some later. */
static void unpin(struct added_exports *a, struct image *gone)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    CLEANUP_DIGEST_MAP chunks = {0};
    if (!atomic_load(&a->warm))
        return; /* --warm none: nothing was pinned for an export */
    int rc = warm_unpin_begin(gone, &chunks);
    while (!rc && (e = stack_next(a->stack, e)))
        rc = warm_unpin_spare(stack_export_image(e), &chunks);
    if (!rc)
        warm_unpin(stack_cache(a->stack), &chunks);
    else
        log_debug("some metadata stays pinned: %s", error_text());
}

/* The checks are without a lock; take_out decides again whether clients are connected. */
int added_exports_remove(struct added_exports *a, const char *name, enum added_for purpose, bool *out_removed)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = *name ? stack_get(a->stack, name) : NULL;
    enum added_for noted;
    bool added = added_exports_look(a, name, &noted);
    *out_removed = !e && take_waiting(a, name, purpose);
    if (*out_removed)
        return added_exports_save(a);
    if (!e)
        return error_set(-ENOENT, "there is no export '%.100s' here", name);
    if (purpose == ADDED_FOR_MOUNTS && (!added || noted != purpose || stack_export_clients(e)))
        return 0;
    if (!added)
        return error_set(-EPERM, "the export '%.100s' was given when the server was started, and stays as long as it",
                         name);
    int rc = take_out(a, name);
    if (rc == -EBUSY && purpose == ADDED_FOR_MOUNTS)
        return 0;
    if (rc)
        return rc;
    *out_removed = true;
    rc = added_exports_save(a);
    unpin(a, stack_export_image(e));
    return rc;
}
