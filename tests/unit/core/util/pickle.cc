/*
 * Python's pickles: what Python itself reads back.
 */
#include "tests/unit/core/helpers/python.h"

#include <cmath>

extern "C" {
#include "core/util/pickle.h"
}

/* repr() of what Python's pickle module reads, and what pickletools says of the opcodes. */
static std::string python_reads(const std::function<void(struct ng_pickle *)> &write)
{
    Folder folder;
    std::string path = folder / "pickle";
    int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    struct ng_pickle pickle;
    ng_pickle_init(&pickle, fd);
    write(&pickle);
    EXPECT_EQ(ng_pickle_finish(&pickle), 0);
    close(fd);
    return python("import pickle, pickletools, sys, io\n"
                  "data = open(sys.argv[1], 'rb').read()\n"
                  "pickletools.dis(data, out=io.StringIO())\n"
                  "assert pickletools.optimize(data)[:2] == b'\\x80\\x02'\n"
                  "print(repr(pickle.loads(data)), end='')\n",
                  {path});
}

/* The error of a document that is not one. */
static int error_of(const std::function<void(struct ng_pickle *)> &write)
{
    struct ng_pickle pickle;
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    ng_pickle_init(&pickle, fd);
    write(&pickle);
    int error = ng_pickle_finish(&pickle);
    close(fd);
    return error;
}

TEST(Pickle, PythonReadsEveryKindOfValue)
{
    EXPECT_EQ(python_reads([](struct ng_pickle *pickle) {
                  ng_pickle_open_dict(pickle, nullptr);
                  ng_pickle_none(pickle, "none");
                  ng_pickle_bool(pickle, "true", true);
                  ng_pickle_bool(pickle, "false", false);
                  ng_pickle_double(pickle, "double", -0.1);
                  ng_pickle_string(pickle, "string", "a\"b\n");
                  ng_pickle_open_tuple(pickle, "tuple");
                  ng_pickle_string(pickle, nullptr, "");
                  ng_pickle_name(pickle, nullptr, "undefined");
                  ng_pickle_close(pickle);
                  ng_pickle_open_list(pickle, "lists");
                  ng_pickle_open_list(pickle, nullptr);
                  ng_pickle_close(pickle);
                  ng_pickle_open_tuple(pickle, nullptr);
                  ng_pickle_close(pickle);
                  ng_pickle_open_dict(pickle, nullptr);
                  ng_pickle_close(pickle);
                  ng_pickle_close(pickle);
                  ng_pickle_key(pickle, "a key that is no literal");
                  ng_pickle_int(pickle, nullptr, 1);
                  ng_pickle_close(pickle);
              }),
              "{'none': None, 'true': True, 'false': False, 'double': -0.1, 'string': 'a\"b\\n', "
              "'tuple': ('', 'undefined'), 'lists': [[], (), {}], 'a key that is no literal': 1}");
}

TEST(Pickle, WholeNumbersAreExactAtTheirLimits)
{
    EXPECT_EQ(python_reads([](struct ng_pickle *pickle) {
                  ng_pickle_open_list(pickle, nullptr);
                  for (int64_t value :
                       {INT64_C(0), INT64_C(255), INT64_C(256), INT64_C(-1), INT64_C(-256),
                        (int64_t)INT32_MAX, (int64_t)INT32_MAX + 1, (int64_t)INT32_MIN,
                        (int64_t)INT32_MIN - 1, INT64_MAX, INT64_MIN})
                      ng_pickle_int(pickle, nullptr, value);
                  ng_pickle_uint(pickle, nullptr, (uint64_t)INT64_MAX + 1);
                  ng_pickle_uint(pickle, nullptr, UINT64_MAX);
                  ng_pickle_close(pickle);
              }),
              "[0, 255, 256, -1, -256, 2147483647, 2147483648, -2147483648, -2147483649, "
              "9223372036854775807, -9223372036854775808, 9223372036854775808, "
              "18446744073709551615]");
}

TEST(Pickle, DoublesKeepEveryBit)
{
    EXPECT_EQ(python_reads([](struct ng_pickle *pickle) {
                  ng_pickle_open_list(pickle, nullptr);
                  for (double value : {0.0, -0.0, 1.0 / 3, 5e-324, 1.7976931348623157e308,
                                       (double)INFINITY, -(double)INFINITY, (double)NAN})
                      ng_pickle_double(pickle, nullptr, value);
                  ng_pickle_close(pickle);
              }),
              "[0.0, -0.0, 0.3333333333333333, 5e-324, 1.7976931348623157e+308, inf, -inf, nan]");
}

