/*
 * What every C++ test includes, compiled once a build folder. A test includes what it needs all the
 * same: where the compiler cannot use the precompiled file, it reads this one.
 */
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>
