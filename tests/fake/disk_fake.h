/* A disk whose faults are switched while it runs: io_calls over real files. One a process. */
#ifndef GRANARY_TESTS_FAKE_DISK_FAKE_H
#define GRANARY_TESTS_FAKE_DISK_FAKE_H

#include "cache/disk/ring.h"

enum disk_fault {
    DISK_HEALTHY,
    DISK_ERROR, /* fails with the errno given */
    DISK_HANG,  /* does not answer until it is well again */
    DISK_WRONG, /* reads return other bytes than were written */
};

/* Its calls; the disk is well. */
struct io_calls disk_fake_calls(void);

/* From now on, for the files of a directory (a file, if path names one); what hangs goes on when its fault
 * is another. */
void disk_fake_reads(const char *path, enum disk_fault fault, int error);
/* Also of what reserves room or gives it back. */
void disk_fake_writes(const char *path, enum disk_fault fault, int error);
/* Calls that hang at the moment, and all calls so far. */
unsigned disk_fake_hanging(void);
unsigned disk_fake_calls_made(void);
/* Until n calls hang. */
void disk_fake_wait_hanging(unsigned n);
/* All well, everything forgotten. */
void disk_fake_reset(void);

#endif
