/*
 * Where calls were made in Python: line tables, and what the black box keeps of code objects.
 */
#include "tests/unit/core/helpers/box.h"

extern "C" {
#include "core/recorder/python_code.h"
#include "core/unwind/frame_table.h"
#include "core/unwind/python_lines.h"
}

namespace
{

/* As CPython 3.11 and 3.13 have compiled one function of 57 lines, from line 3 on: up to which byte
 * of its code which line goes; 0 none. */
const uint8_t table_3_11[] = {
    128, 0,   240, 4,  1,   13,  25,  240, 0,   1,   13,  25,  216, 22,  23,  240, 3,   1,   13,
    25,  241, 0,   1,  13,  25,  244, 0,   1,   13,  25,  128, 69,  224, 7,   8,   240, 0,   3,
    5,   18,  221, 16, 22,  216, 12,  13,  216, 12,  16,  241, 5,   2,   17,  18,  244, 0,   2,
    17,  18,  136, 5,  240, 6,   6,   5,   21,  221, 13,  17,  144, 33,  137, 87,  140, 87,  240,
    0,   1,   9,   17, 152, 1,   216, 12,  16,  240, 3,   1,   9,   17,  240, 0,   1,   9,   17,
    240, 0,   1,   9,  17,  241, 0,   1,   9,   17,  244, 0,   1,   9,   17,  240, 0,   1,   9,
    17,  240, 0,   1,  9,   17,  240, 0,   1,   9,   17,  240, 0,   1,   9,   17,  240, 0,   1,
    9,   17,  240, 0,  1,   9,   17,  248, 248, 248, 240, 0,   1,   9,   17,  240, 0,   1,   9,
    17,  240, 0,   1,  9,   17,  240, 0,   1,   9,   17,  248, 248, 229, 11,  21,  240, 0,   1,
    5,   19,  240, 0,  1,   5,   19,  240, 0,   1,   5,   19,  216, 8,   13,  144, 17,  137, 10,
    136, 5,   136, 5,  136, 5,   240, 3,   1,   5,   19,  248, 248, 248, 245, 6,   0,   9,   14,
    136, 101, 137, 12, 140, 12,  136, 12,  136, 12,  248, 141, 5,   136, 101, 137, 12,  140, 12,
    136, 12,  136, 12, 248, 248, 248, 240, 84,  1,   0,   12,  17,  128, 76,
};
const std::vector<std::pair<uint32_t, int32_t>> lines_3_11 = {
    {2, 3},    {6, 5},    {8, 6},    {26, 5},   {30, 7},   {42, 8},   {44, 9},
    {46, 10},  {62, 8},   {64, 11},  {96, 12},  {98, 13},  {130, 12}, {136, 0},
    {144, 12}, {148, 0},  {166, 14}, {180, 15}, {182, 14}, {188, 0},  {220, 17},
    {222, 0},  {254, 17}, {260, 0},  {264, 59},
};
const uint8_t table_3_13[] = {
    128, 0,   241, 6,   0,   23,  24, 243, 3,   1,   13,  25,  217, 22,  23,  144, 17,  243,
    3,   0,   14,  15,  217, 22,  23, 240, 3,   0,   5,   10,  240, 0,   1,   13,  25,  230,
    7,   8,   220, 16,  22,  216, 12, 13,  216, 12,  16,  243, 5,   2,   17,  18,  136, 5,
    240, 6,   6,   5,   21,  220, 13, 17,  144, 33,  140, 87,  152, 1,   216, 12,  16,  247,
    3,   0,   14,  21,  244, 10,  0,  9,   14,  136, 101, 140, 12,  240, 84,  1,   0,   12,
    17,  128, 76,  249, 242, 109, 1,  1,   13,  25,  247, 14,  0,   14,  21,  141, 87,  251,
    228, 11,  21,  243, 0,   1,   5,  19,  216, 8,   13,  144, 17,  137, 10,  138, 5,   240,
    3,   1,   5,   19,  251, 244, 6,  0,   9,   14,  136, 101, 141, 12,  250,
};
const std::vector<std::pair<uint32_t, int32_t>> lines_3_13 = {
    {2, 3},    {6, 6},    {14, 5},   {20, 6},   {28, 5},  {32, 6},   {36, 5},
    {50, 7},   {60, 8},   {62, 9},   {64, 10},  {74, 8},  {76, 11},  {100, 12},
    {102, 13}, {118, 12}, {140, 17}, {144, 59}, {148, 0}, {154, 5},  {182, 12},
    {190, 0},  {208, 14}, {222, 15}, {224, 14}, {232, 0}, {256, 17}, {262, 0},
};

constexpr int32_t FIRST_LINE = 3;

void expect_lines(const uint8_t *table, size_t bytes,
                  const std::vector<std::pair<uint32_t, int32_t>> &lines)
{
    uint32_t offset = 0;

    for (auto [end, line] : lines)
        for (; offset < end; offset += 2)
            ASSERT_EQ(ng_python_line(table, bytes, FIRST_LINE, offset), line) << "at " << offset;
    EXPECT_EQ(ng_python_line(table, bytes, FIRST_LINE, offset), 0) << "behind its end";
    EXPECT_EQ(ng_python_line(table, bytes, FIRST_LINE, UINT32_MAX), 0);
}

TEST(PythonLines, AreThoseThatTheCompilerMeant)
{
    expect_lines(table_3_11, sizeof(table_3_11), lines_3_11);
    expect_lines(table_3_13, sizeof(table_3_13), lines_3_13);
}

TEST(PythonLines, OfThePartThatWasKeptAreRightOrNotKnown)
{
    for (size_t bytes = 0; bytes < sizeof(table_3_13); bytes++) {
        std::vector<uint8_t> part(table_3_13, table_3_13 + bytes);
        uint32_t offset = 0;
        for (auto [end, line] : lines_3_13)
            for (; offset < end; offset += 2) {
                int32_t told = ng_python_line(part.data(), bytes, FIRST_LINE, offset);
                ASSERT_TRUE(told == 0 || told == line)
                    << told << " at " << offset << " of " << bytes << " bytes";
            }
    }
}

TEST(PythonLines, OutOfRangeAreNotKnown)
{
    const uint8_t back[] = {0x80 | 13 << 3, 0x0b}; /* five lines back */
    const uint8_t far[] = {0x80 | 13 << 3, 0x7e, 0x7f, 0x7f, 0x7f, 0x7f, 0x03};
    const uint8_t endless[] = {0x80 | 14 << 3, 0x7f, 0x7f, 0x7f, 0x7f,
                               0x7f,           0x7f, 0x7f, 0x7f, 0x7f};

    EXPECT_EQ(ng_python_line(back, sizeof(back), 8, 0), 3);
    EXPECT_EQ(ng_python_line(back, sizeof(back), 5, 0), 0);
    EXPECT_EQ(ng_python_line(far, sizeof(far), INT32_MAX, 0), 0);
    EXPECT_EQ(ng_python_line(endless, sizeof(endless), 1, 0), 0);
    EXPECT_EQ(ng_python_line(nullptr, 0, 1, 0), 0);
}

struct PythonCode : CallsBox {
    PythonCode() : CallsBox(true)
    {
    }
    uint32_t add(const std::string &file, const std::string &name, std::vector<uint8_t> lines)
    {
        struct ng_python_code code = {};
        code.first_line = FIRST_LINE;
        code.file_bytes = (uint32_t)file.copy(code.file, sizeof(code.file));
        code.name_bytes = (uint32_t)name.copy(code.name, sizeof(code.name));
        code.lines = lines.data();
        code.lines_bytes = (uint32_t)lines.size();
        return ng_python_code_add(&box_, &code, 1);
    }
    void call(uint64_t id, std::vector<struct ng_python_frame> frames, bool cut = false)
    {
        record(id);
        box_.frames[id % 8].address[0] = 0x1234;
        box_.frames[id % 8].address[1] = 0;
        box_.frames[id % 8].id_state = id << 8 | NG_FRAMES_WHOLE;
        ng_python_code_write_frames(&box_, id, frames.data(), (uint32_t)frames.size(), cut);
        box_.header->record_next = id + 1;
    }
    static std::vector<uint8_t> lines()
    {
        return {table_3_13, table_3_13 + sizeof(table_3_13)};
    }
};

TEST_F(PythonCode, FramesStandBeforeThoseOfTheMachine)
{
    uint32_t step = add("/opt/train.py", "Model.step", lines()),
             main = add("/opt/train.py", "<module>", {});
    call(1, {{step, 62}, {main, 4}});
    call(2, {{step, 62}, {main, 4}});
    call(3, {{step, 70}}, true);
    auto stacks = read();
    ASSERT_EQ(stacks.size(), 3u);
    EXPECT_EQ(stacks[0], stacks[1]);
    ASSERT_EQ(stacks[0]->count, 3u);
    EXPECT_TRUE(stacks[0]->whole);
    EXPECT_FALSE(stacks[0]->python_cut);
    EXPECT_TRUE(stacks[2]->python_cut);
    const struct ng_view_frame *frames = stacks[0]->frames;
    EXPECT_STREQ(frames[0].name, "Model.step");
    EXPECT_STREQ(frames[0].module->path, "/opt/train.py");
    EXPECT_EQ(frames[0].line, 10);
    EXPECT_EQ(frames[0].offset, 62u);
    EXPECT_TRUE(frames[0].is_python);
    EXPECT_STREQ(frames[1].name, "<module>");
    EXPECT_EQ(frames[1].line, 0) << "there is no table";
    EXPECT_EQ(frames[1].module, frames[0].module);
    EXPECT_FALSE(frames[2].is_python);
    EXPECT_EQ(frames[2].offset, 0x1234u);
    EXPECT_EQ(stacks[2]->frames[0].line, 8);
}

TEST_F(PythonCode, OfARecordThatWasOverwrittenIsNotToldOfTheNewOne)
{
    call(1, {{add("a.py", "f", {}), 0}});
    box_.records[1].id_state = 9ull << 8 | NG_RECORD_SCHEDULED;
    box_.frames[1].id_state = 9ull << 8 | NG_FRAMES_WHOLE;
    box_.header->record_next = 10;
    auto stacks = read();
    ASSERT_EQ(stacks.size(), 1u);
    ASSERT_EQ(stacks[0]->count, 1u);
    EXPECT_FALSE(stacks[0]->frames[0].is_python);
}

TEST_F(PythonCode, WithoutRoomIsNotKnown)
{
    std::vector<uint8_t> longest(NG_PYTHON_LINES_MAX + 1, 0x80);
    uint32_t full = 0, last = 0;

    for (uint32_t i = 0; i < box_.code_capacity; i++)
        if ((last = add("a.py", "f" + std::to_string(i), longest)) == NG_PYTHON_CODE_UNKNOWN)
            full++;
    EXPECT_EQ(full, 0u);
    EXPECT_EQ(box_.codes[0].lines_kept, NG_PYTHON_LINES_MAX);
    EXPECT_EQ(box_.codes[last].lines_kept, 0u) << "no room for its table";
    EXPECT_EQ(add("a.py", "too many", {}), NG_PYTHON_CODE_UNKNOWN);
    EXPECT_EQ(box_.header->codes_lost, 1u);
    call(1, {{last, 0}, {NG_PYTHON_CODE_UNKNOWN, 2}, {0, 0}});
    auto stacks = read();
    ASSERT_EQ(stacks[0]->count, 4u);
    EXPECT_EQ(stacks[0]->frames[0].name, "f" + std::to_string(last));
    EXPECT_EQ(stacks[0]->frames[0].line, 0);
    EXPECT_EQ(stacks[0]->frames[1].name, nullptr);
    EXPECT_TRUE(stacks[0]->frames[1].is_python);
    EXPECT_EQ(stacks[0]->frames[2].line, FIRST_LINE);
}

TEST_F(PythonCode, DamagedIsNotBelieved)
{
    uint32_t code = add(std::string(NG_BOX_CODE_FILE_BYTES, 'f'),
                        std::string(NG_BOX_CODE_NAME_BYTES, 'n'), lines());
    call(1, {{code, 62}, {code, 62}});
    box_.python[1].frame[1] = 700ull << 32;
    box_.header->code_used = UINT32_MAX;
    box_.codes[code].file_bytes = box_.codes[code].name_bytes = UINT32_MAX;
    box_.codes[code].lines_at = UINT32_MAX;
    auto stacks = read();
    ASSERT_EQ(stacks[0]->count, 3u);
    EXPECT_EQ(stacks[0]->frames[0].name, std::string(NG_BOX_CODE_NAME_BYTES, 'n'));
    EXPECT_EQ(stacks[0]->frames[0].line, 0);
    EXPECT_EQ(stacks[0]->frames[1].name, nullptr) << "a row that nobody has written";
    box_.codes[code].complete = 0;
    EXPECT_EQ(read()[0]->frames[0].name, nullptr);
    box_.python[1].id_state = 1ull << 8 | NG_FRAMES_WRITING;
    EXPECT_EQ(read()[0]->count, 1u);
}

} // namespace
