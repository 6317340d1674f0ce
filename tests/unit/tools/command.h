/*
 * Runs a command for a test: with its own environment, bounded in time, output caught.
 */
#ifndef NCCLGUARD_TESTS_UNIT_TOOLS_COMMAND_H
#define NCCLGUARD_TESTS_UNIT_TOOLS_COMMAND_H

#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

/* The path of the command, from the build. */
inline std::string the_command()
{
    const char *path = getenv("NG_TEST_COMMAND");
    if (!path)
        throw std::runtime_error("NG_TEST_COMMAND is not set");
    return path;
}

/* A file of those that the build has made for `doctor`. */
inline std::string fixture(const std::string &name)
{
    const char *folder = getenv("NG_TEST_DOCTOR");
    if (!folder)
        throw std::runtime_error("NG_TEST_DOCTOR is not set");
    return std::string(folder) + "/" + name;
}

/* A child of the test is stopped, for sure, when this returns. */
inline void stop_child(pid_t pid)
{
    int status = 0;
    kill(pid, SIGSTOP);
    if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status))
        throw std::runtime_error("a child cannot be stopped");
}

/* A folder that goes with the test. */
class Folder
{
  public:
    Folder()
    {
        char name[] = "/tmp/ncclguard-test.XXXXXX";
        if (!mkdtemp(name))
            throw std::runtime_error("mkdtemp");
        path_ = name;
    }
    ~Folder()
    {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Folder(const Folder &) = delete;
    std::string operator/(const std::string &name) const
    {
        return path_ + "/" + name;
    }
    const std::string &path() const
    {
        return path_;
    }
    std::string write(const std::string &name, const std::string &content, int mode = 0600) const
    {
        std::string path = *this / name;
        std::ofstream(path, std::ios::binary) << content;
        chmod_or_throw(path, mode);
        return path;
    }

  private:
    static void chmod_or_throw(const std::string &path, int mode)
    {
        std::filesystem::permissions(path, static_cast<std::filesystem::perms>(mode));
    }
    std::string path_;
};

inline std::string read_file(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

/* A process whose output is caught; killed at the latest by the destructor. */
class Process
{
  public:
    /* `environment`: changes to the test's own; an empty value removes the variable. */
    Process(const std::vector<std::string> &argv,
            const std::map<std::string, std::string> &environment = {}, void (*prepare)() = nullptr)
    {
        int out[2], err[2];
        if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
            throw std::runtime_error("pipe2");
        std::vector<char *> arguments;
        for (const std::string &argument : argv)
            arguments.push_back(const_cast<char *>(argument.c_str()));
        arguments.push_back(nullptr);
        pid_ = fork();
        if (pid_ == 0) {
            dup2(out[1], 1);
            dup2(err[1], 2);
            for (const auto &[name, value] : environment)
                value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
            if (prepare)
                prepare();
            execvp(arguments[0], arguments.data());
            _exit(99);
        }
        close(out[1]);
        close(err[1]);
        fds_[0] = out[0];
        fds_[1] = err[0];
    }
    ~Process()
    {
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
        close(fds_[0]);
        close(fds_[1]);
    }
    Process(const Process &) = delete;

    pid_t pid() const
    {
        return pid_;
    }
    const std::string &out() const
    {
        return text_[0];
    }
    const std::string &err() const
    {
        return text_[1];
    }

    /* Reads until standard output contains `text`; false when 60 s have passed or it was closed
     * before. */
    bool wait_for(const std::string &text)
    {
        while (text_[0].find(text) == std::string::npos)
            if (!read_some())
                return false;
        return true;
    }

    /* Reads to the end of both outputs and returns the wait status; -1 after 60 s. */
    int wait_end()
    {
        while (open_[0] || open_[1])
            if (!read_some())
                return -1;
        int status;
        if (waitpid(pid_, &status, 0) != pid_)
            return -1;
        pid_ = -1;
        return status;
    }

    /* Were both outputs closed, so that no process that inherited them is left? */
    bool closed() const
    {
        return !open_[0] && !open_[1];
    }

  private:
    bool read_some()
    {
        struct pollfd polled[2];
        for (int i = 0; i < 2; i++)
            polled[i] = {open_[i] ? fds_[i] : -1, POLLIN, 0};
        auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            deadline_ - std::chrono::steady_clock::now());
        if (left.count() <= 0 || (!open_[0] && !open_[1]) ||
            poll(polled, 2, static_cast<int>(left.count())) <= 0)
            return false;
        for (int i = 0; i < 2; i++) {
            char buffer[4096];
            if (!polled[i].revents)
                continue;
            ssize_t bytes = read(fds_[i], buffer, sizeof(buffer));
            if (bytes > 0)
                text_[i].append(buffer, static_cast<size_t>(bytes));
            else
                open_[i] = false;
        }
        return true;
    }

    pid_t pid_ = -1;
    int fds_[2];
    bool open_[2] = {true, true};
    std::string text_[2];
    std::chrono::steady_clock::time_point deadline_ =
        std::chrono::steady_clock::now() + std::chrono::seconds(60); /* only against a hang */
};

struct Result {
    int status; /* as waitpid gives it */
    std::string out, err;

    int code() const
    {
        return status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    int signal() const
    {
        return status >= 0 && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    }
};

inline Result run(const std::vector<std::string> &arguments,
                  const std::map<std::string, std::string> &environment = {},
                  void (*prepare)() = nullptr)
{
    std::vector<std::string> argv = {the_command()};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    Process process(argv, environment, prepare);
    int status = process.wait_end();
    return {status, process.out(), process.err()};
}

inline bool has(const std::string &text, const std::string &wanted)
{
    return text.find(wanted) != std::string::npos;
}

/* The command ended so, and its standard output has each of these. */
inline void expect_says(const Result &result, const std::vector<std::string> &parts, int code = 0,
                        const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    testing::ScopedTrace trace(file, line, "the command said: " + result.out + result.err);
    EXPECT_EQ(result.code(), code);
    for (const std::string &part : parts)
        EXPECT_TRUE(has(result.out, part)) << part;
}

inline std::vector<std::string> lines(const std::string &text)
{
    std::vector<std::string> result;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
        result.push_back(line);
    return result;
}

#endif
