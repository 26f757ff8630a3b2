/* What a rebuild keeps, reads and moves: against a model that looks every path up. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "fake/image_fake.h"
#include "fake/store_fake.h"
#include "imagebuild/rebuild/rebuild_internal.h"

enum { PATHS = 3000, BLOCK = LIVE_BLOCK, CHUNK = CHUNK_SIZE_MIN };

/* What stands at path "f%05u" on one side. */
enum kind { ABSENT, FILE_SMALL, FILE_EMPTY, DIRECTORY, KINDS };

struct side {
    enum kind kind;
    uint64_t size, address;
    unsigned version;
    bool further; /* another name of the file before */
};

struct world {
    struct store_fake *store;
    struct side old[PATHS], now[PATHS];
    struct image_fake image;
    struct parent_image parent;
    struct live_map *live;
};

static void make_sides(struct world *w, unsigned seed)
{
    uint64_t at = CHUNK;
    srand(seed);
    for (unsigned i = 1; i < PATHS; i++) {
        struct side *o = &w->old[i], *n = &w->now[i];
        *o = (struct side){.kind = (enum kind)(rand() % 8 < 5 ? FILE_SMALL : rand() % KINDS),
                           .version = rand() % 10 > 0};
        o->size = o->kind == FILE_SMALL ? 1 + (uint64_t)rand() % 9000 : 0;
        o->address = o->size ? at : 0;
        at += GR_ALIGN_UP(o->size, (uint64_t)BLOCK);
        *n = *o;
        n->address = 0;
        switch (rand() % 12) {
        case 0:
            n->version++;
            break;
        case 1:
            n->kind = (enum kind)(rand() % KINDS);
            n->size = n->kind == FILE_SMALL ? 1 + (uint64_t)rand() % 9000 : 0;
            break;
        case 2:
            n->size += n->kind == FILE_SMALL; /* a validator alone is not enough */
            break;
        default:
            break;
        }
        n->further = n->kind == FILE_SMALL && w->now[i - 1].kind == FILE_SMALL && !w->now[i - 1].further &&
                     w->now[i - 1].size == n->size && rand() % 2;
    }
    w->image = (struct image_fake){.size = GR_ALIGN_UP(at, (uint64_t)CHUNK) + CHUNK, .chunk_size = CHUNK};
}

static const char *validator_of(const struct side *s)
{
    static const char *const names[] = {"", "one", "two"};
    return names[s->version];
}

static struct digest content_of(unsigned i)
{
    return digest_of(&i, sizeof i);
}

static void put_parent(struct world *w)
{
    static struct catalog_entry entries[PATHS];
    static struct catalog_extent extents[PATHS];
    static char paths[PATHS][8];
    size_t n = 0;
    entries[n++] = (struct catalog_entry){.path = "", .mode = S_IFDIR | 0755};
    for (unsigned i = 1; i < PATHS; i++) {
        const struct side *o = &w->old[i];
        if (o->kind == ABSENT)
            continue;
        snprintf(paths[i], sizeof paths[i], "f%05u", i);
        struct catalog_entry *e = &entries[n++];
        *e = (struct catalog_entry){.path = paths[i], .path_len = 6, .mode = S_IFDIR | 0755};
        if (o->kind == DIRECTORY)
            continue;
        e->mode = S_IFREG | 0600; /* the listing says 0644 */
        e->size = o->size;
        e->validator = validator_of(o);
        e->validator_len = strlen(e->validator);
        if (!o->size)
            continue;
        e->content = content_of(i);
        extents[i] = (struct catalog_extent){.offset = o->address, .len = o->size};
        e->extents = &extents[i];
        e->extent_count = 1;
    }
    w->image.entries = entries;
    w->image.entry_count = n;
    image_fake_put(&w->image, w->store, "parent");
}

static struct nodes *list_nodes(const struct world *w)
{
    struct nodes *nodes = NULL;
    struct scratch_config scratch = {.memory = 0};
    char path[8];
    uint32_t rank = 0;
    assert_int_equal(nodes_new(&scratch, &nodes), 0);
    struct node root = {.mode = S_IFDIR | 0755, .path = "", .implicit = true};
    assert_int_equal(nodes_add(nodes, &root), 0);
    for (unsigned i = 1; i < PATHS; i++) {
        const struct side *s = &w->now[i];
        if (s->kind == ABSENT)
            continue;
        snprintf(path, sizeof path, "f%05u", i);
        rank++;
        struct node n = {.rank = rank, .link = s->further ? rank - 1 : rank, .path = path, .path_len = 6};
        n.linked = s->further;
        n.mode = s->kind == DIRECTORY ? S_IFDIR | 0755 : S_IFREG | 0644;
        n.size = s->size;
        n.uid = i;
        n.validator = s->kind == DIRECTORY ? "" : validator_of(s);
        n.validator_len = strlen(n.validator);
        assert_int_equal(nodes_add(nodes, &n), 0);
    }
    assert_int_equal(nodes_end(nodes), 0);
    return nodes;
}

