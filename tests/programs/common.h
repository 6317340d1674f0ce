/* What the test programs share: their place in the job, the exchange of unique ids, and one
 * rank's membership of one communicator with the data, the faults and the checks of its calls.
 *
 * A call is made in three steps, so that several can lie in one group: prepare (data to the
 * device), issue (the faults, then NCCL), collect (data from the device). */
#ifndef TESTS_PROGRAMS_COMMON_H
#define TESTS_PROGRAMS_COMMON_H

#include "tests/programs/data.h"
#include "tests/programs/device.h"
#include "tests/programs/options.h"

#include <errno.h>
#include <string.h>

#include <nccl.h>
#include <pthread.h>

/* What the launcher says about this process. */
struct place {
    int rank, nranks, local_rank;
};

struct call {
    enum op op;
    ncclDataType_t dtype;
    ncclRedOp_t redop;
    size_t count;
    int root; /* or the peer of a send or receive */
};

struct slot {
    struct call call;    /* as the program means it, before any fault changes it */
    uint64_t tag;        /* tells this call's data from every other call's */
    bool issued, honest; /* made at all; made as meant */
    char *host_in, *host_out, *device_in, *device_out;
};

struct member {
    const struct options *options;
    const char *name; /* as --comm has it */
    int world_rank, rank, nranks, device;
    ncclComm_t comm;
    cudaStream_t stream;
    unsigned long calls; /* as the faults count them, those left out included */
    unsigned long made;
    uint64_t checksum;
    uint64_t tag;       /* of the last collective */
    uint64_t mix_state; /* the same on every rank */
    struct slot *slots;
    size_t nslots, prepared, issued, collected; /* since the last drain */
    char *host_in, *host_out, *device_in, *device_out;
};

/* Of this process: its command line (until that is read, a deadline alone) and its place. Threads
 * may read them after the first thread has ended. */
extern struct options options;
extern struct place place;

/* Reads the launcher's variables and arms the last-resort alarm. */
void place_init(struct place *ret_place, const struct options *options);

/* The unique id number `ordinal` of the job: rank 0 makes it, the others read it from the folder
 * SPAWN_DIR. One process alone needs no folder. */
ncclUniqueId exchange_id(const struct place *place, const struct options *options,
                         unsigned ordinal);

/* The same for one that this rank has `made` in another way; NULL: that another has. */
ncclUniqueId share_id(const struct place *place, const struct options *options, unsigned ordinal,
                      const ncclUniqueId *made);

/* Blocks for ever if this rank shall not create its communicator. */
void fault_no_init(const struct options *options, int world_rank);

/* Joins the communicator `ordinal` of all ranks, on the current device. */
ncclComm_t world_init(const struct place *place, const struct options *options, unsigned ordinal);

/* A communicator of this process alone, on the current device. */
ncclComm_t init_alone(void);

/* How a program without options begins, with one device a process. */
void place_begin(void);

/* How one with options does. */
void rank_begin(unsigned takes, const char *comms, int argc, char **argv);

/* What the first word of a command line may be. */
struct mode {
    const char *name;     /* NULL: behind the last one */
    void (*run)(void);    /* NULL: what every such mode of the program does, with `middle` in it */
    void (*before)(void); /* what is done before CUDA is used */
    void (*middle)(void);
    bool of_root;     /* `middle` is for rank --root alone */
    bool before_cuda; /* it chooses its device itself */
};

/* The same for a program whose first word is a mode, which it finds: exit status 2 without one. */
const struct mode *mode_begin(const struct mode *modes, unsigned takes, int argc, char **argv);

/* Of a list of words LIST(WORD) with rows WORD(NUMBER, "word"): the numbers, and the texts. */
#define WORD_NUMBER(number, text) number
#define WORD_TEXT(number, text)   text

/* The place of a word in such a list, or `count`. */
unsigned word_index(const char *word, const char *const *words, unsigned count);

__attribute__((noreturn)) void block_for_ever(void);
void sleep_ms(long long ms);
long long now_ms(void); /* monotonic */

/* Starts it, or ends the program. */
pthread_t thread_start(void *(*body)(void *), void *argument);

/* The current device becomes the member's; room for `nslots` calls between two drains. */
void member_init(struct member *ret_member, const struct options *options, const char *name,
                 int world_rank, ncclComm_t comm, size_t nslots);
