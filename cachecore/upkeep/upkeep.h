/* What the command line does to stores and images, apart from building. */
#ifndef GRANARY_UPKEEP_UPKEEP_H
#define GRANARY_UPKEEP_UPKEEP_H

#include "upkeep/copy.h"        /* an image to another store */
#include "upkeep/export.h"      /* an image into a file */
#include "upkeep/gc.h"          /* what no tag needs */
#include "upkeep/image_stats.h" /* what an image holds */
#include "upkeep/unnest.h"      /* a store out of another one */
#include "upkeep/verify.h"      /* does an image hold together? */

#endif
