/*
 * What is told of calls with invalid arguments (NCCLGUARD_CHECK=…+args).
 */
#include "tests/unit/core/helpers/core.h"
#include "tests/unit/core/helpers/made_calls.h"

#include <fstream>

#include <nccl.h>

static size_t count_of(const std::string &text, const std::string &what)
{
    size_t count = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
        count++;
    return count;
}

/* The buffers of these calls are NULL. */
TEST(Arguments, WhatHasNoLineOfItsOwnIsCountedAndThatIsSaid)
{
    static const Folder folder;
    static char handles[80][64];
    const std::string log = folder / "log";
    std::ofstream(log).flush();
    ng_log_init(NG_LOG_DEBUG, log.c_str(), 0);
    made_settings()->check = NG_CHECK_SIGNATURE_ARGS;
    made_begin(64);
    for (auto &handle : handles) {
        made_init(0, handle, 2, 0, nullptr, ncclSuccess);
        for (int i = 0; i < 2; i++) /* the same again is not told again */
            made_all_reduce(0, handle, made_stream(0), ncclSuccess);
    }
    EXPECT_FALSE(made_is_usual());
    const std::string told = read_whole_file(log);
    EXPECT_EQ(count_of(told, "invalid call: ncclAllReduce #1 of"), 64u) << told;
    EXPECT_EQ(count_of(told, "counted: 1 so far"), 1u);
    EXPECT_EQ(count_of(told, "counted: 10 so far"), 1u);
    EXPECT_EQ(count_of(told, "so far"), 2u);
}
