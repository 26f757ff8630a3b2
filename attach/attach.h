/* The public header of attach: mounting images on this machine, and running the servers behind the mounts. */
#ifndef GRANARY_ATTACH_ATTACH_H
#define GRANARY_ATTACH_ATTACH_H

#include "attach/control_client.h"  /* requests to a server's control socket */
#include "attach/device/device.h"   /* block devices; warming by an NBD client */
#include "attach/follow/follow.h"   /* a directory that shows the newest version of a tag */
#include "attach/keeper/keeper.h"   /* the reconnect daemons of this node's devices */
#include "attach/mount/mount.h"     /* mount and unmount */
#include "attach/mount/mountinfo.h" /* what is mounted on this machine */
#include "attach/server/server.h"   /* a server as a child, started again */
#include "attach/server/service.h"  /* the log, signals and manager of a service */
#include "attach/state.h"           /* where state lies */
#include "base/process.h"           /* processes, told apart from later ones of the same number */

#endif
