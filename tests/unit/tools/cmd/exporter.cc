/*
 * `ncclguard exporter`: what Prometheus gets of the jobs of a host, and what becomes of clients
 * that ask wrongly.
 */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <future>

#include "tests/unit/tools/samples.h"
#include "tests/unit/tools/stuck_job.h"

extern "C" {
#include "tools/jobs/host_folders.h"
}

namespace
{

struct Answer {
    int status = 0;
    std::string head, body;
};

/* A connection to a port of this host. */
class Client
{
  public:
    explicit Client(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))
    {
        struct sockaddr_in there = {};
        struct timeval bound = {20, 0};
        there.sin_family = AF_INET;
        there.sin_port = htons(static_cast<uint16_t>(port));
        there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound));
        if (connect(fd_, reinterpret_cast<struct sockaddr *>(&there), sizeof(there)) != 0)
            throw std::runtime_error("nobody listens");
    }
    ~Client()
    {
        close(fd_);
    }
    Client(const Client &) = delete;
    void send(const std::string &text)
    {
        EXPECT_EQ(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(text.size()));
    }
    /* All up to the end of the connection. */
    Answer read()
    {
        std::string text;
        char buffer[65536];
        for (ssize_t bytes; (bytes = recv(fd_, buffer, sizeof(buffer), 0)) > 0;)
            text.append(buffer, static_cast<size_t>(bytes));
        size_t end = text.find("\r\n\r\n");
        Answer answer;
        if (end == std::string::npos || sscanf(text.c_str(), "HTTP/1.1 %d", &answer.status) != 1)
            return answer;
        answer.head = text.substr(0, end + 2);
        answer.body = text.substr(end + 4);
        return answer;
    }

  private:
    int fd_;
};

/* An exporter on a port of its own. */
class Exporter
{
  public:
    explicit Exporter(const std::map<std::string, std::string> &environment,
                      const std::vector<std::string> &more = {})
        : process_(words(more), environment)
    {
        static const std::string head = "serving http://127.0.0.1:";
        if (!process_.wait_for("/metrics\n"))
            throw std::runtime_error("it does not say where it listens");
        size_t found = process_.out().find(head);
        port_ = found == std::string::npos ? 0 : atoi(&process_.out()[found + head.size()]);
        EXPECT_GT(port_, 0) << process_.out();
    }
    int port() const
    {
        return port_;
    }
    pid_t pid() const
    {
        return process_.pid();
    }
    const std::string &err() const
    {
        return process_.err();
    }
    Answer ask(const std::string &path, const std::string &method = "GET",
               const std::string &body = "")
    {
        Client client(port_);
        client.send(method + " " + path +
                    " HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: " +
                    std::to_string(body.size()) + "\r\n\r\n" + body);
        return client.read();
    }
    /* The exit status after this signal; -1 none. It has said so many lines on stderr. */
    int end(int number = SIGTERM, size_t said = 0)
    {
        kill(process_.pid(), number);
        int status = process_.wait_end();
        EXPECT_EQ(lines(process_.err()).size(), said) << process_.err();
        return status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }

  private:
    static std::vector<std::string> words(const std::vector<std::string> &more)
    {
        std::vector<std::string> result = {the_command(), "exporter", "--listen", "127.0.0.1:0"};
        result.insert(result.end(), more.begin(), more.end());
        return result;
    }
    Process process_;
    int port_ = 0;
};

using Environment = std::map<std::string, std::string>;

/* "": where the guard puts them itself. */
Environment in_folder(const std::string &path)
{
    return {{"NCCLGUARD_DIR", path}, {"NCCLGUARD_STORE", ""}, {"NCCLGUARD_JOB", ""}};
}

/* What one scrape gave. */
Samples scrape(const Answer &answer)
{
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(has(answer.head, "Content-Type: text/plain; version=0.0.4")) << answer.head;
    return Samples(answer.body);
}

