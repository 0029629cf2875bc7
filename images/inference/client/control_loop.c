/* A control loop at a fixed rate: asks for an action each period, counts what came late, and stops safely.
 *
 *   cc -O2 -std=gnu11 -o control_loop control_loop.c policy_client.c
 *   ./control_loop /dev/shm/policy 1000 60        # 1 kHz for a minute
 *
 * Prints one JSON object; exit code 0: no decision missed its deadline. Replace read_sensors, move and be_safe.
 */
#define _GNU_SOURCE
#include "policy_client.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DEADLINE_NS 5000000

static void read_sensors(float *observation, uint32_t count, uint64_t step) {
    for (uint32_t i = 0; i < count; i++) observation[i] = (float)((step * 7 + i * 13) % 200) / 100.0f - 1.0f;
}
static void move(const void *action) { (void)action; }
static void be_safe(void) {} /* brakes on, zero torque: whatever is safe on this robot */

static int64_t monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void sleep_until(int64_t ns) {
    struct timespec at = {ns / 1000000000, ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {}
}

static int by_size(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

int main(int argc, char **argv) {
    policy_client client;
    double rate = argc > 2 ? atof(argv[2]) : 1000, seconds = argc > 3 ? atof(argv[3]) : 10;
    size_t steps = (size_t)(rate * seconds), missed = 0, failed = 0;
    int result = argc > 1 ? policy_open(&client, argv[1]) : POLICY_NOT_SERVING;
    int64_t period = (int64_t)(1e9 / rate), *took = malloc((steps + 1) * sizeof *took);
    if (argc < 2 || steps == 0 || took == NULL) return fprintf(stderr, "usage: control_loop RUN_FOLDER [HZ [SECONDS [SPIN_US]]]\n"), 2;
    if (result != POLICY_DECIDED) return fprintf(stderr, "control_loop: %s\n", policy_text(result)), 1;
    client.spin_ns = argc > 4 ? (int64_t)(atof(argv[4]) * 1000) : 0;

    float *observation = calloc(client.exchange->observation_count, sizeof(float));
    void *action = calloc(client.exchange->action_count, sizeof(int64_t));
    int64_t next = monotonic_ns();
    for (size_t step = 0; step < steps; step++, next += period) {
        sleep_until(next);
        read_sensors(observation, client.exchange->observation_count, step);
        result = policy_decide(&client, observation, action, DEADLINE_NS);
        took[step] = monotonic_ns() - next; /* from when the period began: waking up late counts, too */
        if (result == POLICY_DECIDED) {
            move(action);
        } else {
            be_safe();
            failed++;
            if (result == POLICY_NOT_SERVING) {
                fprintf(stderr, "control_loop: %s\n", policy_text(result));
                steps = step + 1;
                break;
            }
        }
        if (took[step] > DEADLINE_NS) missed++;
    }
    policy_close(&client);
    qsort(took, steps, sizeof *took, by_size);
#define AT(q) ((double)took[(size_t)((q) * (double)(steps - 1))] / 1000)
    printf("{\"steps\": %zu, \"missed\": %zu, \"failed\": %zu, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f}\n",
           steps, missed, failed, AT(0.5), AT(0.99), AT(0.999), AT(1));
    free(took), free(observation), free(action);
    return missed || failed ? 1 : 0;
}
