/*
 * A JSON document that is given back with its scope.
 */
#ifndef NCCLGUARD_TESTS_GTEST_OWN_JSON_H
#define NCCLGUARD_TESTS_GTEST_OWN_JSON_H

#include <string>

#include <gtest/gtest.h>
#include <jansson.h>

#include "tests/gtest/not_copied.h"

struct OwnJson : NotCopied {
    explicit OwnJson(const std::string &text)
    {
        json_error_t error;
        root = json_loadb(text.data(), text.size(), 0, &error);
        EXPECT_NE(root, nullptr) << error.text << " in " << text.substr(0, 2000);
    }
    ~OwnJson()
    {
        json_decref(root);
    }
    operator json_t *() const
    {
        return root;
    }
    json_t *root;
};

#endif
