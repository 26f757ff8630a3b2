/* The public interface of imagebuild. Other modules include this header and no other one of imagebuild. */
#ifndef GRANARY_IMAGEBUILD_IMAGEBUILD_H
#define GRANARY_IMAGEBUILD_IMAGEBUILD_H

#include "imagebuild/build.h"                  /* build_run: build an image from a source */
#include "imagebuild/check/check.h"            /* repair_packs, verify_source: with the source at hand */
#include "imagebuild/source/source.h"          /* source_open: open a bucket, a directory, ... to build from */
#include "imagebuild/source/source_wrappers.h" /* join, filter, change, or take a list of paths */

#endif
