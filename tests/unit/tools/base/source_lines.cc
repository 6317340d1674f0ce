/*
 * Source files and lines of addresses, and of the frames of stacks and calls.
 */
#include "tests/unit/core/helpers/core.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" {
#include "core/util/clock.h"
#include "tools/base/source_lines.h"
#include "tools/render/stack_lines.h"
}

namespace
{

constexpr int64_t limit_ns = 60 * NG_S;

/* This program, and an address in it whose line is known. */
struct Self {
    std::string path = std::filesystem::read_symlink("/proc/self/exe"), build_id;
    uint64_t offset = 0;
    int line = 0;
};

int read_own(struct dl_phdr_info *info, size_t, void *context)
{
    Self *self = static_cast<Self *>(context);

    self->offset -= info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &header = info->dlpi_phdr[i];
        const char *at = reinterpret_cast<const char *>(info->dlpi_addr + header.p_vaddr);
        const char *end = header.p_type == PT_NOTE ? at + header.p_memsz : at;
        while (at + sizeof(ElfW(Nhdr)) <= end) {
            const ElfW(Nhdr) *note = reinterpret_cast<const ElfW(Nhdr) *>(at);
            const char *text = at + sizeof(*note) + ((note->n_namesz + 3) & ~3U);
            for (unsigned k = 0; note->n_type == NT_GNU_BUILD_ID && k < note->n_descsz; k++) {
                char hex[3];
                snprintf(hex, sizeof(hex), "%02x", static_cast<unsigned char>(text[k]));
                self->build_id += hex;
            }
            at = text + ((note->n_descsz + 3) & ~3U);
        }
    }
    return 1; /* the program itself is the first */
}

uint64_t behind_call;

__attribute__((noinline)) void mark_caller()
{
    behind_call = reinterpret_cast<uint64_t>(__builtin_return_address(0));
}

Self find_self()
{
    Self self;

    self.line = __LINE__ + 1;
    mark_caller();
    self.offset = behind_call - 1; /* the address behind the call is of this line */
    dl_iterate_phdr(read_own, &self);
    return self;
}

std::string read_file(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);

    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_file(const std::string &path, const std::string &bytes)
{
    std::ofstream(path, std::ios::binary) << bytes;
}

struct SourceLines : testing::Test {
    void SetUp() override
    {
        char name[] = "/tmp/ncclguard-lines-XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        folder = name;
        unsetenv("DEBUGINFOD_URLS");
        setenv("DEBUGINFOD_CACHE_PATH", (folder + "/cache").c_str(), 1);
        setenv("no_proxy", "127.0.0.1", 1);
        ASSERT_FALSE(self.build_id.empty());
    }
    void TearDown() override
    {
        std::filesystem::remove_all(folder);
    }

    /* "FILE:LINE" of the address in `path`, "" not known. */
    std::string look_up(const std::string &path, const std::string &build_id)
    {
        struct ng_source_line line = {path.c_str(), build_id.c_str(), self.offset, nullptr, 0};

        EXPECT_EQ(ng_source_lines_find(&line, 1, limit_ns), 0);
        std::string found =
            line.file ? std::string(line.file) + ":" + std::to_string(line.line) : "";
        ng_source_lines_fini(&line, 1);
        return found.substr(found.rfind('/') + 1);
    }
    /* The client of such servers is a library of its own. */
    static bool can_ask()
    {
        return dlopen("libdebuginfod.so.1", RTLD_NOW) != nullptr;
    }
    std::string wanted()
    {
        return "source_lines.cc:" + std::to_string(self.line);
    }

    const Self self = find_self();
    std::string folder;
};

