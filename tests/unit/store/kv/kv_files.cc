/*
 * The store of one host: what its files promise, whoever is killed, stopped, or tampers with them.
 */
#include "tests/gtest/in_time.h"
#include "tests/unit/store/kv/kv.h"

#include <sys/file.h>

namespace
{

class KvFiles : public testing::Test
{
  protected:
    std::string url() const
    {
        return "local:" + folder.path();
    }
    /* The files, by their full names. */
    std::vector<std::string> files() const
    {
        std::vector<std::string> found;
        for (const std::string &name : folder.names())
            if (DIR *inner = opendir((folder / name).c_str())) {
                while (struct dirent *entry = readdir(inner))
                    if (entry->d_name[0] != '.')
                        found.push_back(folder / name + "/" + entry->d_name);
                closedir(inner);
            }
        return found;
    }
    std::string file(const std::string &name) const
    {
        return folder / "kv:job:run/" + name;
    }
    Folder folder;
};

TEST_F(KvFiles, NobodyElseMayLook)
{
    mode_t before = umask(0);
    Kv kv(url());
    int64_t value;
    EXPECT_EQ(kv.set("key", "value"), 0);
    EXPECT_EQ(kv.add("number", 1, &value), 0);
    EXPECT_EQ(kv.subscribe("news"), 0);
    EXPECT_EQ(kv.publish("news", "x"), 0);
    umask(before);
    struct stat status;
    ASSERT_EQ(stat((folder / "kv:job:run").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0700u);
    ASSERT_GE(files().size(), 4u);
    for (const std::string &name : files()) {
        ASSERT_EQ(lstat(name.c_str(), &status), 0);
        EXPECT_EQ(status.st_mode & 07777, 0600u) << name;
        EXPECT_TRUE(S_ISREG(status.st_mode)) << name;
    }
}

TEST_F(KvFiles, AFolderThatOthersMayWriteToIsRefused)
{
    ASSERT_EQ(mkdir((folder / "kv:job:run").c_str(), 0700), 0);
    ASSERT_EQ(chmod((folder / "kv:job:run").c_str(), 0777), 0);
    Kv kv(url());
    EXPECT_EQ(kv.error, -EPERM);
    EXPECT_NE(std::string(kv.why).find(folder.path()), std::string::npos) << kv.why;
}

TEST_F(KvFiles, NoKeyLeavesTheFolder)
{
    Kv kv(url());
    write_whole_file(folder / "outside", "untouched");
    for (const char *key : {"../outside", "../../outside", "/etc/passwd", ".", ".."})
        EXPECT_EQ(kv.set(key, "x"), 0);
    EXPECT_EQ(folder.names(), (std::vector<std::string>{"kv:job:run", "outside"}));
    EXPECT_EQ(read_whole_file(folder / "outside"), "untouched");
}

TEST_F(KvFiles, WhoeverIsKilledLeavesNothingHalfDone)
{
    std::mt19937 random(7);
    Kv kv(url());
    ASSERT_EQ(kv.subscribe("news"), 0);
    int64_t added = 0;
    for (int round = 0; round < 60; round++) {
        int ready[2];
        ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
        pid_t pid = fork();
        if (pid == 0) {
            alarm(60);
            Kv mine(url());
            for (int i = 0;; i++) {
                std::string value((size_t)(i % 7) * 3000 + 1, (char)('a' + i % 26));
                int64_t number;
                mine.set("value", value);
                mine.add("number", 1, &number);
                mine.cas("swapped", nullptr, value);
                mine.remove("swapped");
                mine.publish("news", value);
                if (i == 0 && write(ready[1], "x", 1) != 1)
                    _exit(1);
            }
        }
        char byte;
        close(ready[1]);
        ASSERT_EQ(read(ready[0], &byte, 1), 1);
        close(ready[0]);
        usleep(random() % 3000);
        ASSERT_EQ(kill(pid, SIGKILL), 0);
        ASSERT_EQ(waitpid(pid, nullptr, 0), pid);

        std::string value;
        ASSERT_EQ(kv.get("value", &value), 0) << ng_kv_error(kv.kv);
        ASSERT_FALSE(value.empty());
        EXPECT_EQ(value, std::string(value.size(), value[0]));
        int64_t number = 0;
        ASSERT_EQ(kv.add("number", 1, &number, 0, 5000), 0) << ng_kv_error(kv.kv);
        EXPECT_GT(number, added);
        added = number;
        int result = kv.get("swapped", &value);
        ASSERT_TRUE(result == 0 || result == -ENOENT) << ng_kv_error(kv.kv);
        ASSERT_EQ(kv.publish("news", "from the survivor"), 0);
        /* Whole messages alone, and the last of them is ours. */
        std::string last, told;
        while ((told = kv.message(0)) != "ETIMEDOUT") {
            last = told;
            if (told != "ESTALE" && told != "news=from the survivor") {
                ASSERT_GT(told.size(), 5u);
                ASSERT_EQ(told.substr(5), std::string(told.size() - 5, told[5]));
            }
        }
        EXPECT_EQ(last, "news=from the survivor");
    }
}

TEST_F(KvFiles, WhatTheKilledHadBegunIsSweptUp)
{
    Kv kv(url());
    struct timespec old[2] = {{1, 0}, {1, 0}};
    write_whole_file(file("t.0123456789abcdef"), "half");
    write_whole_file(file("t.fedcba9876543210"), "being written");
    ASSERT_EQ(utimensat(AT_FDCWD, file("t.0123456789abcdef").c_str(), old, 0), 0);
    EXPECT_EQ(kv.all(), std::vector<std::string>());
    EXPECT_NE(access(file("t.0123456789abcdef").c_str(), F_OK), 0);
    EXPECT_EQ(access(file("t.fedcba9876543210").c_str(), F_OK), 0);
}

TEST_F(KvFiles, WhoHoldsALockForEverCostsOthersNoMoreThanTheirDeadline)
{
    Kv kv(url());
    std::vector<int> locks;
    int64_t value;
    ASSERT_EQ(kv.set("key", "value"), 0);
    for (int i = 0; i < 16; i++) {
        int fd =
            open(file("lock." + std::to_string(i)).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        ASSERT_GE(fd, 0);
        ASSERT_EQ(flock(fd, LOCK_EX), 0);
        locks.push_back(fd);
    }
    int64_t start = ng_clock_mono_ns();
    EXPECT_EQ(kv.set("key", "new", 0, 100), -ETIMEDOUT);
    EXPECT_EQ(kv.add("number", 1, &value, 0, 100), -ETIMEDOUT);
    EXPECT_EQ(kv.publish("news", "x", 100), -ETIMEDOUT);
    EXPECT_IN_TIME(ng_clock_mono_ns() - start, 10 * NG_S);
    EXPECT_EQ(kv.value("key"), "value");
    for (int fd : locks)
        close(fd);
    EXPECT_EQ(kv.set("key", "new"), 0);
    EXPECT_EQ(kv.add("number", 1, &value), 0);
}

TEST_F(KvFiles, DamagedFilesAreToldAndMended)
{
    Kv kv(url());
    ASSERT_EQ(kv.set("good", "value"), 0);
    ASSERT_EQ(kv.set("key", std::string(500, 'x')), 0);
    const std::string name = file("k.key"), whole = read_whole_file(name);
    ASSERT_GT(whole.size(), 500u);
    std::vector<std::string> damaged = {"",
                                        "x",
                                        whole.substr(0, 40),
                                        whole + "x",
                                        whole.substr(0, whole.size() - 1),
                                        std::string(whole.size(), '\xff')};
    for (size_t at = 0; at < 32; at++) {
        damaged.push_back(whole);
        damaged.back()[at] = (char)(damaged.back()[at] ^ 0x40);
    }
    for (const std::string &content : damaged) {
        std::string value;
        int64_t number;
        write_whole_file(name, content);
        int result = kv.get("key", &value);
        /* A change in what is reserved, or in a time, is no damage that can be seen. */
        ASSERT_TRUE(result == -EPROTO || result == -ENOENT || (result == 0 && value.size() == 500))
            << result;
        if (result != -ENOENT) {
            ASSERT_NE(kv.add("key", 1, &number), 0);
        }
        ASSERT_NE(std::find(kv.all().begin(), kv.all().end(), "good=value"), kv.all().end());
        ASSERT_EQ(kv.set("key", "mended"), 0);
        ASSERT_EQ(kv.value("key"), "mended");
    }
    write_whole_file(name, "x");
    EXPECT_EQ(kv.remove("key"), 0);
    EXPECT_EQ(kv.value("key"), strerror(ENOENT));
}

TEST_F(KvFiles, ALinkThatWasPlantedIsNotFollowed)
{
    Kv kv(url()), other("local:" + folder / "other");
    ASSERT_EQ(other.error, 0) << other.why;
    ASSERT_EQ(other.set("key", "theirs"), 0);
    ASSERT_EQ(symlink((folder / "other/kv:job:run/k.key").c_str(), file("k.key").c_str()), 0);
    EXPECT_EQ(kv.value("key"), strerror(EPROTO));
    EXPECT_EQ(kv.set("key", "ours"), 0);
    EXPECT_EQ(kv.value("key"), "ours");
    EXPECT_EQ(other.value("key"), "theirs");
}

TEST_F(KvFiles, WhatHasATimeToLiveDoesNotOutliveTheMachine)
{
    Kv kv(url());
    ASSERT_EQ(kv.set("temporary", "x", 3600 * 1000), 0);
    ASSERT_EQ(kv.set("lasting", "x"), 0);
    char boot_id[40];
    ng_proc_boot_id(boot_id, sizeof(boot_id));
    for (const char *name : {"k.temporary", "k.lasting"}) {
        std::string content = read_whole_file(file(name));
        size_t at = content.find(boot_id);
        ASSERT_NE(at, std::string::npos);
        content[at] = content[at] == '0' ? '1' : '0';
        write_whole_file(file(name), content);
    }
    EXPECT_EQ(kv.value("temporary"), strerror(ENOENT));
    EXPECT_EQ(kv.value("lasting"), "x");
}

TEST_F(KvFiles, AFullDiskIsToldAndChangesNothing)
{
    EXPECT_EQ(in_child([&] {
                  Kv kv(url());
                  if (kv.set("key", "value") || kv.subscribe("news"))
                      return 1;
                  struct rlimit small = {1000, RLIM_INFINITY};
                  signal(SIGXFSZ, SIG_IGN);
                  setrlimit(RLIMIT_FSIZE, &small);
                  if (kv.set("key", std::string(2000, 'x')) != -ENOSPC)
                      return 2;
                  if (kv.publish("news", std::string(2000, 'x')) != -ENOSPC)
                      return 3;
                  if (kv.value("key") != "value" || kv.message(0) != "ETIMEDOUT")
                      return 4;
                  if (kv.set("key", "small") || kv.publish("news", "small"))
                      return 5;
                  if (kv.value("key") != "small" || kv.message() != "news=small")
                      return 6;
                  for (const std::string &name : files())
                      if (name.find("/t.") != std::string::npos)
                          return 7;
                  return 0;
              }),
              0);
}

TEST_F(KvFiles, AChannelStaysSmallAndLosesNothingForWhoKeepsUp)
{
    Kv kv(url()), other(url());
    std::string padding(3000, 'x');
    ASSERT_EQ(other.subscribe("news"), 0);
    for (int i = 0; i < 2000; i++) {
        ASSERT_EQ(kv.publish("news", std::to_string(i) + padding), 0);
        for (int j = i - 99; i % 100 == 99 && j <= i; j++)
            ASSERT_EQ(other.message(), "news=" + std::to_string(j) + padding);
    }
    struct stat status;
    ASSERT_EQ(stat(file("c.news").c_str(), &status), 0);
    EXPECT_LT(status.st_size, 2 << 20);
}

TEST_F(KvFiles, WhoFallsFarBehindIsTold)
{
    Kv kv(url()), other(url());
    std::string large(700 << 10, 'x');
    ASSERT_EQ(other.subscribe("news"), 0);
    for (int i = 0; i < 8; i++)
        ASSERT_EQ(kv.publish("news", large), 0);
    ASSERT_EQ(kv.publish("news", "last"), 0);
    std::vector<std::string> kinds;
    std::string told;
    while ((told = other.message(0)) != "ETIMEDOUT")
        kinds.push_back(told.substr(0, 9));
    EXPECT_EQ(std::count(kinds.begin(), kinds.end(), "ESTALE"), 1);
    EXPECT_EQ(kinds.back(), "news=last");
}

TEST_F(KvFiles, AFolderThatIsRemovedIsAnErrorAndNoMore)
{
    Kv kv(url());
    int64_t value;
    ASSERT_EQ(kv.subscribe("news"), 0);
    for (const std::string &name : files())
        unlink(name.c_str());
    ASSERT_EQ(rmdir((folder / "kv:job:run").c_str()), 0);
    EXPECT_NE(kv.set("key", "x"), 0);
    EXPECT_NE(kv.add("n", 1, &value), 0);
    EXPECT_EQ(kv.value("key"), strerror(ENOENT));
    EXPECT_EQ(kv.message(20), "ETIMEDOUT");
    ASSERT_EQ(mkdir((folder / "kv:job:run").c_str(), 0700), 0);
    EXPECT_EQ(kv.set("key", "x"), 0);
    EXPECT_EQ(kv.value("key"), "x");
}

} // namespace