Samples scrape(Exporter &exporter)
{
    return scrape(exporter.ask("/metrics"));
}

/* ---- Jobs ---- */

TEST(Exporter, TellsWhoHoldsAStuckJobUp)
{
    Stuck job;
    Exporter exporter(job.environment());
    Samples samples = scrape(exporter);
    EXPECT_EQ(samples.only("live_verdict_info", {R"(nccl_job="test-job")", R"(kind="missing_rank")",
                                                 R"(culprits="2")", R"(confidence="certain")"}),
              "1");
    EXPECT_EQ(samples.only("culprit", {R"(rank="2")", R"(kind="missing_rank")"}), "1");
    EXPECT_EQ(samples.only("waiting_ranks"), "3");
    EXPECT_EQ(samples.only("stuck_seconds"), "10.000000000");
    EXPECT_EQ(samples.only("processes", {R"(life="running")"}), "4");
    EXPECT_EQ(samples.of("verdict_info"), std::vector<std::string>());
}

TEST(Exporter, TellsHowFarEachRankIs)
{
    Stuck job;
    Exporter exporter(job.environment());
    Samples samples = scrape(exporter);
    const std::string group = R"(group="0123456789abcdef")";
    for (std::string rank : {"0", "1", "2", "3"}) {
        std::vector<std::string> labels = {R"(rank=")" + rank + '"', R"(nccl_job="test-job")",
                                           "run=", group, R"(group_rank=")" + rank + '"'};
        bool late = rank == "2";
        EXPECT_EQ(samples.only("pending_seconds", labels), late ? "0.000000000" : "10.000000000");
        labels.push_back(R"(name="world")");
        EXPECT_EQ(samples.only("group", labels), "1");
        labels.back() = R"(state="entered")";
        EXPECT_EQ(samples.only("last_collective", labels), late ? "6" : "7");
        labels.back() = R"(state="completed")";
        EXPECT_EQ(samples.only("last_collective", labels), "6");
    }
    EXPECT_EQ(samples.of("lost_total", {R"(what="records")"}), std::vector<std::string>(4, "0"));
    EXPECT_EQ(samples.of("process", {"version=\"" NG_VERSION "\""}).size(), 4u);
}

TEST(Exporter, AVerdictOfTheGuardsStaysBesideThatOfTheMoment)
{
    Stuck job("test-job", "world", 300);
    Exporter exporter(job.environment());
    ASSERT_EQ(evidence_tell_incident(job.folder.path().c_str(), 6,
                                     "dead_rank: rank 1 (host node1, pid 7) has died; likely"),
              0);
    Samples samples = scrape(exporter);
    EXPECT_EQ(samples.only("live_verdict_info", {R"(kind="healthy")", R"(culprits="")"}), "1");
    EXPECT_EQ(samples.only("verdict_info",
                           {R"(kind="dead_rank")", R"(culprits="1")", R"(level="suspect")"}),
              "1");
    double age_s = std::stod("0" + samples.only("verdict_age_seconds", {R"(nccl_job="test-job")"}));
    EXPECT_TRUE(age_s > 0 && age_s < 600) << age_s;
    EXPECT_EQ(samples.only("incidents_total", {R"(level="suspect")"}), "1");
    EXPECT_EQ(samples.only("incidents_total", {R"(level="timeout")"}), "0");
    EXPECT_EQ(samples.only("stuck_seconds"), "0.000000000");
}