/* A server on loopback; nobody answers until `serve`. */
struct Server {
    Server()
    {
        struct sockaddr_in address = {};
        socklen_t bytes = sizeof(address);

        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (bind(fd, reinterpret_cast<struct sockaddr *>(&address), bytes) != 0 ||
            listen(fd, 8) != 0 ||
            getsockname(fd, reinterpret_cast<struct sockaddr *>(&address), &bytes) != 0)
            abort();
        url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    }
    ~Server()
    {
        if (child > 0) {
            kill(child, SIGKILL);
            waitpid(child, nullptr, 0);
        }
        close(fd);
    }
    bool was_asked() const
    {
        struct pollfd poll_fd = {fd, POLLIN, 0};
        return poll(&poll_fd, 1, 0) > 0;
    }
    /* From a child process: the bytes for this path, 404 for any other. */
    void serve(const std::string &path, const std::string &bytes)
    {
        child = fork();
        for (int client; child == 0 && (client = accept(fd, nullptr, nullptr)) >= 0;) {
            std::string request;
            char part[1024];
            ssize_t got;
            while (request.find("\r\n\r\n") == std::string::npos &&
                   (got = read(client, part, sizeof(part))) > 0)
                request.append(part, static_cast<size_t>(got));
            bool known = request.rfind("GET " + path + " ", 0) == 0;
            std::string body = known ? bytes : "no";
            std::string answer =
                std::string("HTTP/1.1 ") + (known ? "200 OK" : "404 Not Found") +
                "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n\r\n" + body;
            for (size_t at = 0; at < answer.size();) {
                ssize_t wrote = write(client, answer.data() + at, answer.size() - at);
                if (wrote <= 0)
                    break;
                at += static_cast<size_t>(wrote);
            }
            close(client);
        }
    }

    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    std::string url;
    pid_t child = 0;
};

} // namespace

TEST_F(SourceLines, AnAddressHasTheLineOfItsCall)
{
    EXPECT_EQ(look_up(self.path, self.build_id), wanted());
}

TEST_F(SourceLines, AFileWithAnotherBuildIdIsNotUsed)
{
    std::string other = self.build_id;

    other[0] = other[0] == '0' ? '1' : '0';
    EXPECT_EQ(look_up(self.path, other), "");
    EXPECT_EQ(look_up(self.path, self.build_id.substr(0, self.build_id.size() - 2)), "");
    EXPECT_EQ(look_up(self.path, ""), "");
    EXPECT_EQ(look_up(self.path, "../../../../etc/passwd"), "");
}

TEST_F(SourceLines, WhatIsNoSuchFileTellsNothingAndDoesNoHarm)
{
    std::string bytes = read_file(self.path);

    EXPECT_EQ(look_up(folder + "/none", self.build_id), "");
    EXPECT_EQ(look_up(folder, self.build_id), "");
    ASSERT_EQ(mkfifo((folder + "/fifo").c_str(), 0600), 0);
    EXPECT_EQ(look_up(folder + "/fifo", self.build_id), "");
    write_file(folder + "/text", "no program\n");
    EXPECT_EQ(look_up(folder + "/text", self.build_id), "");
    for (size_t part = 1; part < 16; part++) {
        write_file(folder + "/short", bytes.substr(0, bytes.size() * part / 16));
        look_up(folder + "/short", self.build_id);
    }
    for (size_t at = 64; at < bytes.size(); at += bytes.size() / 16) {
        std::string damaged = bytes;
        damaged.replace(at, 4096, std::string(4096, '\xff'));
        write_file(folder + "/damaged", damaged);
        look_up(folder + "/damaged", self.build_id);
    }
}

TEST_F(SourceLines, ManyAddressesOfSeveralFilesAreEachAnswered)
{
    std::string copy = folder + "/copy";
    std::vector<struct ng_source_line> lines;

    std::filesystem::copy_file(self.path, copy);
    for (int i = 0; i < 3000; i++)
        lines.push_back({i % 3   ? self.path.c_str()
                         : i % 2 ? copy.c_str()
                                 : "/none",
                         self.build_id.c_str(), self.offset, nullptr, 0});
    ASSERT_EQ(ng_source_lines_find(lines.data(), lines.size(), limit_ns), 0);
    for (int i = 0; i < 3000; i++) {
        bool known = i % 3 || i % 2;
        EXPECT_EQ(lines[static_cast<size_t>(i)].line, known ? self.line : 0);
    }
    ng_source_lines_fini(lines.data(), lines.size());
}

