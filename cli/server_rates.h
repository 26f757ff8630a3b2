/* What is read from a server per second: the difference between two answers to /status. */
#ifndef GRANARY_CLI_SERVER_RATES_H
#define GRANARY_CLI_SERVER_RATES_H

#include <jansson.h>
#include <stdint.h>

/* The sums of an export of which rates are taken, by their names in /status; NULL ends the list. */
extern const char *const server_rate_names[];

/* Give each export of now, and now itself for all exports, an object "rates": the increase of each sum per second since
 * before. If the server was restarted in between, since its start. */
void server_rates_add(json_t *now, json_t *before);

/* Return one rate; 0: none has that name. */
double server_rate(json_t *object, const char *name);

/* Return the time within which this percentage of the reads since before (or since a restart) ended, as precisely as
 * the server's buckets allow. 0: there were no reads, or the server does not tell; UINT64_MAX: longer than the last
 * bucket's bound. */
uint64_t server_latency_us(json_t *now, json_t *before, unsigned percent);

/* Return, by its rates, the percentage of the bytes read from an export, or from all, that this machine's memory and
 * disk served. Negative: nothing was read. */
double server_hit_percent(json_t *rates_of);

#endif