TEST(Exporter, TellsOfDeathsAndOfJobsThatCameAndWent)
{
    Folder folder;
    Exporter exporter(in_folder(folder.path()));
    EXPECT_EQ(scrape(exporter).of("processes"), std::vector<std::string>());
    BoxOwner waits(folder.path(), {0, EVIDENCE_RUNNING, 7, 6, 900, 0}, 2);
    BoxOwner dies(folder.path(), {1, EVIDENCE_RUNNING, 6, 6, 0, 0}, 2);
    EXPECT_EQ(scrape(exporter).only("processes", {R"(life="running")"}), "2");
    dies.end();
    Samples samples = scrape(exporter);
    EXPECT_EQ(samples.only("processes", {R"(life="dead")"}), "1");
    EXPECT_EQ(samples.only("process_life", {R"(rank="1")", R"(life="dead")"}), "1");
    EXPECT_EQ(samples.only("live_verdict_info", {R"(kind="dead_rank")", R"(culprits="1")"}), "1");
    for (const auto &entry : std::filesystem::directory_iterator(folder.path()))
        std::filesystem::remove(entry.path());
    EXPECT_EQ(scrape(exporter).of("processes"), std::vector<std::string>());
    EXPECT_EQ(exporter.end(), 0);
}

/* Each sample comes once all the same: Samples checks it. */
TEST(Exporter, OfARankThatWasStartedAgainTheLivingProcessIsTold)
{
    Folder folder;
    BoxOwner first(folder.path(), {0, EVIDENCE_RUNNING, 3, 3, 0, 0}, 2);
    first.end();
    BoxOwner again(folder.path(), {0, EVIDENCE_RUNNING, 7, 7, 0, 0}, 2);
    Exporter exporter(in_folder(folder.path()));
    Samples samples = scrape(exporter);
    EXPECT_EQ(samples.only("process_life", {R"(rank="0")"}), "1");
    EXPECT_EQ(samples.only("process_life", {R"(rank="0")", R"(life="running")"}), "1");
    EXPECT_EQ(samples.only("last_collective", {R"(rank="0")", R"(state="entered")"}), "7");
    EXPECT_EQ(samples.only("processes", {R"(life="dead")"}), "1");
}

/* Their launcher's number is the same, so none of them is known by it. */
TEST(Exporter, RanksOfOneNumberAreToldByTheirProcesses)
{
    Folder folder;
    BoxOwner one(folder.path(), {0, EVIDENCE_RUNNING, 7, 7, 0, 0}, 2);
    BoxOwner other(folder.path(), {0, EVIDENCE_RUNNING, 7, 7, 0, 0}, 2);
    Exporter exporter(in_folder(folder.path()));
    Samples samples = scrape(exporter);
    for (const BoxOwner *owner : {&one, &other})
        EXPECT_EQ(samples.only("process", {"rank=\"pid-" + std::to_string(owner->pid()) + '"'}),
                  "1");
}

TEST(Exporter, AllThatABoxMayHoldIsToldOnce)
{
    Folder folder;
    evidence_rank rank = {0, EVIDENCE_RUNNING, 7, 6, 10000, 0};
    ASSERT_EQ(evidence_make_full_box(folder.path().c_str(), &rank, 4), 0);
    Exporter exporter(in_folder(folder.path()));
    Answer answer = exporter.ask("/metrics");
    Samples samples = scrape(answer);
    EXPECT_GT(samples.of("duration_seconds_bucket").size(), 1u);
    EXPECT_EQ(samples.of("call_seconds").size(), 1u);
    EXPECT_EQ(samples.only("exporter_boxes", {R"(result="read")"}), "1");
    /* As many as docs/metrics.md says, which has those of registrations among a communicator's. */
    size_t of_rank = 0;
    for (const std::string &line : lines(answer.body))
        of_rank += has(line, "{rank=") && !has(line, "ncclguard_culprit{");
    EXPECT_EQ(of_rank, 7 + 7 * samples.of("group").size() +
                           9 * samples.of("registered_segments").size() +
                           30 * samples.of("duration_seconds_count").size());
}

