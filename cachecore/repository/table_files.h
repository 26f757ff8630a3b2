/* The table of exports (format/export_table.h) in the cache directories: each directory may hold a copy of it, in the
 * file `exports`. The newest copy counts. Private to repository. */
#ifndef GRANARY_REPOSITORY_TABLE_FILES_H
#define GRANARY_REPOSITORY_TABLE_FILES_H

#include "format/export_table.h"

/* Read the copies in n directories, and replace *newest by the newest that is newer than it. A copy that is damaged
 * counts as absent, with a warning. -ENOMEM. */
GR_MUST_CHECK int table_files_read(const char *const *dirs, size_t n, struct export_table *newest);

/* Does each directory have a copy that can be read? */
bool table_files_present(const char *const *dirs, size_t n);

/* Write an encoded table into each directory. A failure is logged. */
void table_files_write(const char *const *dirs, size_t n, const struct bytes *text);

#endif
