/* The small documents: tag, with the signature and the provenance in it, lease, granary.json. */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "format/tag.h"

static void try_signature(const void *data, size_t len)
{
    struct signature s;
    int rc = signature_decode(data, len, &s);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG);
    FUZZ_CHECK(rc || strlen(s.comment) < SIGNATURE_COMMENT_MAX);
}

/* Any text; what was decoded can be encoded, and is the same again. */
static void try_provenance(const char *text)
{
    struct provenance p, again;
    char encoded[PROVENANCE_TEXT_MAX];
    int rc = provenance_decode(text, &p);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG);
    if (rc)
        return;
    FUZZ_CHECK(provenance_encode(&p, encoded) == 0 && provenance_decode(encoded, &again) == 0);
    FUZZ_CHECK(p.listed == again.listed && p.source_count == again.source_count && p.files == again.files);
    FUZZ_CHECK(!p.listed || !strcmp(p.sources[p.listed - 1], again.sources[p.listed - 1]));
}

static void try_tag(const uint8_t *data, size_t len)
{
    struct tag t, again;
    int rc = tag_decode(data, len, &t);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG);
    if (rc)
        return;
    CLEANUP_BYTES text = BYTES_INIT(TAG_DOC_MAX);
    FUZZ_CHECK(tag_encode(&t, &text) == 0 && tag_decode(text.data, text.len, &again) == 0);
    FUZZ_CHECK(!strcmp(t.nonce, again.nonce) && t.created == again.created && digest_equal(&t.digest, &again.digest));
    FUZZ_CHECK(!strcmp(t.signature, again.signature));
    try_signature(t.signature, strlen(t.signature));
    FUZZ_CHECK(!strcmp(t.provenance, again.provenance));
    if (*t.provenance)
        try_provenance(t.provenance);
}

static void try_lease(const uint8_t *data, size_t len)
{
    struct lease l, again;
    int rc = lease_decode(data, len, &l);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG);
    if (rc)
        return;
    CLEANUP_BYTES text = BYTES_INIT(TAG_DOC_MAX);
    FUZZ_CHECK(lease_encode(&l, &text) == 0 && lease_decode(text.data, text.len, &again) == 0);
    FUZZ_CHECK(!strcmp(l.image, again.image) && l.renewed == again.renewed && l.pid == again.pid);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    try_tag(data, len);
    try_lease(data, len);
    try_signature(data, len);
    char id[STORE_ID_MAX];
    int rc = store_doc_decode(data, len, id);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG);
    FUZZ_CHECK(rc || strlen(id) < sizeof id);
    return 0;
}
