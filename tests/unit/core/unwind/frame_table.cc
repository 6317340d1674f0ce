/*
 * Where calls were made, read from a black box.
 */
#include "tests/unit/core/helpers/box.h"

extern "C" {
#include "core/unwind/frame_table.h"
}

namespace
{

struct FrameTable : CallsBox {
    void SetUp() override
    {
        CallsBox::SetUp();
        image_.start = 0x10000;
        image_.end = 0x20000;
        image_.bias = 0x10000;
        image_.path = "/opt/first.so";
        image_.build_id[0] = 0xa1;
        image_.build_id_bytes = 1;
    }
    void call(uint64_t id, int64_t entered_mono_ns, std::vector<uint64_t> addresses, int state)
    {
        record(id)->entered_mono_ns = entered_mono_ns;
        struct ng_box_frames *frames = &box_.frames[id % 8];
        for (size_t i = 0; i < NG_BOX_FRAMES; i++)
            frames->address[i] = i < addresses.size() ? addresses[i] : 0;
        frames->id_state = id << 8 | (uint64_t)state;
        box_.header->record_next = id + 1;
    }
    struct ng_image image_ = {};
};

TEST_F(FrameTable, CallsOfOnePlaceShareTheirFrames)
{
    uint32_t module = ng_frame_table_add_module(&box_, &image_);
    ng_frame_table_name(&box_, ng_frame_table_add(&box_, 0x10100, module), "step", 16);
    call(1, 100, {0x10100, 0x30000}, NG_FRAMES_WHOLE);
    call(2, 200, {0x10100, 0x30000}, NG_FRAMES_WHOLE);
    call(3, 300, {0x10100}, NG_FRAMES_CUT);
    auto stacks = read();
    ASSERT_EQ(stacks.size(), 3u);
    EXPECT_EQ(stacks[0], stacks[1]);
    EXPECT_EQ(view_.call_stack_count, 2u);
    ASSERT_EQ(stacks[0]->count, 2u);
    EXPECT_TRUE(stacks[0]->whole);
    EXPECT_FALSE(stacks[2]->whole);
    EXPECT_STREQ(stacks[0]->frames[0].name, "step");
    EXPECT_EQ(stacks[0]->frames[0].name_offset, 16u);
    EXPECT_EQ(stacks[0]->frames[0].offset, 0x100u) << "in the file";
    EXPECT_STREQ(stacks[0]->frames[0].module->path, "/opt/first.so");
    EXPECT_STREQ(stacks[0]->frames[0].module->build_id, "a1");
    EXPECT_EQ(stacks[0]->frames[1].module, nullptr);
    EXPECT_EQ(stacks[0]->frames[1].name, nullptr);
    EXPECT_EQ(stacks[0]->frames[1].offset, 0x30000u) << "in memory";
}

TEST_F(FrameTable, AnAddressIsThatOfTheTimeOfTheCall)
{
    uint32_t first = ng_frame_table_add(&box_, 0x10100, ng_frame_table_add_module(&box_, &image_));
    ng_frame_table_name(&box_, first, "of_first", 0);
    ng_frame_table_retire(&box_, first, 500);
    image_.path = "/opt/second.so";
    uint32_t second = ng_frame_table_add(&box_, 0x10100, ng_frame_table_add_module(&box_, &image_));
    ng_frame_table_name(&box_, second, "of_second", 0);
    call(1, 400, {0x10100}, NG_FRAMES_WHOLE);
    call(2, 600, {0x10100}, NG_FRAMES_WHOLE);
    auto stacks = read();
    EXPECT_STREQ(stacks[0]->frames[0].name, "of_first");
    EXPECT_STREQ(stacks[1]->frames[0].name, "of_second");
    EXPECT_STREQ(stacks[1]->frames[0].module->path, "/opt/second.so");
}

TEST_F(FrameTable, WhatNobodyHasLookedAtYetIsPlacedByTheFileThatLiesThere)
{
    ng_frame_table_add_module(&box_, &image_);
    call(1, 400, {0x10101, 0x20001}, NG_FRAMES_PART);
    auto stacks = read();
    EXPECT_STREQ(stacks[0]->frames[0].module->path, "/opt/first.so");
    EXPECT_EQ(stacks[0]->frames[0].offset, 0x101u);
    EXPECT_EQ(stacks[0]->frames[1].module, nullptr) << "behind its end";
}

TEST_F(FrameTable, FramesThatAreWrittenOrOfAnotherRecordAreNone)
{
    call(1, 100, {0x10100}, NG_FRAMES_WRITING);
    call(2, 100, {0x10100}, NG_FRAMES_WHOLE);
    box_.frames[2].id_state = 10u << 8 | NG_FRAMES_WHOLE;
    call(3, 100, {}, NG_FRAMES_WHOLE);
    call(4, 100, {0x10100}, 77);
    for (const auto *stack : read())
        EXPECT_EQ(stack, nullptr);
}

TEST_F(FrameTable, ABetterNameReplacesTheFirst)
{
    uint32_t place = ng_frame_table_add(&box_, 0x10100, NG_FRAME_NO_MODULE);
    struct ng_frame_address read;
    ng_frame_table_read(&box_, place, &read);
    EXPECT_STREQ(read.name, "");
    ng_frame_table_name(&box_, place, "first", 1);
    ng_frame_table_name(&box_, place, std::string(1000, 'x').c_str(), 2);
    ng_frame_table_read(&box_, place, &read);
    EXPECT_EQ(read.name, std::string(NG_BOX_FRAME_NAME_BYTES - 1, 'x'));
    EXPECT_EQ(read.name_offset, 2u);
    box_.addresses[place].name_version++;
    ng_frame_table_read(&box_, place, &read);
    EXPECT_STREQ(read.name, "") << "somebody writes it";
}

TEST_F(FrameTable, FullTablesAreCounted)
{
    for (uint32_t i = 0; i < box_.address_capacity; i++)
        ASSERT_EQ(ng_frame_table_add(&box_, 1 + i, NG_FRAME_NO_MODULE), i);
    EXPECT_EQ(ng_frame_table_add(&box_, 9, NG_FRAME_NO_MODULE), UINT32_MAX);
    EXPECT_EQ(box_.header->addresses_lost, 1u);
    for (uint32_t i = 0; i < box_.module_capacity; i++) {
        image_.start = 0x10000 * i;
        ASSERT_EQ(ng_frame_table_add_module(&box_, &image_), i);
        ASSERT_EQ(ng_frame_table_add_module(&box_, &image_), i) << "it is there";
    }
    image_.start = 1;
    EXPECT_EQ(ng_frame_table_add_module(&box_, &image_), NG_FRAME_NO_MODULE);
    EXPECT_EQ(box_.header->modules_lost, 1u);
}

} // namespace
