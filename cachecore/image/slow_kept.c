/* A ring under a lock, which only slow reads take: a read that took a second can wait for it. */
#include <stdio.h>

#include "image/image_internal.h"

void slow_reads_keep(struct slow_reads *s, const struct slow_read *read)
{
    SCOPED_LOCK(&s->lock);
    s->kept[s->kept_count++ % SLOW_READS_KEPT] = *read;
}

/* A path that is too long is cut: it is for people. */
void slow_reads_name(struct slow_reads *s, const struct digest *image, uint64_t offset, const char *what, size_t len)
{
    SCOPED_LOCK(&s->lock);
    for (size_t i = 0; i < GR_MIN(s->kept_count, (uint64_t)SLOW_READS_KEPT); i++) {
        struct slow_read *read = &s->kept[i];
        if (read->offset == offset && digest_equal(&read->image, image))
            snprintf(read->what, sizeof read->what, "%.*s", (int)GR_MIN(len, sizeof read->what - 1), what);
    }
}

size_t slow_reads_last(struct slow_reads *s, struct slow_read out[SLOW_READS_KEPT])
{
    SCOPED_LOCK(&s->lock);
    size_t n = GR_MIN(s->kept_count, (uint64_t)SLOW_READS_KEPT);
    for (size_t i = 0; i < n; i++)
        out[i] = s->kept[(s->kept_count - 1 - i) % SLOW_READS_KEPT];
    return n;
}
