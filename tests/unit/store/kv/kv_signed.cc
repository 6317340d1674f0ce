/*
 * A store whose values are signed: who knows the key reads and writes as ever, others can only be
 * in the way.
 */
#include "tests/unit/store/kv/kv.h"
#include "tests/unit/store/kv/on_stores.h"

#include <sys/stat.h>

namespace
{

struct KvSigned : testing::TestWithParam<const char *>, protected StoreOfTest {
    void SetUp() override
    {
        open_store(GetParam());
        write_file("key", "sixteen bytes do\n");
        write_file("other", "sixteen bytes or more do");
    }
    void write_file(const std::string &name, const std::string &text)
    {
        FILE *file = fopen((keys / name).c_str(), "we");
        ASSERT_NE(file, nullptr);
        fwrite(text.data(), 1, text.size(), file);
        fclose(file);
    }
    std::unique_ptr<Kv> open(const char *key = "key", const std::string &job = "job")
    {
        std::string path = key ? keys / key : "";
        return std::make_unique<Kv>(url, "run", job, 0, key ? path.c_str() : nullptr);
    }
    Folder keys;
};

INSTANTIATE_ON_STORES(KvSigned);

TEST_P(KvSigned, WhoHasTheKeyReadsAndWritesAsEver)
{
    auto a = open(), b = open();
    std::string current, found;
    int64_t number = 0;
    ASSERT_EQ(a->set("key", "value"), 0) << ng_kv_error(a->kv);
    EXPECT_EQ(b->value("key"), "value");
    EXPECT_EQ(a->set("empty", ""), 0);
    EXPECT_EQ(b->get("empty", &found), 0);
    EXPECT_EQ(found, "");
    EXPECT_EQ(b->put("key", "mine"), -EEXIST);
    EXPECT_EQ(b->put("first", "mine"), 0);
    EXPECT_EQ(a->cas("first", "mine", "ours"), 0);
    EXPECT_EQ(a->cas("first", "mine", "theirs", &current), -EEXIST);
    EXPECT_EQ(current, "ours");
    EXPECT_EQ(a->cas("first", nullptr, "theirs", &current), -EEXIST);
    EXPECT_EQ(current, "ours");
    EXPECT_EQ(a->cas("nothing", "x", "y"), -ENOENT);
    EXPECT_EQ(a->cas("made", nullptr, "x"), 0);
    EXPECT_EQ(ng_kv_queue_set(a->kv, "queued", "q", 1, 0), 0);
    EXPECT_EQ(ng_kv_flush(a->kv, within(patience_ms), nullptr), 0);
    EXPECT_EQ(b->value("first") + b->value("made") + b->value("queued"), "oursxq");
    EXPECT_EQ(b->remove("key"), 0);
    EXPECT_EQ(a->get("key", &found), -ENOENT);
    EXPECT_EQ(a->add("n", 2, &number), 0) << "the counters of a job";
    EXPECT_EQ(b->add("n", 1, &number), 0);
    EXPECT_EQ(number, 3);
    EXPECT_EQ(a->value("n"), "3");
}

TEST_P(KvSigned, WhatIsNotSignedIsNotThereAndKeepsNobodyFromBeingTheFirst)
{
    auto own = open(), other = open("other"), plain = open(nullptr);
    std::string found;
    for (Kv *writer : {plain.get(), other.get()}) {
        ASSERT_EQ(writer->set("key", "forged, and long enough to have a signature in it"), 0);
        ASSERT_EQ(writer->set("short", "x"), 0);
        for (const char *key : {"key", "short"}) {
            EXPECT_EQ(own->get(key, &found), -ENOENT);
            const char *keys[] = {key};
            int there = -1;
            EXPECT_EQ(ng_kv_get_many(
                          own->kv, keys, 1, within(patience_ms),
                          [](void *context, size_t, const struct ng_kv_bytes *value) {
                              *(int *)context = value != nullptr;
                          },
                          &there),
                      0);
            EXPECT_EQ(there, 0);
        }
        EXPECT_EQ(own->cas("short", "x", "y"), -ENOENT);
        EXPECT_EQ(own->put("key", "first"), 0);
        EXPECT_EQ(own->cas("short", nullptr, "first"), 0);
        for (const char *key : {"key", "short"}) {
            EXPECT_EQ(own->value(key), "first");
            ASSERT_EQ(own->remove(key), 0);
        }
    }
}

TEST_P(KvSigned, ASignatureIsForOneNameOneJobAndOneValue)
{
    auto own = open(), plain = open(nullptr);
    ASSERT_EQ(own->set("key", "value"), 0);
    std::string stored = plain->value("key"), found;
    ASSERT_EQ(stored.size(), 32u + 5u);
    ASSERT_EQ(plain->set("another", stored), 0);
    EXPECT_EQ(own->get("another", &found), -ENOENT) << "moved to another name";
    for (size_t i = 0; i < stored.size(); i++) {
        std::string changed = stored;
        changed[i] ^= 1;
        ASSERT_EQ(plain->set("key", changed), 0);
        EXPECT_EQ(own->get("key", &found), -ENOENT) << "bit of byte " << i;
    }
    ASSERT_EQ(plain->set("key", stored.substr(0, stored.size() - 1)), 0);
    EXPECT_EQ(own->get("key", &found), -ENOENT) << "cut off";
    ASSERT_EQ(plain->set("key", stored), 0);
    EXPECT_EQ(own->value("key"), "value");
    auto next = open("key", "job2"), next_plain = open(nullptr, "job2");
    ASSERT_EQ(next_plain->set("key", stored), 0);
    EXPECT_EQ(next->get("key", &found), -ENOENT) << "moved to another job";
}

TEST_P(KvSigned, AFileThatHoldsNoKeyIsToldAndNothingIsOpened)
{
    write_file("short", "fifteen bytes..\n");
    write_file("long", std::string(4097, 'x'));
    ASSERT_EQ(mkfifo((keys / "fifo").c_str(), 0600), 0);
    for (const char *name : {"missing", "short", "long", "fifo", "."}) {
        auto kv = open(name);
        EXPECT_EQ(kv->error, -ENOKEY) << name;
        EXPECT_EQ(kv->kv, nullptr);
        EXPECT_NE(std::string(kv->why).find("NCCLGUARD_STORE_KEY"), std::string::npos) << kv->why;
    }
}

} // namespace
