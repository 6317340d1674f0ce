/*
 * Other ranks for tests of boards: forked processes with black boxes of their own. Each does one
 * thing on request, then lives on until it is asked to leave, or is killed.
 */
#ifndef NCCLGUARD_TESTS_UNIT_STORE_PEER_H
#define NCCLGUARD_TESTS_UNIT_STORE_PEER_H

#include "tests/unit/core/helpers/core.h"
#include "tests/unit/store/board/record.h"

extern "C" {
#include "core/nccl/board.h"
#include "store/board/local.h"
}

/* Black box of this process, as the guard makes it. */
struct OwnBox : NotCopied {
    /* `run`: what its launcher says of its run; 0 nothing. */
    explicit OwnBox(const std::string &folder, int rank = 0, uint64_t run = 1)
    {
        struct ng_box_identity identity = {.rank = rank,
                                           .world_size = 8,
                                           .local_rank = rank,
                                           .job = "board",
                                           .launch_run = run,
                                           .evidence_folder = "/evidence"};
        error = ng_box_create(folder.c_str(), &identity, 8, &box);
    }
    ~OwnBox()
    {
        ng_box_close(&box, nullptr);
    }

    struct ng_box box;
    int error;
};

/* A board as its incident thread holds it. Its memory is freed with the process, its descriptors
 * with this. */
struct Board : NotCopied {
    Board(const std::string &folder, const struct ng_box *box);
    ~Board();

    unsigned wait(int timeout_ms)
    {
        return board->ops->wait(board, &kick, timeout_ms);
    }
    uint32_t ended()
    {
        return board->ops->ended(board);
    }
    int claim(const struct ng_incident &wanted, struct ng_incident *ret_incident)
    {
        return board->ops->claim(board, &wanted, ret_incident);
    }
    int publish(const struct ng_incident &incident)
    {
        return board->ops->publish(board, &incident, nullptr);
    }
    int next(uint64_t epoch, struct ng_incident *ret_incident)
    {
        struct ng_news news;
        int error = board->ops->next(board, NG_SOURCE_HOST, epoch, &news);
        if (!error)
            *ret_incident = record_of(news);
        return error;
    }
    int get(uint64_t epoch, struct ng_incident *ret_incident)
    {
        ret_incident->epoch = epoch;
        return board->ops->get(board, ret_incident);
    }
    bool claimant_alive(const struct ng_incident &incident)
    {
        return board->ops->claimant_alive(board, &incident);
    }
    uint32_t dumps_missing(uint64_t epoch)
    {
        struct ng_incident incident = {.epoch = epoch};
        return board->ops->dumps_missing(board, &incident);
    }
    void leave()
    {
        board->ops->leave(board);
    }
    /* How each process that the board shows lives, by pid. */
    std::map<int, enum ng_life> lives();

    struct ng_board *board = nullptr;
    struct ng_descriptor kick = NG_DESCRIPTOR_NONE;
};

/* A board in a folder of its own, and the black box of this process. */
struct BoardTest : testing::Test {
    Folder folder;
    OwnBox own{folder.path()};
    Board board{folder.path(), &own.box};
};

/* What a peer may do once its box is in the folder; a value other than 0 ends it with that status.
 */
using Deed = std::function<int(struct ng_box *box)>;

class Peer : NotCopied
{
  public:
    /* Returns when the box is there and the deed is done. */
    explicit Peer(const std::string &folder, const Deed &deed = {}, int rank = 1, uint64_t run = 1);
    ~Peer();

    /* Killed, but not waited for: a zombie from the moment that this returns. */
    void kill_unreaped();
    void kill_and_reap();
    /* Stopped by SIGSTOP, for sure, when this returns. */
    void stop();
    /* Told to end by itself: its exit status. */
    int finish();
    int pid() const
    {
        return pid_;
    }

  private:
    pid_t pid_ = -1;
    int go_ = -1;
};

struct ng_incident stall(enum ng_incident_level level, uint64_t group_id, uint64_t seq,
                         int64_t since_mono_ns = 0);

/* A peer's deed: claim, and publish the verdict where it is to be judged. */
Deed claims(const std::string &folder, const struct ng_incident &wanted, bool builder);

#endif
