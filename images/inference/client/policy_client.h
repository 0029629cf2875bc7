/* A control loop's client of a policy server, over shared memory. See policy_exchange.h for how it works. */
#ifndef POLICY_CLIENT_H
#define POLICY_CLIENT_H

#include "policy_exchange.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a call gives: POLICY_DECIDED, or why there is no action. A control loop goes to its safe state on any other. */
enum policy_result {
    POLICY_DECIDED = 0,
    POLICY_NOT_SERVING = -1,    /* no server, or it stopped, failed, is gone or hangs: close, and open again later */
    POLICY_BUSY = -2,           /* another control loop has the exchange */
    POLICY_NOT_AN_EXCHANGE = -3, /* another file, or another version */
    POLICY_TOO_LATE = -4,       /* no answer in time; a late one is never taken for the next */
    POLICY_REFUSED = -5         /* the server has no action: exchange->error says why */
};

typedef struct policy_client {
    struct policy_exchange *exchange; /* for reading, such as observation_count and received_ns */
    int file;
    int64_t spin_ns; /* how long to look for the answer before sleeping; 0 by default */
} policy_client;

/* Open RUN_FOLDER/exchange; the client is usable if this gives POLICY_DECIDED. */
int policy_open(policy_client *client, const char *run_folder);

/* Ask for the action of an observation of observation_count numbers; `action` has room for action_count float or
 * int64_t, and is not touched unless this gives POLICY_DECIDED. No allocation, no lock; one thread at a time. */
int policy_decide(policy_client *client, const float *observation, void *action, int64_t timeout_ns);

/* Let go; also of a client that could not be opened. */
void policy_close(policy_client *client);

/* A result in words. */
const char *policy_text(int result);

#ifdef __cplusplus
}
#endif
#endif