/* Aggregated by job alone the dead of one run would be those of the other. */
TEST(Exporter, RunsOfOneNameAreApart)
{
    Folder folder;
    BoxOwner crashed(folder.path(), {0, EVIDENCE_RUNNING, 3, 3, 0, 0}, 1, "one", "", true, 7);
    BoxOwner lives(folder.path(), {0, EVIDENCE_RUNNING, 5, 5, 0, 0}, 1, "one", "", true, 8);
    crashed.end();
    Exporter exporter(in_folder(folder.path()));
    Samples samples = scrape(exporter);
    EXPECT_EQ(samples.of("processes", {R"(nccl_job="one")", R"(life="running")"}),
              (std::vector<std::string>{"0", "1"}));
    EXPECT_EQ(samples.of("processes", {R"(nccl_job="one")", R"(life="dead")"}),
              (std::vector<std::string>{"1", "0"}));
    EXPECT_EQ(samples.of("last_collective", {R"(rank="0")", R"(state="entered")"}),
              (std::vector<std::string>{"3", "5"}));
}

TEST(Exporter, JobsOfOneFolderAreApartAndOneCanBeChosen)
{
    Stuck job;
    BoxOwner other(job.folder.path(), {0, EVIDENCE_RUNNING, 1, 1, 0, 0}, 1, "other-job", "", true,
                   7);
    Exporter all(job.environment()), one(job.environment(), {"--job", "other-job"});
    Samples samples = scrape(all);
    EXPECT_EQ(samples.only("processes", {R"(nccl_job="test-job")", R"(life="running")"}), "4");
    EXPECT_EQ(samples.only("processes", {R"(nccl_job="other-job")", R"(life="running")"}), "1");
    EXPECT_EQ(scrape(one).of("processes", {R"(nccl_job="test-job")"}), std::vector<std::string>());
    EXPECT_EQ(scrape(one).only("processes", {R"(nccl_job="other-job")", R"(life="running")"}), "1");
}

/* A copy of a black box in another folder is the same run once more. */
TEST(Exporter, FindsJobsWhereTheGuardPutsThemItselfAndTellsEachOnce)
{
    std::string above = "/dev/shm/ncclguard-" + std::to_string(geteuid());
    std::string job = "exporter-test-" + std::to_string(getpid()), folder = above + "/" + job;
    std::filesystem::create_directories(folder);
    chmod(above.c_str(), 0700);
    {
        BoxOwner owner(folder, {0, EVIDENCE_RUNNING, 1, 1, 0, 0}, 1, job.c_str());
        std::filesystem::copy(folder, folder + "-copy");
        Exporter exporter(in_folder(""));
        EXPECT_EQ(
            scrape(exporter).only("processes", {"nccl_job=\"" + job + '"', R"(life="running")"}),
            "1");
    }
    for (const std::string &one : {folder, folder + "-copy"})
        std::filesystem::remove_all(one);
}

/* As user `user`: the folders in which it looks, where `name` says what is ours. */
std::set<std::string> folders_of(uid_t user, const std::string &name)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        throw std::runtime_error("pipe2");
    pid_t pid = fork();
    if (pid == 0) {
        if (user != geteuid() && setuid(user) != 0)
            _exit(1);
        ng_host_folders_each(
            nullptr,
            [](void *out, const char *folder) {
                dprintf(*static_cast<int *>(out), "%s\n", folder);
            },
            &ends[1]);
        _exit(0);
    }
    close(ends[1]);
    std::string text;
    char buffer[4096];
    for (ssize_t bytes; (bytes = read(ends[0], buffer, sizeof(buffer))) > 0;)
        text.append(buffer, static_cast<size_t>(bytes));
    close(ends[0]);
    int status;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
    std::set<std::string> found;
    for (const std::string &folder : lines(text))
        if (has(folder, name))
            found.insert(folder);
    return found;
}

/* Of nobody, and of no other process of this test: their folders in shared memory go with it. */
uid_t nobodys_number(uid_t which)
{
    return 60000 + ((uid_t)getpid() * 3 + which) % 5000;
}

