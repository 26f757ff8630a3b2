/* What the fields of requests may be, and the volumeAttributes: an image and options of `granary mount`. Each check
 * returns GRPC_OK, or sets the reply and returns its status. Any thread. Private to csi. */
#ifndef GRANARY_CSI_REQUEST_H
#define GRANARY_CSI_REQUEST_H

#include <stdbool.h>

#include "base/vec.h"
#include "csi/csi.pb-c.h"
#include "csi/grpc/grpc.h"
#include "net/aws/s3_keys.h"

enum {
    REQUEST_ID_MAX = 1024,                   /* bytes of a volume's id */
    REQUEST_KEYS_MAX = S3_KEYS_TEXT_MAX - 1, /* bytes of its keys, which granary mount takes from a file */
};

/* Pack a message into the reply. */
enum grpc_status reply_with(struct grpc_reply *reply, const ProtobufCMessage *message);

enum { NODE_VALUE_MAX = 63 }; /* bytes, as Kubernetes limits a label */

/* The topology of every node with a driver, and so of every volume of a StorageClass; or, with a second segment, of one
 * node. kubelet makes its segments labels of the node. */
struct nodes_with_driver {
    Csi__V1__Topology topology;
    Csi__V1__Entry entries[2], *list[2];
    char node[NODE_VALUE_MAX + 1];
};
/* node: its name, of any length; NULL: every node. */
void nodes_with_driver_init(struct nodes_with_driver *out, const char *node);

/* A required text. field: its name, for the sentence. */
enum grpc_status check_text(struct grpc_reply *reply, const char *field, const char *value, size_t max);
/* What a pod wants to do with a volume; NULL: it is missing. */
enum grpc_status check_capability(struct grpc_reply *reply, const Csi__V1__VolumeCapability *c);
/* The same for a list, which may be empty. */
enum grpc_status check_capabilities(struct grpc_reply *reply, size_t count,
                                    Csi__V1__VolumeCapability *const *capabilities);
/* Append the S3 keys of a volume to *out, as `granary mount --keys` reads them; nothing without secrets. BYTES_INIT
 * (REQUEST_KEYS_MAX); bytes_wipe it. No sentence has a value in it. */
enum grpc_status secrets_take(size_t count, Csi__V1__Secret *const *secrets, struct bytes *out,
                              struct grpc_reply *reply);

/* ---- volumeAttributes ---- */

typedef VEC(char *) word_list;
void words_release(word_list *words);

/* Is the attribute one of those that kubelet and external-provisioner add, about the pod and the claim? */
bool attribute_is_of_kubernetes(const char *key);
/* Check the attributes, and append to words the command line of `granary mount` of a volume on dir, with a NULL at its
 * end. has_keys: standard input is a file with its keys. *image: in an attribute. */
enum grpc_status attributes_command(size_t count, Csi__V1__Entry *const *attributes, const char *dir, bool has_keys,
                                    const char **image, word_list *words, struct grpc_reply *reply);
/* Do they have the volume follow its tag? */
bool attributes_follow(size_t count, Csi__V1__Entry *const *attributes);
/* May an inline volume have these attributes, which the author of a pod writes? stores: those of struct driver. */
enum grpc_status attributes_check_inline(size_t count, Csi__V1__Entry *const *attributes, size_t store_count,
                                         const char *const *stores, struct grpc_reply *reply);

#endif
