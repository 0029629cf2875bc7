/* The shared-memory exchange between a policy server and one control loop. For C11 and C++11, GCC or Clang, Linux.
 *
 * The file RUN/exchange, little-endian, is one struct policy_exchange and, after it, the observation (float32) and the
 * action (float32, or int64 for discrete policies), each on a cache line of its own. Times are CLOCK_MONOTONIC in
 * nanoseconds, which all containers of a host share.
 *
 * One decision:
 *   client: writes the observation and requested_ns; then request = request + 1 (release), FUTEX_WAKE on request
 *   server: sees request change (acquire); copies the observation; writes action, error, valid and times;
 *           then response = request (release), FUTEX_WAKE on response
 *   client: sees response == request (acquire); reads error and valid; reads the action only where valid is 1
 *
 * - The counters make torn data harmless. The server writes only between a request and its response, and the client
 *   reads only after the response to its newest request. A client that gave up waiting may write its next observation
 *   while the server still copies the last one: what comes of that has the last one's number, and nobody takes it.
 * - Counters are compared for equality only, and may wrap. A client that starts goes on from the request that it finds.
 * - There is one client at a time: it holds flock(LOCK_EX) on the open file; a second one is refused by that.
 * - A server that starts makes a new file with a new epoch, and renames it to its place. A client that has the old one
 *   mapped finds it with status POLICY_FAILED or POLICY_STOPPED, or with an old heartbeat, and opens the new one.
 * - heartbeat_ns is renewed ten times a second. Older than a second: the server is gone, or hangs.
 * - The kind of futex is the shared one (no FUTEX_PRIVATE_FLAG).
 */
#ifndef POLICY_EXCHANGE_H
#define POLICY_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

#define POLICY_MAGIC "BKPOLICY"
#define POLICY_VERSION 1u
#define POLICY_GONE_AFTER_NS 1000000000ll

enum policy_status { POLICY_STARTING = 0, POLICY_SERVING = 1, POLICY_STOPPED = 2, POLICY_FAILED = 3 };
enum policy_action_type { POLICY_FLOAT32 = 1, POLICY_INT64 = 2 };
enum policy_answer_error {
    POLICY_OK = 0,
    POLICY_BAD_OBSERVATION = 1, /* a number that is not finite */
    POLICY_BAD_ACTION = 2,      /* the policy's action has one */
    POLICY_RUN_FAILED = 3       /* see the server's log */
};

struct policy_exchange {
    /* what never changes while the file exists */
    char magic[8];
    uint32_t version;
    uint32_t size; /* bytes of the file */
    uint32_t observation_count;
    uint32_t action_count;
    uint32_t action_type;
    uint32_t observation_offset; /* bytes from the start of the file */
    uint32_t action_offset;
    uint32_t reserved0;
    uint64_t epoch; /* another one at each start of a server */
    uint8_t pad0[16];
    /* the server's */
    uint32_t status;
    uint32_t reserved1;
    uint64_t heartbeat_ns;
    uint64_t decisions;
    uint8_t pad1[40];
    /* the client's */
    uint32_t request;
    uint32_t reserved2;
    uint64_t requested_ns;
    uint8_t pad2[48];
    /* the server's answer */
    uint32_t response;
    uint32_t error;
    uint32_t valid;
    uint32_t reserved3;
    uint64_t received_ns;
    uint64_t answered_ns;
    uint8_t pad3[32];
};

#ifdef __cplusplus
#define POLICY_AT(field, offset) static_assert(offsetof(struct policy_exchange, field) == offset, #field)
static_assert(sizeof(struct policy_exchange) == 256, "size");
#else
#define POLICY_AT(field, offset) _Static_assert(offsetof(struct policy_exchange, field) == offset, #field)
_Static_assert(sizeof(struct policy_exchange) == 256, "size");
#endif
POLICY_AT(magic, 0);
POLICY_AT(version, 8);
POLICY_AT(size, 12);
POLICY_AT(observation_count, 16);
POLICY_AT(action_count, 20);
POLICY_AT(action_type, 24);
POLICY_AT(observation_offset, 28);
POLICY_AT(action_offset, 32);
POLICY_AT(epoch, 40);
POLICY_AT(status, 64);
POLICY_AT(heartbeat_ns, 72);
POLICY_AT(decisions, 80);
POLICY_AT(request, 128);
POLICY_AT(requested_ns, 136);
POLICY_AT(response, 192);
POLICY_AT(error, 196);
POLICY_AT(valid, 200);
POLICY_AT(received_ns, 208);
POLICY_AT(answered_ns, 216);

#endif