/* Folders that each user has in shared memory, gone with the test. */
TEST(Exporter, LooksIntoFoldersOfItsUserAndAsRootIntoThoseOfAll)
{
    const uid_t other = nobodys_number(0), third = nobodys_number(1);
    std::string name = "host-folders-" + std::to_string(getpid());
    auto path = [&name](uid_t user) {
        return "/dev/shm/ncclguard-" + std::to_string(user) + "/" + name;
    };
    std::set<std::string> own = {path(geteuid())}, all = own;
    std::filesystem::create_directories(path(geteuid()));
    if (geteuid() == 0) {
        std::filesystem::create_directories(path(other));
        for (const std::string &folder :
             {path(other), path(other).substr(0, path(other).rfind('/'))})
            ASSERT_EQ(chown(folder.c_str(), other, other), 0);
        for (uid_t user : {geteuid(), other})
            ASSERT_EQ(symlink(path(user).c_str(),
                              (path(other) + "-link-" + std::to_string(user)).c_str()),
                      0);
        std::filesystem::create_directories(path(third)); /* of root, as a trap would be */
        all.insert(path(other));
        EXPECT_EQ(folders_of(other, name), std::set<std::string>{path(other)});
    }
    EXPECT_EQ(folders_of(geteuid(), name), all);
    std::filesystem::remove_all(path(geteuid()));
    if (geteuid() == 0)
        for (uid_t user : {other, third})
            std::filesystem::remove_all(path(user).substr(0, path(user).rfind('/')));
}

/* A user can write into a box what the box of another one has. */
TEST(Exporter, AsRootNoUserHidesTheRunOfAnother)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "root alone reads the folders of all";
    const uid_t other = nobodys_number(2);
    std::string job = "exporter-users-" + std::to_string(getpid());
    std::string own = "/dev/shm/ncclguard-0/" + job;
    std::string above = "/dev/shm/ncclguard-" + std::to_string(other), theirs = above + "/" + job;
    std::filesystem::create_directories(own);
    chmod("/dev/shm/ncclguard-0", 0700);
    std::filesystem::create_directories(above);
    {
        BoxOwner owner(own, {0, EVIDENCE_RUNNING, 1, 1, 0, 0}, 1, job.c_str());
        std::filesystem::copy(own, theirs);
        for (const std::string &folder : {above, theirs})
            ASSERT_EQ(chown(folder.c_str(), other, other), 0);
        Exporter exporter(in_folder(""));
        Answer answer = exporter.ask("/metrics");
        EXPECT_EQ(scrape(answer).of("waiting_ranks", {"nccl_job=\"" + job + '"'}).size(), 2u);
        EXPECT_TRUE(has(answer.body, "-" + std::to_string(other) + "\"")) << answer.body;
    }
    std::filesystem::remove_all(own);
    std::filesystem::remove_all(above);
}

/* ---- Bad input ---- */

std::string content_of(const std::filesystem::path &path)
{
    std::string content(std::filesystem::file_size(path), 0);
    std::ifstream(path, std::ios::binary)
        .read(&content[0], static_cast<std::streamsize>(content.size()));
    return content;
}

std::string a_box(const std::string &folder)
{
    for (const auto &entry : std::filesystem::directory_iterator(folder))
        if (entry.path().filename().string().rfind("box-", 0) == 0)
            return content_of(entry.path());
    throw std::runtime_error("no box");
}

