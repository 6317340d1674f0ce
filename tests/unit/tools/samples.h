/*
 * Prometheus' text format as a test reads it.
 */
#ifndef NCCLGUARD_TESTS_UNIT_TOOLS_SAMPLES_H
#define NCCLGUARD_TESTS_UNIT_TOOLS_SAMPLES_H

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

/* The samples of one text: "name{labels}" -> value. Each comes once, behind its family. */
class Samples
{
  public:
    explicit Samples(const std::string &text)
    {
        static const std::regex right(
            R"re(\w+\{(\w+="([^"\\]|\\[\\"n])*"(,(?=\w)|(?=\})))*\} \d+(\.\d+)?)re");
        std::set<std::string> families;
        std::string family, last;
        std::istringstream stream(text);
        for (std::string line; std::getline(stream, line); last = line) {
            size_t space = line.rfind(' ');
            if (line.rfind("# TYPE ", 0) == 0) {
                family = line.substr(7, line.find(' ', 7) - 7);
                EXPECT_TRUE(families.insert(family).second) << line;
            } else if (line[0] != '#') {
                EXPECT_TRUE(std::regex_match(line, right)) << line;
                EXPECT_EQ(line.rfind(family, 0), 0u) << line;
                EXPECT_TRUE(values_.emplace(line.substr(0, space), line.substr(space + 1)).second)
                    << "twice: " << line;
            }
        }
        EXPECT_EQ(last, "# EOF");
    }
    /* The values of all samples of this name that have these labels. */
    std::vector<std::string> of(const std::string &name,
                                const std::vector<std::string> &labels = {}) const
    {
        std::vector<std::string> found;
        for (const auto &[sample, value] : values_) {
            auto has_label = [&sample = sample](const std::string &label) {
                return sample.find("{" + label) != std::string::npos ||
                       sample.find("," + label) != std::string::npos;
            };
            if (sample.rfind("ncclguard_" + name + "{", 0) == 0 &&
                std::all_of(labels.begin(), labels.end(), has_label))
                found.push_back(value);
        }
        return found;
    }
    /* That of the only one; "" none, or several. */
    std::string only(const std::string &name, const std::vector<std::string> &labels = {}) const
    {
        std::vector<std::string> found = of(name, labels);
        return found.size() == 1 ? found[0] : "";
    }

  private:
    std::map<std::string, std::string> values_;
};

#endif
