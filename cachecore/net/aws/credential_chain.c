/* Credentials are reference-counted: a renewal replaces `current`, and requests that were signed with the old ones keep
 * them until they end.
 *
 *   valid --ahead_s before expiry--> due: one thread renews, the others use the old ones
 *     |                                     |
 *     +--a server rejects them--> rejected: one thread renews, the others wait
 *
 * The first thread that finds a renewal due, and none in progress, does it. `attempt` counts renewals, so that a
 * waiting thread sees that the one it waited for has ended; it then takes over that result instead of trying again
 * itself, or a dead service would be asked by each thread in turn.
 *
 * The lock guards `current` and the state of the renewal. It is never held across a request or while a file is read.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "net/aws/aws_internal.h"
#include "net/aws/s3_keys.h"

enum { AHEAD_S = 300, BETWEEN_MS = 10000, CONNECT_S = 1, SILENCE_S = 5 };

/* The source of the credentials; STATIC: environment or shared files; GIVEN: s3_keys.c has them, and a chain only
 * passes its calls on. */
enum place { STATIC, WEB_IDENTITY, CONTAINER, INSTANCE, GIVEN };

struct credential_chain {
    enum place place;
    struct http *http; /* for remote sources; NULL: STATIC */
    char *region, *token_file, *role_arn, *session_name;
    const char *profile;   /* borrowed; NULL: not configured */
    struct s3_keys *given; /* NULL unless GIVEN */
    unsigned ahead_s, between_ms, connect_s, silence_s;
    pthread_mutex_t lock;             /* guards the rest */
    pthread_cond_t renewed;           /* an attempt has ended */
    struct lent_credentials *current; /* the chain holds one reference; NULL: none yet */
    bool renewing, rejected;          /* an attempt is in progress; a server rejected current */
    uint64_t attempt, next_ms;        /* attempts made; on clock_now_ms: no attempt before, while current is valid */
    struct error failure;             /* of the last attempt; code 0: it succeeded */
};

/* ------------------------------------------------------------------ sources */

/* Fetch credentials from the chosen source; blocks. */
static int fetch(struct credential_chain *c, struct credentials *out)
{
    struct web_identity w = {
        .token_file = c->token_file, .role_arn = c->role_arn, .session_name = c->session_name, .region = c->region};
    switch (c->place) {
    case STATIC:
        return credentials_load(c->profile, out);
    case WEB_IDENTITY:
        return credentials_from_web_identity(c->http, &w, out);
    case CONTAINER:
        return credentials_from_container(c->http, out);
    case INSTANCE:
    case GIVEN: /* never asked for */
        break;
    }
    return credentials_from_instance(c->http, out);
}

static int use_web_identity(struct credential_chain *c, const char *file, const char *role, const char *session)
{
    c->place = WEB_IDENTITY;
    c->token_file = strdup(file);
    c->role_arn = strdup(role);
    c->session_name = session ? strdup(session) : NULL;
    return c->token_file && c->role_arn && (c->session_name || !session) ? 0 : error_no_memory();
}

/* Choose the first source that is configured. */
static int choose_place(struct credential_chain *c)
{
    const char *file = text_of_environment("AWS_WEB_IDENTITY_TOKEN_FILE"), *role = text_of_environment("AWS_ROLE_ARN");
    if (credentials_in_environment())
        return 0;
    if (file && role)
        return use_web_identity(c, file, role, text_of_environment("AWS_ROLE_SESSION_NAME"));
    struct aws_profile p CLEANUP(aws_profile_release) = {0};
    int rc = aws_profile_load(c->profile, &p);
    if (rc || p.access_key || p.secret_key)
        return rc;
    if (p.web_identity_token_file && p.role_arn)
        return use_web_identity(c, p.web_identity_token_file, p.role_arn, p.role_session_name);
    if (!p.named) /* a user who names a profile wants no other source */
        c->place = credentials_in_container() ? CONTAINER : INSTANCE;
    return 0;
}

