/*
 * One process of a view in a few bytes: the reader.
 *
 * Pure: no clock, no lock, no malloc. Entered by the store's thread, which reads heads, by the
 * incident thread for a verdict, and by tools that show a job. Must accept any bytes without trust:
 * others write to the store, too.
 */
#include "store/wire/progress.h"

#include <errno.h>
#include <string.h>

#include "core/util/macros.h"
#include "store/wire/progress_wire.h"

/* A group of the blob. */
struct group {
    uint32_t index; /* in the view */
    int nranks, nccl_version;
};

/* Everything is read twice, first with `append` false, to check that it is complete. */
struct reader {
    struct ng_coder coder;
    struct ng_view *view;
    bool append;
    bool short_of_memory;
    uint32_t process;
    struct group *groups;
};

/* Memory that was asked for: is it there? */
static bool have(struct reader *reader, const void *memory)
{
    reader->short_of_memory |= !memory;
    return memory != NULL;
}

/* ---- The parts of a process ---- */

static void get_groups(struct reader *reader)
{
    struct ng_coder *coder = &reader->coder;
    uint32_t count = ng_code_count(coder, 0);

    if (count > (size_t)(coder->end - coder->at) / 8) {
        coder->bad = true;
        return;
    }
    coder->group_ids = coder->at;
    coder->group_count = count;
    coder->at += 8 * (size_t)count;
    if (!reader->groups)
        reader->groups =
            ng_arena_alloc(&reader->view->arena, (count + 1) * sizeof(*reader->groups));
    if (!have(reader, reader->groups))
        return;
    for (uint32_t i = 0; i < count && !coder->bad; i++) {
        struct ng_view_group told = {.id = ng_code_group_id(coder, i)};
        ng_code_group(coder, &told);
        if (!told.id || told.nranks < 0 || told.nranks > NG_VIEW_NRANKS_MAX)
            coder->bad = true;
        reader->groups[i].nranks = told.nranks;
        reader->groups[i].nccl_version = told.nccl_version;
        if (!reader->append)
            continue;
        reader->groups[i].index = ng_view_tell_group(reader->view, &told);
        if (reader->groups[i].index == UINT32_MAX) {
            reader->short_of_memory = true;
            return;
        }
    }
}

/* Those of an operation that only a later version knows are left out. */
static void get_records(struct reader *reader, struct ng_view_member *member)
{
    uint32_t count = ng_code_count(&reader->coder, 0);
    struct ng_view_record record;

    if (reader->append && count) {
        member->records = ng_arena_alloc(&reader->view->arena, count * sizeof(*member->records));
        if (!have(reader, member->records))
            return;
    }
    for (uint32_t i = 0; i < count && !reader->coder.bad; i++) {
        ng_code_record(&reader->coder, &record);
        if (record.signature.op < NG_OP_LIMIT && reader->append)
            member->records[member->record_count++] = record;
    }
}

static void get_member(struct reader *reader)
{
    struct ng_view_member told = {.process = reader->process}, *member = NULL;
    struct ng_view_sample samples[NG_PROGRESS_SAMPLES] = {0};
    struct ng_edge edges[NG_EDGES_MAX] = {0};
    struct ng_coder *coder = &reader->coder;
    uint64_t bits = 0, place = 0;

    told.edges = edges;
    told.samples = samples;
    ng_code_member(coder, &told, &bits, &place);
    if (coder->bad || place >= coder->group_count) {
        coder->bad = true;
        return;
    }
    const struct group *group = &reader->groups[place];
    if (!(bits & MEMBER_UNLIKE)) {
        told.nranks = group->nranks;
        told.nccl_version = group->nccl_version;
    }
    if (told.created_by >= NG_OP_LIMIT)
        told.created_by = NG_OP_NONE;
    if (told.last.op >= NG_OP_LIMIT)
        told.last = (struct ng_signature){0};
    if (told.host_calls.op >= NG_OP_LIMIT)
        told.host_calls.op = NG_OP_NONE;
    if (told.nranks < 0 || told.nranks > NG_VIEW_NRANKS_MAX || told.group_rank < -1 ||
        told.group_rank >= NG_VIEW_NRANKS_MAX ||
        (told.group_rank >= 0 && told.group_rank >= group->nranks)) {
        coder->bad = true;
        return;
    }
    if (reader->append) {
        uint32_t sample_count = told.sample_count;
        told.group = group->index;
        told.samples = NULL;
        told.sample_count = 0;
        member = ng_view_add_member(reader->view, reader->process, told.group, told.group_rank);
        if (!have(reader, member))
            return;
        *member = told;
        if (!ng_view_set_edges(reader->view, member, edges, told.edge_count, told.edges_age_ns))
            reader->short_of_memory = true;
        for (uint32_t i = 0; i < sample_count; i++)
            if (!ng_view_add_sample(reader->view, member, &samples[i]))
                reader->short_of_memory = true;
    }
    get_records(reader, member);
}

