/* The calls of kubelet: Identity, Node and Registration. Private to csi. */
#ifndef GRANARY_CSI_CALLS_H
#define GRANARY_CSI_CALLS_H

#include "csi/node.h"

/* A grpc_answer: find the method, unpack the request, answer. driver: struct driver. */
grpc_answer calls_answer;

#endif