void member_fini(const struct member *member);

/* The same in the communicator `ordinal` of all ranks, which it joins. */
void member_join(struct member *ret_member, const struct options *options,
                 const struct place *place, unsigned ordinal, const char *name, size_t nslots);

/* Destroys their communicators, the last one first, reports the rank, and frees all. */
void members_end(const struct member *const *members, int nmembers);
void member_end(const struct member *member); /* of one alone */

/* How many calls an iteration makes under --op, and which the i-th is. */
size_t iteration_calls(const struct options *options);
enum op iteration_op(struct member *member, size_t i);

/* One collective, or one send or receive whose data is known by `tag` on both sides. Needs a free
 * slot. */
void member_prepare(struct member *member, enum op op);
void member_prepare_p2p(struct member *member, enum op op, int peer, uint64_t tag);

/* Makes the oldest call that is prepared and not yet issued. */
void member_issue(struct member *member);

/* Fetches the results of every call issued so far: never between ncclGroupStart and its end. */
void member_collect(struct member *member);

/* All three: one call by itself. */
void member_call(struct member *member, enum op op);
void member_call_p2p(struct member *member, enum op op, int peer, uint64_t tag);

/* Makes a call of NCCL with this data. */
void make_call(const struct call *call, void *send, void *recv, ncclComm_t comm,
               cudaStream_t stream);

/* Lets a call face the faults, which may change it, end the process, or never return. Returns
 * false if the call shall be left out. `stream` may be NULL where nothing can be enqueued. */
bool face_faults(const struct options *options, int world_rank, const char *comm_name,
                 unsigned long nth, struct call *call, cudaStream_t stream);

/* As a program's own watchdog does: waits until the communicator is in error. */
void await_error(ncclComm_t comm);

/* Waits for the stream, then checks and sums up everything collected since the last drain. */
void member_drain(struct member *member);

/* Whether --sync-every asks for a drain after iteration `i` (from 0). */
bool drain_due(const struct options *options, unsigned long i);

/* Slots that the calls between two drains need. */
size_t slots_needed(const struct options *options, size_t calls_per_iteration);

/* The pause of --pause-ms. */
void pause_between(const struct options *options);

/* All iterations, each as `iterate` makes it, with the drains and pauses between them. */
typedef void iteration(struct member *members, int nmembers, unsigned long i);
void run_iterations(struct member *members, int nmembers, iteration *iterate);

/* run_iterations, and the end of members that lie one after the other. */
void run_to_end(struct member *members, int nmembers, iteration *iterate);

/* An iteration in which each member makes each of its calls by itself. */
iteration call_by_call;

/* Sums of floats: whatever comes of it but `sum` in all of them ends the program. */
#define SUM_COUNT 1024
void sum_up(ncclComm_t comm, float mine, float sum, void *buffer, cudaStream_t stream);

/* What ncclGetLastError says must hold `wanted` (NULL: anything): else exit status 5. */
void expect_reason(ncclComm_t comm, const char *wanted);

/* So many all-reduces by themselves, each waited for. */
void all_reduces(struct member *member, unsigned long count);

/* Destroys the communicator, finalizing it first if told to. */
void comm_destroy(ncclComm_t comm, const struct options *options);

/* The last line of a rank: the members' calls and checksums together. */
void report(int world_rank, const struct member *const *members, int nmembers);

#define NCCL(call)                                                                                 \
    do {                                                                                           \
        ncclResult_t result_ = (call);                                                             \
        WRONG_IF(result_ != ncclSuccess, #call, ncclGetErrorString(result_));                      \
    } while (0)

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        WRONG_IF(error_ != cudaSuccess, #call, cudaGetErrorString(error_));                        \
    } while (0)

/* What the system refuses. */
#define FAIL(what)               fail(__FILE__, __LINE__, what, strerror(errno))
#define FAIL_IF(condition, what) WRONG_IF(condition, what, strerror(errno))

/* Ends the program if the condition holds. */
#define WRONG_IF(condition, what, text)                                                            \
    do {                                                                                           \
        if (condition)                                                                             \
            fail(__FILE__, __LINE__, what, text);                                                  \
    } while (0)

#endif
