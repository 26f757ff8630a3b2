/* Two handles for each store, each opened when first needed: a hasty one with a short timeout for tags that a table
 * knows, and a patient one with the timeout of the options for everything else. A store that did not answer on the
 * hasty handle is not asked again: a start with a thousand images of a dead store must not wait a thousand times.
 *
 *   tag       resolver_ahead's result?  else table knows it: hasty, and the table if no answer  else: patient
 *   manifest  table, handed table       else resolver_ahead's result                            else: patient
 *
 * The table that is written starts with what this process resolved, followed by what was known before, as far as it
 * fits. So a directory used for one image today and another one tomorrow knows both. */
#include "repository/resolver.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/safe_dir.h"
#include "base/text.h"
#include "format/export_table.h"
#include "repository/repository.h"
#include "repository/table_files.h"

enum { AHEAD_THREADS = 32 };

/* A store and its handles. */
struct source {
    char *url;
    struct store *patient, *hasty; /* NULL: not needed yet */
    bool checked;                  /* granary.json was checked */
    struct error away;             /* why the hasty handle got no answer; code 0: it was not tried, or it answered */
};

/* A reference that resolver_ahead requested, and the result. */
struct asked {
    struct image_ref ref; /* with its digest once known */
    struct store *store;
    struct tag tag;
    struct manifest manifest;
    struct bytes text;  /* of the manifest; empty: not requested, or failed */
    struct error error; /* code 0: none */
};

/* An image and the signature of its tag. */
struct signed_image {
    struct image_ref ref; /* by digest, with its tag */
    char *text;
};

/* Used by one thread; resolver_ahead's threads touch only their own `asked`. */
struct resolver {
    const struct resolver_config *config;
    struct export_table known;  /* newest of the tables in the directories */
    struct export_table handed; /* from another process, for its manifests and signatures */
    struct export_table wanted; /* resolved by this process */
    VEC(struct source) sources;
    VEC(struct asked) asked;
    VEC(struct signed_image) signatures; /* that tags had; noted for resolver_save */
};

/* ---- tables ---- */

/* Read the table from another process. A damaged one only costs requests. */
static int read_handed(struct resolver *r)
{
    CLEANUP_BYTES text = BYTES_INIT(EXPORT_TABLE_MAX);
    CLEANUP_EXPORT_TABLE t = {0};
    const struct bytes *proof = r->config->proof;
    int rc = proof ? 0 : safe_file_read(r->config->handed, geteuid(), &text);
    if (!proof)
        proof = &text;
    if (!rc)
        rc = export_table_decode(proof->data, proof->len, &t);
    if (rc && rc != -ENOENT && rc != -ENOMEM)
        log_warning("the images that were handed over: %s; the store is asked", error_text());
    if (rc)
        return rc == -ENOMEM ? rc : 0;
    r->handed = t;
    t = (struct export_table){0};
    return 0;
}

int resolver_new(const struct resolver_config *config, struct resolver **out)
{
    CLEANUP(cleanup_resolver) struct resolver *r = calloc(1, sizeof *r);
    int rc = r ? 0 : error_no_memory();
    if (r)
        r->config = config;
    if (!rc)
        rc = table_files_read(config->dirs, config->dir_count, &r->known);
    if (!rc && (config->handed || config->proof))
        rc = read_handed(r);
    if (!rc)
        *out = steal_ptr(&r);
    return rc;
}

void resolver_reread(struct resolver *r)
{
    export_table_release(&r->known);
    r->known = (struct export_table){0};
    if (table_files_read(r->config->dirs, r->config->dir_count, &r->known))
        log_warning("the table of exports is written anew: %s", error_text());
}

void resolver_free(struct resolver *r)
{
    for (size_t i = 0; i < r->sources.len; i++) {
        store_close(r->sources.items[i].patient);
        store_close(r->sources.items[i].hasty);
        free(r->sources.items[i].url);
    }
    vec_release(&r->sources);
    for (size_t i = 0; i < r->asked.len; i++)
        bytes_release(&r->asked.items[i].text);
    vec_release(&r->asked);
    for (size_t i = 0; i < r->signatures.len; i++)
        free(r->signatures.items[i].text);
    vec_release(&r->signatures);
    export_table_release(&r->known);
    export_table_release(&r->handed);
    export_table_release(&r->wanted);
    free(r);
}

/* ---- stores ---- */

