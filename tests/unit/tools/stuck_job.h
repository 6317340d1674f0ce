/*
 * A job whose black boxes have living owners, for commands that look at running jobs.
 */
#ifndef NCCLGUARD_TESTS_UNIT_TOOLS_STUCK_JOB_H
#define NCCLGUARD_TESTS_UNIT_TOOLS_STUCK_JOB_H

#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/unit/tools/command.h"
#include "tests/unit/tools/evidence.h"

/* A process that owns a black box until it is killed. Its guard is alive, so that it is not taken
 * for frozen after some seconds; unless the last sign of life is to be `rank`'s own. */
class BoxOwner
{
  public:
    BoxOwner(const std::string &folder, const evidence_rank &rank, int nranks,
             const char *job = "test-job", const char *group = "world", bool beats = true,
             uint64_t run = 0, const std::function<int()> &add_more = {})
    {
        int ready[2];
        if (pipe2(ready, O_CLOEXEC) != 0)
            throw std::runtime_error("pipe2");
        pid_t parent = getpid();
        pid_ = fork();
        if (pid_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(1);
            int error = evidence_make_box_of(job, group, folder.c_str(), &rank, nranks);
            if (!error && run)
                evidence_set_run(run);
            if (!error && add_more)
                error = add_more();
            if (write(ready[1], &error, sizeof(error)) < 0 || error)
                _exit(1);
            for (;;) {
                poll(nullptr, 0, 500);
                if (beats)
                    evidence_beat();
            }
        }
        int error = -1;
        close(ready[1]);
        if (read(ready[0], &error, sizeof(error)) != sizeof(error) || error != 0)
            ADD_FAILURE() << "no black box: " << strerror(-error);
        close(ready[0]);
    }
    ~BoxOwner()
    {
        end();
    }
    BoxOwner(const BoxOwner &) = delete;
    void end()
    {
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
        pid_ = -1;
    }

    int pid() const
    {
        return pid_;
    }

  private:
    pid_t pid_;
};

/* Rank 2 of 4 finished six collectives and never came to the seventh. */
struct Stuck {
    explicit Stuck(const char *job = "test-job", const char *group = "world",
                   int64_t for_ms = 10000, evidence_life life = EVIDENCE_RUNNING,
                   int64_t suspect_ms = 0, bool beats = true)
    {
        const evidence_rank ranks[] = {{0, life, 7, 6, for_ms, 0, false, false, suspect_ms},
                                       {1, life, 7, 6, for_ms, 0, false, false, suspect_ms},
                                       {2, life, 6, 6, 0, 0, false, false, suspect_ms},
                                       {3, life, 7, 6, for_ms, 0, false, false, suspect_ms}};
        for (const evidence_rank &rank : ranks)
            owners.push_back(std::make_unique<BoxOwner>(folder.path(), rank, 4, job, group, beats));
    }
    std::map<std::string, std::string> environment() const
    {
        return {{"NCCLGUARD_STORE", "local:" + folder.path()}, {"NCCLGUARD_JOB", ""}};
    }
    Folder folder;
    std::vector<std::unique_ptr<BoxOwner>> owners;
};

/* Rank 2 of 4 is missing, and the black box of rank 3, which lives and waits, was cut off. */
struct CutOff {
    explicit CutOff(std::uintmax_t left_bytes)
    {
        for (int rank = 0; rank < 4; rank++) {
            const evidence_rank here = {rank, EVIDENCE_RUNNING,      rank == 2 ? 6u : 7u,
                                        6,    rank == 2 ? 0 : 10000, 0};
            /* Whose box was cut off must not touch it. */
            owners.push_back(
                std::make_unique<BoxOwner>(folder.path(), here, 4, "test-job", "world", rank != 3));
        }
        const std::string prefix = "box-" + std::to_string(owners[3]->pid()) + "-";
        for (const auto &entry : std::filesystem::directory_iterator(folder.path()))
            if (entry.path().filename().string().rfind(prefix, 0) == 0)
                name = entry.path().filename();
        if (name.empty())
            throw std::runtime_error("rank 3 has no black box");
        std::filesystem::resize_file(folder / name, left_bytes);
    }
    std::map<std::string, std::string> environment() const
    {
        return {{"NCCLGUARD_STORE", "local:" + folder.path()}, {"NCCLGUARD_JOB", ""}};
    }
    Folder folder;
    std::string name; /* of the box */
    static constexpr std::pair<int, const char *> cuts[] = {{0, ": not a black box"},
                                                            {8192, ": damaged or cut off"}};
    std::vector<std::unique_ptr<BoxOwner>> owners;
};

/* While there is one, black boxes are made as of one moment. */
struct HeldClock {
    HeldClock()
    {
        evidence_hold_clock(true);
    }
    ~HeldClock()
    {
        evidence_hold_clock(false);
    }
    HeldClock(const HeldClock &) = delete;
};

/* The same, of which no process is left: all ended by the guard, or killed from outside, at once.
 */
struct Ended : private HeldClock, Stuck {
    explicit Ended(bool by_guard)
        : Stuck("test-job", "world", 10000, by_guard ? EVIDENCE_ENDED_BY_GUARD : EVIDENCE_RUNNING,
                0, false)
    {
        for (auto &owner : owners)
            owner->end();
    }
};

#endif