static void get_call(struct reader *reader)
{
    struct ng_view_call told = {.process = reader->process};

    ng_code_call(&reader->coder, &told);
    if (!reader->append || told.op >= NG_OP_LIMIT)
        return;
    struct ng_view_call *call = ng_view_add_call(reader->view, reader->process);
    if (have(reader, call))
        *call = told;
}

static void get_failure(struct reader *reader)
{
    struct ng_view_failure told = {.member.process = reader->process};
    struct ng_view_member *member = &told.member;

    ng_code_failure(&reader->coder, &told);
    if (!reader->append || member->group_rank < 0 || member->group_rank >= member->nranks ||
        member->nranks > NG_VIEW_NRANKS_MAX || member->nccl_version < 0 ||
        member->created_by >= NG_OP_LIMIT)
        return;
    struct ng_view_failure *failure =
        ng_view_add_failure(reader->view, reader->process, told.group_id, member->group_rank);
    if (!have(reader, failure))
        return;
    member->color = failure->member.color;
    member->state = failure->member.state;
    failure->member = *member;
}

/* ---- The whole blob, and its head alone ---- */

static bool goes_on(const struct reader *reader)
{
    return !reader->coder.bad && !reader->short_of_memory;
}

static int result_of(const struct reader *reader)
{
    return reader->short_of_memory ? -ENOMEM : reader->coder.bad ? -EBADMSG : 0;
}

/* The time at which the process's ages are 0: when it wrote, or at its end. 0 not known. */
static int64_t moment_of(const struct ng_progress_head *head)
{
    enum ng_life life = head->process.life;
    bool lives = life == NG_LIFE_RUNNING || life == NG_LIFE_STOPPED;
    int64_t moment;

    if (__builtin_sub_overflow(head->written_unix_ns, lives ? 0 : head->process.life_age_ns,
                               &moment))
        return 0;
    return moment > 0 ? moment : 0;
}

static void add_process(struct reader *reader, const struct ng_progress_head *head)
{
    struct ng_view_process *process = ng_view_add_process(reader->view);

    if (!have(reader, process))
        return;
    reader->process = reader->view->process_count - 1;
    *process = head->process;
    process->moment_unix_ns = moment_of(head);
    if (ng_view_apply_set(reader->view, reader->process) != 0)
        reader->short_of_memory = true;
    NG_EACH (told, reader->coder.faults, reader->coder.fault_count) {
        struct ng_view_fault *added =
            ng_view_add_fault(reader->view, reader->process, &told->fault);
        if (!have(reader, added))
            return;
        added->first_age_ns = told->first_age_ns;
        added->last_age_ns = told->last_age_ns;
    }
}

/* Read until after the head. */
static int get_head(struct ng_coder *coder, const void *data, size_t bytes,
                    struct ng_progress_head *ret_head)
{
    coder->at = data;
    coder->end = coder->at + bytes;
    coder->text_count = coder->fault_count = 0;
    coder->before = (struct ng_view_record){0};
    memset(coder->faults, 0, sizeof(coder->faults));
    int error = ng_code_begin(coder);
    coder->tells_failures = false;
    *ret_head = (struct ng_progress_head){0};
    if (!error)
        ng_code_head(coder, ret_head);
    return error;
}

