/*
 * What NCCL's own RAS (reliability, availability, serviceability; NCCL 2.24 on) says of ranks.
 *
 * RAS is a service inside the NCCL of every process of a job; it is asked for the ranks of which
 * the guard has no evidence. It says which ranks exist, where they are, whether they can be
 * reached, and how many collectives each has launched: not which have finished, and nothing of
 * sends and receives or of CUDA graphs. The answer comes from outside: it never replaces the
 * guard's own evidence, and a verdict that depends on it is at most likely. Pure data and pure
 * functions.
 */
#ifndef NCCLGUARD_CORE_VIEW_RAS_H
#define NCCLGUARD_CORE_VIEW_RAS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/util/arena.h"

struct ng_view;

enum ng_ras_state {
    NG_RAS_MEMBER,      /* its process answered, and has the communicator */
    NG_RAS_ENDING,      /* likewise, but it has begun to finalize, destroy or abort it */
    NG_RAS_NO_MEMBER,   /* its process answered, and does not have the communicator (any more) */
    NG_RAS_UNREACHABLE, /* its process does not answer: ended, frozen, or cut off */
    NG_RAS_DEAD,        /* RAS has given it up */
    NG_RAS_STATES
};

#define NG_RAS_HOST_BYTES 48

/* One rank of one communicator. */
struct ng_ras_rank {
    int rank;
    int pid;                      /* in its own process namespace; 0 not known */
    char host[NG_RAS_HOST_BYTES]; /* its address, digits and separators only; "" not known */
    enum ng_ras_state state;
    bool counts;       /* `launched` is known */
    uint64_t launched; /* collectives, of the kinds that RAS counts */
};

/* It may have ended, or be frozen or cut off. */
static inline bool ng_ras_is_out_of_reach(const struct ng_ras_rank *rank)
{
    return rank->state == NG_RAS_UNREACHABLE || rank->state == NG_RAS_DEAD;
}

/* A communicator as RAS describes it. */
struct ng_ras_communicator {
    uint64_t hash; /* NCCL's: see ng_group_id_nccl */
    int size;
    bool partial; /* ranks that are not listed exist, and have launched `launched` collectives */
    bool counts;  /* `launched` is known */
    uint64_t launched;
    struct ng_ras_rank *ranks; /* ascending, each once, below `size` */
    uint32_t rank_count;
};

/* One answer. */
struct ng_ras_answer {
    struct ng_arena arena; /* owns all of it */
    struct ng_ras_communicator *communicators;
    uint32_t count, room;
};

/* A word of RAS on a rank that has no evidence in the view. */
struct ng_view_ras {
    uint64_t group_id;
    int64_t age_ns; /* since RAS was asked */
    struct ng_ras_rank rank;
    uint64_t others; /* collectives that the asking rank had launched by then, if `rank.counts` */
    bool behind;     /* it had not launched the collective in which the asking rank waits */
    bool waits; /* besides, another communicator of its process waits for ranks that are behind or
                   out of reach, so it may be a victim */
};

/* A communicator of the asking process, so that RAS's answer can be matched. */
struct ng_ras_known {
    uint64_t group_id;
    uint64_t hash; /* NCCL's; 0 not known */
};

/*
 * Add what `answer` says of ranks without evidence in groups in which the process whose `self` is
 * set waits, and notes on contradictions. A communicator of RAS may be a group of ours if its size
 * is the same, our own rank has our pid, and no other rank of which there is evidence has another
 * pid than ours says. Of several it is the one with the group's hash; if none has it, nothing is
 * taken of counts, and of states only what all of them say. An answer that has none of the known
 * hashes is another job's: nothing is added. Needs a sealed view. `known` has `count` elements. 0
 * or -ENOMEM.
 */
int ng_ras_match(const struct ng_ras_answer *answer, const struct ng_ras_known *known,
                 uint32_t count, int64_t age_ns, struct ng_view *view);

/* Add one word, in order of group and rank; of two on the same rank the younger stays. False: no
 * memory. */
bool ng_view_add_ras(struct ng_view *view, const struct ng_view_ras *word);

/* The word on a rank; NULL none. */
const struct ng_view_ras *ng_view_find_ras(const struct ng_view *view, uint64_t group_id, int rank);

/* For dumps. The state of a name: NG_RAS_STATES if there is none of this name. */
const char *ng_ras_state_name(enum ng_ras_state state);
enum ng_ras_state ng_ras_state_of(const char *name);

/* An address as RAS writes it is copied if it has nothing but hex digits, '.', ':' and '%';
 * otherwise ret_host is "". */
void ng_ras_copy_host(const char *text, uint32_t bytes, char ret_host[NG_RAS_HOST_BYTES]);

#endif
