/* What external-provisioner has a driver do for the claims of a StorageClass. Private to csi. */
#ifndef GRANARY_CSI_CONTROLLER_H
#define GRANARY_CSI_CONTROLLER_H

#include "csi/node.h"

/* Answers of the Controller service, as node_call. */
node_call controller_capabilities, controller_create, controller_delete, controller_validate;

#endif
