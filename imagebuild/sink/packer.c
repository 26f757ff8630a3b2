/* One pack is in progress. Which chunks share a pack depends only on their order and stored lengths, so two runs of a
 * build form the same packs, and the second finds them in the store. */
#include "imagebuild/sink/packer.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"

/* A chunk of the pack in progress; its reference lacks the pack's name. */
struct waiting {
    uint64_t number;
    struct chunk_ref ref;
};

/* waiting[0 .. count) are the chunks in `pack`, in order. */
struct packer {
    struct packer_config config;
    struct bytes pack;
    size_t count;
    struct waiting waiting[PACK_CHUNKS];
};

int packer_new(const struct packer_config *config, struct packer **out)
{
    struct packer *p = malloc(sizeof *p);
    if (!p)
        return error_no_memory();
    p->config = *config;
    /* one chunk may be longer than a small pack_size */
    p->pack = (struct bytes)BYTES_INIT(GR_MAX(config->pack_size, (size_t)CHUNK_SIZE_MAX));
    p->count = 0;
    *out = p;
    return 0;
}

void packer_free(struct packer *p)
{
    if (!p)
        return;
    bytes_release(&p->pack);
    free(p);
}

/* Hand the pack to the upload under its name, and emit the references that now are complete. upload_put leaves
 * p->pack empty. */
static int close_pack(struct packer *p)
{
    struct digest name = digest_of(p->pack.data, p->pack.len);
    int rc = upload_put(p->config.upload, OBJECT_PACK, &p->pack, &name);
    for (size_t i = 0; i < p->count && !rc; i++) {
        p->waiting[i].ref.object = name;
        rc = p->config.emit(p->config.arg, p->waiting[i].number, &p->waiting[i].ref);
    }
    p->count = 0;
    return rc;
}

int packer_add(struct packer *p, uint64_t number, const struct chunk_ref *ref, const struct bytes *stored)
{
    int rc = 0;
    if (p->count && (p->count == PACK_CHUNKS || p->pack.len + stored->len > p->config.pack_size))
        rc = close_pack(p);
    if (rc)
        return rc;
    struct waiting *w = &p->waiting[p->count];
    w->number = number;
    w->ref = *ref;
    w->ref.kind = OBJECT_PACK;
    /* a pack has at most 1 GiB (build.c), so offsets fit */
    w->ref.offset = (uint32_t)p->pack.len;
    rc = bytes_append(&p->pack, stored->data, stored->len);
    if (rc)
        return rc;
    p->count++;
    return 0;
}

int packer_finish(struct packer *p)
{
    return p->count ? close_pack(p) : 0;
}
