/* What a node takes from the others at most (peers.c). */
#ifndef GRANARY_SERVER_PEER_LIMITS_H
#define GRANARY_SERVER_PEER_LIMITS_H

enum {
    PEER_LOOKERS = 4,            /* threads that answer what is cached */
    PEER_FETCHERS = 8,           /* threads that wait for the store */
    PEER_WAITING_MAX = 1024,     /* requests in the queue of either */
    PEER_BODIES_MAX = 128 << 20, /* bytes of answers that are made or sent */
    PEER_WAIT_MS = 2000,         /* a request that waited so long is not fetched for any more */
    PEER_ANSWER_MS = 3500,       /* and so long after its arrival it is refused: the others wait five seconds */
};

#endif
