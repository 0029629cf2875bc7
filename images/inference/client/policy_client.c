/* See policy_client.h. Compile as C11: cc -O2 -std=gnu11 -c policy_client.c */
#define _GNU_SOURCE
#include "policy_client.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void futex_wait(uint32_t *word, uint32_t value, int64_t ns) {
    struct timespec timeout = {ns / 1000000000, ns % 1000000000};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, NULL, 0);
}

static void futex_wake(uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0); }

static size_t action_bytes(const struct policy_exchange *exchange) {
    return (size_t)exchange->action_count * (exchange->action_type == POLICY_FLOAT32 ? sizeof(float) : sizeof(int64_t));
}

static int is_sound(const struct policy_exchange *exchange, uint64_t size) {
    uint64_t observation_end = exchange->observation_offset + 4ull * exchange->observation_count;
    return memcmp(exchange->magic, POLICY_MAGIC, 8) == 0 && exchange->version == POLICY_VERSION &&
           exchange->size == size &&
           (exchange->action_type == POLICY_FLOAT32 || exchange->action_type == POLICY_INT64) &&
           exchange->observation_offset >= sizeof *exchange && exchange->action_offset >= observation_end &&
           exchange->action_offset + (uint64_t)action_bytes(exchange) <= size;
}

static int is_serving(struct policy_exchange *exchange) {
    int64_t heartbeat = (int64_t)__atomic_load_n(&exchange->heartbeat_ns, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&exchange->status, __ATOMIC_ACQUIRE) == POLICY_SERVING &&
           now_ns() - heartbeat <= POLICY_GONE_AFTER_NS;
}

static int map(policy_client *client) {
    struct stat state;
    void *memory;
    if (fstat(client->file, &state) != 0 || state.st_size < (off_t)sizeof(struct policy_exchange))
        return POLICY_NOT_AN_EXCHANGE;
    memory = mmap(NULL, (size_t)state.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, client->file, 0);
    if (memory == MAP_FAILED) return POLICY_NOT_AN_EXCHANGE;
    if (!is_sound((struct policy_exchange *)memory, (uint64_t)state.st_size)) {
        munmap(memory, (size_t)state.st_size);
        return POLICY_NOT_AN_EXCHANGE;
    }
    client->exchange = (struct policy_exchange *)memory;
    return is_serving(client->exchange) ? POLICY_DECIDED : POLICY_NOT_SERVING;
}

int policy_open(policy_client *client, const char *run_folder) {
    char path[4096];
    int result;
    memset(client, 0, sizeof *client);
    client->file = -1;
    if (snprintf(path, sizeof path, "%s/exchange", run_folder) >= (int)sizeof path) return POLICY_NOT_SERVING;
    client->file = open(path, O_RDWR | O_CLOEXEC);
    if (client->file < 0) return POLICY_NOT_SERVING;
    result = flock(client->file, LOCK_EX | LOCK_NB) == 0 ? map(client) : POLICY_BUSY;
    if (result != POLICY_DECIDED) policy_close(client);
    return result;
}

/* POLICY_DECIDED once the response has come. */
static int await(policy_client *client, uint32_t sequence, int64_t started, int64_t timeout_ns) {
    struct policy_exchange *exchange = client->exchange;
    for (;;) {
        uint32_t response = __atomic_load_n(&exchange->response, __ATOMIC_ACQUIRE);
        int64_t waited;
        if (response == sequence) return POLICY_DECIDED;
        waited = now_ns() - started;
        if (waited >= timeout_ns) return is_serving(exchange) ? POLICY_TOO_LATE : POLICY_NOT_SERVING;
        if (__atomic_load_n(&exchange->status, __ATOMIC_ACQUIRE) != POLICY_SERVING) return POLICY_NOT_SERVING;
        if (waited >= client->spin_ns) futex_wait(&exchange->response, response, timeout_ns - waited);
    }
}

int policy_decide(policy_client *client, const float *observation, void *action, int64_t timeout_ns) {
    struct policy_exchange *exchange = client->exchange;
    char *memory = (char *)exchange;
    uint32_t sequence;
    int64_t started;
    int result;
    if (exchange == NULL) return POLICY_NOT_SERVING;
    memcpy(memory + exchange->observation_offset, observation, 4 * (size_t)exchange->observation_count);
    started = now_ns();
    exchange->requested_ns = (uint64_t)started;
    sequence = exchange->request + 1; /* the client alone writes it */
    __atomic_store_n(&exchange->request, sequence, __ATOMIC_RELEASE);
    futex_wake(&exchange->request);
    result = await(client, sequence, started, timeout_ns);
    if (result != POLICY_DECIDED) return result;
    if (!exchange->valid) return POLICY_REFUSED;
    memcpy(action, memory + exchange->action_offset, action_bytes(exchange));
    return POLICY_DECIDED;
}

void policy_close(policy_client *client) {
    if (client->exchange != NULL) munmap(client->exchange, client->exchange->size);
    if (client->file >= 0) close(client->file); /* and the lock with it */
    client->exchange = NULL;
    client->file = -1;
}

const char *policy_text(int result) {
    switch (result) {
        case POLICY_DECIDED: return "decided";
        case POLICY_NOT_SERVING: return "the policy server is not there, stopped, or hangs";
        case POLICY_BUSY: return "another control loop has the exchange";
        case POLICY_NOT_AN_EXCHANGE: return "the file is no exchange, or one of another version";
        case POLICY_TOO_LATE: return "no action in time";
        case POLICY_REFUSED: return "the server has no action for this observation";
        default: return "unknown";
    }
}
