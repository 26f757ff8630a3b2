/* A key that all nodes of a cluster have, by which they know each other. A request between nodes carries a proof: an
 * HMAC-SHA-256 over what it asks for and the time. So the key itself never leaves a node, and who reads a proof on the
 * wire can only repeat that request, for a few minutes. docs/reference/peer-protocol.md has the bytes.
 *
 * The key comes from a file, which is read again while it is used: each line is a key; the first one makes proofs, and
 * any of them checks. So a key is replaced without a moment at which nodes refuse each other. Any thread. */
#ifndef GRANARY_NET_PEER_KEY_H
#define GRANARY_NET_PEER_KEY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

#define PEER_PROOF_HEADER "Granary-Proof"

/* PEER_PROOF_MAX: bytes of a proof's text with its NUL. PEER_PROOF_AGE_S: how far the clocks of two nodes may be apart.
 */
enum { PEER_PROOF_MAX = 96, PEER_PROOF_AGE_S = 300, PEER_KEY_LEAST = 32, PEER_KEYS_MAX = 8 };

struct peer_key;

/* Read the file. -EINVAL: a line has fewer than PEER_KEY_LEAST characters, or there is no key, or more than
 * PEER_KEYS_MAX; -ENOENT and others: it cannot be read; -ENOMEM. No sentence shows a part of a key. */
GR_MUST_CHECK int peer_key_open(const char *path, struct peer_key **out);
void peer_key_free(struct peer_key *k); /* NULL is allowed; wipes the keys */

/* What a request asks for. */
struct peer_get {
    const char *key;    /* of the object */
    uint64_t off, len;  /* bytes */
    const char *chunks; /* the list of chunks, as text */
};

/* Write the proof that who sends this request at `now`, seconds since the epoch, has the key; returns out. */
char *peer_key_prove(struct peer_key *k, const struct peer_get *get, int64_t now, char out[PEER_PROOF_MAX]);
/* Is it such a proof, made at most PEER_PROOF_AGE_S before or after now? proof may be NULL. */
bool peer_key_check(struct peer_key *k, const struct peer_get *get, int64_t now, const char *proof);

#endif