TEST(Exporter, BoxesThatCannotBeReadAreCountedAndTheOthersTold)
{
    Stuck job;
    std::string good = a_box(job.folder.path()), bad = good;
    job.folder.write("box-1-1", "damaged");
    job.folder.write("box-1-2", good.substr(0, good.size() / 2));
    bad[8]++; /* the version, behind eight bytes of its own */
    job.folder.write("box-1-3", bad);
    bad = good;
    size_t boot = good.find(lines(read_file("/proc/sys/kernel/random/boot_id")).at(0));
    ASSERT_NE(boot, std::string::npos);
    bad[boot] = bad[boot] == '0' ? '1' : '0';
    job.folder.write("box-1-4", bad);
    ASSERT_EQ(mkfifo((job.folder / "box-1-5").c_str(), 0600), 0);
    ASSERT_EQ(symlink("/nowhere", (job.folder / "box-1-6").c_str()), 0);
    Exporter exporter(job.environment());
    for (int scrapes = 0; scrapes < 2; scrapes++) {
        Samples samples = scrape(exporter);
        const std::pair<const char *, const char *> counts[] = {
            {"read", "4"}, {"foreign", "2"}, {"truncated", "1"}, {"version", "1"}, {"stale", "1"}};
        for (const auto &[result, count] : counts)
            EXPECT_EQ(samples.only("exporter_boxes", {std::string("result=\"") + result + '"'}),
                      count)
                << result;
        EXPECT_EQ(samples.only("live_verdict_info", {R"(kind="missing_rank")"}), "1");
    }
}

TEST(Exporter, AFolderThatIsNotThereHasNoJobs)
{
    Exporter exporter(in_folder("/no/such/folder"));
    Samples samples = scrape(exporter);
    EXPECT_EQ(samples.only("exporter_boxes", {R"(result="read")"}), "0");
    EXPECT_EQ(samples.only("exporter_info", {"version=\"" NG_VERSION "\""}), "1");
}

/* ---- HTTP ---- */

TEST(Exporter, AnswersWhatItIsAskedFor)
{
    Stuck job;
    Exporter exporter(job.environment());
    Answer root = exporter.ask("/");
    EXPECT_EQ(root.status, 200);
    EXPECT_TRUE(has(root.body, "/metrics")) << root.body;
    EXPECT_EQ(exporter.ask("/metrics/").status, 404);
    EXPECT_EQ(exporter.ask("/../etc/passwd").status, 404);
    EXPECT_EQ(exporter.ask("/metrics?x=1").status, 200);
    for (const char *method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
        Answer refused = exporter.ask("/metrics", method, "body");
        EXPECT_EQ(refused.status, 405) << method;
        EXPECT_TRUE(has(refused.head, "Allow: GET, HEAD\r\n")) << refused.head;
    }
    Answer head = exporter.ask("/metrics", "HEAD");
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.body, "");
}

