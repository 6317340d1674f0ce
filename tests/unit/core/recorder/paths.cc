/*
 * The folders of a job: created for this user alone, refused if another user may have prepared
 * them, removed with their content.
 */
#include "tests/unit/core/helpers/core.h"

TEST(Paths, DefaultsArePerUserAndJob)
{
    char path[256];
    std::string user = std::to_string(geteuid());

    ng_paths_default_dir("train.0", path, sizeof(path));
    EXPECT_EQ(path, "/dev/shm/ncclguard-" + user + "/train.0");
    unsetenv("TMPDIR");
    ng_paths_default_dump_dir("train.0", path, sizeof(path));
    EXPECT_EQ(path, "/tmp/ncclguard-" + user + "/train.0");
    setenv("TMPDIR", "", 1);
    ng_paths_default_dump_dir("train.0", path, sizeof(path));
    EXPECT_EQ(path, "/tmp/ncclguard-" + user + "/train.0");
    Folder scratch;
    setenv("TMPDIR", (scratch / "").c_str(), 1);
    ng_paths_default_dump_dir("train.0", path, sizeof(path));
    EXPECT_EQ(path, (scratch / "") + "/ncclguard-" + user + "/train.0");
    setenv("TMPDIR", (scratch / "missing").c_str(), 1);
    ng_paths_default_dump_dir("train.0", path, sizeof(path));
    EXPECT_EQ(path, "/tmp/ncclguard-" + user + "/train.0") << "a folder that is not there";
    unsetenv("TMPDIR");
}

TEST(Paths, TheSystemsFoldersAreNotOursToMake)
{
    Folder folder;
    std::string ours = "ncclguard-" + std::to_string(geteuid());

    EXPECT_EQ(ng_paths_make((folder / ("shm/" + ours + "/job")).c_str()), -ENOENT);
    EXPECT_NE(access((folder / "shm").c_str(), F_OK), 0);
    ASSERT_EQ(mkdir((folder / "shm").c_str(), 0777), 0);
    EXPECT_EQ(ng_paths_make((folder / ("shm/" + ours + "/job")).c_str()), 0);
}

TEST(Paths, MakesAllThatIsMissingForTheOwnerAlone)
{
    Folder folder;
    struct stat status;
    mode_t before = umask(0);

    EXPECT_EQ(ng_paths_make((folder / "a/b/c").c_str()), 0);
    umask(before);
    for (const char *part : {"a", "a/b", "a/b/c"}) {
        ASSERT_EQ(stat((folder / part).c_str(), &status), 0) << part;
        EXPECT_EQ(status.st_mode & 07777, 0700u) << part;
    }
    EXPECT_EQ(ng_paths_make((folder / "a/b/c").c_str()), 0) << "a second time";
}

TEST(Paths, AFolderThatOthersMayWriteToIsRefused)
{
    Folder folder;
    for (mode_t mode : {0777u, 0770u, 0702u, 01777u}) {
        ASSERT_EQ(mkdir((folder / "trap").c_str(), 0700), 0);
        ASSERT_EQ(chmod((folder / "trap").c_str(), mode), 0);
        EXPECT_EQ(ng_paths_make((folder / "trap").c_str()), -EPERM) << mode;
        rmdir((folder / "trap").c_str());
    }
    ASSERT_EQ(mkdir((folder / "readable").c_str(), 0755), 0);
    EXPECT_EQ(ng_paths_make((folder / "readable").c_str()), 0) << "to read is no harm";
}

TEST(Paths, AFolderOfSomebodyElseIsRefused)
{
    Folder folder;
    if (geteuid() == 0) {
        ASSERT_EQ(mkdir((folder / "stranger").c_str(), 0700), 0);
        ASSERT_EQ(chown((folder / "stranger").c_str(), 12345, 12345), 0);
        EXPECT_EQ(ng_paths_make((folder / "stranger").c_str()), -EPERM);
        /* Nor through a link that leads to the stranger's folder. */
        ASSERT_EQ(symlink((folder / "stranger").c_str(), (folder / "link").c_str()), 0);
        EXPECT_EQ(ng_paths_make((folder / "link").c_str()), -EPERM);
    } else {
        EXPECT_EQ(ng_paths_make("/usr"), -EPERM);
    }
}

