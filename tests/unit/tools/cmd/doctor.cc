/*
 * `ncclguard doctor`: it names what would slip by, and why; and what it is asked about is never
 * run.
 */
#include <jansson.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/unit/tools/command.h"

namespace
{

struct Finding {
    std::string kind, object, why, mend;
};

bool contains(const std::string &text, const std::string &part)
{
    return text.find(part) != std::string::npos;
}

bool ends_with(const std::string &text, const std::string &end)
{
    return text.size() >= end.size() &&
           text.compare(text.size() - end.size(), end.size(), end) == 0;
}

class Report
{
  public:
    Report(const std::vector<std::string> &arguments,
           std::map<std::string, std::string> environment = {})
    {
        /* Not what the machine of the test happens to have set. */
        environment.insert({{"LD_LIBRARY_PATH", ""},
                            {"LD_PRELOAD", ""},
                            {"NCCL_HOME", ""},
                            {"CUDA_HOME", ""},
                            {"HOME", "/nonexistent"}});
        std::vector<std::string> argv = {"doctor", "--json"};
        if (!arguments.empty())
            argv.push_back("--");
        argv.insert(argv.end(), arguments.begin(), arguments.end());
        Result result = run(argv, environment);
        code = result.code();
        err = result.err;
        json_error_t error;
        json_t *list = json_loads(result.out.c_str(), 0, &error);
        EXPECT_TRUE(json_is_array(list)) << result.out << result.err;
        size_t index;
        json_t *row;
        json_array_foreach(list, index, row)
        {
            EXPECT_EQ(json_object_size(row), 4u);
            findings.push_back(
                {text(row, "finding"), text(row, "object"), text(row, "why"), text(row, "mend")});
        }
        json_decref(list);
    }

    /* Whether there is one of this kind whose object ends so and whose reason contains this. */
    bool has(const std::string &kind, const std::string &object, const std::string &why) const
    {
        return std::any_of(findings.begin(), findings.end(), [&](const Finding &finding) {
            return finding.kind == kind && ends_with(finding.object, object) &&
                   contains(finding.why, why);
        });
    }
    size_t count(const std::string &kind) const
    {
        return static_cast<size_t>(
            std::count_if(findings.begin(), findings.end(),
                          [&](const Finding &finding) { return finding.kind == kind; }));
    }
    std::string all() const
    {
        std::string result;
        for (const Finding &finding : findings)
            result += finding.kind + " | " + finding.object + " | " + finding.why + " | " +
                      finding.mend + "\n";
        return result + err;
    }

    int code;
    std::string err;
    std::vector<Finding> findings;

