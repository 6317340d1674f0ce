/*
 * Two processes of one host, of which nothing exists but their black boxes.
 */
#include "tests/unit/core/helpers/compared.h"

#include "core/check/check.h"
#include "core/check/signature_compare.h"
#include "core/recorder/signature.h"
#include "core/runtime/alarm.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/view/comparable.h"
#include "core/view/hash_log.h"

static struct ng_box other;
static int64_t now_ns;

static struct ng_box *box_of(int process)
{
    return process ? &other : &ng_guard.box;
}

static void each(struct ng_board *board, void (*visit)(void *context, const struct ng_box *box),
                 void *context)
{
    visit(context, &other);
}

void compared_begin(void)
{
    const struct ng_box_identity identity = {.job = ""};

    ng_signature_compare_after_fork();
    ng_guard.config.check = NG_CHECK_SIGNATURE;
    ng_check_start();
    for (int process = 0; process < 2; process++) {
        if (box_of(process)->header)
            ng_box_close(box_of(process), NULL);
        ng_box_create(NULL, &identity, COMPARED_RECORDS, box_of(process));
    }
}

uint32_t compared_make(int process, uint64_t id, int nranks, int rank)
{
    struct ng_box *box = box_of(process);
    uint32_t slot = box->header->group_used;

    box->groups[slot].id = id;
    box->groups[slot].nranks = nranks;
    box->groups[slot].group_rank = rank;
    box->groups[slot].created_by = NG_OP_CommInitRank;
    box->groups[slot].created_mono_ns = now_ns;
    box->groups[slot].state = NG_GROUP_CREATING;
    box->header->group_used = slot + 1;
    return slot;
}

void compared_ready(int process, uint32_t slot)
{
    box_of(process)->groups[slot].state = NG_GROUP_READY;
}

void compared_destroy(int process, uint32_t slot)
{
    box_of(process)->groups[slot].state = NG_GROUP_DESTROYED;
}

void compared_call(int process, uint32_t slot, uint64_t count)
{
    struct ng_box_group *group = &box_of(process)->groups[slot];
    const struct ng_signature signature = {NG_OP_AllReduce, 7, 0, -1, count};

    struct ng_box *box = box_of(process);
    uint64_t id = box->header->record_next++;
    struct ng_box_record *record = &box->records[ng_record_slot(id, box->record_capacity)];

    group->rolling_hash = ng_signature_roll(group->rolling_hash, &signature);
    group->entered++;
    record->group_id = group->id;
    record->group_slot = slot;
    record->op = signature.op;
    record->dtype = signature.dtype;
    record->redop = signature.redop;
    record->root = signature.root;
    record->coll_seq = group->entered;
    record->count = count;
    record->rolling_hash = group->rolling_hash;
    record->entered_mono_ns = now_ns;
    record->id_state = id << 8 | NG_RECORD_SCHEDULED;
    ng_hash_log_add(&box_of(process)->hash_logs[slot], group->entered, group->rolling_hash);
    group->scheduled++;
}

void compared_spoil(int process, uint32_t back)
{
    struct ng_box *box = box_of(process);
    uint64_t id = box->header->record_next - 1 - back;

    box->records[ng_record_slot(id, box->record_capacity)].rolling_hash ^= 0x1234567;
}

void compared_round(void)
{
    const struct ng_board_ops ops = {.each = each};
    struct ng_board board = {.ops = &ops};

    now_ns += NG_S;
    ng_signature_compare_run(&board, now_ns);
}

char compared_across(uint32_t slot)
{
    return "sta"[ng_guard.box.hash_logs[slot].across];
}

unsigned compared_alarms(void)
{
    struct ng_alarm alarm;
    unsigned count = 0;

    while (ng_alarm_take(&alarm))
        count++;
    return count;
}

void compared_told(uint64_t id)
{
    ng_signature_compare_mark_reported(id);
}

bool compared_is_news(uint32_t slot, uint64_t turn)
{
    return ng_comparable_is_news(&ng_guard.box, slot, turn);
}