static void open_world(struct world *w, unsigned seed)
{
    memset(w, 0, sizeof *w);
    w->store = store_fake_new();
    make_sides(w, seed);
    put_parent(w);
    w->parent.manifest = w->image.manifest;
    assert_int_equal(live_map_new(w->image.size, CHUNK, &w->live), 0);
}

static void close_world(struct world *w)
{
    live_map_free(w->live);
    image_fake_release(&w->image);
    store_fake_free(w->store);
}

static struct plan_config config_of(struct world *w, const struct nodes *listed)
{
    return (struct plan_config){
        .listed = listed, .store = store_fake_store(w->store), .images = &w->parent, .image_count = 1, .live = w->live};
}

static bool is_file(const struct side *s)
{
    return s->kind == FILE_SMALL || s->kind == FILE_EMPTY;
}

static bool is_kept(const struct world *w, unsigned i)
{
    const struct side *o = &w->old[i], *n = &w->now[i];
    return n->kind == FILE_SMALL && o->kind == FILE_SMALL && !n->further && n->size == o->size &&
           n->version == o->version && n->version;
}

static struct plan_counts expected(const struct world *w)
{
    struct plan_counts c = {0};
    for (unsigned i = 1; i < PATHS; i++) {
        const struct side *o = &w->old[i], *n = &w->now[i];
        if (is_file(o) && !is_file(n))
            c.removed++;
        if (!is_file(n) || n->further)
            continue;
        bool same = is_kept(w, i) || (is_file(o) && !n->size && !o->size);
        *(same ? &c.unchanged : is_file(o) ? &c.changed : &c.added) += 1;
        *(same ? &c.bytes_kept : &c.bytes_read) += n->size;
    }
    return c;
}

/* Every node is as listed, but for what the plan says of it; the number of files that are moved. */
static unsigned check_nodes(const struct world *w, const struct nodes *nodes)
{
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *c = NULL;
    struct node n;
    unsigned seen = 0, moved = 0;
    int rc;
    assert_int_equal(nodes_cursor_new(nodes, &c), 0);
    while ((rc = nodes_next(c, &n)) == 1) {
        seen++;
        if (!n.path_len)
            continue;
        unsigned i = (unsigned)atoi(n.path + 1);
        const struct side *s = &w->now[i];
        assert_int_equal(n.size, s->size);
        assert_int_equal(n.uid, i);
        assert_int_equal(n.mode, is_file(s) ? S_IFREG | 0644 : S_IFDIR | 0755);
        if (!is_kept(w, i)) {
            assert_int_equal(n.plan, NODE_READ);
            assert_int_equal(n.address, 0);
            assert_true(digest_is_zero(&n.content));
            continue;
        }
        struct digest content = content_of(i);
        assert_true(digest_equal(&n.content, &content));
        assert_int_equal(n.address, w->old[i].address);
        assert_int_not_equal(n.plan, NODE_READ);
        assert_int_equal(live_map_is_block(w->live, n.address / BLOCK), n.plan == NODE_KEEP);
        moved += n.plan == NODE_MOVE;
    }
    assert_int_equal(rc, 0);
    assert_int_equal(seen, nodes_count(nodes));
    return moved;
}

static void test_plan__agrees_with_a_model(void **state)
{
    for (unsigned seed = 1; seed <= 5; seed++) {
        static struct world w;
        open_world(&w, seed);
        CLEANUP(cleanup_nodes) struct nodes *listed = list_nodes(&w);
        CLEANUP(cleanup_nodes) struct nodes *planned = NULL;
        struct plan_config config = config_of(&w, listed);
        struct plan_counts counts, want = expected(&w);
        assert_int_equal(plan_make(&config, &planned, &counts), 0);
        assert_memory_equal(&counts, &want, sizeof counts);
        assert_true(counts.unchanged && counts.added && counts.changed && counts.removed);
        assert_int_equal(check_nodes(&w, planned), 0);
        uint64_t kept = 0;
        for (unsigned i = 1; i < PATHS; i++)
            kept += is_kept(&w, i) ? GR_ALIGN_UP(w.now[i].size, (uint64_t)BLOCK) : 0;
        assert_int_equal(live_map_bytes(w.live), kept);
        close_world(&w);
    }
}

