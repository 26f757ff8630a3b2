/* granary cache simulate --trace FILE --size SIZE: replays a trace of reads through each eviction policy, and through
 * the optimum, which knows the future, and prints the hit ratios. The policies are the cache's own code (cache/policy),
 * so a real cache of that size would behave in the same way.
 *
 * The trace is text, one read per line: DIGEST [LENGTH [WANTED]]. "epoch" begins an epoch, "#" a comment.
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/le.h"
#include "base/text.h"
#include "cache/cache_tools.h"
#include "cli/verbs/verbs.h"
#include "format/chunk.h"

struct simulate_values {
    const char *trace;
    uint64_t size;
    struct option_list policies;
    bool json;
};

enum { RUNS_MAX = EVICT_POLICIES + 1, WORDS_MAX = 4 /* one more than a line has */ };

#define AT(field) offsetof(struct simulate_values, field), 0, 0

static const struct option_row rows[] = {
    {OPTION_TEXT, 0, "trace", "FILE", AT(trace),
     "the chunks that were read, one a line: DIGEST [LENGTH [WANTED]]; - reads standard input"},
    {OPTION_SIZE, 0, "size", "SIZE", offsetof(struct simulate_values, size), 1, 0, "bytes the cache has for chunks"},
    {OPTION_LIST, 0, "policy", "POLICY", AT(policies),
     "auto, lru, s3fifo or sticky; several may be given (default all)"},
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print one JSON object"},
    {0},
};

/* ---- the trace ---- */

/* Return a chunk's key: the digest's own bits as the cache takes them, so that real digests behave as in a real cache;
 * a shorter name is hashed. */
static uint64_t key_of(const char *name)
{
    struct digest digest;
    if (digest_parse(name, strlen(name), &digest))
        digest = digest_of(name, strlen(name));
    return le64_get(digest.b + 8);
}

/* Parse "DIGEST [LENGTH [WANTED]]". */
static int parse_ask(struct evict_trace *t, char *const words[WORDS_MAX], unsigned count)
{
    uint64_t len = CHUNK_SIZE_DEFAULT, wanted;
    if (words[0][strspn(words[0], "0123456789abcdefABCDEF")] || count == WORDS_MAX)
        return error_set(-EINVAL, "a line is a digest in hex, the chunk's length and how much of it is read, or the "
                                  "word epoch");
    if (count > 1 && text_parse_size("the chunk's length", words[1], &len))
        return -EINVAL;
    if (len < 1 || len > CHUNK_SIZE_MAX)
        return error_set(-EINVAL, "a chunk has 1 byte to 4 MiB");
    wanted = len;
    if (count > 2 && text_parse_size("what is read of it", words[2], &wanted))
        return -EINVAL;
    if (wanted > len)
        return error_set(-EINVAL, "more is read than the chunk has");
    int rc = evict_trace_ask(t, key_of(words[0]), (uint32_t)len, (uint32_t)wanted);
    return rc == -EINVAL  ? error_set(rc, "the chunk had another length before")
           : rc == -EFBIG ? error_set(rc, "more than %d lines", EVICT_TRACE_ASKS_MAX)
           : rc           ? error_no_memory()
                          : 0;
}

/* Parse a line: a request, the word "epoch", or nothing but a comment. */
static int parse_line(struct evict_trace *t, char *line)
{
    static const char blanks[] = " \t\r\n";
    char *rest, *words[WORDS_MAX];
    unsigned count = 0;
    line[strcspn(line, "#")] = 0;
    for (char *word = strtok_r(line, blanks, &rest); word && count < WORDS_MAX; word = strtok_r(NULL, blanks, &rest))
        words[count++] = word;
    if (!count)
        return 0;
    if (!strcmp(words[0], "epoch") && count == 1)
        return evict_trace_epoch(t);
    return parse_ask(t, words, count);
}

/* Read a trace ("-": standard input), and put the line's number into an error's sentence. */
static int read_trace(const char *path, struct evict_trace *t)
{
    CLEANUP_FREE char *line = NULL;
    size_t cap = 0;
    int rc = 0;
    bool standard = !strcmp(path, "-");
    FILE *from = standard ? stdin : fopen(path, "re");
    if (!from)
        return error_set(-errno, "%s: %s", path, strerror(errno));
    path = standard ? "standard input" : path;
    for (unsigned long long number = 1; !rc && getline(&line, &cap, from) >= 0; number++) {
        rc = parse_line(t, line);
        if (rc)
            (void)error_prefix(rc, "%s, line %llu", path, number);
    }
    if (!rc && ferror(from))
        rc = error_set(-EIO, "%s: cannot be read", path);
    if (!rc && !t->asks.len)
        rc = error_set(-EINVAL, "%s: it names no chunk", path);
    if (!standard)
        fclose(from);
    return rc;
}

/* ---- the replay ---- */

/* A policy's result. */
struct run {
    const char *name;
    struct evict_sim_result result;
};

struct runs {
    struct run items[RUNS_MAX]; /* the optimum is the last */
    size_t count;
};

static void runs_release(struct runs *r)
{
    for (size_t i = 0; i < r->count; i++)
        evict_sim_release(&r->items[i].result);
}

