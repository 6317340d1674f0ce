/*
 * What verdict.json tells, for tests of the commands that print it.
 */
#ifndef NCCLGUARD_TESTS_UNIT_TOOLS_VERDICT_JSON_H
#define NCCLGUARD_TESTS_UNIT_TOOLS_VERDICT_JSON_H

#include <jansson.h>

#include <string>

/* Its missing evidence, a phrase in a line. */
inline std::string missing_evidence_of(const json_t *verdict)
{
    std::string all;
    size_t i;
    json_t *line;

    json_array_foreach(json_object_get(verdict, "missing_evidence"), i, line) all +=
        std::string(json_string_value(line)) + "\n";
    return all;
}

#endif