static void test_plan__a_damaged_parent_is_told_from_a_failed_store(void **state)
{
    static struct world w;
    open_world(&w, 9);
    CLEANUP(cleanup_nodes) struct nodes *listed = list_nodes(&w);
    CLEANUP(cleanup_nodes) struct nodes *planned = NULL;
    struct plan_config config = config_of(&w, listed);
    struct plan_counts counts;
    char key[OBJECT_KEY_MAX];
    object_key(OBJECT_CATALOG, &w.image.manifest.catalog_root, key);
    assert_true(store_fake_flip(w.store, key, 40));
    assert_int_equal(plan_make(&config, &planned, &counts), PARENT_DAMAGED);
    assert_non_null(strstr(error_text(), key));
    assert_true(store_fake_flip(w.store, key, 40));
    store_fake_set_dead(w.store, -EIO);
    assert_int_equal(plan_make(&config, &planned, &counts), -EIO);
    assert_non_null(strstr(error_text(), "--parent none"));
    store_fake_set_dead(w.store, 0);
    /* a body that lies outside the image */
    live_map_free(steal_ptr(&w.live));
    assert_int_equal(live_map_new(2 * CHUNK, CHUNK, &w.live), 0);
    config.live = w.live;
    assert_int_equal(plan_make(&config, &planned, &counts), PARENT_DAMAGED);
    assert_null(planned);
    close_world(&w);
}

static int refuse(void *arg)
{
    return --*(int *)arg ? 0 : -ECANCELED;
}

static void test_compact__moves_files_out_of_the_deadest_chunks(void **state)
{
    static struct world w;
    for (unsigned percent = 0; percent <= 100; percent += 10) {
        open_world(&w, 4);
        /* whole stretches nearly empty, beside full ones */
        for (unsigned i = 1; i < PATHS; i++)
            if (i / 100 % 3 == 0 && i % 10)
                w.now[i] = (struct side){.kind = ABSENT};
        for (unsigned i = 1; i < PATHS; i++)
            w.now[i].further = false;
        CLEANUP(cleanup_nodes) struct nodes *listed = list_nodes(&w);
        CLEANUP(cleanup_nodes) struct nodes *planned = NULL, *moved = NULL;
        CLEANUP(cleanup_compact) struct compact *c = NULL;
        struct plan_config config = config_of(&w, listed);
        struct plan_counts counts;
        struct compact_counts done;
        assert_int_equal(plan_make(&config, &planned, &counts), 0);
        uint64_t live = live_map_bytes(w.live), dead = live_map_dead_bytes(w.live), budget = live * percent / 100;
        assert_true(dead > live / 4);
        assert_int_equal(compact_choose(w.live, false, budget, &c), 0);
        if (!percent) {
            assert_null(c);
            close_world(&w);
            continue;
        }
        assert_non_null(c);
        struct compact_config apply = {.planned = planned, .live = w.live};
        assert_int_equal(compact_apply(c, &apply, &moved, &done), 0);
        assert_int_equal(check_nodes(&w, moved), done.files);
        assert_true(done.files > 0);
        assert_int_equal(live_map_bytes(w.live) + GR_ALIGN_UP(done.bytes, (uint64_t)BLOCK) <= live, true);
        assert_true(live - live_map_bytes(w.live) <= budget);
        /* the best first: a tenth of the budget frees more than its share */
        if (percent == 10)
            assert_true(dead - live_map_dead_bytes(w.live) > live - live_map_bytes(w.live));
        /* no more than needed: what is dead ends near the limit, not at nothing */
        if (percent == 100)
            assert_in_range(live_map_dead_bytes(w.live), live / 10, live / 4);
        close_world(&w);
    }
}