/* A name of the program's, in whatever encoding, must not make the file unreadable. */
TEST(Pickle, InvalidTextIsReplaced)
{
    EXPECT_EQ(python_reads([](struct ng_pickle *pickle) {
                  ng_pickle_string(pickle, nullptr,
                                   "gr\xc3\xbc\xc3\x9f \xff\xc3 \xed\xa0\x80 \xf0");
              }),
              "'gr\xc3\xbc\xc3\x9f \xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd "
              "\xef\xbf\xbd'");
}

TEST(Pickle, ARepeatedKeyCostsTwoBytes)
{
    size_t sizes[2];
    for (int many : {0, 1})
        sizes[many] = text_from([&](int fd) {
                          struct ng_pickle pickle;
                          ng_pickle_init(&pickle, fd);
                          ng_pickle_open_list(&pickle, nullptr);
                          for (int i = 0; i < (many ? 1001 : 1); i++) {
                              ng_pickle_open_dict(&pickle, nullptr);
                              ng_pickle_bool(&pickle, "a rather long key", true);
                              ng_pickle_close(&pickle);
                          }
                          ng_pickle_close(&pickle);
                          EXPECT_EQ(ng_pickle_finish(&pickle), 0);
                      }).size();
    /* EMPTY_DICT MARK BINGET n NEWTRUE SETITEMS */
    EXPECT_EQ(sizes[1] - sizes[0], 6000u);
}

TEST(Pickle, MoreNamesThanItRemembersAreStillRight)
{
    static char names[300][8];
    std::string expected = "[";
    for (int i = 0; i < 300; i++)
        snprintf(names[i], sizeof(names[i]), "n%d", i);
    for (int round = 0; round < 2; round++)
        for (const char *name : names)
            expected += (expected.size() > 1 ? ", '" : "'") + std::string(name) + "'";
    EXPECT_EQ(python_reads([](struct ng_pickle *pickle) {
                  ng_pickle_open_list(pickle, nullptr);
                  for (int round = 0; round < 2; round++)
                      for (const char *name : names)
                          ng_pickle_name(pickle, nullptr, name);
                  ng_pickle_close(pickle);
              }),
              expected + "]");
}

TEST(Pickle, WhatIsNoDocumentIsAnError)
{
    EXPECT_EQ(error_of([](struct ng_pickle *) {}), -EINVAL) << "nothing in it";
    EXPECT_EQ(error_of([](struct ng_pickle *pickle) { ng_pickle_open_list(pickle, nullptr); }),
              -EINVAL)
        << "still open";
    EXPECT_EQ(error_of([](struct ng_pickle *pickle) {
                  ng_pickle_none(pickle, nullptr);
                  ng_pickle_none(pickle, nullptr);
              }),
              -EINVAL)
        << "two values";
    EXPECT_EQ(error_of([](struct ng_pickle *pickle) {
                  ng_pickle_none(pickle, nullptr);
                  ng_pickle_close(pickle);
              }),
              -EINVAL)
        << "nothing to close";
    EXPECT_EQ(error_of([](struct ng_pickle *pickle) {
                  ng_pickle_open_dict(pickle, nullptr);
                  ng_pickle_none(pickle, nullptr);
                  ng_pickle_close(pickle);
              }),
              -EINVAL)
        << "no key";
    EXPECT_EQ(error_of([](struct ng_pickle *pickle) {
                  ng_pickle_open_list(pickle, nullptr);
                  ng_pickle_none(pickle, "key");
                  ng_pickle_close(pickle);
              }),
              -EINVAL)
        << "a key in a list";
    EXPECT_EQ(error_of([](struct ng_pickle *pickle) {
                  ng_pickle_open_dict(pickle, nullptr);
                  ng_pickle_key(pickle, "key");
                  ng_pickle_close(pickle);
              }),
              -EINVAL)
        << "a key without a value";
    EXPECT_EQ(error_of([](struct ng_pickle *pickle) {
                  for (int i = 0; i <= NG_PICKLE_DEPTH; i++)
                      ng_pickle_open_list(pickle, nullptr);
                  for (int i = 0; i < NG_PICKLE_DEPTH; i++)
                      ng_pickle_close(pickle);
              }),
              -EINVAL)
        << "too deep";
}

TEST(Pickle, AFullDiskIsTold)
{
    struct ng_pickle pickle;
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    ng_pickle_init(&pickle, full);
    ng_pickle_none(&pickle, nullptr);
    EXPECT_EQ(ng_pickle_finish(&pickle), -ENOSPC);
    close(full);
}
