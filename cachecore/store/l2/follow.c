/* Where the shared cache proxies come from: lists, each of them one URL, a file of URLs that may change, or a name
 * whose addresses may change. All proxies of all lists together are the members.
 *
 * One thread looks at each file once a second, and reads it when its inode, size or times are others than before.
 * Looking costs a stat() and, unlike inotify, sees every kind of change: a file that is renamed over the old one, a
 * symbolic link that now leads elsewhere (as Kubernetes replaces the files of a ConfigMap), a mount, a network
 * filesystem. The thread also has each name looked up again 5 s after the last answer, and does not wait for it
 * (names.c).
 *
 * A list that cannot be read, or a name without an answer, keeps the members that it had; the log says so once, and the
 * reports as long as it lasts. */
#include "store/l2/l2_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/vec.h"

enum { FILE_MS = 1000, FILE_MAX = 1 << 20 };
/* POLL_MS: between two looks whether a look-up has ended. */
enum { NAME_MS = 5000, ANSWER_MS = 5000, POLL_MS = 20 };
/* Short, since the store is always there to fall back on. */
enum { CONNECT_MS = 2000, REQUEST_S = 5 };

/* One list. Only the thread changes it, or store_proxies_open before there is one. */
struct list {
    char *text; /* as it was given */
    enum { LIST_URL, LIST_FILE, LIST_NAME } kind;
    struct members members; /* as last read; its length is guarded by follow.lock */
    struct stat seen;       /* of the file, when it was last read */
    struct name_url name;
    struct look_up *asking;    /* the name's look-up that runs; NULL: none */
    uint64_t due_ms, asked_ms; /* on clock_now_ms: of the next step, and when `asking` began */
    struct error failure;      /* guarded by follow.lock; code 0: none */
    uint64_t failed_ms;        /* on clock_now_ms: the first failure of these; guarded likewise */
};

struct follow {
    struct list lists[STORE_L2_LISTS_MAX];
    size_t n;
    struct follow_config config; /* with the defaults filled in, and without its lists */
    struct members all;          /* of all lists, as proxies_set has them */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* stopping was set */
    bool started, stopping; /* started: constant once the thread runs; stopping: guarded by lock */
    pthread_t thread;
};

/* ---- all lists together ---- */

static int add_list(const struct list *l, struct members *all)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < l->members.len; i++) {
        const struct member *m = &l->members.items[i];
        struct member *there = members_find(all, m->url);
        if (there && l->kind == LIST_URL)
            rc = error_set(-EINVAL, "the shared cache proxy %s is given twice", m->url);
        else if (there)
            there->weight = GR_MAX(there->weight, m->weight);
        else if (all->len == STORE_L2_MAX)
            rc = error_set(-EINVAL, "%s: with it, there are more than %d shared cache proxies", l->text, STORE_L2_MAX);
        else
            rc = members_add(all, m->url, strlen(m->url), m->weight);
    }
    return rc;
}

/* Make the members of all lists the proxies. The URLs come first, so that one given twice is told from one that another
 * list has, too. */
static int apply(struct store_proxies *p)
{
    struct follow *f = p->follow;
    struct members all CLEANUP(members_release) = {0};
    int rc = 0;
    for (int changing = 0; changing < 2; changing++)
        for (size_t i = 0; !rc && i < f->n; i++)
            if ((f->lists[i].kind != LIST_URL) == changing)
                rc = add_list(&f->lists[i], &all);
    if (!rc)
        rc = proxies_set(p, &all);
    if (rc)
        return rc;
    struct members old = f->all;
    f->all = all;
    all = old;
    return 0;
}

static void swap_members(struct follow *f, struct list *l, struct members *fresh)
{
    SCOPED_LOCK(&f->lock);
    struct members old = l->members;
    l->members = *fresh;
    *fresh = old;
}

/* Make these the members of one list. On failure all is as before. */
static int replace_members(struct store_proxies *p, struct list *l, struct members *fresh)
{
    if (members_equal(&l->members, fresh))
        return 0;
    swap_members(p->follow, l, fresh);
    int rc = apply(p);
    if (rc)
        swap_members(p->follow, l, fresh);
    else
        log_info("%s names %zu shared cache proxies, and named %zu before; in use: %zu", l->text, l->members.len,
                 fresh->len, p->follow->all.len);
    return rc;
}