/* Of keys in the shared files it is not known in which of the two they are. */
static void name_place(const struct credential_chain *c, const struct aws_profile *p, char out[S3_SOURCE_MAX])
{
    if (c->place == CONTAINER)
        snprintf(out, S3_SOURCE_MAX, "the container's endpoint (AWS_CONTAINER_CREDENTIALS_...)");
    else if (c->place == INSTANCE)
        snprintf(out, S3_SOURCE_MAX, "the instance metadata service: nothing names another source");
    else if (c->place == WEB_IDENTITY)
        snprintf(out, S3_SOURCE_MAX, "a web identity (%s)", c->token_file);
    else if (credentials_in_environment())
        snprintf(out, S3_SOURCE_MAX, "the environment (AWS_ACCESS_KEY_ID)");
    else if (p->file)
        snprintf(out, S3_SOURCE_MAX, "the profile '%s' of %s or the AWS config file", p->name, p->file);
    else
        snprintf(out, S3_SOURCE_MAX, "the profile '%s' of the AWS config file", p->name);
}

int credential_chain_name(const char *profile, char out[S3_SOURCE_MAX])
{
    struct credential_chain *c = calloc(1, sizeof *c);
    struct aws_profile p CLEANUP(aws_profile_release) = {0};
    if (!c)
        return error_no_memory();
    c->profile = profile;
    int rc = choose_place(c);
    if (!rc)
        rc = aws_profile_load(profile, &p);
    if (!rc)
        name_place(c, &p, out);
    credential_chain_free(c);
    return rc;
}

/* ------------------------------------------------------------------ renewing */

static bool is_valid_locked(const struct credential_chain *c)
{
    return c->current && !c->rejected && (!c->current->keys.expires || time(NULL) < c->current->keys.expires);
}

/* Is it time to renew? */
static bool is_due_locked(const struct credential_chain *c)
{
    if (!is_valid_locked(c))
        return true;
    return c->current->keys.expires && time(NULL) >= c->current->keys.expires - c->ahead_s &&
           clock_now_ms() >= c->next_ms;
}

/* Make one attempt, which the caller has announced by `renewing`. Takes the lock only to publish the result. */
static int renew(struct credential_chain *c)
{
    struct lent_credentials *fresh = calloc(1, sizeof *fresh);
    int rc = fresh ? fetch(c, &fresh->keys) : error_no_memory();
    SCOPED_LOCK(&c->lock);
    c->renewing = false;
    c->attempt++;
    c->next_ms = clock_now_ms() + c->between_ms;
    error_take(&c->failure, rc);
    pthread_cond_broadcast(&c->renewed);
    if (rc) {
        free(fresh);
        if (is_valid_locked(c))
            log_warning("%.400s; the old ones are used while they are valid", error_text());
        return rc;
    }
    fresh->holders = 1;
    lent_credentials_drop(c->current);
    c->current = fresh;
    c->rejected = false;
    return 0;
}

/* Make an attempt, or wait for the one in progress and take over its result. 0: the attempt has succeeded. */
static int attempt_one(struct credential_chain *c)
{
    pthread_mutex_lock(&c->lock);
    if (!c->renewing) {
        c->renewing = true;
        pthread_mutex_unlock(&c->lock);
        return renew(c);
    }
    for (uint64_t seen = c->attempt; c->attempt == seen;)
        pthread_cond_wait(&c->renewed, &c->lock);
    int rc = c->failure.code ? error_restore(&c->failure) : 0;
    pthread_mutex_unlock(&c->lock);
    return rc;
}

/* To a store, -ENOENT and -EACCES are about an object, but without credentials every request fails. */
static int as_refusal(int rc)
{
    return rc == -ENOENT || rc == -EACCES ? -ENOKEY : rc;
}

static int lend_locked(struct credential_chain *c, const struct lent_credentials **out)
{
    c->current->holders++;
    *out = c->current;
    return 0;
}

int credential_chain_get(struct credential_chain *c, const struct lent_credentials **out)
{
    if (c->given)
        return s3_keys_lend(c->given, out);
    {
        SCOPED_LOCK(&c->lock);
        /* The usual case: valid, and either not due or being renewed by another thread. */
        bool valid = is_valid_locked(c);
        if (valid && (c->renewing || !is_due_locked(c)))
            return lend_locked(c, out);
    }
    int rc = attempt_one(c);
    SCOPED_LOCK(&c->lock);
    if (is_valid_locked(c))
        return lend_locked(c, out);
    if (rc)
        return as_refusal(rc);
    return error_set(-ENOKEY, "S3 credentials: new ones have expired already; check this machine's clock");
}

