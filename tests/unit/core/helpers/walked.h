/* Stacks of all kinds, walked as the program's threads walk their own, and as the compiler's
 * unwinder does. */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_WALKED_H
#define NCCLGUARD_TESTS_UNIT_CORE_WALKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

__BEGIN_DECLS

#define WALKED_FRAMES 16

/* A box of so many records with frames, and the guard's thread that makes rules. 0 or -errno. */
int walked_start(uint32_t records);
/* The thread ends. */
void walked_stop(void);

/* Both walks from who calls this: of record `id`, and, unless NULL, what the compiler's unwinder
 * says. */
struct walked_oracle {
    uint64_t addresses[64];
    uint32_t count;
};
void walked_take(uint64_t id, struct walked_oracle *ret_oracle);
/* Without bounds of its stack, as where a coroutine runs. */
void walked_take_elsewhere(uint64_t id);

/* What record `id` has: enum ng_frames_state, 0 none. */
int walked_frames(uint64_t id, uint64_t ret_addresses[WALKED_FRAMES], uint32_t *ret_count);
/* The same once the guard has completed it; 0 it has not, after 20 s. */
int walked_await(uint64_t id, uint64_t ret_addresses[WALKED_FRAMES], uint32_t *ret_count);
/* Of the newest place with this address that is still there. False: no name yet. */
bool walked_name(uint64_t address, char *ret_name, size_t bytes);

/* What calls `body`, through frames of a kind. */
typedef void walked_body(void *context);
void walked_plainly(walked_body *body, void *context, int depth);
void walked_with_pointer(walked_body *body, void *context, int bytes);
void walked_aligned(walked_body *body, void *context);
void walked_in_handler(walked_body *body, void *context);

/* A stack of `bytes`, which ends where memory does: walks on damaged copies of it. How many
 * frames were found; it must not crash. */
uint32_t walked_damaged(const uint8_t *stack, size_t bytes, uint64_t place, uint64_t pointer,
                        uint32_t seed, unsigned damages);
/* A real stack for that, as it is above the caller: how many bytes. */
size_t walked_copy(uint8_t *ret_stack, size_t room, uint64_t *ret_place, uint64_t *ret_pointer);

__END_DECLS

#endif