/* Return the store's entry, added if it is new. The pointer is valid until the next addition. */
static int find_source(struct resolver *r, const char *url, struct source **out)
{
    for (size_t i = 0; i < r->sources.len; i++)
        if (!strcmp(r->sources.items[i].url, url)) {
            *out = &r->sources.items[i];
            return 0;
        }
    struct source fresh = {.url = strdup(url)};
    if (!fresh.url || vec_push(&r->sources, fresh)) {
        free(fresh.url);
        return error_no_memory();
    }
    *out = &r->sources.items[r->sources.len - 1];
    return 0;
}

/* Open the patient handle of a store. */
static int open_patient(struct resolver *r, const char *url, struct source **out)
{
    int rc = find_source(r, url, out);
    return rc || (*out)->patient ? rc : store_open(url, &r->config->store, &(*out)->patient);
}

/* Return the patient handle after checking, once, that this is a Granary store. */
static int check_patient(struct resolver *r, const char *url, struct store **out)
{
    struct source *source;
    int rc = open_patient(r, url, &source);
    if (!rc && !source->checked)
        rc = repository_check(source->patient, false);
    if (rc)
        return rc;
    source->checked = true;
    *out = source->patient;
    return 0;
}

/* A request to a store, in parallel with the check that it is one of Granary's. */
struct question {
    struct store *store;
    int (*ask)(void *arg, struct store *store);
    void *arg;
    struct error unchecked, unanswered; /* code 0: success */
};

static int ask_half(void *arg, size_t i)
{
    struct question *q = arg;
    int rc = i ? q->ask(q->arg, q->store) : repository_check(q->store, false);
    if (rc)
        error_take(i ? &q->unanswered : &q->unchecked, rc);
    return 0;
}

/* Run `ask` on the patient handle. On first use the check runs in parallel, and its failure comes first, because "not
 * a Granary store" explains any other. */
static int ask_patiently(struct resolver *r, const char *url, int (*ask)(void *arg, struct store *store), void *arg)
{
    struct source *source;
    int rc = open_patient(r, url, &source);
    if (rc || source->checked)
        return rc ? rc : ask(arg, source->patient);
    struct question q = {.store = source->patient, .ask = ask, .arg = arg};
    rc = parallel_run(&(struct parallel){.count = 2, .threads = 2, .item = ask_half, .arg = &q});
    if (rc || q.unchecked.code)
        return rc ? rc : error_restore(&q.unchecked);
    source->checked = true;
    return q.unanswered.code ? error_restore(&q.unanswered) : 0;
}

/* Does rc mean that the store did not answer? A directory without granary.json counts as not mounted now, because the
 * table shows that there was a store. */
static bool no_answer(struct source *source, int rc)
{
    bool local = !strncmp(source->url, "file:", 5);
    if (rc == -ENOENT) {
        struct error said;
        error_take(&said, rc);
        rc = repository_check(source->hasty, false);
        if (!rc)
            (void)error_restore(&said);
        else if (rc == -ENOENT)
            return true;
    }
    return rc == -EAGAIN || rc == -ETIMEDOUT || (local && (rc == -EIO || rc == -ENOTCONN || rc == -EHOSTDOWN));
}

/* Resolve a tag on the hasty handle. 0: *out is the store's answer; 1: no answer, and the sentence says why; -errno:
 * the store answered with this error. */
static int ask_hastily(struct resolver *r, const struct image_ref *ref, struct tag *out)
{
    struct source *source;
    struct digest digest;
    struct store_options options = r->config->store;
    options.timeout_ms = options.timeout_ms ? GR_MIN(options.timeout_ms, (uint64_t)RESOLVER_ASK_MS) : RESOLVER_ASK_MS;
    options.request_s = RESOLVER_REQUEST_S;
    int rc = find_source(r, ref->store, &source);
    if (!rc && source->away.code) {
        (void)error_restore(&source->away);
        return 1;
    }
    if (!rc && !source->hasty)
        rc = store_open(ref->store, &options, &source->hasty);
    if (!rc)
        rc = repository_resolve(source->hasty, ref, &digest, out);
    if (!rc || !source->hasty || !no_answer(source, rc))
        return rc;
    error_take(&source->away, rc);
    return 1;
}

/* ---- ahead ---- */

