/*
 * The writers under the evidence: text, JSON, and files that are complete or not there.
 */
#include "tests/gtest/own_json.h"
#include "tests/unit/core/helpers/core.h"

#include <clocale>
#include <cmath>

static std::string json_of(const std::function<void(struct ng_json *)> &write, int expected = 0)
{
    return text_from([&](int fd) {
        struct ng_json json;
        ng_json_init(&json, fd);
        write(&json);
        EXPECT_EQ(ng_json_finish(&json), expected);
    });
}

/* One value in an array, as text without the array. */
static std::string value_of(const std::function<void(struct ng_json *)> &write)
{
    std::string text = json_of([&](struct ng_json *json) {
        ng_json_open_array(json, nullptr, NG_JSON_COMPACT);
        write(json);
        ng_json_close_array(json);
    });
    EXPECT_GE(text.size(), 3u);
    return text.substr(1, text.size() - 3);
}

static std::string string_of(const char *text)
{
    return value_of([&](struct ng_json *json) { ng_json_string(json, nullptr, text); });
}

static std::string double_of(double value)
{
    return value_of([&](struct ng_json *json) { ng_json_double(json, nullptr, value); });
}

static int write_hello(const void *context, int fd)
{
    const char *text = (const char *)context;
    return write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -errno;
}

static int write_half_and_fail(const void *, int fd)
{
    return write(fd, "half", 4) == 4 ? -ENOSPC : -EIO;
}

static int write_a_lot(const void *, int fd)
{
    struct ng_output output;
    ng_output_init(&output, fd);
    for (int i = 0; i < 10000; i++)
        ng_output_format(&output, "line %d\n", i);
    return ng_output_flush(&output);
}

TEST(Json, LinesForPeopleAndCompactForRecords)
{
    EXPECT_EQ(json_of([](struct ng_json *json) {
                  ng_json_open_object(json, nullptr, NG_JSON_LINES);
                  ng_json_string(json, "kind", "missing_rank");
                  ng_json_open_object(json, "group", NG_JSON_COMPACT);
                  ng_json_hex(json, "id", 0x1f);
                  ng_json_open_array(json, "inner", NG_JSON_LINES); /* compact all the same */
                  ng_json_int(json, nullptr, 1);
                  ng_json_int(json, nullptr, 2);
                  ng_json_close_array(json);
                  ng_json_close_object(json);
                  ng_json_open_array(json, "records", NG_JSON_LINES);
                  ng_json_open_object(json, nullptr, NG_JSON_COMPACT);
                  ng_json_int(json, "a", -1);
                  ng_json_bool(json, "b", true);
                  ng_json_null(json, "c");
                  ng_json_close_object(json);
                  ng_json_bool(json, nullptr, false);
                  ng_json_close_array(json);
                  ng_json_open_array(json, "empty", NG_JSON_LINES);
                  ng_json_close_array(json);
                  ng_json_open_object(json, "empty too", NG_JSON_LINES);
                  ng_json_close_object(json);
                  ng_json_close_object(json);
              }),
              "{\n"
              "  \"kind\": \"missing_rank\",\n"
              "  \"group\": {\"id\": \"000000000000001f\", \"inner\": [1, 2]},\n"
              "  \"records\": [\n"
              "    {\"a\": -1, \"b\": true, \"c\": null},\n"
              "    false\n"
              "  ],\n"
              "  \"empty\": [],\n"
              "  \"empty too\": {}\n"
              "}\n");
}

TEST(Json, StringsAreEscaped)
{
    EXPECT_EQ(string_of("plain"), "\"plain\"");
    EXPECT_EQ(string_of(""), "\"\"");
    EXPECT_EQ(string_of(nullptr), "null");
    EXPECT_EQ(string_of("\"\\/\n\t\r\b\x01\x1f\x7f"),
              "\"\\\"\\\\/\\n\\t\\u000d\\u0008\\u0001\\u001f\\u007f\"");
}

