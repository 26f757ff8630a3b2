/* What the command line does to stores and images, apart from building. Each file is one verb. */
#ifndef GRANARY_UPKEEP_UPKEEP_H
#define GRANARY_UPKEEP_UPKEEP_H

#include "upkeep/copy.h"        /* copy an image to another store */
#include "upkeep/export.h"      /* write an image to a file */
#include "upkeep/gc.h"          /* remove what no tag needs */
#include "upkeep/image_stats.h" /* measure an image */
#include "upkeep/unnest.h"      /* take apart a store inside another one */
#include "upkeep/verify.h"      /* check an image */

#endif