/* Run the trace through the chosen policies, then the optimum. */
static int replay(const struct evict_trace *t, uint64_t size, const bool chosen[EVICT_POLICIES], struct runs *runs)
{
    int rc = 0;
    for (unsigned i = 0; !rc && i < EVICT_POLICIES; i++) {
        if (!chosen[i])
            continue;
        struct run *run = &runs->items[runs->count++];
        run->name = evict_policy_name(i);
        rc = evict_sim_policy(t, size, i, &run->result);
    }
    if (rc)
        return rc;
    struct run *last = &runs->items[runs->count++];
    last->name = "optimum";
    return evict_sim_optimum(t, size, &last->result);
}

/* ---- what came out ---- */

static double ratio(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

static json_t *run_json(const struct run *run)
{
    const struct evict_sim_result *r = &run->result;
    json_t *epochs = json_array();
    for (size_t i = 0; i < r->epochs.len; i++) {
        const struct evict_sim_epoch *e = &r->epochs.items[i];
        json_array_append_new(epochs, json_pack("{s:o,s:o,s:f}", "asks", INTEGER(e->asks), "hits", INTEGER(e->hits),
                                                "hit_ratio", ratio(e->hits, e->asks)));
    }
    return json_pack("{s:s,s:o,s:f,s:o,s:o,s:o,s:s?,s:o}", "policy", run->name, "hits", INTEGER(r->hits), "hit_ratio",
                     ratio(r->hits, r->asks), "hit_bytes", INTEGER(r->hit_bytes), "evictions", INTEGER(r->evictions),
                     "not_admitted", INTEGER(r->not_admitted), "following", r->following, "epochs", epochs);
}

static int print_runs_json(const struct evict_trace *t, uint64_t size, const struct runs *runs)
{
    json_t *results = json_array();
    for (size_t i = 0; i < runs->count; i++)
        json_array_append_new(results, run_json(&runs->items[i]));
    return print_json(json_pack("{s:o,s:o,s:o,s:o,s:o}", "asks", INTEGER(t->asks.len), "chunks", INTEGER(t->chunks.len),
                                "bytes", INTEGER(t->bytes), "size", INTEGER(size), "results", results));
}

static void print_runs(const struct evict_trace *t, uint64_t size, const struct runs *runs)
{
    char bytes[TEXT_SIZE_MAX], room[TEXT_SIZE_MAX];
    printf("%zu reads of %zu chunks, %s together, cache %s (%.1f %%)\n\n", t->asks.len, t->chunks.len,
           text_format_size(t->bytes, bytes), text_format_size(size, room), 100 * ratio(size, t->bytes));
    printf("%-8s %12s %9s %12s %12s %12s  %s\n", "policy", "hits", "hit ratio", "bytes hit", "evictions",
           "not admitted", "follows");
    for (size_t i = 0; i < runs->count; i++) {
        const struct evict_sim_result *r = &runs->items[i].result;
        printf("%-8s %12llu %9.4f %12s %12llu %12llu  %s\n", runs->items[i].name, (unsigned long long)r->hits,
               ratio(r->hits, r->asks), text_format_size(r->hit_bytes, bytes), (unsigned long long)r->evictions,
               (unsigned long long)r->not_admitted, r->following ? r->following : "the future");
    }
    if (evict_trace_epoch_count(t) <= 1)
        return;
    printf("\nhit ratio of each epoch\n"); /* every policy misses the first */
    for (size_t i = 0; i < runs->count; i++) {
        const struct evict_sim_result *r = &runs->items[i].result;
        printf("%-8s", runs->items[i].name);
        for (size_t k = 0; k < r->epochs.len; k++)
            printf(" %.4f", ratio(r->epochs.items[k].hits, r->epochs.items[k].asks));
        putchar('\n');
    }
}

static int cmd_cache_simulate_run(const struct invocation *inv)
{
    const struct simulate_values *v = inv->values;
    bool chosen[EVICT_POLICIES];
    CLEANUP(evict_trace_release) struct evict_trace trace = {0};
    CLEANUP(runs_release) struct runs runs = {0};
    if (!v->trace || !v->size)
        return options_wrong("give --trace FILE and --size SIZE");
    for (unsigned i = 0; i < EVICT_POLICIES; i++)
        chosen[i] = !v->policies.count;
    for (size_t i = 0; i < v->policies.count; i++) {
        enum evict_policy policy;
        if (evict_policy_parse(v->policies.items[i], &policy))
            return CLI_USAGE;
        chosen[policy] = true;
    }
    int rc = read_trace(v->trace, &trace);
    if (!rc)
        rc = replay(&trace, v->size, chosen, &runs);
    if (rc)
        return rc;
    if (v->json)
        return print_runs_json(&trace, v->size, &runs);
    print_runs(&trace, v->size, &runs);
    return 0;
}

const struct verb verb_cache_simulate = {
    .name = "cache simulate",
    .operands = "",
    .max_operands = 0,
    .summary = "Replay a trace through the eviction policies",
    .details =
        "Says how often each policy of serve --eviction would have found a chunk in a cache of SIZE, and beside\n"
        "them the optimum: the best that is possible if the future is known. It is exact when all chunks are\n"
        "equally long. In the trace, DIGEST is hex digits, LENGTH is 64K by default, # begins a comment, and\n"
        "the word epoch on a line of its own begins an epoch, whose hits are shown apart.",
    .options = rows,
    .values_size = sizeof(struct simulate_values),
    .run = cmd_cache_simulate_run,
};
