/*
 * Finds NaN in the data that a call is to send: NCCLGUARD_CHECK=…+nan.
 *
 * Before a call is made, a kernel of the guard scans its send buffer on the program's stream;
 * neither the program's thread nor its device waits for the host. The watchdog reads the result. If
 * the policy is to kill, the stream proceeds only if nothing was found.
 */
#ifndef NCCLGUARD_CORE_CHECK_NAN_H
#define NCCLGUARD_CORE_CHECK_NAN_H

#include <stdbool.h>
#include <stdint.h>

struct ng_alarm;
struct ng_call;
struct ng_comm;

/* Check whether the configured scan is possible, and log it if not. Before any guard thread
 * runs. */
bool ng_nan_start(void);

/*
 * Scan the buffer of a collective, send or receive that is about to be made, as number `seq` of the
 * group's collectives (0: not a collective) or `p2p_seq` of its sends and receives. Skips buffers
 * that it cannot scan. Program threads.
 */
void ng_nan_look_at(const struct ng_call *call, struct ng_comm *comm, uint64_t seq,
                    uint64_t p2p_seq);

/* Write findings into the black box, and raise an alarm for the first one, after a delay in which
 * other ranks detect earlier ones. Watchdog, each round. */
void ng_nan_report(int64_t now_mono_ns, uint32_t restarts);

#endif
