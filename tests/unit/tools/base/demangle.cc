/*
 * Names of C++ in stacks.
 */
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

extern "C" {
#include "tools/base/demangle.h"
}

static std::string plain(const std::string &text)
{
    char *copy = ng_demangle(text.c_str());
    std::string result = copy ? copy : "no memory";
    free(copy);
    return result;
}

TEST(Demangle, NamesAreTheProgrammersWithoutParametersAndTypes)
{
    EXPECT_EQ(plain("native: _ZN5torch3runEi.part.0+0x1 < read < _ZN1a1fEv"),
              "native: torch::run+0x1 < read < a::f");
    EXPECT_EQ(plain("_ZN4c10d16ProcessGroupNCCL9allreduceERSt6vectorIN2at6TensorESaIS3_EE"),
              "c10d::ProcessGroupNCCL::allreduce");
    EXPECT_EQ(plain("_ZN1a12_GLOBAL__N_16hiddenEi"), "a::(anonymous namespace)::hidden");
    EXPECT_EQ(plain("_ZNK1a1S3getIiEET_St6vectorIS2_SaIS2_EE"), "a::S::get<int>");
    EXPECT_EQ(plain("_ZNK1a1SclEi"), "a::S::operator()");
    EXPECT_EQ(plain("_ZN1a1SlsEi"), "a::S::operator<<");
    EXPECT_EQ(plain("_ZNK1a1ScvbEv"), "a::S::operator bool");
    EXPECT_EQ(plain("_ZN1a1SnwEm"), "a::S::operator new");
    EXPECT_EQ(plain("_ZZN1a3lamERSt8functionIFvvEEENKUlvE_clEv"),
              "a::lam::{lambda()#1}::operator()");
}

TEST(Demangle, WhatIsNoNameOfCppStaysAsItIs)
{
    for (const char *text : {"", "ncclAllReduce", "_Zbad", "a_ZN1a1fEv", "/lib/_Z.so+0x10", "_Z"})
        EXPECT_EQ(plain(text), text);
}

/* Each part of such a name doubles it. */
TEST(Demangle, ANameThatGrowsWithoutLimitStaysAsItIs)
{
    std::string name = "_Z1fSt4pairIiiE";
    for (char last = '0'; last <= '9'; last++)
        name += std::string("S_IS") + last + "_S" + last + "_E";
    for (char last = 'A'; last <= 'Z'; last++)
        name += std::string("S_IS") + last + "_S" + last + "_E";
    EXPECT_EQ(plain("_Z1fSt4pairIiiES_IS0_S0_E"), "f");
    EXPECT_EQ(plain(name), name);
    std::string deep = "_Z1f" + std::string(100000, 'P') + "i";
    EXPECT_EQ(plain(deep), deep);
}