/* ---- files ---- */

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static int read_file(struct store_proxies *p, struct list *l)
{
    struct members fresh CLEANUP(members_release) = {0};
    CLEANUP_BYTES text = BYTES_INIT(FILE_MAX);
    int rc = io_read_file(l->text, &text);
    if (rc)
        return rc;
    char *string = bytes_string(&text);
    rc = string ? member_file_parse(l->text, string, text.len, &fresh) : -EMSGSIZE;
    return rc ? rc : replace_members(p, l, &fresh);
}

/* Note how reading a list went. Logs the first failure, another one, and the end. */
static void note(struct follow *f, struct list *l, int rc)
{
    bool was = l->failure.code != 0, another = rc && (!was || strcmp(l->failure.text, error_text()) != 0);
    if (another)
        log_warning("shared cache proxies: %.400s; those of before stay: %zu", error_text(), l->members.len);
    if (!rc && was)
        log_info("shared cache proxies: %s is read again", l->text);
    SCOPED_LOCK(&f->lock);
    if (rc && !was)
        l->failed_ms = clock_now_ms();
    if (another)
        error_take(&l->failure, rc);
    if (!rc)
        l->failure = (struct error){0};
}

/* Look at a file, and read it if it has changed. One that changes while it is read is read once more, the next time. */
static void look_at_file(struct store_proxies *p, struct list *l)
{
    struct stat now = {0};
    if (stat(l->text, &now)) {
        l->seen = (struct stat){0};
        note(p->follow, l, error_set(-errno, "cannot read %s: %s", l->text, strerror(errno)));
    } else if (!same_file(&now, &l->seen)) {
        l->seen = now;
        int rc = read_file(p, l);
        if (rc && rc != -EINVAL) /* not what is in it */
            l->seen = (struct stat){0};
        note(p->follow, l, rc);
    }
}

/* ---- names ---- */

/* Begin a look-up, or see what has become of it. */
static void step_of_name(struct store_proxies *p, struct list *l, uint64_t now)
{
    struct follow *f = p->follow;
    struct members fresh CLEANUP(members_release) = {0};
    struct addresses found = {0};
    l->due_ms = now + POLL_MS;
    if (!l->asking) {
        l->asked_ms = now;
        int rc = look_up_start(f->config.look_up, f->config.look_up_arg, l->name.host, &l->asking);
        if (!rc)
            return;
        l->due_ms = now + f->config.name_ms;
        note(f, l, rc);
    } else if (look_up_ended(l->asking)) {
        int rc = look_up_end(steal_ptr(&l->asking), &found);
        if (!rc)
            rc = name_members(&l->name, &found, &fresh);
        if (!rc)
            rc = replace_members(p, l, &fresh);
        vec_release(&found);
        l->due_ms = now + f->config.name_ms;
        note(f, l, rc);
    } else if (now - l->asked_ms >= f->config.answer_ms) {
        note(f, l, error_set(-ETIMEDOUT, "the name service does not answer for %s", l->name.host));
    }
}

/* ---- the thread ---- */

/* Do what is due; return when the next step is. */
static uint64_t step(struct store_proxies *p)
{
    struct follow *f = p->follow;
    uint64_t now = clock_now_ms(), next = UINT64_MAX;
    for (size_t i = 0; i < f->n; i++) {
        struct list *l = &f->lists[i];
        if (l->kind == LIST_URL)
            continue;
        if (l->due_ms <= now && l->kind == LIST_FILE) {
            look_at_file(p, l);
            l->due_ms = now + f->config.file_ms;
        } else if (l->due_ms <= now) {
            step_of_name(p, l, now);
        }
        next = GR_MIN(next, l->due_ms);
    }
    return next;
}