/*
 * Whoever owns the folder above ours can rename ours and put another in its place, or plant a link:
 * the per-user folder in /tmp must be ours as well.
 */
TEST(Paths, AStrangersFolderAboveOursIsRefused)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root to make a stranger's folder";
    Folder folder;
    ASSERT_EQ(chmod(folder.path().c_str(), 01777), 0);
    ASSERT_EQ(mkdir((folder / "ncclguard-0").c_str(), 0777), 0);
    ASSERT_EQ(chown((folder / "ncclguard-0").c_str(), 12345, 12345), 0);
    EXPECT_EQ(ng_paths_make((folder / "ncclguard-0/job").c_str()), -EPERM);
}

TEST(Paths, WhatIsNoFolderIsRefused)
{
    Folder folder;
    write_whole_file(folder / "file", "x");
    EXPECT_EQ(ng_paths_make((folder / "file").c_str()), -ENOTDIR);
    EXPECT_EQ(ng_paths_make((folder / "file/below").c_str()), -ENOTDIR);
    ASSERT_EQ(symlink((folder / "nowhere").c_str(), (folder / "dangling").c_str()), 0);
    EXPECT_LT(ng_paths_make((folder / "dangling").c_str()), 0);
    EXPECT_EQ(ng_paths_make(("/" + std::string(5000, 'x')).c_str()), -ENAMETOOLONG);
}

TEST(Paths, ATrailingSlashIsNoMatter)
{
    Folder folder;
    EXPECT_EQ(ng_paths_make((folder / "a/b/").c_str()), 0);
    EXPECT_EQ(ng_paths_make((folder / "a/b/").c_str()), 0);
}

TEST(Paths, RemoveTakesTheFolderAndTheBoardsFiles)
{
    Folder folder;
    ASSERT_EQ(mkdir((folder / "job").c_str(), 0700), 0);
    write_whole_file(folder / "job/box-1-2", "x");
    write_whole_file(folder / "job/.box-1-3", "x");
    write_whole_file(folder / "job/incident-1", "x");
    ng_paths_remove_board((folder / "job").c_str());
    EXPECT_TRUE(folder.names().empty());
    ng_paths_remove_board((folder / "job").c_str()); /* gone already: no matter */
}

TEST(Paths, RemoveLeavesWhatIsNotTheBoards)
{
    Folder folder;
    ASSERT_EQ(mkdir((folder / "job").c_str(), 0700), 0);
    write_whole_file(folder / "job/box-1-2", "x");
    write_whole_file(folder / "job/thesis.tex", "precious");
    write_whole_file(folder / "job/.hidden", "precious");
    ng_paths_remove_board((folder / "job").c_str());
    EXPECT_NE(access((folder / "job/box-1-2").c_str(), F_OK), 0);
    EXPECT_EQ(read_whole_file(folder / "job/thesis.tex"), "precious");
    EXPECT_EQ(read_whole_file(folder / "job/.hidden"), "precious");
}

TEST(Paths, RemoveDoesNotFollowLinks)
{
    Folder folder;
    ASSERT_EQ(mkdir((folder / "precious").c_str(), 0700), 0);
    write_whole_file(folder / "precious/file", "x");
    ASSERT_EQ(symlink((folder / "precious").c_str(), (folder / "link").c_str()), 0);
    ng_paths_remove_board((folder / "link").c_str());
    EXPECT_EQ(read_whole_file(folder / "precious/file"), "x");

    ASSERT_EQ(mkdir((folder / "job").c_str(), 0700), 0);
    ASSERT_EQ(symlink((folder / "precious/file").c_str(), (folder / "job/box-1-4").c_str()), 0);
    ng_paths_remove_board((folder / "job").c_str());
    EXPECT_EQ(read_whole_file(folder / "precious/file"), "x");
    EXPECT_NE(access((folder / "job").c_str(), F_OK), 0);
}
