/* The public interface of imagebuild: the only header of it that other modules include. */
#ifndef GRANARY_IMAGEBUILD_IMAGEBUILD_H
#define GRANARY_IMAGEBUILD_IMAGEBUILD_H

#include "imagebuild/build.h"                /* build_run: build an image from a source */
#include "imagebuild/check/repair.h"         /* repair_packs: rebuild damaged packs from the source */
#include "imagebuild/check/verify_source.h"  /* verify_source: compare an image with its source */
#include "imagebuild/source/path_list.h"     /* a list of paths, read as it comes */
#include "imagebuild/source/source.h"        /* source_open: open what is built from */
#include "imagebuild/source/source_join.h"   /* several sources in one image */
#include "imagebuild/source/source_listed.h" /* the paths of a list */
#include "imagebuild/source/source_shape.h"  /* select paths, rename them, set owners */

#endif
