/*
 * The readers of ELF files and of the dynamic linker's rules: right about good files, and never
 * brought down by bad ones.
 */
#include <sched.h>

#include <cstring>
#include <random>

#include "tests/unit/tools/command.h"

extern "C" {
#include "tools/inspect/elf_file.h"
#include "tools/inspect/loader.h"
#include "tools/inspect/nccl_file.h"
}

namespace
{

struct Elf {
    explicit Elf(const std::string &path)
    {
        error = ng_elf_open(path.c_str(), &file, &why);
    }
    ~Elf()
    {
        if (error == 0)
            ng_elf_close(&file);
    }
    Elf(const Elf &) = delete;
    int error;
    const char *why = "";
    ng_elf_file file;
};

TEST(Elf, TellsWhatAProgramAsksForAndWhatALibraryGives)
{
    Elf program(fixture("calls")), library(fixture("libnccl.so.2"));
    ASSERT_EQ(program.error, 0) << program.why;
    ASSERT_EQ(library.error, 0) << library.why;
    EXPECT_TRUE(ng_elf_is_program(&program.file));
    EXPECT_FALSE(ng_elf_is_program(&library.file));
    EXPECT_NE(program.file.interpreter, nullptr);
    EXPECT_STREQ(library.file.soname, "libnccl.so.2");
    EXPECT_TRUE(ng_elf_imports(&program.file, "ncclAllReduce"));
    EXPECT_FALSE(ng_elf_exports(&program.file, "ncclAllReduce"));
    EXPECT_TRUE(ng_elf_uses_by_name(&program.file, "ncclAllReduce"));
    EXPECT_FALSE(ng_elf_uses_by_name(&program.file, "ncclAllReduc"));
    EXPECT_TRUE(ng_elf_exports(&library.file, "ncclAllReduce"));
    EXPECT_FALSE(ng_elf_imports(&library.file, "ncclAllReduce"));
    std::vector<std::string> needed(program.file.needed,
                                    program.file.needed + program.file.needed_count);
    EXPECT_NE(std::find(needed.begin(), needed.end(), "libnccl.so.2"), needed.end());
}

TEST(Elf, FindsFunctionsThatAreKeptInsideUnlessTheyAreStripped)
{
    Elf hides(fixture("libhides.so")), stripped(fixture("libhides_stripped.so"));
    bool defines = false;
    ASSERT_EQ(hides.error, 0);
    ASSERT_EQ(stripped.error, 0);
    EXPECT_FALSE(ng_elf_exports(&hides.file, "ncclAllReduce"));
    ASSERT_EQ(ng_elf_defines(&hides.file, "ncclAllReduce", &defines), 0);
    EXPECT_TRUE(defines);
    ASSERT_EQ(ng_elf_defines(&stripped.file, "ncclAllReduce", &defines), 0);
    EXPECT_FALSE(defines);
}

TEST(Elf, FindsAVersionAcrossThePiecesInWhichAFileIsRead)
{
    Folder folder;
    std::string start = read_file(fixture("nothing"));
    for (size_t before : {(1u << 20) - 70, (1u << 20) - 20, (1u << 20) - 1, (2u << 20) - 80}) {
        std::string content = start;
        content.resize(before, 'x');
        Elf elf(folder.write("program", content + "NCCL version 2.18.3+cuda12.1 \n"));
        char version[32] = "";
        ASSERT_EQ(elf.error, 0);
        EXPECT_TRUE(
            ng_elf_find_version(&elf.file, "NCCL version ", "+cuda", version, sizeof(version)));
        EXPECT_STREQ(version, "2.18.3+cuda12.1") << before;
    }
}

TEST(Elf, TalkOfAVersionIsNoVersion)
{
    Folder folder;
    Elf elf(folder.write("program", read_file(fixture("nothing")) +
                                        "needs NCCL version 2.18 or newer, NCCL version %d+cuda"));
    char version[32] = "";
    ASSERT_EQ(elf.error, 0);
    EXPECT_FALSE(
        ng_elf_find_version(&elf.file, "NCCL version ", "+cuda", version, sizeof(version)));
}

struct Bad {
    std::string content;
    int error;
    std::string why;
};

TEST(Elf, SaysOfEachBadFileWhatIsWrong)
{
    Folder folder;
    std::string good = read_file(fixture("calls"));
    std::string classless = good, headers = good;
    classless[4] = 7;
    headers[32] = static_cast<char>(0xff); /* e_phoff */
    headers[39] = 0x7f;
    for (const Bad &bad : {Bad{"", -ENOEXEC, "empty"}, Bad{"hello", -ENOEXEC, "no ELF"},
                           Bad{"\177EL", -ENOEXEC, "no ELF"}, Bad{"\177ELF", -EBADMSG, "cut off"},
                           Bad{good.substr(0, 40), -EBADMSG, "cut off"},
                           Bad{good.substr(0, 100), -EBADMSG, "damaged or cut-off"},
                           Bad{good.substr(0, good.size() / 4), -EBADMSG, "cut off"},
                           Bad{classless, -EBADMSG, "class"}, Bad{headers, -EBADMSG, "headers"}}) {
        Elf elf(folder.write("bad", bad.content));
        EXPECT_EQ(elf.error, bad.error) << bad.why;
        EXPECT_NE(std::string(elf.why).find(bad.why), std::string::npos) << elf.why;
    }
    EXPECT_EQ(Elf(folder.path()).error, -EISDIR);
    EXPECT_EQ(Elf(folder / "none").error, -ENOENT);
    mkfifo((folder / "fifo").c_str(), 0600);
    EXPECT_EQ(Elf(folder / "fifo").error, -EINVAL);
}

TEST(Elf, ReadsOnlyTheKindOfAFileOfAnotherMachine)
{
    Folder folder;
    std::string content = read_file(fixture("calls"));
    content[18] = 8; /* MIPS */
    Elf other(folder.write("other", content));
    ASSERT_EQ(other.error, 0);
    EXPECT_TRUE(other.file.foreign);
    EXPECT_EQ(other.file.machine, 8);
    EXPECT_EQ(other.file.symbol_count, 0u);
    ng_nccl_file nccl;
    ng_nccl_file_examine(&other.file, "other", &nccl);
    EXPECT_EQ(nccl.role, NG_NCCL_NONE);
}

/* Everything that the doctor asks of a file; the answers do not matter here. */
void ask_everything(const std::string &path, const ng_loader *loader)
{
    Elf elf(path);
    if (elf.error != 0) {
        EXPECT_NE(std::string(elf.why), "");
        return;
    }
    ng_nccl_file nccl;
    ng_nccl_file_examine(&elf.file, path.c_str(), &nccl);
    ng_elf_is_program(&elf.file);
    ng_elf_imports(&elf.file, "dlmopen");
    ng_closure closure;
    const char *why;
    if (ng_loader_close_over(loader, path.c_str(), &closure, &why) == 0)
        ng_closure_fini(&closure);
}

struct Damage : testing::TestWithParam<const char *> {
};

TEST_P(Damage, DoesNotBringTheReaderDown)
{
    Folder folder;
    ng_loader loader;
    std::string good = read_file(fixture(GetParam()));
    std::mt19937 random(7);
    ng_loader_init(&loader, nullptr);
    /* Cut off at every place of the headers, and at many of the rest. */
    for (size_t length = 0; length < good.size(); length += length < 1024 ? 37 : good.size() / 31)
        ask_everything(folder.write("cut", good.substr(0, length)), &loader);
    for (int round = 0; round < 300; round++) {
        std::string bad = good;
        /* Where headers, tables and the dynamic section lie. */
        size_t limit = round % 3 == 0 ? 1024 : bad.size();
        for (unsigned changes = 1 + random() % 8; changes > 0; changes--) {
            static const unsigned char values[] = {0, 1, 0x7f, 0x80, 0xff};
            bad[random() % std::min(limit, bad.size())] =
                static_cast<char>(random() % 2 ? values[random() % 5] : random());
        }
        ask_everything(folder.write("garbled", bad), &loader);
    }
    ng_loader_fini(&loader);
}

INSTANTIATE_TEST_SUITE_P(Files, Damage,
                         testing::Values("calls", "libnccl.so.2", "libhides.so", "static_holds"));

/* The whole dynamic section overwritten, tag by tag: what the changes above seldom hit. */
TEST(Elf, AnyValueInAnyEntryOfTheDynamicSectionIsSurvived)
{
    Folder folder;
    ng_loader loader;
    std::string good = read_file(fixture("calls"));
    Elf elf(fixture("calls"));
    ASSERT_EQ(elf.error, 0);
    ng_loader_init(&loader, nullptr);
    for (size_t i = 0; i < elf.file.segment_count; i++) {
        const Elf64_Phdr &segment = elf.file.segments[i];
        if (segment.p_type != PT_DYNAMIC)
            continue;
        for (uint64_t at = 0; at + 16 <= segment.p_filesz; at += 16)
            for (uint64_t value : {uint64_t(0), uint64_t(1), uint64_t(1) << 31, UINT64_MAX,
                                   UINT64_MAX - 15, uint64_t(good.size())}) {
                std::string bad = good;
                memcpy(&bad[segment.p_offset + at + 8], &value, 8);
                ask_everything(folder.write("dynamic", bad), &loader);
            }
    }
    ng_loader_fini(&loader);
}

TEST(Loader, FindsTheCLibraryWhereTheDynamicLinkerDoes)
{
    ng_loader loader;
    char path[PATH_MAX];
    ng_loader_init(&loader, nullptr);
    ASSERT_EQ(ng_loader_find(&loader, "libc.so.6", path), 0);
    std::ifstream maps("/proc/self/maps");
    char real[PATH_MAX];
    ASSERT_NE(realpath(path, real), nullptr);
    bool found = false;
    for (std::string line; std::getline(maps, line);)
        found |= line.find(std::string(" ") + real) != std::string::npos;
    EXPECT_TRUE(found) << real;
    EXPECT_EQ(ng_loader_find(&loader, "libno-such-library.so.9", path), -ENOENT);
    ng_loader_fini(&loader);
}

TEST(Loader, TakesTheFolderOfTheAskingObjectForOrigin)
{
    ng_loader loader;
    ng_closure closure;
    const char *why = "";
    ng_loader_init(&loader, nullptr);
    ASSERT_EQ(ng_loader_close_over(&loader, fixture("calls").c_str(), &closure, &why), 0) << why;
    const ng_loaded *nccl = ng_closure_find(&closure, "libnccl.so.2");
    ASSERT_NE(nccl, nullptr);
    EXPECT_TRUE(std::filesystem::equivalent(nccl->path, fixture("libnccl.so.2")));
    EXPECT_EQ(closure.missing_count, 0u);
    ng_closure_fini(&closure);
    ng_loader_fini(&loader);
}

/* Containers put programs into the root folder; a root folder of its own does the same. */
TEST(Loader, TakesTheRootFolderForOriginOfAProgramThere)
{
    Folder folder;
    folder.write("calls", read_file(fixture("calls")), 0700);
    folder.write("libnccl.so.2", read_file(fixture("libnccl.so.2")), 0700);
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        ng_loader loader;
        ng_closure closure;
        const char *why;
        if (chroot(folder.path().c_str()) != 0 &&
            (unshare(CLONE_NEWUSER) != 0 || chroot(folder.path().c_str()) != 0))
            _exit(77);
        ng_loader_init(&loader, nullptr);
        if (chdir("/") != 0 || ng_loader_close_over(&loader, "/calls", &closure, &why) != 0)
            _exit(1);
        const ng_loaded *nccl = ng_closure_find(&closure, "libnccl.so.2");
        _exit(nccl && strcmp(nccl->path, "/libnccl.so.2") == 0 ? 0 : 2);
    }
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        GTEST_SKIP() << "this system lets nobody but root have another root folder";
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Loader, PrefersTheLibraryPathToARunpathAndPassesOverOtherMachines)
{
    Folder folder;
    ng_loader loader;
    ng_closure closure;
    const char *why = "";
    std::string foreign = read_file(fixture("libnccl.so.2"));
    foreign[18] = 8;
    mkdir((folder / "foreign").c_str(), 0700);
    folder.write("foreign/libnccl.so.2", foreign);
    std::string list = folder / "foreign" + ":" + fixture("old");
    ng_loader_init(&loader, list.c_str());
    ASSERT_EQ(ng_loader_close_over(&loader, fixture("calls").c_str(), &closure, &why), 0) << why;
    const ng_loaded *nccl = ng_closure_find(&closure, "libnccl.so.2");
    ASSERT_NE(nccl, nullptr);
    EXPECT_TRUE(std::filesystem::equivalent(nccl->path, fixture("old/libnccl.so.2")));
    ng_closure_fini(&closure);
    ng_loader_fini(&loader);
}