TEST(Exporter, ClientsThatSayNothingOrNonsenseKeepNobodyWaiting)
{
    Stuck job;
    Exporter exporter(job.environment());
    Client silent(exporter.port()), slow(exporter.port()), wrong(exporter.port());
    slow.send("GET /met");
    wrong.send("\x16\x03\x01 nonsense\r\n\r\n");
    EXPECT_EQ(scrape(exporter).only("culprit", {R"(rank="2")"}), "1");
    EXPECT_EQ(wrong.read().status, 400);
    slow.send("rics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
    EXPECT_EQ(scrape(slow.read()).only("culprit", {R"(rank="2")"}), "1");
    EXPECT_EQ(exporter.end(), 0); /* with a connection that is open */
}

TEST(Exporter, ManyAtOnceGetWholeAnswersOfTheSameThreads)
{
    Stuck job;
    Exporter exporter(job.environment());
    auto threads = [&exporter] {
        std::filesystem::directory_iterator tasks("/proc/" + std::to_string(exporter.pid()) +
                                                  "/task");
        return std::distance(tasks, std::filesystem::directory_iterator());
    };
    auto before = threads();
    std::vector<std::future<Answer>> answers;
    for (int i = 0; i < 16; i++)
        answers.push_back(
            std::async(std::launch::async, [&exporter] { return exporter.ask("/metrics"); }));
    for (std::future<Answer> &answer : answers)
        EXPECT_EQ(scrape(answer.get()).only("culprit", {R"(rank="2")"}), "1");
    EXPECT_EQ(threads(), before);
}

TEST(Exporter, LeavesTheFolderAsItWas)
{
    Stuck job;
    for (auto &owner : job.owners)
        stop_child(owner->pid()); /* none of them writes to its box meanwhile */
    auto state = [&job] {
        std::map<std::string, std::string> files;
        for (const auto &entry : std::filesystem::directory_iterator(job.folder.path()))
            files[entry.path()] = content_of(entry.path());
        return files;
    };
    auto before = state();
    {
        Exporter exporter(job.environment());
        for (int i = 0; i < 3; i++)
            exporter.ask("/metrics");
        EXPECT_EQ(exporter.end(SIGINT), 0);
    }
    EXPECT_TRUE(state() == before);
}

/* ---- Mistakes ---- */

void expect_refusal(const Result &result, int code, const std::string &names,
                    const std::string &mends)
{
    EXPECT_EQ(result.code(), code) << result.err;
    EXPECT_EQ(result.out, "");
    std::vector<std::string> told = lines(result.err);
    ASSERT_EQ(told.size(), 2u) << result.err;
    EXPECT_TRUE(has(told[0], names)) << told[0];
    EXPECT_TRUE(has(told[1], mends)) << told[1];
}

TEST(Exporter, AnAddressThatIsTakenIsNamed)
{
    Exporter exporter(in_folder("/no/such/folder"));
    std::string taken = "127.0.0.1:" + std::to_string(exporter.port());
    expect_refusal(run({"exporter", "--listen", taken}), 1,
                   "cannot listen at " + taken + ": Address already in use", "--listen");
}

TEST(Exporter, AnAddressThatIsNoneIsNamed)
{
    for (const char *text : {"9410", ":9410", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x",
                             "127.0.0.1:65536", "127.0.0.1:-1", "::1:9410", "[]:1", ""})
        expect_refusal(run({"exporter", "--listen", text}), 2,
                       std::string("--listen ") + text + " is not an address and a port",
                       "--listen ADDR:PORT");
    expect_refusal(run({"exporter", "--listen", "192.0.2.1:0"}), 1,
                   "cannot listen at 192.0.2.1:0: ", "address of this host");
    expect_refusal(run({"exporter", "now"}), 2, "now", "ncclguard exporter");
    expect_refusal(run({"exporter", "--store", "none"}), 2, "none", "--store URL");
    expect_refusal(run({"exporter", "--job", ""}), 2, "empty", "--job JOB");
}

TEST(Exporter, WithoutItsLibraryOnlyThisCommandFails)
{
    Folder folder;
    folder.write("libmicrohttpd.so.12", "no library");
    Environment environment = {{"LD_LIBRARY_PATH", folder.path()}};
    expect_refusal(run({"exporter", "--listen", "127.0.0.1:0"}, environment), 1,
                   folder / "libmicrohttpd.so.12", "install libmicrohttpd");
    EXPECT_EQ(run({"config"}, environment).code(), 0);
}

/* ---- A store ---- */

TEST(Exporter, WithoutAnAnswerOfTheStoreThisHostIsToldAndOneLineSaysSo)
{
    Stuck job;
    Exporter exporter(in_folder(job.folder.path()),
                      {"--store", "redis://:pa55-w0rd@127.0.0.1:1", "--job", "test-job"});
    for (int scrapes = 0; scrapes < 2; scrapes++) {
        Samples samples = scrape(exporter);
        EXPECT_EQ(samples.only("store_up", {R"(nccl_job="test-job")"}), "0");
        EXPECT_EQ(samples.only("culprit", {R"(rank="2")"}), "1");
    }
    EXPECT_EQ(exporter.end(SIGTERM, 1), 0);
    EXPECT_TRUE(has(exporter.err(), "127.0.0.1:1")) << exporter.err();
    EXPECT_FALSE(has(exporter.err(), "pa55")) << exporter.err();
}

} /* namespace */
