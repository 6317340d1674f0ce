/*
 * The documents of a verdict in the store, read back.
 */
#include "tests/unit/store/publish/ranks.h"

extern "C" {
#include "store/wire/documents.h"
}

struct Documents : testing::Test {
    Documents() : kv("memory:" + folder.path())
    {
    }
    ~Documents() override
    {
        ng_arena_reset(&read.arena);
    }
    int read_of(uint64_t epoch)
    {
        return ng_documents_read(kv.kv, epoch, within(patience_ms), &read);
    }
    std::string json() const
    {
        return std::string(read.json, read.json_bytes);
    }
    std::string text() const
    {
        return std::string(read.text, read.text_bytes);
    }
    Folder folder;
    Kv kv;
    struct ng_documents read = {};
};

TEST_F(Documents, OfOneIncidentAreReadIntoTheCallersArena)
{
    struct ng_document_keys keys = ng_documents_keys(7);
    char *before = ng_arena_strdup(&read.arena, "kept");

    ASSERT_EQ(kv.set(keys.json, "{\"kind\": \"dead_rank\"}"), 0);
    ASSERT_EQ(kv.set(keys.text, "dead_rank: rank 3"), 0);
    EXPECT_STREQ(keys.json, "v/7/json") << "guards and tools of other releases look here";
    EXPECT_STREQ(keys.text, "v/7/text");
    ASSERT_EQ(read_of(7), 0);
    EXPECT_EQ(json(), "{\"kind\": \"dead_rank\"}");
    EXPECT_EQ(text(), "dead_rank: rank 3");
    EXPECT_STREQ(before, "kept");
}

TEST_F(Documents, OneAloneIsNone)
{
    ASSERT_EQ(kv.set(ng_documents_keys(1).json, "{}"), 0);
    EXPECT_EQ(read_of(1), -ENOENT);
    EXPECT_EQ(read_of(2), -ENOENT);
    ASSERT_EQ(kv.set(ng_documents_keys(2).text, "no json"), 0);
    EXPECT_EQ(read_of(2), -ENOENT);
}

TEST_F(Documents, AreCleanForATerminalAndBounded)
{
    struct ng_document_keys keys = ng_documents_keys(1);

    ASSERT_EQ(kv.set(keys.json, "{}\n"), 0);
    ASSERT_EQ(kv.set(keys.text, "rank 3\n\x1b[2Jat fault"), 0);
    ASSERT_EQ(read_of(1), 0);
    EXPECT_EQ(text().find('\x1b'), std::string::npos);
    EXPECT_NE(text().find("rank 3\n"), std::string::npos);
    ASSERT_EQ(kv.set(keys.text, std::string((16u << 20) + 1, 't')), 0);
    EXPECT_EQ(read_of(1), -ENOENT) << "more than a host's disk takes";
}