TEST(Loader, NamesWhatIsMissing)
{
    Folder folder;
    ng_loader loader;
    ng_closure closure;
    const char *why = "";
    std::string path = folder.write("calls", read_file(fixture("calls")), 0700);
    ng_loader_init(&loader, nullptr);
    /* Where the machine has an NCCL of its own, nothing is missing. */
    char found[PATH_MAX];
    bool installed = ng_loader_find(&loader, "libnccl.so.2", found) == 0;
    ASSERT_EQ(ng_loader_close_over(&loader, path.c_str(), &closure, &why), 0) << why;
    EXPECT_EQ(closure.missing_count, installed ? 0u : 1u);
    if (closure.missing_count == 1) {
        EXPECT_STREQ(closure.missing[0].name, "libnccl.so.2");
    }
    ng_closure_fini(&closure);
    ng_loader_fini(&loader);
}

TEST(NcclFile, KnowsWhichReleasesAreTested)
{
    for (const char *version : {"2.18.1", "2.18.3+cuda12.1", "2.28.9+cuda13.0", "2.32.3"})
        EXPECT_TRUE(ng_nccl_version_tested(version)) << version;
    for (const char *version : {"", "2.17.1", "2.33.1", "1.3.5", "3.0.0", "x"})
        EXPECT_FALSE(ng_nccl_version_tested(version)) << version;
}

} // namespace
