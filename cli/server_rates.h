/* What a server's exports are read in a second: the difference between two answers to /status. */
#ifndef GRANARY_CLI_SERVER_RATES_H
#define GRANARY_CLI_SERVER_RATES_H

#include <jansson.h>
#include <stdint.h>

/* The sums of an export whose rates are taken, by their names in /status; NULL ends them. */
extern const char *const server_rate_names[];

/* Give each export of now, and now itself for their sum, "rates": an object of these names and how much was added to
 * each in a second since before. Of a server that was started again in between: since its start. */
void server_rates_add(json_t *now, json_t *before);

/* One of them; 0: there is none of that name. */
double server_rate(json_t *object, const char *name);

/* The time within which this percentage of the reads since before ended, as finely as the server's buckets have it. Of
 * a server that was started again in between: since its start. 0: there were none, or the server does not tell;
 * UINT64_MAX: it took longer than the last bucket has it. */
uint64_t server_latency_us(json_t *now, json_t *before, unsigned percent);

/* Of the bytes that were read of an export, or of all, the percentage that came from this machine's memory and disk, by
 * its rates. Negative: none were read. */
double server_hit_percent(json_t *rates_of);

#endif