void credential_chain_put(struct credential_chain *c, const struct lent_credentials *lent)
{
    if (c->given) {
        s3_keys_take_back(c->given, lent);
        return;
    }
    SCOPED_LOCK(&c->lock);
    lent_credentials_drop((struct lent_credentials *)lent);
}

int credential_chain_renew(struct credential_chain *c, const struct lent_credentials *expired)
{
    if (c->given)
        return s3_keys_changed(c->given, expired);
    {
        SCOPED_LOCK(&c->lock);
        if (c->current != expired)
            return 1; /* another thread has renewed them already */
        c->rejected = true;
    }
    int rc = attempt_one(c);
    if (rc)
        return as_refusal(rc);
    SCOPED_LOCK(&c->lock);
    /* A source that is a file or a service may return the same keys again. */
    return strcmp(c->current->keys.access_key, expired->keys.access_key) ||
           strcmp(c->current->keys.secret_key, expired->keys.secret_key) ||
           strcmp(c->current->keys.session_token ?: "", expired->keys.session_token ?: "");
}

/* ------------------------------------------------------------------ life */

static int make_http(struct credential_chain *c)
{
    if (c->place == STATIC)
        return 0;
    struct http_config config = {.connections = 1};
    if (c->place != WEB_IDENTITY) { /* services on this machine: no proxy, and they answer soon or are absent */
        config.no_proxy = true;
        config.connect_timeout_ms = c->connect_s * 1000;
        config.stall_timeout_s = c->silence_s;
    }
    return http_new(&config, &c->http);
}

/* Set the sentence for "no source has credentials": the one about the shared files, with the reason of the instance
 * metadata service in brackets. */
static int no_credentials(const struct credential_chain *c, int why)
{
    struct error instance;
    struct aws_profile p CLEANUP(aws_profile_release) = {0};
    struct credentials none;
    error_take(&instance, why);
    int rc = aws_profile_load(c->profile, &p);
    if (!rc)
        rc = credentials_from_profile(&p, &none); /* its sentence says where credentials were looked for */
    return error_set(rc, "%.300s (%.200s)", error_text(), instance.text);
}

/* Fetch the first credentials. The instance metadata service, which no setting names, must answer now, or there are no
 * credentials. A service that the settings name may be unreachable for a while. */
static int fetch_first(struct credential_chain *c)
{
    c->renewing = true;
    int rc = renew(c);
    if (rc && c->place == INSTANCE)
        return no_credentials(c, rc);
    return c->place != STATIC && (rc == -EAGAIN || rc == -ETIMEDOUT) ? 0 : c->place == STATIC ? rc : as_refusal(rc);
}

int credential_chain_new(const struct credential_chain_config *config, struct credential_chain **out)
{
    struct credential_chain *c = calloc(1, sizeof *c);
    if (!c)
        return error_no_memory();
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->renewed, NULL);
    c->profile = config->profile;
    c->ahead_s = config->ahead_s ? config->ahead_s : AHEAD_S;
    c->between_ms = config->between_ms ? config->between_ms : BETWEEN_MS;
    c->connect_s = config->silence_s ? config->silence_s : CONNECT_S;
    c->silence_s = config->silence_s ? config->silence_s : SILENCE_S;
    if (config->given) {
        c->place = GIVEN;
        c->given = s3_keys_ref(config->given);
        *out = c;
        return 0;
    }
    int rc = 0;
    if (config->region && !(c->region = strdup(config->region)))
        rc = error_no_memory();
    if (!rc)
        rc = choose_place(c);
    if (!rc)
        rc = make_http(c);
    if (!rc)
        rc = fetch_first(c);
    if (rc) {
        credential_chain_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

void credential_chain_free(struct credential_chain *c)
{
    if (!c)
        return;
    assert(!c->current || c->current->holders == 1);
    lent_credentials_drop(c->current);
    http_free(c->http);
    s3_keys_unref(c->given);
    free(c->region);
    free(c->token_file);
    free(c->role_arn);
    free(c->session_name);
    pthread_cond_destroy(&c->renewed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