  private:
    static std::string text(json_t *row, const char *key)
    {
        json_t *value = json_object_get(row, key);
        EXPECT_NE(value, nullptr) << key;
        return json_is_string(value) ? json_string_value(value) : "";
    }
};

#define EXPECT_FINDING(report, kind, object, why)                                                  \
    EXPECT_TRUE((report).has(kind, object, why)) << (report).all()

TEST(DoctorOfMachine, FindsTheLibraryAndThatPreloadingAndTheFoldersWork)
{
    Folder folder;
    mkdir((folder / "dumps").c_str(), 0700);
    Report report({},
                  {{"NCCLGUARD_DIR", folder / "boxes"}, {"NCCLGUARD_DUMP_DIR", folder / "dumps"}});
    EXPECT_FINDING(report, "ok", ".so", "our library");
    EXPECT_FINDING(report, "ok", "preloading", "works");
    EXPECT_FINDING(report, "ok", folder / "boxes", "black boxes");
    EXPECT_FINDING(report, "ok", folder / "dumps", "evidence");
    EXPECT_EQ(report.count("out of reach"), 0u) << report.all();
    EXPECT_EQ(report.code, 0);
    /* The trial left nothing. */
    EXPECT_NE(access((folder / "boxes").c_str(), F_OK), 0);
    EXPECT_TRUE(std::filesystem::is_empty(folder / "dumps"));
}

TEST(DoctorOfMachine, NamesAFolderThatCannotBeUsed)
{
    Folder folder;
    mkdir((folder / "open").c_str(), 0700);
    chmod((folder / "open").c_str(), 0777);
    Report report({},
                  {{"NCCLGUARD_DIR", "/proc/nowhere"}, {"NCCLGUARD_DUMP_DIR", folder / "open"}});
    /* The guard works without a board: each process for itself. */
    EXPECT_FINDING(report, "warning", "/proc/nowhere", "guarded alone");
    EXPECT_FINDING(report, "out of reach", folder / "open", "others may write to it");
    EXPECT_EQ(report.code, 1);
    Report none({}, {{"NCCLGUARD_DIR", "/proc/nowhere"}, {"NCCLGUARD_STORE", "none"}});
    EXPECT_FINDING(none, "ok", "variables", "NCCLGUARD_STORE=none");
    EXPECT_FALSE(none.has("warning", "/proc/nowhere", "")) << none.all();
    EXPECT_EQ(none.code, 0) << none.all();
}

TEST(DoctorOfMachine, LeavesNoFolderBehindThatWasNotThere)
{
    Folder folder;
    mkdir((folder / "there").c_str(), 0700);
    Report report(
        {}, {{"NCCLGUARD_DIR", folder / "a/b/c"}, {"NCCLGUARD_DUMP_DIR", folder / "there/d"}});
    EXPECT_FINDING(report, "ok", folder / "a/b/c", "black boxes");
    EXPECT_FINDING(report, "ok", folder / "there/d", "evidence");
    EXPECT_NE(access((folder / "a").c_str(), F_OK), 0);
    EXPECT_EQ(access((folder / "there").c_str(), F_OK), 0);
    EXPECT_TRUE(std::filesystem::is_empty(folder / "there"));
}

TEST(DoctorOfMachine, NamesALibraryThatIsMissingOrCannotBePreloaded)
{
    Folder folder;
    Report missing({}, {{"NCCLGUARD_LIB", folder / "none.so"}});
    EXPECT_FINDING(missing, "out of reach", "libncclguard.so", "none.so");
    EXPECT_EQ(missing.code, 1);
    Report text({}, {{"NCCLGUARD_LIB", folder.write("text.so", "text")}});
    EXPECT_FINDING(text, "out of reach", "text.so", "no ELF file");
    EXPECT_EQ(text.code, 1);
    Report program({}, {{"NCCLGUARD_LIB", fixture("nothing")}});
    EXPECT_FINDING(program, "out of reach", "/nothing", "is a program");
    EXPECT_EQ(program.code, 1);
    Report other({}, {{"NCCLGUARD_LIB", fixture("libstub.so")}});
    EXPECT_FINDING(other, "out of reach", "libstub.so", "has no function of NCCL's names");
    /* One that asks for what is not there: the dynamic linker says so itself. */
    std::string content = read_file(fixture("libbetween.so"));
    size_t at = content.find("libc.so.6");
    ASSERT_NE(at, std::string::npos);
    Report alone(
        {}, {{"NCCLGUARD_LIB", folder.write("alone.so", content.replace(at, 9, "libc.so.9"))}});
    EXPECT_FINDING(alone, "out of reach", "preloading", "libc.so.9");
    EXPECT_EQ(alone.code, 1);
}

TEST(DoctorOfMachine, NamesVariablesThatKeepTheGuardFromWorking)
{
    Report off({}, {{"NCCLGUARD", "0"}});
    EXPECT_FINDING(off, "out of reach", "variables", "inert");
    EXPECT_EQ(off.code, 1);
    Report bad({}, {{"NCCLGUARD_TIMEOUT", "soon"}});
    EXPECT_FINDING(bad, "out of reach", "variables", "NCCLGUARD_TIMEOUT=soon");
    EXPECT_EQ(bad.code, 1);
    Report unknown({}, {{"NCCLGUARD_TIMEOT", "5s"}});
    EXPECT_FINDING(unknown, "warning", "variables", "NCCLGUARD_TIMEOT");
    EXPECT_EQ(unknown.code, 0);
}

TEST(DoctorOfMachine, TellsWhetherThisBuildCanLookForNan)
{
    Report nan({}, {{"NCCLGUARD_CHECK", "signature+nan"}});
    if (NG_HAVE_NAN_KERNEL) {
        EXPECT_FINDING(nan, "ok", "NCCLGUARD_CHECK", "has the kernel");
        EXPECT_EQ(nan.code, 0);
    } else {
        EXPECT_FINDING(nan, "out of reach", "NCCLGUARD_CHECK",
                       "signature+nan: this build has no kernel");
        EXPECT_EQ(nan.code, 1);
    }
    Report plain({}, {{"NCCLGUARD_CHECK", "signature"}});
    for (const Finding &finding : plain.findings)
        EXPECT_NE(finding.object, "NCCLGUARD_CHECK") << finding.why;
}

TEST(DoctorOfMachine, FindsEachNcclOnceWithItsVersionAndWhetherThatIsTested)
{
    std::string list =
        fixture("") + ":" + fixture("old") + ":" + fixture("new") + ":" + fixture("");
    Report report({}, {{"LD_LIBRARY_PATH", list}});
    EXPECT_FINDING(report, "guarded", "doctor/libnccl.so.2", "NCCL 2.28.9+cuda13.0");
    EXPECT_FINDING(report, "warning", "old/libnccl.so.2", "2.17.1+cuda11.0; never tested");
    EXPECT_FINDING(report, "warning", "new/libnccl.so.2", "2.99.1+cuda19.0; never tested");
    EXPECT_EQ(std::count_if(report.findings.begin(), report.findings.end(),
                            [](const Finding &finding) {
                                return contains(finding.why, "LD_LIBRARY_PATH: NCCL 2.28.9");
                            }),
              1)
        << report.all();
    EXPECT_EQ(report.code, 0);
}

TEST(DoctorOfMachine, TellsWhetherTheCudaDriverIsThere)
{
    Folder folder;
    folder.write("libcuda.so.580.65.06", read_file(fixture("libnccl.so.2")));
    symlink("libcuda.so.580.65.06", (folder / "libcuda.so.1").c_str());
    Report report({}, {{"LD_LIBRARY_PATH", folder.path()}});
    EXPECT_FINDING(report, "ok", folder / "libcuda.so.1", "version 580.65.06");
}

TEST(DoctorOfMachine, JudgesWhatIsPreloadedAlready)
{
    Folder folder;
    /* The command under test preloads these, too, as all programs do. */
    Report between({}, {{"LD_PRELOAD", fixture("libbetween.so") + ":" + folder / "none.so"}});
    EXPECT_FINDING(between, "ok", "libbetween.so", "before the guard");
    EXPECT_FINDING(between, "warning", "none.so", "not found");
    EXPECT_EQ(between.code, 0);
    Report past({}, {{"LD_PRELOAD", fixture("libbetween_past.so")}});
    EXPECT_FINDING(past, "out of reach", "libbetween_past.so", "pncclX");
    EXPECT_EQ(past.code, 1);
    Report nccl({}, {{"LD_PRELOAD", fixture("libnccl.so.2")}});
    EXPECT_FINDING(nccl, "out of reach", "libnccl.so.2", "comes before the guard");
    folder.write("libasan.so.8", read_file(fixture("libbetween.so")));
    Report second({}, {{"LD_PRELOAD", fixture("libbetween.so") + " " + folder / "libasan.so.8"}});
    EXPECT_FINDING(second, "warning", "libasan.so.8", "refuses to come second");
}

TEST(DoctorOfProgram, GuardsAProgramThatIsLinkedToNccl)
{
    Report report({fixture("calls")});
    EXPECT_FINDING(report, "guarded", "/calls", "ordinary symbols");
    EXPECT_FINDING(report, "guarded", "doctor/libnccl.so.2", "2.28.9+cuda13.0");
    EXPECT_EQ(report.count("out of reach"), 0u) << report.all();
    EXPECT_EQ(report.code, 0);
    Report old({fixture("calls")}, {{"LD_LIBRARY_PATH", fixture("old")}});
    EXPECT_FINDING(old, "warning", "old/libnccl.so.2", "never tested");
    EXPECT_EQ(old.code, 0);
}

struct Case {
    std::string program, kind, object, why;
    int code;
};

struct Program : testing::TestWithParam<Case> {
};

TEST_P(Program, IsJudgedByWhereItsNcclIs)
{
    const Case &row = GetParam();
    Report report({fixture(row.program)});
    EXPECT_FINDING(report, row.kind, row.object, row.why);
    EXPECT_EQ(report.code, row.code) << report.all();
    for (const Finding &finding : report.findings)
        if (finding.kind == "out of reach") {
            EXPECT_NE(finding.mend, "") << report.all();
        }
}

INSTANTIATE_TEST_SUITE_P(
    Table, Program,
    testing::Values(
        Case{"static", "out of reach", "/static", "linked statically: nothing", 1},
        Case{"static_holds", "out of reach", "/static_holds", "statically and holds NCCL 2.28.9",
             1},
        Case{"holds", "out of reach", "/holds", "holds NCCL 2.28.9+cuda13.0 itself", 1},
        Case{"with_exports", "guarded", "libexports.so", "exports it and calls it by name", 0},
        Case{"with_hides", "out of reach", "libhides.so", "does not export it", 1},
        Case{"with_hides_stripped", "out of reach", "libhides_stripped.so", "does not export it",
             1},
        Case{"with_symbolic", "out of reach", "libsymbolic.so", "bound to its own copy", 1},
        Case{"calls_twin", "out of reach", "/calls_twin", "pncclX", 1},
        Case{"libstub.so", "guarded", "libstub.so", "by dlsym, where the guard answers", 0},
        Case{"libfetches.so", "guarded", "libfetches.so", "by dlsym, where the guard answers", 0},
        Case{"loads", "ok", "/loads", "dlopen", 0},
        Case{"loads_apart", "warning", "/loads_apart", "dlmopen", 0},
        Case{"libexports.so", "ok", "libexports.so", "is a library, not a program", 0}),
    [](const testing::TestParamInfo<Case> &info) {
        std::string name = info.param.program;
        std::replace_if(
            name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
        return name;
    });

TEST(DoctorOfProgram, TellsWhichNcclItWouldLoad)
{
    Report report({fixture("loads")}, {{"LD_LIBRARY_PATH", fixture("old")}});
    EXPECT_FINDING(report, "warning", "old/libnccl.so.2", "dlopen(\"libnccl.so.2\")");
}

/* Files that cannot be run, or not by the dynamic linker of this machine. */
TEST(DoctorOfProgram, SaysOfWhatIsNoProgramWhatItIs)
{
    Folder folder;
    std::string good = read_file(fixture("calls")), other = good, musl = good, gone = good;
    other[18] = 8;
    other[4] = 1;
    size_t at = good.find("/lib64/ld-linux");
    if (at == std::string::npos)
        at = good.find("/lib/ld-linux");
    ASSERT_NE(at, std::string::npos);
    musl.replace(at, 18, std::string("/lib/ld-musl-x.so\0", 18));
    gone.replace(at, 18, std::string("/lib/ld-gone-x.so\0", 18));
    const struct {
        std::string name, content, why;
    } rows[] = {{"empty", "", "is empty"},
                {"junk", std::string("\1\0x", 3), "no ELF file"},
                {"cut", good.substr(0, good.size() / 3), "cut off"},
                {"other", other, "32-bit program for an unknown machine"},
                {"musl", musl, "built for musl"},
                {"gone", gone, "ld-gone-x.so is not here"},
                {"no-interpreter", "#!/no/such/interpreter -x\n", "does not exist"},
                {"nothing-behind", "#!\n", "does not exist"}};
    for (const auto &row : rows) {
        Report report({folder.write(row.name, row.content, 0700)});
        EXPECT_FINDING(report, "out of reach", row.name, row.why);
        EXPECT_EQ(report.code, 1);
        EXPECT_EQ(report.count("out of reach"), 1u) << report.all();
    }
    Report closed({folder.write("closed", good, 0600)});
    EXPECT_FINDING(closed, "out of reach", "closed", "may not be executed");
    folder.write("plain", "exit 4\n", 0600);
    EXPECT_FINDING(Report({folder / "plain"}), "out of reach", "plain", "may not be executed");
    symlink("loop", (folder / "loop").c_str());
    EXPECT_FINDING(Report({folder / "loop"}), "out of reach", "loop", strerror(ELOOP));
    EXPECT_FINDING(Report({folder / "empty/"}), "out of reach", "empty/", strerror(ENOTDIR));
    EXPECT_FINDING(Report({folder / "nowhere"}), "out of reach", "nowhere", "does not exist");
    Report directory({folder.path()});
    EXPECT_FINDING(directory, "out of reach", folder.path(), "is a folder");
    Report missing({"no-such-program"});
    EXPECT_FINDING(missing, "out of reach", "no-such-program", "not found in PATH");
    mkfifo((folder / "fifo").c_str(), 0700);
    Report fifo({folder / "fifo"});
    EXPECT_FINDING(fifo, "out of reach", "fifo", "no ordinary file");
}

TEST(DoctorOfProgram, NamesALibraryOfNcclThatIsNotFound)
{
    Folder folder;
    std::string content = read_file(fixture("calls"));
    /* A name that no machine has. */
    size_t at = content.find("libnccl.so.2");
    ASSERT_NE(at, std::string::npos);
    for (; at != std::string::npos; at = content.find("libnccl.so.2", at))
        content.replace(at, 12, "libnccl.so.9");
    Report report({folder.write("calls", content, 0700)});
    EXPECT_FINDING(report, "out of reach", "/calls", "needs libnccl.so.9");
    EXPECT_EQ(report.code, 1);
}

/* For any user of the test: a file of another user, if the file system honours setuid. */
TEST(DoctorOfProgram, IsInertInASetuidProgram)
{
    Folder folder;
    std::string path = folder.write("calls", read_file(fixture("nothing")), 0755);
    if (geteuid() == 0) {
        ASSERT_EQ(chown(path.c_str(), 65534, 0), 0);
        ASSERT_EQ(chmod(path.c_str(), 04755), 0);
    } else {
        path = "/usr/bin/passwd";
    }
    struct statvfs system;
    struct stat status;
    ASSERT_EQ(statvfs(path.c_str(), &system), 0);
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    bool counts = (status.st_mode & S_ISUID) && !(system.f_flag & ST_NOSUID) &&
                  prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0;
    Report report({path});
    EXPECT_EQ(report.has("out of reach", path, "setuid"), counts) << report.all();
    EXPECT_EQ(report.code, counts ? 1 : 0);
}

TEST(DoctorOfProgram, FollowsScriptsToWhatRunsThem)
{
    Folder folder;
    std::string direct = folder.write("direct", "#!" + fixture("calls") + "\n", 0700);
    std::string by_env =
        folder.write("by-env", "#!/usr/bin/env -S " + fixture("holds") + " -x\n", 0700);
    std::string twice = folder.write("twice", "#! " + direct + "\n", 0700);
    EXPECT_FINDING(Report({direct}), "guarded", "/calls", "ordinary symbols");
    EXPECT_FINDING(Report({by_env}), "out of reach", "/holds", "holds NCCL");
    EXPECT_FINDING(Report({twice}), "guarded", "/calls", "ordinary symbols");
    Report closed({folder.write("closed", "#!/bin/sh\n", 0600)});
    EXPECT_FINDING(closed, "out of reach", "closed", "may not be executed");
    /* execvp gives a text without #! to /bin/sh. */
    Report plain({folder.write("plain", "exit 4\n", 0700)});
    EXPECT_FINDING(plain, "ok", "plain", "/bin/sh does");
    EXPECT_EQ(plain.code, 0) << plain.all();
    std::string itself = folder / "itself";
    Report endless({folder.write("itself", "#!" + itself + "\n", 0700)});
    EXPECT_FINDING(endless, "warning", "itself", "without an end");
}

/* The kernel cuts a first line at blanks alone, and gives all behind the name as one word. */
TEST(DoctorOfProgram, SaysOfAFirstLineThatCannotWorkWhy)
{
    Folder folder;
    const struct {
        std::string name, line, object, why;
    } rows[] = {
        {"crlf", "#!/bin/sh\r\n", "crlf", "carriage return is part of the name"},
        {"crlf-env", "#!/usr/bin/env sh\r\n", "sh?", "carriage return is part of the name"},
        {"crlf-option", "#!/bin/sh -e\r\n", "crlf-option", "as an argument"},
        {"two-words", "#!/usr/bin/env python3 -u\n", "python3 -u", "not found in PATH"},
    };
    for (const auto &row : rows) {
        Report report({folder.write(row.name, row.line, 0700)});
        EXPECT_FINDING(report, "out of reach", row.object, row.why);
        EXPECT_EQ(report.code, 1);
        EXPECT_NE(run({"run", folder / row.name}).code(), 0) << row.name;
    }
    /* -S takes a carriage return for a blank, and words apart. */
    std::string split = folder.write(
        "split", "#!/usr/bin/env -S A=1 '" + fixture("calls") + "' \"-x y\"\r\n", 0700);
    EXPECT_FINDING(Report({split}), "guarded", "/calls", "ordinary symbols");
}

TEST(DoctorOfProgram, SaysWhenOnlyTheFileItselfWasLookedAt)
{
    Report starter({fixture("nothing"), fixture("calls")});
    EXPECT_FINDING(starter, "ok", "/nothing", "if it starts " + fixture("calls"));
    Report fixed({fixture("static"), fixture("calls")});
    EXPECT_FINDING(fixed, "warning", "/static", "what it starts is");
    EXPECT_EQ(fixed.code, 0) << fixed.all();
    /* With NCCL inside it does not matter what it starts. */
    Report holds({fixture("static_holds"), fixture("calls")});
    EXPECT_FINDING(holds, "out of reach", "/static_holds", "holds NCCL");
    EXPECT_EQ(holds.code, 1);
}

TEST(DoctorOfProgram, NeverRunsTheProgram)
{
    Folder folder;
    std::string marker = folder / "was-run";
    std::string script = folder.write("script", "#!/bin/sh\ntouch " + marker + "\n", 0700);
    Report report({script});
    EXPECT_FINDING(report, "ok", "script", "shell script");
    EXPECT_EQ(report.code, 0);
    Report behind({"nice", "timeout", "5", script});
    EXPECT_FINDING(behind, "ok", "script", "shell script");
    Report python({"python3", folder.write("program.py", "open('" + marker + "', 'w')\n", 0700)});
    Report code({"python3", "-c", "open('" + marker + "', 'w')"});
    EXPECT_NE(access(marker.c_str(), F_OK), 0);
}

/* Stands for an interpreter: says where its packages are, as the real one would. */
std::string fake_python(const Folder &folder, const std::string &executable)
{
    return folder.write("python3.99",
                        "#!/bin/sh\necho \"$@\" >'" + folder / "asked" + "'\necho '" + executable +
                            "'\necho '" + folder.path() + "'\n",
                        0700);
}

TEST(DoctorOfPython, LooksIntoThePackagesOfTheInterpreterThatRunsTheScript)
{
    Folder folder;
    fake_python(folder, fixture("nothing"));
    for (const char *made : {"nvidia", "nvidia/nccl", "nvidia/nccl/lib", "torch", "torch/lib",
                             "horovod", "horovod/torch"})
        ASSERT_EQ(mkdir((folder / made).c_str(), 0700), 0);
    folder.write("nvidia/nccl/lib/libnccl.so.2", read_file(fixture("libnccl.so.2")));
    folder.write("torch/lib/libtorch_cuda.so", read_file(fixture("calls")));
    folder.write("horovod/torch/mpi_lib_v2.so", read_file(fixture("libhides_stripped.so")));
    std::string script =
        folder.write("train", "#!" + folder / "python3.99" + " -E\nimport torch\n", 0700);
    for (const std::vector<std::string> &argv :
         {std::vector<std::string>{script}, {folder / "python3.99", "-E", "train.py"}}) {
        Report report(argv);
        EXPECT_FINDING(report, "guarded", "nvidia/nccl/lib/libnccl.so.2",
                       "NCCL of pip: NCCL 2.28.9");
        EXPECT_FINDING(report, "guarded", "libtorch_cuda.so", "PyTorch: calls NCCL");
        EXPECT_FINDING(report, "out of reach", "mpi_lib_v2.so", "Horovod: holds NCCL 2.28.9");
        EXPECT_EQ(report.code, 1);
        EXPECT_EQ(read_file(folder / "asked").rfind("-E -c import sys", 0), 0u);
    }
    /* pip writes this form if the path of the interpreter is too long for a #! line. */
    Report by_shell({folder.write(
        "long", "#!/bin/sh\n'''exec' \"" + folder / "python3.99" + "\" \"$0\" \"$@\"\n' '''\n",
        0700)});
    EXPECT_FINDING(by_shell, "out of reach", "mpi_lib_v2.so", "Horovod");
}

TEST(DoctorOfPython, KnowsInterpretersOfSpecialBuildsByTheirNames)
{
    for (const char *name : {"python3.13t", "python3-dbg", "python3.11d", "python3.7dm", "pypy3"}) {
        Folder folder;
        folder.write(name, "#!/bin/sh\necho broken >&2; exit 1\n", 0700);
        EXPECT_FINDING(Report({folder / name}), "warning", name, "(broken)");
    }
    Folder folder;
    EXPECT_FINDING(Report({folder.write("python3-config", "#!/bin/sh\n", 0700)}), "ok",
                   "python3-config", "shell script");
}

TEST(DoctorOfPython, SaysWhenTheInterpreterFails)
{
    Folder folder;
    folder.write("python3", "#!/bin/sh\necho broken >&2; exit 1\n", 0700);
    Report report({folder / "python3", "x.py"});
    EXPECT_FINDING(report, "warning", "python3", "(broken)");
}

TEST(DoctorOfPython, DoesNotWaitForAnInterpreterThatHangs)
{
    Folder folder;
    folder.write("python3", "#!/bin/sh\nsleep 1000 & wait\n", 0700);
    Report report({folder / "python3", "x.py"});
    EXPECT_FINDING(report, "warning", "python3", "no answer");
}

struct Launch {
    std::vector<std::string> argv; /* PROG stands for a program that is linked to NCCL */
    std::string kind, object, why;
    bool program_seen;
    std::map<std::string, std::string> environment = {};
};

using Words = std::vector<std::string>;
Launch guarded(const Words &argv)
{
    return {argv, "guarded", "/calls", "", true};
}
/* These are told of the launcher itself. */
Launch out(const Words &argv, const std::string &why, bool program_seen = true)
{
    return {argv, "out of reach", argv[0], why, program_seen};
}
Launch warns(const Words &argv, const std::string &why, bool program_seen = false)
{
    return {argv, "warning", argv[0], why, program_seen};
}
Launch fine(const Words &argv, const std::string &why, bool program_seen = false)
{
    return {argv, "ok", argv[0], why, program_seen};
}

struct Launcher : testing::TestWithParam<Launch> {
};

TEST_P(Launcher, IsKnownForWhatItDoesToTheEnvironment)
{
    Folder folder;
    for (const char *name :
         {"sudo",       "su",        "runuser", "chroot",      "ssh",     "srun",     "mpirun",
          "docker",     "apptainer", "tini",    "systemd-run", "numactl", "taskset",  "sbatch",
          "ncclguard",  "nsys",      "ncu",     "gdb",         "perf",    "valgrind", "xargs",
          "setpriv",    "gosu",      "conda",   "rr",          "x86_64",  "setarch",  "deepspeed",
          "accelerate", "ray",       "vllm",    "python3"})
        folder.write(name, "#!/bin/sh\nexit 9\n", 0700);
    std::vector<std::string> argv = GetParam().argv;
    for (std::string &word : argv) /* in a text for -S, too */
        if (size_t at = word.find("PROG"); at != std::string::npos)
            word.replace(at, 4, fixture("calls"));
    std::map<std::string, std::string> environment = GetParam().environment;
    environment["PATH"] = folder.path() + ":" + getenv("PATH");
    Report report(argv, environment);
    EXPECT_FINDING(report, GetParam().kind, GetParam().object, GetParam().why);
    EXPECT_EQ(report.has("guarded", "/calls", "ordinary symbols"), GetParam().program_seen)
        << report.all();
    EXPECT_EQ(report.code, GetParam().kind == "out of reach" ? 1 : 0) << report.all();
}

INSTANTIATE_TEST_SUITE_P(
    Table, Launcher,
    testing::Values(
        out({"sudo", "-u", "me", "A=1", "PROG", "-x"}, "without LD_PRELOAD"),
        fine({"sudo", "ncclguard", "run", "PROG"}, "put on", true),
        out({"su", "-", "me"}, "without LD_PRELOAD", false),
        out({"su", "-s", "/bin/sh", "-l", "me"}, "login", false),
        out({"runuser", "me", "--login"}, "login", false), guarded({"chroot", "/", "PROG"}),
        warns({"chroot", "--userspec=me", "/usr", "PROG"}, "same path"),
        out({"ssh", "-p", "22", "host", "PROG"}, "another host", false),
        fine({"ssh", "host", "ncclguard", "run", "PROG"}, "put on"),
        out({"docker", "run", "image", "PROG"}, "container", false),
        warns({"docker", "run", "-e", "LD_PRELOAD", "image"}, "same path"),
        fine({"docker", "run", "-e", "LD_PRELOAD=/x/libncclguard.so", "image"}, "passed on"),
        warns({"apptainer", "run", "image"}, "same path"),
        fine({"apptainer", "exec", "image", "ncclguard", "run", "PROG"}, "put on"),
        out({"apptainer", "exec", "--nv", "-e", "image", "PROG", "x"}, "takes LD_PRELOAD away",
            false),
        /* A name that only contains ours puts nothing on. */
        out({"env", "-i", "PROG", "--out", "ncclguard.log", "ncclguard-tests/prog"},
            "takes LD_PRELOAD away"),
        out({"sudo", "PROG", "/home/ncclguard", "LD_PRELOAD"}, ""),
        fine({"sudo", "sh", "-c", "cd / && /opt/ncclguard run PROG"}, "put on"),
        fine({"sudo", "LD_PRELOAD=/x/libncclguard.so", "PROG"}, "passed on", true),
        out({"systemd-run", "PROG"}, "service manager"),
        guarded({"systemd-run", "--scope", "PROG"}), out({"sbatch", "job.sh"}, "runs later", false),
        guarded({"srun", "-n", "2", "PROG"}),
        out({"srun", "--export=NONE", "PROG"}, "only the variables"),
        guarded({"srun", "--export=ALL,A=1", "PROG"}),
        Launch{{"srun", "PROG"},
               "out of reach",
               "srun",
               "SLURM_EXPORT_ENV",
               true,
               {{"SLURM_EXPORT_ENV", "NONE"}}},
        guarded({"mpirun", "-np", "2", "--mca", "a", "b", "PROG"}),
        warns({"mpirun", "-H", "a,b", "PROG"}, "other hosts", true),
        guarded({"mpirun", "-H", "a,b", "-x", "LD_PRELOAD", "PROG"}),
        guarded({"mpirun", "--host", "localhost:4", "PROG"}),
        out({"env", "-i", "A=1", "PROG"}, "takes LD_PRELOAD away"),
        out({"env", "-u", "LD_PRELOAD", "PROG"}, "takes LD_PRELOAD away"),
        guarded({"env", "A=1", "PROG"}),
        out({"env", "-u", "A", "-u", "LD_PRELOAD", "PROG"}, "away"),
        out({"env", "--unset=A", "--unset=LD_PRELOAD", "PROG"}, "away"),
        out({"env", "-uLD_PRELOAD", "PROG"}, "away"), out({"env", "-iv", "PROG"}, "away"),
        out({"env", "-vi", "PROG"}, "away"), out({"env", "--ignore-env", "PROG"}, "away"),
        out({"env", "-", "PROG"}, "away"), out({"env", "LD_PRELOAD=", "PROG"}, "something else"),
        guarded({"env", "LD_PRELOAD=", "LD_PRELOAD=/x/libncclguard.so", "PROG"}),
        guarded({"env", "-C", "-i", "PROG"}), guarded({"env", "-S", "A=1 PROG --x", "y"}),
        out({"env", "-vS", "-i PROG --x"}, "away"),
        out({"env", "-S", "-u LD_PRELOAD", "PROG"}, "away"),
        /* What stands behind an option may be what it takes. */
        guarded({"ncu", "--target-processes", "all", "PROG"}),
        guarded({"nsys", "profile", "--new-option", "all", "-o", "x", "PROG"}),
        guarded({"nsys", "profile", "--new-option", "true", "PROG"}),
        guarded({"srun", "--cpu-bind", "cores", "--gpus-per-task", "1", "PROG"}),
        guarded({"mpirun", "--new-option", "word", "PROG"}),
        guarded({"mpirun", "--new-option", "PROG"}), guarded({"srun", "-J", "nice", "PROG"}),
        guarded({"srun", "--pty", "PROG"}), guarded({"perf", "timeout", "PROG"}),
        warns({"mpirun", "--new-option", "no-such-program", "no-other"}, "not recognised"),
        warns({"deepspeed", "--hostfile", "hosts", "PROG"}, "does not pass LD_PRELOAD on"),
        fine({"deepspeed", "--hostfile=hosts", "--no_ssh", "PROG"}, ""),
        fine({"deepspeed", "--num_gpus", "8", "PROG"}, ""),
        warns({"accelerate", "launch", "--deepspeed_hostfile", "hosts", "PROG"},
              "does not pass LD_PRELOAD on"),
        fine({"accelerate", "launch", "--deepspeed_hostfile=hosts",
              "--deepspeed_multinode_launcher", "standard", "PROG"},
             ""),
        fine({"accelerate", "launch", "--num_processes", "8", "PROG"}, ""),
        warns({"vllm", "serve", "MODEL", "--distributed-executor-backend", "ray"},
              "Ray's own processes"),
        Launch{{"python3", "-u", "-m", "vllm.entrypoints.openai.api_server",
                "--distributed-executor-backend", "ray"},
               "warning",
               "vllm",
               "Ray's own processes",
               false},
        Launch{{"python3", "-X", "dev", "-m", "deepspeed.launcher.runner", "--hostfile", "hosts",
                "train.py"},
               "warning",
               "deepspeed",
               "other hosts",
               false},
        fine({"vllm", "serve", "MODEL", "--distributed-executor-backend=mp"}, ""),
        out({"ray", "job", "submit", "--", "PROG"}, "Ray's own processes", false),
        out({"su", "-lc", "PROG", "me"}, "login", false),
        warns({"docker", "run", "-e", "LD_PRELOAD", "-e", "A=1", "image"}, "same path"),
        guarded({"numactl", "-l", "PROG"}), guarded({"numactl", "-a", "-N", "0", "PROG"}),
        guarded({"setarch", "x86_64", "-R", "PROG"}), guarded({"setarch", "-R", "PROG"}),
        guarded({"gdb", "-batch", "-ex", "run", "--args", "PROG", "x"}),
        guarded({"perf", "record", "-g", "-o", "x", "--", "PROG"}),
        guarded({"valgrind", "--tool=memcheck", "PROG"}),
        guarded({"xargs", "-0", "-n", "1", "PROG"}), guarded({"rr", "record", "PROG"}),
        guarded({"gosu", "me", "PROG"}), guarded({"tini", "-s", "--", "PROG"}),
        guarded({"setpriv", "--reuid", "me", "--clear-groups", "PROG"}),
        out({"setpriv", "--reset-env", "PROG"}, "away"),
        fine({"conda", "run", "-n", "base", "PROG"}, "is not known before"),
        warns({"deepspeed", "--hostfile", "/no/hosts", "train.py"}, "other hosts"),
        Launch{{"deepspeed", "--hostfile", "/no/hosts", "--no_ssh", "train.py"},
               "ok",
               "/deepspeed",
               "shell",
               false},
        Launch{{"deepspeed", "--num_gpus", "2", "train.py", "--hostfile", "/no/hosts"},
               "ok",
               "/deepspeed",
               "shell",
               false},
        guarded({"numactl", "-N", "0", "taskset", "-c", "0", "PROG"}),
        guarded({"nice", "-n", "5", "timeout", "-k", "1", "60", "PROG"}),
        fine({"sh", "-c", "PROG"}, "shell"),
        Launch{
            {"sudo", "no-such-program"}, "out of reach", "no-such-program", "not found", false}));

TEST(Doctor, PrintsALineForEachFindingItsMendAndAConclusion)
{
    Result good = run({"doctor", fixture("calls")}, {{"LD_LIBRARY_PATH", ""}});
    EXPECT_EQ(good.code(), 0) << good.out << good.err;
    EXPECT_TRUE(contains(good.out, "\nguarded       " + fixture("calls") + ": ")) << good.out;
    EXPECT_TRUE(contains(good.out, "\nconclusion: all that was found can be guarded\n"))
        << good.out;
    Result bad = run({"doctor", "--", fixture("holds")});
    EXPECT_EQ(bad.code(), 1);
    EXPECT_TRUE(contains(bad.out, "\nout of reach  " + fixture("holds") + ": ")) << bad.out;
    EXPECT_TRUE(contains(bad.out, " mend: ")) << bad.out;
    EXPECT_TRUE(contains(bad.out, "\nconclusion: 1 out of reach")) << bad.out;
    Result none = run({"doctor", fixture("nothing")}, {{"LD_LIBRARY_PATH", ""}});
    EXPECT_TRUE(contains(none.out, "\nconclusion: no NCCL was found in ")) << none.out;
    EXPECT_EQ(none.code(), 0);
    Folder folder;
    folder.write("mpirun", "#!/bin/sh\nexit 9\n", 0700);
    Result partly = run({"doctor", "mpirun", "-H", "a,b", fixture("calls")},
                        {{"PATH", folder.path() + ":" + getenv("PATH")}, {"LD_LIBRARY_PATH", ""}});
    EXPECT_TRUE(contains(partly.out, "\nconclusion: not all that mpirun starts gets LD_PRELOAD\n"))
        << partly.out;
    Result shell = run({"doctor", "sh", "-c", "true"}, {{"LD_LIBRARY_PATH", ""}});
    EXPECT_TRUE(contains(shell.out, "but what sh starts was not looked at")) << shell.out;
}

TEST(Doctor, LetsNoControlCharacterOfAPathThrough)
{
    Folder folder;
    Result result = run({"doctor", folder.write("a\033[31m\nb\377", "", 0700)});
    EXPECT_EQ(result.code(), 1);
    EXPECT_TRUE(contains(result.out, "a?[31m?b\xef\xbf\xbd: is empty")) << result.out;
    Report report({folder / "a\033[31m\nb\377"});
    EXPECT_EQ(report.code, 1);
    /* The last line names the program, too. U+009B is a control, U+202E turns the writing. */
    Result none = run({"doctor", folder.write("c\033[31m\nd\xc2\x9b\xe2\x80\xae\xc3\xa9",
                                              read_file(fixture("nothing")), 0700)},
                      {{"LD_LIBRARY_PATH", ""}});
    EXPECT_TRUE(contains(none.out, "c?[31m?d??\xc3\xa9;")) << none.out;
    EXPECT_EQ(none.out.find('\033'), std::string::npos);
    EXPECT_EQ(none.out.find("\xc2\x9b"), std::string::npos);
    EXPECT_EQ(none.out.find("\xe2\x80\xae"), std::string::npos);
}

} // namespace
