/* What others see of the write side. */
#ifndef GRANARY_IMAGEBUILD_IMAGEBUILD_H
#define GRANARY_IMAGEBUILD_IMAGEBUILD_H

#include "imagebuild/build.h"                /* build_run: a source becomes an image */
#include "imagebuild/check/repair.h"         /* repair_packs: damaged packs, from the source again */
#include "imagebuild/check/verify_source.h"  /* verify_source: is the image what the source has? */
#include "imagebuild/source/path_list.h"     /* a list of paths, read as it comes */
#include "imagebuild/source/source.h"        /* source_open: what is built from */
#include "imagebuild/source/source_join.h"   /* several sources in one image */
#include "imagebuild/source/source_listed.h" /* the paths of a list */
#include "imagebuild/source/source_shape.h"  /* which of them, under which names, as whose */

#endif
