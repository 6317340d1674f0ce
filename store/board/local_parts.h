/*
 * What the parts of one host's board share; store/board/local.h is its public interface.
 *
 * All state belongs to the thread that has the board: the incident thread, or a tool with its own
 * board. No function waits for another process or calls malloc. Functions that return int return 0
 * or -errno.
 */
#ifndef NCCLGUARD_STORE_BOARD_LOCAL_PARTS_H
#define NCCLGUARD_STORE_BOARD_LOCAL_PARTS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/recorder/box.h"
#include "core/util/arena.h"
#include "core/util/descriptor.h"
#include "core/view/view.h"

struct ng_folder;
struct pollfd;

/* Another process of the job, or this one. struct ng_local_peer is its public part. */
struct ng_peer {
    char name[64];
    const char *folder; /* of its box, which outlives this */
    struct ng_box box;
    int pid;
    uint64_t start_ticks;
    struct ng_descriptor
        pid_fd; /* readable once it has ended; none: another namespace, or the kernel is too old */
    bool self;
    bool met;            /* it was alive when we first saw it */
    bool same_namespace; /* process namespace, the same as ours */
    bool gone;           /* certainly dead, or now another program */
    bool execed;         /* the latter */
    bool counted;        /* in `ended` */
    bool unread;         /* its box is no longer readable, so its silence proves nothing */
    int end;             /* how it ended: ng_proc_end; 0 not known */
    int64_t gone_mono_ns;
    int64_t asked_mono_ns; /* when we last checked whether it is another program */
    int64_t read_mono_ns;  /* when more than the header of its box was last read, in case the box
                            * gets truncated */
    /* local_runs.c: indices of peers. The first of its run; the same, or one closer to it, by links
     * that hold for good. */
    uint32_t run, linked;
    uint64_t groups_sum; /* of the groups when it was last compared; 0 not yet */
    bool is_new, groups_came;
};

/* The board of one host; `board` comes first: its operations receive a pointer to it. */
struct ng_local {
    struct ng_board board;
    char folder[PATH_MAX - 128]; /* leaves room for a file name */
    const struct ng_box *own_box;
    struct ng_descriptor inotify;
    struct ng_descriptor folder_fd;
    struct ng_arena arena; /* of the two lists */
    bool ready;            /* the first use is done */
    struct ng_peer *peers;
    uint32_t peer_count, peer_room;
    uint32_t self; /* index of this process; UINT32_MAX: not seen yet, or it has no file */
    struct pollfd *polls;
    uint32_t poll_room;
    uint32_t ended;
    uint32_t given_up; /* the policy with which a verdict has ended one of them, plus one; 0 none */
    int64_t given_up_mono_ns;
    int64_t tried_mono_ns; /* when opening the folder was last tried, as a test */
    int64_t joined_mono_ns;
    char boot_id[40];
    uint64_t pid_namespace;
    uint32_t kept; /* entries of this process that stay as long as it lives */
};

/* ---- local_peers.c: the processes of the job, and the folder of their boxes ---- */

/* Our identity, to compare boxes with: fills in `boot_id` and `pid_namespace`. Must be called
 * first. */
void ng_local_identify(struct ng_local *local);

/*
 * Open the box `name` of a folder and find a way to watch its process; close *ret_peer afterwards.
 * `boot_id` and `pid_namespace` are ours, and `folder` outlives *ret_peer. -ESTALE: of another
 * boot; or -errno of ng_box_open.
 */
int ng_local_open_peer(const char *folder, const char *name, const char *boot_id,
                       uint64_t pid_namespace, struct ng_peer *ret_peer);
void ng_local_close_peer(struct ng_peer *peer);

/* Check whether it has ended or become another program: then it is `gone`, for good. This process
 * never is. Refreshes what is known from the header of its box. */
void ng_local_refresh_peer(struct ng_peer *peer);
/* Refresh it, and return its state; ng_view_add_box adds what its box says of its own end. */
enum ng_life ng_local_life_of(struct ng_peer *peer);
/* Refresh it. Does it still take part, that is: alive, and neither leaving nor ended by its
 * guard? */
bool ng_local_takes_part(struct ng_peer *peer);
/* ng_board_ops.signal. */
int ng_local_signal_peer(struct ng_peer *peer, int signal_number);
/* Append it to a view as of `now_mono_ns`, which is the same for all of a view; the caller seals
 * the view. 0 or -ENOMEM. */
int ng_local_add_to_view(struct ng_peer *peer, int64_t now_mono_ns, struct ng_view *view);