/* Return resolver_ahead's result for a tag, or NULL. */
static struct asked *find_tag(const struct resolver *r, const struct image_ref *ref)
{
    for (size_t i = 0; i < r->asked.len; i++) {
        struct asked *a = &r->asked.items[i];
        bool told = a->error.code || !digest_is_zero(&a->ref.digest);
        if (told && !a->ref.by_digest && !strcmp(a->ref.store, ref->store) && !strcmp(a->ref.name, ref->name) &&
            !strcmp(a->ref.tag, ref->tag))
            return a;
    }
    return NULL;
}

/* Return resolver_ahead's result for an image's manifest, or NULL. */
static struct asked *find_image(const struct resolver *r, const struct image_ref *ref)
{
    for (size_t i = 0; i < r->asked.len; i++) {
        struct asked *a = &r->asked.items[i];
        if ((a->text.len || a->error.code) && digest_equal(&a->ref.digest, &ref->digest) &&
            !strcmp(a->ref.store, ref->store))
            return a;
    }
    return NULL;
}

static bool is_known(const struct resolver *r, const struct image_ref *ref)
{
    return ref->by_digest ? export_table_find_image(&r->known, ref->store, &ref->digest) ||
                                export_table_find_image(&r->handed, ref->store, &ref->digest) || find_image(r, ref)
                          : export_table_find_tag(&r->known, ref) || find_tag(r, ref);
}

/* The items of a resolver_ahead call. Each thread works on its own item. */
struct asking {
    struct asked *items;
    bool manifests;
};

/* Resolve one reference and fetch its manifest. */
static int ask_one(void *arg, size_t i)
{
    const struct asking *asking = arg;
    struct asked *a = &asking->items[i];
    int rc = a->error.code; /* its store failed */
    if (!rc && !a->ref.by_digest)
        rc = repository_resolve(a->store, &a->ref, &a->ref.digest, &a->tag);
    if (!rc && asking->manifests)
        rc = repository_manifest_text(a->store, &a->ref.digest, &a->manifest, &a->text);
    if (rc && !a->error.code) {
        bytes_clear(&a->text);
        error_take(&a->error, rc);
    }
    return rc; /* ends the parallel run: the caller needs all of them, so the rest is not begun */
}

int resolver_ahead(struct resolver *r, const struct image_ref *refs, size_t n, bool manifests)
{
    size_t before = r->asked.len;
    for (size_t i = 0; i < n; i++) {
        if (is_known(r, &refs[i]) || (refs[i].by_digest && !manifests))
            continue;
        struct asked a = {.ref = refs[i], .text = BYTES_INIT(MANIFEST_MAX)};
        if (!a.ref.by_digest)
            a.ref.digest = (struct digest){{0}};
        int rc = check_patient(r, a.ref.store, &a.store);
        if (rc)
            error_take(&a.error, rc);
        if (vec_push(&r->asked, a))
            return error_no_memory();
        if (rc)
            break; /* do not wait again for a store that is away */
    }
    /* The items stay in place from here on: nothing is added while threads use them. */
    struct asking asking = {.items = r->asked.items + before, .manifests = manifests};
    const struct parallel work = {
        .count = r->asked.len - before, .threads = AHEAD_THREADS, .item = ask_one, .arg = &asking};
    int rc = work.count ? parallel_run(&work) : 0;
    return rc == -ENOMEM ? rc : 0;
}

/* ---- tags ---- */

/* Warn that an old digest is served. */
static void say_unasked(const struct image_ref *ref, const struct export_entry *known)
{
    char hex[DIGEST_HEX_SIZE], when[TEXT_TIME_MAX];
    int64_t age = GR_MAX((int64_t)time(NULL) - known->resolved, INT64_C(0));
    log_warning("%s cannot be asked for %s:%s (%.200s); serving sha256:%s, as it was on %s, %lld h ago", ref->store,
                ref->name, ref->tag, error_text(), digest_hex(&known->ref.digest, hex),
                text_format_time(known->resolved, when), (long long)age / 3600);
}

/* The request for a tag, for ask_patiently. */
struct tag_question {
    const struct image_ref *ref;
    struct store *store;
    struct tag tag;
};

static int read_asked_tag(void *arg, struct store *store)
{
    struct tag_question *q = arg;
    q->store = store;
    return repository_read_tag(store, q->ref->name, q->ref->tag, &q->tag);
}

/* Resolve a tag on the patient handle. */
static int ask_tag(struct resolver *r, const struct image_ref *ref, struct tag *out)
{
    struct tag_question q = {.ref = ref};
    int rc = ask_patiently(r, ref->store, read_asked_tag, &q);
    if (!rc)
        rc = repository_check_tag(q.store, ref->name, ref->tag, &q.tag);
    if (!rc)
        *out = q.tag;
    return rc;
}