TEST_F(SourceLines, AServerIsAskedOnlyIfTheUserNamesIt)
{
    if (!can_ask())
        GTEST_SKIP() << "libdebuginfod is not installed";
    Server server;
    std::string missing = folder + "/missing";

    EXPECT_EQ(look_up(missing, self.build_id), "");
    EXPECT_FALSE(server.was_asked());
    setenv("DEBUGINFOD_URLS", "", 1);
    EXPECT_EQ(look_up(missing, self.build_id), "");
    EXPECT_FALSE(server.was_asked());
    setenv("DEBUGINFOD_URLS", server.url.c_str(), 1);
    /* It becomes a part of a path in the cache, and of the server's. */
    for (const char *other : {"../../elsewhere", "ab/../../cd", "abc?d", "0"})
        EXPECT_EQ(look_up(missing, other), "");
    EXPECT_FALSE(server.was_asked());
    server.serve("/buildid/" + self.build_id + "/debuginfo", read_file(self.path));
    EXPECT_EQ(look_up(missing, self.build_id), wanted());
}

TEST_F(SourceLines, AServerThatDoesNotAnswerCostsTheLimitAlone)
{
    if (!can_ask())
        GTEST_SKIP() << "libdebuginfod is not installed";
    Server server;
    std::string missing = folder + "/missing";
    struct ng_source_line lines[] = {
        {self.path.c_str(), self.build_id.c_str(), self.offset, nullptr, 0},
        {missing.c_str(), self.build_id.c_str(), self.offset, nullptr, 0}};

    setenv("DEBUGINFOD_URLS", server.url.c_str(), 1);
    EXPECT_EQ(ng_source_lines_find(lines, 2, 5 * NG_S), -ETIMEDOUT);
    EXPECT_TRUE(server.was_asked());
    EXPECT_EQ(lines[0].line, self.line) << "what was found before is lost";
    EXPECT_EQ(lines[1].file, nullptr);
    ng_source_lines_fini(lines, 2);
}

/* What only looks like a frame, or is in no file of the list, stays as it is. */
TEST_F(SourceLines, FramesOfStacksAndCallsHaveThem)
{
    char exact[32], behind[32];
    struct ng_stack_groups stacks = NG_STACK_GROUPS_NONE;
    struct ng_view_module module = {self.path.c_str(), self.build_id.c_str()};
    struct ng_view_frame frames[] = {{}, {}};
    struct ng_verdict_call call = {};
    struct ng_verdict verdict = {};

    snprintf(exact, sizeof(exact), "+0x%llx)", static_cast<unsigned long long>(self.offset));
    snprintf(behind, sizeof(behind), "+0x%llx)", static_cast<unsigned long long>(self.offset + 1));
    std::string first = "    #0  f (anonymous) (x)+0x0 (" + self.path + exact;
    std::string second = "    #1  ? (" + self.path + behind;
    std::string others = std::string("    #2  ? (/none") + behind + "\n    #3  ? (0x1234)\n  (cut)";
    std::string text =
        "Stacks of rank 0.\n\nThread 1 \"a\", running\n  Native, innermost first:\n" + first +
        "\n" + second + "\n" + others + "\n\nFiles, with build ids:\n  -   /none\n  " +
        self.build_id + "   " + self.path + "\n";
    for (int rank = 0; rank < 3; rank++)
        ASSERT_EQ(ng_stack_groups_add(&stacks, rank, text.c_str()), 0);
    frames[0].module = &module;
    frames[0].offset = self.offset + 1;
    frames[1].offset = self.offset + 1;
    call.frames = frames;
    call.count = 2;
    verdict.calls = &call;
    verdict.call_count = 1;

    ASSERT_EQ(ng_stack_lines_add(&verdict, &stacks), 0);
    ASSERT_EQ(stacks.count, 1U);
    std::string shown = stacks.stacks[0].text;
    std::string at = " at " + std::string(frames[0].source ? frames[0].source : "nowhere") + ":" +
                     std::to_string(self.line);
    EXPECT_EQ(shown,
              "  Native, innermost first:\n" + first + at + "\n" + second + at + "\n" + others);
    EXPECT_EQ(frames[0].line, self.line);
    EXPECT_EQ(frames[1].source, nullptr);
    ng_stack_groups_fini(&stacks);
    ng_arena_reset(&verdict.arena);
}
