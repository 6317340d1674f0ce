/*
 * Writing a black box by hand, in the order that core/recorder/box.h promises to readers.
 */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_BOX_H
#define NCCLGUARD_TESTS_UNIT_CORE_BOX_H

#include "tests/unit/core/helpers/core.h"

class Writer
{
  public:
    explicit Writer(struct ng_box *box) : box_(box)
    {
    }

    void group(uint32_t slot, uint64_t id, int nranks, int group_rank, const char *name)
    {
        struct ng_box_group *group = &box_->groups[slot];
        put(&group->id, id);
        put(&group->nranks, nranks);
        put(&group->group_rank, group_rank);
        put(&group->device, 0);
        put(&group->nccl_version, 22809);
        snprintf((char *)group->name, sizeof(group->name), "%s", name);
        __atomic_store_n(&group->state, (uint32_t)NG_GROUP_READY, __ATOMIC_RELEASE);
        if (box_->header->group_used <= slot)
            put(&box_->header->group_used, slot + 1);
    }

    /* The group's next collective. In a ring of one group every field follows from the record's id.
     */
    uint64_t collective(uint32_t slot, enum ng_record_state state, int64_t entered_mono_ns = 1)
    {
        struct ng_box_group *group = &box_->groups[slot];
        uint64_t seq = get(&group->entered) + 1;
        uint64_t id = __atomic_fetch_add(&box_->header->record_next, (uint64_t)1, __ATOMIC_RELAXED);
        struct ng_box_record *record = &box_->records[id % box_->record_capacity];
        put(&record->id_state, id << 8 | NG_RECORD_WRITING);
        __atomic_thread_fence(__ATOMIC_RELEASE);
        put(&record->group_id, get(&group->id));
        put(&record->group_slot, slot);
        put(&record->op, (uint32_t)NG_OP_AllReduce);
        put(&record->coll_seq, seq);
        put(&record->count, id * 3);
        put(&record->dtype, 7);
        put(&record->redop, 0);
        put(&record->root, -1);
        put(&record->caller, id * 7);
        put(&record->entered_mono_ns, entered_mono_ns);
        __atomic_store_n(&record->id_state, id << 8 | state, __ATOMIC_RELEASE);
        put(&group->last_call, ng_box_pack_call(NG_OP_AllReduce, 7, -1));
        put(&group->last_redop, 0);
        put(&group->last_count, id * 3);
        put(&group->scheduled, seq);
        put(&group->entered, seq);
        if (state == NG_RECORD_COMPLETED) {
            put(&group->completed, seq);
        } else if (!get(&group->pending_record)) {
            put(&group->pending_seq, seq);
            put(&group->pending_age_ns, 10 * NG_S);
            put(&group->pending_record, id);
        }
        return id;
    }

    void inside(enum ng_op op, uint32_t group_slot, int64_t since_mono_ns = 1)
    {
        struct ng_box_thread *thread = &box_->threads[box_->header->thread_used];
        put(&thread->op, (uint32_t)op);
        put(&thread->group_slot, group_slot);
        put(&thread->since_mono_ns, since_mono_ns);
        __atomic_store_n(&thread->tid, (uint32_t)getpid(), __ATOMIC_RELEASE);
        put(&box_->header->thread_used, box_->header->thread_used + 1);
    }

  private:
    template <typename T, typename V> static void put(T *field, V value)
    {
        __atomic_store_n((std::remove_cv_t<T> *)field, (T)value, __ATOMIC_RELAXED);
    }
    template <typename T> static T get(const T *field)
    {
        return __atomic_load_n(field, __ATOMIC_RELAXED);
    }
    struct ng_box *box_;
};

/* A box by hand: one group, and calls with their frames. */
struct CallsBox : testing::Test {
    explicit CallsBox(bool with_python = false) : with_python_(with_python)
    {
    }
    void SetUp() override
    {
        struct ng_box_identity who = {
            .job = "by-hand", .with_frames = true, .with_python = with_python_};
        ASSERT_EQ(ng_box_create(nullptr, &who, 8, &box_), 0);
        struct ng_box_group *group = &box_.groups[0];
        group->id = 0xabc;
        group->nranks = 1;
        group->state = NG_GROUP_READY;
        box_.header->group_used = 1;
    }
    void TearDown() override
    {
        ng_view_fini(&view_);
        ng_box_close(&box_, nullptr);
    }
    struct ng_box_record *record(uint64_t id)
    {
        struct ng_box_record *record = &box_.records[id % 8];
        record->group_id = 0xabc;
        record->op = NG_OP_AllReduce;
        record->coll_seq = id;
        record->id_state = id << 8 | NG_RECORD_SCHEDULED;
        return record;
    }
    /* Of each record, in order; null where there is none. */
    std::vector<const struct ng_view_call_stack *> read()
    {
        std::vector<const struct ng_view_call_stack *> stacks;
        ng_view_fini(&view_);
        EXPECT_EQ(ng_view_add_box(&view_, &box_, NG_LIFE_RUNNING, 1000000, "box"), 0);
        ng_view_seal(&view_);
        for (uint32_t i = 0; i < view_.members[0].record_count; i++)
            stacks.push_back(ng_view_call_stack(&view_, &view_.members[0].records[i]));
        return stacks;
    }
    struct ng_box box_ = {};
    struct ng_view view_ = {};

    bool with_python_;
};

#endif