/* ---- signatures ---- */

/* Are both the same image under the same tag? */
static bool same_image(const struct image_ref *a, const struct image_ref *b)
{
    return digest_equal(&a->digest, &b->digest) && !strcmp(a->tag, b->tag) && !strcmp(a->name, b->name) &&
           !strcmp(a->store, b->store);
}

/* Return the signature of an image's tag that is known from the store or a table; NULL: none. */
static char *known_signature(const struct resolver *r, const struct image_ref *ref)
{
    const struct export_table *const tables[] = {&r->known, &r->handed};
    for (size_t i = 0; i < r->signatures.len; i++)
        if (same_image(&r->signatures.items[i].ref, ref))
            return r->signatures.items[i].text;
    for (size_t k = 0; k < GR_ARRAY_SIZE(tables); k++)
        for (size_t i = 0; i < tables[k]->entries.len; i++)
            if (tables[k]->entries.items[i].signature && same_image(&tables[k]->entries.items[i].ref, ref))
                return tables[k]->entries.items[i].signature;
    return NULL;
}

/* Check an answer of the store's, and note its signature. ref: by digest, with its tag. */
static int take_signature(struct resolver *r, const struct image_ref *ref, const char *text)
{
    int rc = r->config->trust ? trust_check(r->config->trust, ref, text) : 0;
    if (rc || !*text)
        return rc;
    struct signed_image fresh = {.ref = *ref, .text = strdup(text)};
    if (!fresh.text || vec_push(&r->signatures, fresh)) {
        free(fresh.text);
        return error_no_memory();
    }
    return 0;
}

/* Does a table hold this image with a signature that is trusted? Under any tag, if ref has none. */
static bool is_trusted_by_table(const struct resolver *r, const struct image_ref *ref)
{
    const struct export_table *const tables[] = {&r->known, &r->handed};
    for (size_t k = 0; k < GR_ARRAY_SIZE(tables); k++)
        for (size_t i = 0; i < tables[k]->entries.len; i++) {
            const struct export_entry *e = &tables[k]->entries.items[i];
            struct image_ref wanted = *ref;
            if (!*wanted.tag)
                memcpy(wanted.tag, e->ref.tag, sizeof wanted.tag);
            if (e->signature && same_image(&e->ref, &wanted) && !trust_check(r->config->trust, &e->ref, e->signature))
                return true;
        }
    return false;
}

/* Check a reference by digest: by a table, else by what its tag says now. */
static int check_digest(struct resolver *r, const struct image_ref *ref)
{
    if (!r->config->trust || !r->config->trust->count || is_trusted_by_table(r, ref))
        return 0;
    struct tag tag = {.created = 0};
    int rc = *ref->tag ? ask_tag(r, ref, &tag) : 0;
    if (!rc)
        rc = trust_check_tag(r->config->trust, ref, &tag.digest);
    return rc ? rc : take_signature(r, ref, tag.signature);
}

/* ---- resolving ---- */

int resolver_resolve(struct resolver *r, struct image_ref *ref)
{
    if (ref->by_digest)
        return check_digest(r, ref);
    const struct export_entry *known = export_table_find_tag(&r->known, ref);
    struct asked *asked = find_tag(r, ref);
    struct tag tag;
    int rc;
    if (asked) {
        rc = digest_is_zero(&asked->ref.digest) ? error_restore(&asked->error) : 0;
        tag = asked->tag;
    } else if (known) {
        rc = ask_hastily(r, ref, &tag);
    } else {
        rc = ask_tag(r, ref, &tag);
    }
    if (rc < 0)
        return rc;
    if (rc) {
        /* No answer: use the table's digest, and clear the tag, which the store did not confirm. */
        say_unasked(ref, known);
        if (r->config->trust)
            rc = trust_check(r->config->trust, &known->ref, known->signature);
        ref->digest = known->ref.digest;
        ref->tag[0] = '\0';
        ref->by_digest = true;
        return rc < 0 ? rc : 0;
    }
    ref->digest = tag.digest;
    ref->by_digest = true;
    return take_signature(r, ref, tag.signature);
}

/* ---- manifests ---- */