static void test_compact__leaves_a_tidy_image_alone(void **state)
{
    CLEANUP(cleanup_live_map) struct live_map *l = NULL;
    CLEANUP(cleanup_compact) struct compact *c = NULL;
    assert_int_equal(live_map_new(1000 * CHUNK, CHUNK, &l), 0);
    assert_int_equal(compact_choose(l, false, UINT64_MAX, &c), 0); /* nothing is kept */
    assert_null(c);
    live_map_add(l, CHUNK, 100 * CHUNK);
    live_map_add(l, 200 * CHUNK, 92 * CHUNK - 4096); /* as far as its last block */
    assert_int_equal(compact_choose(l, false, UINT64_MAX, &c), 0);
    assert_null(c);
    for (unsigned i = 300; i < 360; i++) /* 13 % are dead: too many, unless they may be gaps */
        live_map_add(l, (uint64_t)i * CHUNK, CHUNK / 2);
    assert_int_equal(compact_choose(l, true, UINT64_MAX, &c), 0);
    assert_null(c);
    assert_int_equal(compact_choose(l, false, UINT64_MAX, &c), 0);
    assert_non_null(c);
}

/* Bodies that were written with the listing are kept too, but lie after the parent. */
static void test_compact__what_lies_behind_the_parent_stays(void **state)
{
    enum { CHUNKS = 1000, WRITTEN = 20000 };
    CLEANUP(cleanup_live_map) struct live_map *l = NULL;
    CLEANUP(cleanup_compact) struct compact *c = NULL;
    CLEANUP(cleanup_nodes) struct nodes *planned = NULL, *moved = NULL;
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *cursor = NULL;
    const struct scratch_config scratch = {.memory = 0};
    struct compact_counts done;
    struct node n = {.mode = S_IFDIR | 0755, .path = ""};
    char path[8];
    assert_int_equal(live_map_new((uint64_t)CHUNKS * CHUNK, CHUNK, &l), 0);
    assert_int_equal(nodes_new(&scratch, &planned), 0);
    assert_int_equal(nodes_add(planned, &n), 0);
    for (uint32_t i = 1; i < WRITTEN; i++) {
        snprintf(path, sizeof path, "f%05u", i);
        n = (struct node){.rank = i, .link = i, .path = path, .path_len = 6, .mode = S_IFREG | 0644};
        n.plan = NODE_KEEP;
        n.size = BLOCK;
        n.address = (i < CHUNKS ? (uint64_t)i : (uint64_t)i * 64) * CHUNK;
        if (i < CHUNKS)
            live_map_add(l, n.address, n.size);
        assert_int_equal(nodes_add(planned, &n), 0);
    }
    assert_int_equal(nodes_end(planned), 0);
    assert_int_equal(compact_choose(l, false, UINT64_MAX, &c), 0);
    const struct compact_config apply = {.planned = planned, .live = l};
    assert_int_equal(compact_apply(c, &apply, &moved, &done), 0);
    assert_in_range(done.files, 1, CHUNKS - 1);
    assert_int_equal(nodes_cursor_new(moved, &cursor), 0);
    while (nodes_next(cursor, &n) == 1)
        assert_true(n.rank < CHUNKS || n.plan == NODE_KEEP);
}

static void test_plan__ends_when_told_to(void **state)
{
    static struct world w;
    open_world(&w, 2);
    struct scratch_config scratch = {.memory = 0};
    CLEANUP(cleanup_nodes) struct nodes *listed = NULL, *planned = NULL;
    assert_int_equal(nodes_new(&scratch, &listed), 0);
    for (uint32_t i = 0; i < 3 * PLAN_STEP; i++) {
        char path[16];
        struct node n = {.rank = i, .link = i, .mode = S_IFDIR | 0755, .path = path};
        n.path_len = i ? (size_t)snprintf(path, sizeof path, "%08u", i) : 0;
        assert_int_equal(nodes_add(listed, &n), 0);
    }
    assert_int_equal(nodes_end(listed), 0);
    int calls = 2;
    struct plan_config config = config_of(&w, listed);
    struct plan_counts counts;
    config.step = (struct step){.call = refuse, .arg = &calls};
    assert_int_equal(plan_make(&config, &planned, &counts), -ECANCELED);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan__agrees_with_a_model),
        cmocka_unit_test(test_plan__a_damaged_parent_is_told_from_a_failed_store),
        cmocka_unit_test(test_plan__ends_when_told_to),
        cmocka_unit_test(test_compact__moves_files_out_of_the_deadest_chunks),
        cmocka_unit_test(test_compact__leaves_a_tidy_image_alone),
        cmocka_unit_test(test_compact__what_lies_behind_the_parent_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
