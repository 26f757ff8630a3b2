/* Requests that take long: each has a thread of its own, whose answer is sent line by line as it is
 * made, so that the thread that serves the control socket never waits. One JSON object a line.
 */
#ifndef GRANARY_SERVER_CONTROL_JOB_H
#define GRANARY_SERVER_CONTROL_JOB_H

#include <jansson.h>
#include <microhttpd.h>
#include <stdbool.h>

#include "base/compiler.h"

enum { CONTROL_JOBS_MAX = 4 };

struct control_jobs;
struct control_job;

/* Runs in the job's thread; arg is freed by free_arg afterwards. An error it returns is sent as the
 * last line, {"error": sentence}. */
typedef int control_work(struct control_job *job, void *arg);
typedef void control_free(void *arg);

GR_MUST_CHECK int control_jobs_new(struct control_jobs **out);
/* Cancels and joins what runs; before the daemon is stopped. No job may be started afterwards. NULL is allowed. */
void control_jobs_stop(struct control_jobs *jobs);
/* After the daemon was stopped. NULL is allowed. */
void control_jobs_free(struct control_jobs *jobs);

/* Run work and send its lines as the answer to connection, from a daemon that may suspend. Takes arg
 * in every case. -EBUSY: CONTROL_JOBS_MAX run already; -ENOMEM; -EIO.
 * No sentence. */
GR_MUST_CHECK int control_jobs_start(struct control_jobs *jobs, struct MHD_Connection *connection, control_work *work,
                                     void *arg, control_free *free_arg);

/* For the work: send one line; takes object. Waits while the client is behind. -ECANCELED: the client
 * is gone or the server stops. */
GR_MUST_CHECK int control_job_send(struct control_job *job, json_t *object);
/* It should end soon: the question, and the flag for others to look at (store_options). */
bool control_job_cancelled(const struct control_job *job);
const volatile int *control_job_cancel(const struct control_job *job);

#endif