/* Return the entry of the table that holds the image's manifest, decoded into *out, or NULL. */
static const struct export_entry *known_image(const struct resolver *r, const struct image_ref *ref,
                                              struct manifest *out)
{
    const struct export_entry *e = export_table_find_image(&r->known, ref->store, &ref->digest);
    if (!e)
        e = export_table_find_image(&r->handed, ref->store, &ref->digest);
    return e && !manifest_decode(e->manifest.data, e->manifest.len, out) ? e : NULL;
}

/* Note an image for resolver_save. */
static int resolver_note(struct resolver *r, const struct image_ref *ref, const struct export_entry *known,
                         const struct bytes *text)
{
    if (!ref->tag[0] && known) /* resolved from the table: keep the tag and its time */
        return export_table_put(&r->wanted, known);
    int64_t now = r->config->resolved ? r->config->resolved : (int64_t)time(NULL);
    const struct export_entry e = {
        .ref = *ref, .resolved = ref->tag[0] ? now : 0, .manifest = *text, .signature = known_signature(r, ref)};
    return export_table_put(&r->wanted, &e);
}

/* The request for a manifest, for ask_patiently. */
struct manifest_question {
    const struct image_ref *ref;
    struct manifest *manifest;
    struct bytes text;
};

static int ask_manifest(void *arg, struct store *store)
{
    struct manifest_question *q = arg;
    return repository_manifest_text(store, &q->ref->digest, q->manifest, &q->text);
}

int resolver_manifest(struct resolver *r, const struct image_ref *ref, struct manifest *out)
{
    const struct export_entry *known = known_image(r, ref, out);
    if (known)
        return resolver_note(r, ref, known, &known->manifest);
    struct asked *asked = find_image(r, ref);
    if (asked && asked->error.code)
        return error_restore(&asked->error);
    if (asked) {
        *out = asked->manifest;
        return resolver_note(r, ref, NULL, &asked->text);
    }
    struct manifest_question q = {.ref = ref, .manifest = out, .text = BYTES_INIT(MANIFEST_MAX)};
    int rc = ask_patiently(r, ref->store, ask_manifest, &q);
    if (!rc)
        rc = resolver_note(r, ref, NULL, &q.text);
    bytes_release(&q.text);
    return rc;
}

int resolver_hand(const struct resolver *r, struct bytes *out)
{
    size_t kept;
    return export_table_encode(&r->wanted, out, &kept);
}

/* ---- writing ---- */

static bool same_entry(const struct export_entry *a, const struct export_entry *b)
{
    const char *x = a->signature ? a->signature : "", *y = b->signature ? b->signature : "";
    return a->resolved == b->resolved && same_image(&a->ref, &b->ref) && !strcmp(x, y);
}

/* Make the table to write. Each put goes to the front, so this runs backwards: the old entries first, then our own. */
static int merge(struct resolver *r, struct export_table *out)
{
    int rc = 0;
    for (size_t i = r->known.entries.len; !rc && i-- > 0;)
        rc = export_table_put(out, &r->known.entries.items[i]);
    for (size_t i = r->wanted.entries.len; !rc && i-- > 0;)
        rc = export_table_put(out, &r->wanted.entries.items[i]);
    out->generation = r->known.generation + 1;
    return rc;
}

/* Does every directory have a copy that equals the new table? */
static bool is_written(const struct resolver *r, const struct export_table *t)
{
    bool same = t->entries.len == r->known.entries.len;
    for (size_t i = 0; same && i < t->entries.len; i++)
        same = same_entry(&t->entries.items[i], &r->known.entries.items[i]);
    return same && table_files_present(r->config->dirs, r->config->dir_count);
}

void resolver_save(struct resolver *r)
{
    CLEANUP_EXPORT_TABLE t = {0};
    CLEANUP_BYTES text = BYTES_INIT(EXPORT_TABLE_MAX);
    size_t kept;
    int rc = r->config->dir_count ? merge(r, &t) : 0;
    if (!r->config->dir_count || (!rc && is_written(r, &t)))
        return;
    if (!rc)
        rc = export_table_encode(&t, &text, &kept);
    if (rc) {
        log_warning("%s; the table of exports is not written", error_text());
        return;
    }
    /* Entries known before may be dropped silently; ours should be there at the next start. */
    if (kept < r->wanted.entries.len)
        log_warning("the table of exports has room for %zu of %zu images: the others need their store to start", kept,
                    r->wanted.entries.len);
    table_files_write(r->config->dirs, r->config->dir_count, &text);
}
