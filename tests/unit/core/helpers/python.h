/*
 * Python as a witness: it reads what is written for Python.
 */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_PYTHON_H
#define NCCLGUARD_TESTS_UNIT_CORE_PYTHON_H

#include "tests/unit/core/helpers/core.h"

/* One interpreter for all questions of a test program: starting it takes longer than any of them.
 */
class Python
{
  public:
    /* What `script` prints, with `arguments` as sys.argv[1:]; a failure of the test, with the
     * traceback, where it does not end well. */
    std::string run(const std::string &script, const std::vector<std::string> &arguments)
    {
        std::string printed, line;
        send(script);
        send(std::to_string(arguments.size()));
        for (const std::string &argument : arguments)
            send(argument);
        fflush(to_);
        bool well = receive() == "0";
        printed = receive();
        EXPECT_TRUE(well) << printed;
        return printed;
    }

    static Python &only()
    {
        static Python python;
        return python;
    }

  private:
    Python()
    {
        static const char server[] =
            "import contextlib, io, sys, traceback\n"
            "def get():\n"
            "    size = sys.stdin.buffer.readline() or sys.exit()\n"
            "    return sys.stdin.buffer.read(int(size)).decode()\n"
            "def put(text):\n"
            "    data = text.encode()\n"
            "    sys.stdout.buffer.write(b'%d\\n' % len(data) + data)\n"
            "while True:\n"
            "    script = get()\n"
            "    sys.argv = [''] + [get() for _ in range(int(get()))]\n"
            "    printed, status = io.StringIO(), '0'\n"
            "    with contextlib.redirect_stdout(printed):\n"
            "        try: exec(script, {})\n"
            "        except BaseException: status = printed.write(traceback.format_exc())\n"
            "    put(str(status))\n"
            "    put(printed.getvalue())\n"
            "    sys.stdout.buffer.flush()\n";
        int there[2], back[2];
        if (pipe2(there, O_CLOEXEC) != 0 || pipe2(back, O_CLOEXEC) != 0)
            abort();
        if (fork() == 0) {
            dup2(there[0], 0);
            dup2(back[1], 1);
            execlp("python3", "python3", "-IS", "-c", server, nullptr);
            _exit(127);
        }
        close(there[0]);
        close(back[1]);
        to_ = fdopen(there[1], "we");
        from_ = fdopen(back[0], "re");
        /* Without Python the answer is empty, and the test fails. */
        signal(SIGPIPE, SIG_IGN);
    }

    void send(const std::string &text)
    {
        fprintf(to_, "%zu\n", text.size());
        fwrite(text.data(), 1, text.size(), to_);
    }

    std::string receive()
    {
        size_t size = 0;
        if (fscanf(from_, "%zu", &size) != 1 || fgetc(from_) != '\n')
            return "no answer of python3";
        std::string text(size, '\0');
        EXPECT_EQ(fread(&text[0], 1, size, from_), size);
        return text;
    }

    FILE *to_, *from_;
};

inline std::string python(const std::string &script, const std::vector<std::string> &arguments)
{
    return Python::only().run(script, arguments);
}

#endif