TEST(Json, Utf8StaysAndWhatIsNoneIsReplaced)
{
    EXPECT_EQ(string_of("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"),
              "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
    static const char *const invalid[] = {
        "\x80",
        "\xbf",
        "\xc0\xaf" /* overlong */,
        "\xc1\xbf",
        "\xe0\x80\xaf",
        "\xf0\x80\x80\xaf",
        "\xed\xa0\x80" /* surrogate */,
        "\xf4\x90\x80\x80" /* beyond Unicode */,
        "\xf5",
        "\xff",
        "\xc3",
        "\xe2\x82",
        "\xf0\x9f\x98",
        "\xe2\x28\xa1",
    };
    for (const char *text : invalid) {
        std::string document = json_of([&](struct ng_json *json) {
            ng_json_open_object(json, nullptr, NG_JSON_COMPACT);
            ng_json_string(json, text, text);
            ng_json_close_object(json);
        });
        OwnJson parsed(document);
        EXPECT_NE(document.find("\xef\xbf\xbd"), std::string::npos) << document;
    }
    /* What follows the bad byte is not swallowed. */
    EXPECT_EQ(string_of("\xc3!"), "\"\xef\xbf\xbd!\"");
    EXPECT_EQ(string_of("\xe2\x82!"), "\"\xef\xbf\xbd!\"");
}

TEST(Json, IntegersReachTheirLimits)
{
    EXPECT_EQ(value_of([](struct ng_json *json) { ng_json_int(json, nullptr, INT64_MIN); }),
              "-9223372036854775808");
    EXPECT_EQ(value_of([](struct ng_json *json) { ng_json_int(json, nullptr, INT64_MAX); }),
              "9223372036854775807");
    EXPECT_EQ(value_of([](struct ng_json *json) { ng_json_uint(json, nullptr, UINT64_MAX); }),
              "18446744073709551615");
    EXPECT_EQ(value_of([](struct ng_json *json) { ng_json_hex(json, nullptr, UINT64_MAX); }),
              "\"ffffffffffffffff\"");
}

TEST(Json, DoublesReadBackTheSameAndWhatIsNoNumberIsNull)
{
    EXPECT_EQ(double_of(0), "0.0");
    EXPECT_EQ(double_of(-1.5), "-1.5");
    EXPECT_EQ(double_of(0.1), "0.1");
    EXPECT_EQ(double_of(3), "3.0");
    EXPECT_EQ(double_of(NAN), "null");
    EXPECT_EQ(double_of(INFINITY), "null");
    EXPECT_EQ(double_of(-INFINITY), "null");
    for (double value : {1.0 / 3, 1e300, 1e-300, 5e-324, 1.7976931348623157e308,
                         123456789.123456789, -0.0, 1e15, 1e16, 1e17, 9007199254740993.0}) {
        std::string text = double_of(value);
        EXPECT_EQ(strtod(text.c_str(), nullptr), value) << text;
        EXPECT_NE(text.find_first_of(".e"), std::string::npos) << text << " reads as an integer";
    }
}

/* A locale made here, since a test machine has none but C. */
TEST(Json, TheProgramsLocaleDoesNotReachNumbers)
{
    Folder folder;
    std::string make =
        "localedef -i de_DE -f ISO-8859-1 " + (folder / "de_DE") + " >/dev/null 2>&1";
    if (system(make.c_str()) != 0)
        GTEST_SKIP() << "no localedef, or no sources of locales (Debian: locales)";
    setenv("LOCPATH", folder.path().c_str(), 1);
    ASSERT_NE(setlocale(LC_NUMERIC, "de_DE"), nullptr);
    char text[16];
    snprintf(text, sizeof(text), "%.1f", 1.5);
    EXPECT_STREQ(text, "1,5") << "the locale is not in force";
    EXPECT_EQ(double_of(1.5), "1.5");
    EXPECT_EQ(double_of(1e300), "1e+300");
    EXPECT_EQ(double_of(1234567), "1234567.0");
    setlocale(LC_NUMERIC, "C");
    unsetenv("LOCPATH");
}

TEST(Json, DeepIsFineAndTooDeepIsAnError)
{
    auto nested = [](unsigned depth) {
        return [depth](struct ng_json *json) {
            for (unsigned i = 0; i < depth; i++)
                ng_json_open_array(json, nullptr, NG_JSON_LINES);
            for (unsigned i = 0; i < depth; i++)
                ng_json_close_array(json);
        };
    };
    std::string text = json_of(nested(NG_JSON_DEPTH));
    OwnJson parsed(text);
    json_of(nested(NG_JSON_DEPTH + 1), -EINVAL);
}

TEST(Json, MisuseIsAnErrorAndNeverABadFile)
{
    json_of([](struct ng_json *) {}, -EINVAL);
    json_of([](struct ng_json *json) { ng_json_int(json, "key", 1); }, -EINVAL);
    json_of([](struct ng_json *json) { ng_json_close_object(json); }, -EINVAL);
    json_of([](struct ng_json *json) { ng_json_open_object(json, nullptr, NG_JSON_LINES); },
            -EINVAL);
    json_of(
        [](struct ng_json *json) {
            ng_json_open_object(json, nullptr, NG_JSON_LINES);
            ng_json_close_array(json);
        },
        -EINVAL);
    json_of(
        [](struct ng_json *json) {
            ng_json_open_object(json, nullptr, NG_JSON_LINES);
            ng_json_int(json, nullptr, 1);
            ng_json_close_object(json);
        },
        -EINVAL);
    json_of(
        [](struct ng_json *json) {
            ng_json_open_array(json, nullptr, NG_JSON_LINES);
            ng_json_int(json, "key", 1);
            ng_json_close_array(json);
        },
        -EINVAL);
    json_of(
        [](struct ng_json *json) {
            ng_json_int(json, nullptr, 1);
            ng_json_int(json, nullptr, 2);
        },
        -EINVAL);
    json_of(
        [](struct ng_json *json) {
            ng_json_open_array(json, nullptr, NG_JSON_LINES);
            ng_json_close_array(json);
            ng_json_int(json, nullptr, 2);
        },
        -EINVAL);
    EXPECT_EQ(json_of([](struct ng_json *json) { ng_json_int(json, nullptr, 1); }), "1\n");
}

TEST(Json, LargerThanItsBufferArrivesWhole)
{
    std::string text = json_of([](struct ng_json *json) {
        ng_json_open_array(json, nullptr, NG_JSON_LINES);
        for (int i = 0; i < 20000; i++)
            ng_json_int(json, nullptr, i);
        ng_json_string(json, nullptr, std::string(100000, 's').c_str());
        ng_json_close_array(json);
    });
    OwnJson parsed(text);
    ASSERT_EQ(json_array_size(parsed), 20001u);
    for (size_t i = 0; i < 20000; i++)
        ASSERT_EQ(json_integer_value(json_array_get(parsed, i)), (json_int_t)i);
    EXPECT_EQ(json_string_length(json_array_get(parsed, 20000)), 100000u);
}

TEST(Json, AFullDiskIsRememberedAndNothingFollows)
{
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    struct ng_json json;
    ng_json_init(&json, fd);
    ng_json_open_array(&json, nullptr, NG_JSON_LINES);
    for (int i = 0; i < 10000; i++)
        ng_json_int(&json, nullptr, i);
    EXPECT_EQ(json.output.error, -ENOSPC);
    ng_json_close_object(&json); /* a later mistake does not hide the first error */
    EXPECT_EQ(ng_json_finish(&json), -ENOSPC);
    close(fd);
}

TEST(Json, AClosedReaderIsAnError)
{
    EXPECT_EQ(in_child([] {
                  int ends[2];
                  signal(SIGPIPE, SIG_IGN);
                  if (pipe(ends) != 0)
                      return 1;
                  close(ends[0]);
                  struct ng_json json;
                  ng_json_init(&json, ends[1]);
                  ng_json_int(&json, nullptr, 1);
                  return ng_json_finish(&json) == -EPIPE ? 0 : 2;
              }),
              0);
}

TEST(Json, ABadDescriptorIsAnError)
{
    struct ng_json json;
    ng_json_init(&json, -1);
    ng_json_int(&json, nullptr, 1);
    EXPECT_EQ(ng_json_finish(&json), -EBADF);
}

/* A pipe in nonblocking mode takes what it has room for: short writes, then EAGAIN until the reader
 * comes. */
TEST(Output, ShortWritesAndAFullPipeLoseNothing)
{
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    fcntl(ends[1], F_SETPIPE_SZ, 4096);
    fcntl(ends[0], F_SETFL, 0);
    std::string received;
    std::thread reader([&] {
        char part[1000];
        for (ssize_t got; (got = read(ends[0], part, sizeof(part))) > 0;)
            received.append(part, (size_t)got);
    });
    EXPECT_EQ(write_a_lot(nullptr, ends[1]), 0);
    close(ends[1]);
    reader.join();
    close(ends[0]);
    std::string expected;
    for (int i = 0; i < 10000; i++)
        expected += "line " + std::to_string(i) + "\n";
    EXPECT_EQ(received, expected);
}

TEST(Output, APieceThatIsTooLongIsCut)
{
    std::string text = text_from([](int fd) {
        struct ng_output output;
        ng_output_init(&output, fd);
        ng_output_format(&output, "%s", std::string(5000, 'x').c_str());
        EXPECT_EQ(ng_output_flush(&output), 0);
    });
    EXPECT_EQ(text, std::string(1000, 'x'));
}

TEST(Output, SafeTextHasNothingThatATerminalObeys)
{
    auto safe = [](const char *text) {
        return text_from([&](int fd) {
            struct ng_output output;
            ng_output_init(&output, fd);
            ng_output_safe(&output, text);
            EXPECT_EQ(ng_output_flush(&output), 0);
        });
    };
    EXPECT_EQ(safe("plain \xc3\xa4"), "plain \xc3\xa4");
    EXPECT_EQ(safe("\x1b[31mred\n\r\a\x7f"), "?[31mred????");
    EXPECT_EQ(safe("\xc2\x9b"
                   "31m"),
              "?31m");
    EXPECT_EQ(safe("\xff\xfe"), "\xef\xbf\xbd\xef\xbf\xbd");
    EXPECT_EQ(safe(nullptr), "");
}

TEST(Output, SavesAFileForTheOwnerAloneAndLeavesNothingElse)
{
    Folder folder;
    struct stat status;
    EXPECT_EQ(ng_output_save(folder.path().c_str(), "evidence", write_hello, "hello"), 0);
    EXPECT_EQ(folder.names(), std::vector<std::string>{"evidence"});
    EXPECT_EQ(read_whole_file(folder / "evidence"), "hello");
    ASSERT_EQ(stat((folder / "evidence").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    EXPECT_EQ(ng_output_save(folder.path().c_str(), "evidence", write_hello, "again"), 0);
    EXPECT_EQ(read_whole_file(folder / "evidence"), "again");
}

TEST(Output, AWriterThatFailsLeavesTheOlderFileAndNothingElse)
{
    Folder folder;
    EXPECT_EQ(ng_output_save(folder.path().c_str(), "evidence", write_half_and_fail, nullptr),
              -ENOSPC);
    EXPECT_TRUE(folder.names().empty());
    write_whole_file(folder / "evidence", "older");
    EXPECT_EQ(ng_output_save(folder.path().c_str(), "evidence", write_half_and_fail, nullptr),
              -ENOSPC);
    EXPECT_EQ(folder.names(), std::vector<std::string>{"evidence"});
    EXPECT_EQ(read_whole_file(folder / "evidence"), "older");
}

TEST(Output, ADiskThatFillsUpLeavesNothing)
{
    Folder folder;
    EXPECT_EQ(in_child([&] {
                  struct rlimit limit = {10000, 10000};
                  signal(SIGXFSZ, SIG_IGN);
                  if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
                      return 1;
                  return ng_output_save(folder.path().c_str(), "evidence", write_a_lot, nullptr) ==
                                 -EFBIG
                             ? 0
                             : 2;
              }),
              0);
    EXPECT_TRUE(folder.names().empty());
}

TEST(Output, AMissingOrUnwritableFolderIsAnError)
{
    Folder folder;
    EXPECT_EQ(ng_output_save((folder / "none").c_str(), "evidence", write_hello, "x"), -ENOENT);
    write_whole_file(folder / "file", "x");
    EXPECT_EQ(ng_output_save((folder / "file").c_str(), "evidence", write_hello, "x"), -ENOTDIR);
    /* A folder in the place of the file: the rename fails, the temporary file goes. */
    ASSERT_EQ(mkdir((folder / "evidence").c_str(), 0700), 0);
    EXPECT_LT(ng_output_save(folder.path().c_str(), "evidence", write_hello, "x"), 0);
    EXPECT_EQ(folder.names(), (std::vector<std::string>{"evidence", "file"}));
    EXPECT_EQ(
        ng_output_save(folder.path().c_str(), std::string(300, 'n').c_str(), write_hello, "x"),
        -ENAMETOOLONG);
}

TEST(Output, WritersAtOnceLeaveOneWholeFile)
{
    Folder folder;
    std::vector<std::thread> writers;
    for (int n = 0; n < 8; n++)
        writers.emplace_back([&] {
            for (int round = 0; round < 20; round++)
                EXPECT_EQ(ng_output_save(folder.path().c_str(), "evidence", write_a_lot, nullptr),
                          0);
        });
    for (std::thread &writer : writers)
        writer.join();
    EXPECT_EQ(folder.names(), std::vector<std::string>{"evidence"});
    std::string content = read_whole_file(folder / "evidence");
    EXPECT_EQ(content.substr(content.size() - 10), "line 9999\n");
}

/* Left behind by a process that died while writing, whose thread number is ours now. */
TEST(Output, ALeftoverTemporaryFileIsNoObstacle)
{
    Folder folder;
    write_whole_file(folder / (".evidence." + std::to_string(getpid()) + "-0"), "left");
    EXPECT_EQ(ng_output_save(folder.path().c_str(), "evidence", write_hello, "hello"), 0);
    EXPECT_EQ(read_whole_file(folder / "evidence"), "hello");
}
