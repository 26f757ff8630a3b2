/* A stack over a small image in a file store, for the tests of the control socket. */
#ifndef GRANARY_TESTS_UNIT_CONTROL_WORLD_H
#define GRANARY_TESTS_UNIT_CONTROL_WORLD_H

#include "unit/cmocka_all.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "fake/image_fake.h"
#include "server/server_internal.h"
#include "stack.h"
#include "unit/scratch.h"

enum { CONTROL_CHUNK = 64 << 10, CONTROL_CHUNKS = 40, CONTROL_FILES = 12000 };

struct control_world {
    bool fenced, as_stored; /* to be set before control_world_init */
    char dir[SCRATCH_MAX], path[SCRATCH_MAX + 16], ref[SCRATCH_MAX + 16], cache[SCRATCH_MAX + 16];
    struct image_fake img;
    struct stack_image image;
    struct stack *stack;
    struct catalog_entry entries[CONTROL_FILES];
    struct catalog_extent extents[CONTROL_FILES];
    char paths[CONTROL_FILES][128];
};

/* Files of 100 bytes, all/00000... to all/11998...: number i lies in chunk i % 40; the last one, "big", takes chunks 10
 * to 19 and a byte of the next. */
static inline void control_world_entries(struct control_world *w)
{
    for (unsigned i = 0; i < CONTROL_FILES; i++) {
        bool last = i + 1 == CONTROL_FILES;
        snprintf(w->paths[i], sizeof w->paths[i], last ? "big" : "all/%05u-%090u", i, i);
        w->extents[i] = (struct catalog_extent){(uint64_t)(i % CONTROL_CHUNKS) * CONTROL_CHUNK, 100};
        if (last)
            w->extents[i] = (struct catalog_extent){10 * CONTROL_CHUNK, 10 * CONTROL_CHUNK + 1};
        w->entries[i] = (struct catalog_entry){.path = w->paths[i],
                                               .path_len = strlen(w->paths[i]),
                                               .mode = S_IFREG | 0644,
                                               .size = w->extents[i].len,
                                               .content = {{1}},
                                               .extents = &w->extents[i],
                                               .extent_count = 1};
    }
}

static inline void control_world_init(struct control_world *w)
{
    scratch_make(w->dir);
    snprintf(w->path, sizeof w->path, "%s/control", w->dir);
    snprintf(w->ref, sizeof w->ref, "%s/faces", w->dir);
    struct store_fake *fake = store_fake_new();
    control_world_entries(w);
    w->img = (struct image_fake){.seed = 1,
                                 .size = CONTROL_CHUNKS * CONTROL_CHUNK,
                                 .chunk_size = CONTROL_CHUNK,
                                 .entries = w->entries,
                                 .entry_count = CONTROL_FILES};
    image_fake_put(&w->img, fake, "faces");
    image_fake_save(fake, w->dir);
    store_fake_free(fake);
    w->image = (struct stack_image){.ref = w->ref};
    snprintf(w->cache, sizeof w->cache, "%s/cache", w->dir);
    const struct stack_config config = {.images = &w->image,
                                        .image_count = 1,
                                        .cache = {.dirs = {{.path = w->cache, .size = 32 << 20}},
                                                  .dir_count = 1,
                                                  .disk_timeout_ms = 60000,
                                                  .fenced = w->fenced,
                                                  .as_stored = w->as_stored,
                                                  .fetch = {.workers = 4}}};
    assert_int_equal(stack_open(&config, &w->stack), 0);
    assert_int_equal(stack_start_threads(w->stack), 0);
}

static inline void control_world_release(struct control_world *w)
{
    stack_close(w->stack);
    image_fake_release(&w->img);
    scratch_remove(w->dir);
}

/* Connect, send the request; the socket. */
static inline int control_send(const char *path, const char *request)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(write(fd, request, strlen(request)), strlen(request));
    return fd;
}

/* The server's whole answer to one request. */
static inline void control_ask(const char *path, const char *request, char answer[1 << 16])
{
    int fd = control_send(path, request);
    size_t len = 0;
    ssize_t n;
    while (len < (1 << 16) - 1 && (n = read(fd, answer + len, (1 << 16) - 1 - len)) > 0)
        len += (size_t)n;
    answer[len] = 0;
    close(fd);
}

/* The same behind a control socket at w.path. */
struct control_served {
    struct control_world w;
    struct reports *reports;
    struct control *control;
};

static inline void control_served_init(struct control_served *s)
{
    control_world_init(&s->w);
    assert_int_equal(reports_new(&s->reports), 0);
    assert_int_equal(control_open(s->w.path, s->w.stack, NULL, s->reports, &s->control), 0);
    assert_int_equal(control_start(s->control), 0);
}

static inline void control_served_release(struct control_served *s)
{
    control_close(s->control);
    reports_free(s->reports);
    control_world_release(&s->w);
}

#endif
