/* Requests that take long. Each runs in its own thread and its answer is sent line by line, as the lines are made, so
 * that the thread that serves the control socket never waits. A line is one JSON object. */
#ifndef GRANARY_SERVER_CONTROL_JOB_H
#define GRANARY_SERVER_CONTROL_JOB_H

#include <jansson.h>
#include <microhttpd.h>
#include <stdbool.h>

#include "base/compiler.h"

enum { CONTROL_JOBS_MAX = 4 };

struct control_jobs;
struct control_job;

/* Runs in the job's thread; free_arg frees arg afterwards. An error other than -ECANCELED is sent as the last line,
 * {"error": sentence}. */
typedef int control_work(struct control_job *job, void *arg);
typedef void control_free(void *arg);

GR_MUST_CHECK int control_jobs_new(struct control_jobs **out);
/* Cancel and join the running jobs. Call it before the daemon is stopped, since libmicrohttpd refuses to stop while a
 * connection is suspended. No job starts afterwards. NULL is allowed. */
void control_jobs_stop(struct control_jobs *jobs);
/* Call it after the daemon was stopped. NULL is allowed. */
void control_jobs_free(struct control_jobs *jobs);

/* Run work in a new thread, and send its lines as the answer to connection, whose daemon allows suspending. Takes arg,
 * also when it fails. -EBUSY: CONTROL_JOBS_MAX jobs run already, or the server stops; -ENOMEM; -EIO: the answer could
 * not be queued. Sets no sentence. */
GR_MUST_CHECK int control_jobs_start(struct control_jobs *jobs, struct MHD_Connection *connection, control_work *work,
                                     void *arg, control_free *free_arg);

/* For the work: send one line. Takes object; NULL is -ENOMEM. Waits while the client reads slower than lines are made.
 * -ECANCELED: the client is gone or the server stops. */
GR_MUST_CHECK int control_job_send(struct control_job *job, json_t *object);
/* Whether the job should end soon; and the flag itself, for code that polls a flag (store_options.cancel). */
bool control_job_cancelled(const struct control_job *job);
const volatile int *control_job_cancel(const struct control_job *job);

#endif
