/*
 * The build folder of a test, by where its program lies in it: no path of it is compiled into a
 * test, or a compiler's cache would serve no other folder.
 */
#ifndef NCCLGUARD_TESTS_GTEST_BUILD_FOLDER_H
#define NCCLGUARD_TESTS_GTEST_BUILD_FOLDER_H

#include <filesystem>
#include <string>

/* Of a program in tests/unit/FLOOR. */
inline std::string build_folder()
{
    return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../../..";
}

#endif