/* Is a file of this name a black box? */
bool ng_local_is_box_name(const char *name);
/* Read the job's folder from its beginning; once the board is in use, this needs no new descriptor.
 * True: close *ret_folder afterwards. */
bool ng_local_read_own_folder(const struct ng_local *local, struct ng_folder *ret_folder);
/* Append processes that have appeared since the last call to `peers`. The array may move, which
 * invalidates pointers into it; indices stay valid, since no peer is ever removed. */
void ng_local_scan(struct ng_local *local);
/* Remove folders of this user's other jobs in which no process is alive; only if the guard chose
 * the location of ours itself. */
void ng_local_sweep(const struct ng_local *local);
/*
 * Does it belong to this process's run, and not to an earlier incarnation ended by its guard? As of
 * the last scan or ng_local_tell_runs. All that the board reports of processes covers only these.
 */
bool ng_local_is_ours(const struct ng_local *local, const struct ng_peer *peer);
/* Determine again which process belongs to which run, as of now. */
void ng_local_tell_runs(struct ng_local *local);

/* ---- local_runs.c: which processes belong to one run ---- */

enum ng_local_whose {
    NG_LOCAL_OF_OURS,    /* as far as is known */
    NG_LOCAL_OF_ANOTHER, /* run, for certain */
    NG_LOCAL_UNCLEAR,    /* several runs are active, and it fits into ours as into another */
};

/* Of which run is this process, as of the last ng_local_tell_runs? */
enum ng_local_whose ng_local_whose(const struct ng_local *local, const struct ng_peer *peer);

/* Of a process with other words of a launcher: is it of our run, as a communicator tells? */
bool ng_local_has_our_communicator(const struct ng_local *local, const struct ng_peer *peer);
/* Is no rank of our run one of its run, too, as far as all of them are known? Then it may be of
 * ours. */
bool ng_local_ranks_complement(const struct ng_local *local, const struct ng_peer *peer);

/* Complete `run` of all peers of a folder. `linked` of a new one is its own index. */
void ng_local_find_runs(struct ng_peer *peers, uint32_t count);

/* ---- local_folder.c: all processes of a folder, as of now, for tools ---- */

struct ng_peers {
    struct ng_peer *list;
    uint32_t count;
};

/* Close it afterwards. Files that are not usable boxes get a note in `view`, unless that is
 * NULL. */
int ng_local_open_folder(const char *path, struct ng_view *view, struct ng_peers *ret_folder);
void ng_local_close_folder(struct ng_peers *folder);

/* The name of a run for users: the launcher's, else that of its first process. `run`: as in a
 * peer. */
uint64_t ng_local_run_id(const struct ng_peers *folder, uint32_t run);
/* The same as a folder name; the name of the `ncclguard run` above takes precedence over that of
 * its first process. */
void ng_local_name_run(const struct ng_peers *folder, uint32_t run,
                       char ret_name[NG_BOARD_RUN_NAME_BYTES]);

/* ---- local_incidents.c: incidents as files ---- */

/* Operations of ng_board_ops; core/nccl/board.h documents them. */
int ng_local_claim(struct ng_board *board, const struct ng_incident *wanted,
                   struct ng_incident *ret_incident);
int ng_local_publish(struct ng_board *board, const struct ng_incident *incident,
                     const struct ng_verdict *verdict);
int ng_local_next(struct ng_board *board, enum ng_incident_source source, uint64_t epoch,
                  struct ng_news *ret_news);
int ng_local_get(struct ng_board *board, struct ng_incident *incident);
bool ng_local_claimant_alive(struct ng_board *board, const struct ng_incident *incident);
void ng_local_dumped(struct ng_board *board, const struct ng_incident *incident);
uint32_t ng_local_dumps_missing(struct ng_board *board, const struct ng_incident *incident);

/* Has any incident produced evidence? True also if one cannot be read. */
bool ng_local_has_evidence(const struct ng_local *local);

/* ---- local_entries.c: small data for the programs, as files ---- */

/* Operations of ng_board_ops, too. */
int ng_local_put(struct ng_board *board, const struct ng_board_entry *entry);
int ng_local_fetch(struct ng_board *board, const char *key, void *ret_data, size_t *ret_bytes);
int ng_local_have(struct ng_board *board, const char *prefix, uint32_t first, uint32_t count,
                  uint64_t *ret_there);
void ng_local_forget(struct ng_board *board, const char *key);

#endif
