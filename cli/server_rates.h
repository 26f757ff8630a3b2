/* What a server's exports are read in a second: the difference between two answers to /status. */
#ifndef GRANARY_CLI_SERVER_RATES_H
#define GRANARY_CLI_SERVER_RATES_H

#include <jansson.h>

/* The sums of an export whose rates are taken, by their names in /status; NULL ends them. */
extern const char *const server_rate_names[];

/* Give each export of now, and now itself for their sum, "rates": an object of these names and how much was added to
 * each in a second since before. Of a server that was started again in between: since its start. */
void server_rates_add(json_t *now, json_t *before);

/* One of them; 0: there is none of that name. */
double server_rate(json_t *object, const char *name);

#endif