/* Read the whole blob, once. */
static int get_process(struct reader *reader, const void *data, size_t bytes)
{
    struct ng_coder *coder = &reader->coder;
    struct ng_progress_head head;
    char *source = head.process.source;
    int error = get_head(coder, data, bytes, &head);

    if (error)
        return error;
    ng_code_text(coder, source, sizeof(head.process.source));
    if (reader->append)
        add_process(reader, &head);
    if (goes_on(reader))
        get_groups(reader);
    uint32_t members = goes_on(reader) ? ng_code_count(coder, 0) : 0;
    for (uint32_t i = 0; i < members && goes_on(reader); i++)
        get_member(reader);
    uint32_t calls = goes_on(reader) ? ng_code_count(coder, 0) : 0;
    for (uint32_t i = 0; i < calls && goes_on(reader); i++)
        get_call(reader);
    uint32_t failures = goes_on(reader) && coder->tells_failures ? ng_code_count(coder, 0) : 0;
    for (uint32_t i = 0; i < failures && goes_on(reader); i++)
        get_failure(reader);
    return result_of(reader);
}

int ng_progress_decode(struct ng_view *view, const void *data, size_t bytes, uint32_t *ret_process)
{
    struct reader reader = {.view = view};
    int error = get_process(&reader, data, bytes);

    if (error)
        return error;
    reader.append = true;
    error = get_process(&reader, data, bytes);
    if (!error)
        *ret_process = reader.process;
    return error;
}

int ng_progress_peek(const void *data, size_t bytes, struct ng_progress_head *ret_head)
{
    struct ng_coder coder = {0};
    struct ng_progress_head head;
    int error = get_head(&coder, data, bytes, &head);

    if (error)
        return error;
    if (coder.bad)
        return -EBADMSG;
    *ret_head = head;
    return 0;
}

/* ---- Ageing by the time since it was written ---- */

/* Never beyond what ng_view_age allows. */
static void make_older(int64_t *age_ns, int64_t by_ns)
{
    *age_ns = ng_view_age(ng_view_age(*age_ns) + ng_view_age(by_ns));
}

/* The age of what may not have been: then it is 0, and stays so. */
static void make_older_if_any(int64_t *age_ns, int64_t by_ns)
{
    if (*age_ns > 0)
        make_older(age_ns, by_ns);
}

void ng_progress_age(struct ng_view *view, uint32_t process, int64_t by_ns)
{
    struct ng_view_process *told = &view->processes[process];

    if (by_ns <= 0)
        return;
    if (told->life != NG_LIFE_RUNNING && told->life != NG_LIFE_STOPPED) {
        make_older_if_any(&told->life_age_ns, by_ns);
        make_older_if_any(&told->alive_age_ns, by_ns);
        return;
    }
    make_older_if_any(&told->moment_unix_ns, by_ns);
    make_older_if_any(&told->watchdog_stuck_ns, by_ns);
    make_older_if_any(&told->nan.age_ns, by_ns);
    make_older_if_any(&told->devices_age_ns, by_ns);
    for (uint32_t i = 0; i < told->device_error_count; i++)
        make_older(&told->device_errors[i].age_ns, by_ns);
    NG_EACH (member, view->members, view->member_count) {
        if (member->process != process)
            continue;
        make_older_if_any(&member->created_age_ns, by_ns);
        make_older_if_any(&member->ended_age_ns, by_ns);
        make_older_if_any(&member->error_age_ns, by_ns);
        if (member->pending_record)
            make_older(&member->pending_age_ns, by_ns);
        if (member->edge_count)
            make_older(&member->edges_age_ns, by_ns);
        NG_EACH (record, member->records, member->record_count) {
            make_older(&record->entered_age_ns, by_ns);
            make_older_if_any(&record->started_age_ns, by_ns);
            make_older_if_any(&record->completed_age_ns, by_ns);
        }
    }
    for (uint32_t i = 0; i < view->call_count; i++)
        if (view->calls[i].process == process)
            make_older(&view->calls[i].age_ns, by_ns);
    for (uint32_t i = 0; i < view->failure_count; i++) {
        struct ng_view_member *member = &view->failures[i].member;
        if (member->process != process)
            continue;
        make_older_if_any(&member->created_age_ns, by_ns);
        make_older_if_any(&member->ended_age_ns, by_ns);
    }
    for (uint32_t i = 0; i < view->fault_count; i++)
        if (view->faults[i].process == process) {
            make_older(&view->faults[i].first_age_ns, by_ns);
            make_older(&view->faults[i].last_age_ns, by_ns);
        }
}