static void *follow_lists(void *arg)
{
    struct store_proxies *p = arg;
    struct follow *f = p->follow;
    pthread_mutex_lock(&f->lock);
    while (!f->stopping) {
        pthread_mutex_unlock(&f->lock);
        const struct timespec until = clock_at_ms(step(p));
        pthread_mutex_lock(&f->lock);
        while (!f->stopping && pthread_cond_timedwait(&f->changed, &f->lock, &until) != ETIMEDOUT)
            continue;
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

int store_proxies_start_thread(struct store_proxies *p)
{
    struct follow *f = p->follow;
    bool changes = false;
    for (size_t i = 0; i < f->n; i++)
        changes |= f->lists[i].kind != LIST_URL;
    int rc = changes ? thread_start(&f->thread, follow_lists, p) : 0;
    f->started = changes && !rc;
    return rc;
}

/* ---- life ---- */

static void follow_free(struct follow *f)
{
    for (size_t i = 0; i < f->n; i++) {
        struct list *l = &f->lists[i];
        if (l->asking)
            look_up_abandon(l->asking);
        name_url_release(&l->name);
        members_release(&l->members);
        free(l->text);
    }
    members_release(&f->all);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

static int follow_new(const struct follow_config *config, struct follow **out)
{
    struct follow *f = calloc(1, sizeof *f);
    if (!f)
        return error_no_memory();
    f->config = *config;
    f->config.lists = NULL;
    f->config.look_up = config->look_up ? config->look_up : name_look_up_system;
    f->config.file_ms = config->file_ms ? config->file_ms : FILE_MS;
    f->config.name_ms = config->name_ms ? config->name_ms : NAME_MS;
    f->config.answer_ms = config->answer_ms ? config->answer_ms : ANSWER_MS;
    pthread_mutex_init(&f->lock, NULL);
    thread_cond_init(&f->changed);
    *out = f;
    return 0;
}

/* Add a list, and a URL's only member. */
static int add_given(struct follow *f, const char *text)
{
    struct list *l = &f->lists[f->n];
    l->text = strdup(text);
    if (!l->text)
        return error_no_memory();
    f->n++;
    l->kind = *text == '/' ? LIST_FILE : text_begins_with(text, NAME_SCHEME) ? LIST_NAME : LIST_URL;
    if (l->kind == LIST_NAME)
        return name_url_parse(text, f->config.node.tls, &l->name);
    return l->kind == LIST_FILE ? 0 : members_add(&l->members, text, strlen(text), 0);
}

static int open_http(void *arg, const char *url, const struct store_options *options, struct store **out)
{
    return store_http_open(url, options, out);
}

int follow_open(const struct follow_config *config, struct store_proxies **out)
{
    CLEANUP(cleanup_store_proxies) struct store_proxies *p = NULL;
    assert(config->n && config->n <= STORE_L2_LISTS_MAX);
    int rc =
        proxies_new(config->open ? config->open : open_http, config->open_arg, &config->options, &config->node, &p);
    if (!rc)
        rc = follow_new(config, &p->follow);
    for (size_t i = 0; !rc && i < config->n; i++)
        rc = add_given(p->follow, config->lists[i]);
    if (!rc)
        rc = apply(p);
    if (rc)
        return rc;
    for (size_t i = 0; i < p->follow->n; i++)
        if (p->follow->lists[i].kind == LIST_FILE)
            look_at_file(p, &p->follow->lists[i]);
    *out = steal_ptr(&p);
    return 0;
}

int store_proxies_open(const char *const *lists, size_t n, const struct store_options *of_store,
                       const struct store_node *node, struct store_proxies **out)
{
    const struct follow_config config = {.lists = lists,
                                         .n = n,
                                         .node = node ? *node : (struct store_node){0},
                                         .options = {.connections = of_store->connections,
                                                     .slots = of_store->slots,
                                                     .rate = of_store->rate,
                                                     .cancel = of_store->cancel,
                                                     .nodes = node ? node->tls : NULL,
                                                     .connect_ms = CONNECT_MS,
                                                     .request_s = REQUEST_S}};
    return follow_open(&config, out);
}

void store_proxies_close(struct store_proxies *p)
{
    if (!p)
        return;
    struct follow *f = p->follow;
    if (f && f->started) {
        pthread_mutex_lock(&f->lock);
        f->stopping = true;
        pthread_cond_signal(&f->changed);
        pthread_mutex_unlock(&f->lock);
        pthread_join(f->thread, NULL);
    }
    if (f)
        follow_free(f);
    proxies_unref(p);
}

/* ---- reports ---- */

void store_proxies_reports(struct store_proxies *p, struct store_l2_reports *out)
{
    struct follow *f = p->follow;
    *out = (struct store_l2_reports){0};
    proxies_reports(p, out);
    SCOPED_LOCK(&f->lock);
    for (size_t i = 0; i < f->n; i++) {
        const struct list *l = &f->lists[i];
        if (l->kind == LIST_URL)
            continue;
        struct store_l2_list *report = &out->lists[out->list_count++];
        report->list = l->text;
        report->len = l->members.len;
        if (l->failure.code) {
            memcpy(report->failure, l->failure.text, sizeof report->failure);
            report->failing_ms = GR_MAX(clock_now_ms() - l->failed_ms, (uint64_t)1);
        }
    }
}
