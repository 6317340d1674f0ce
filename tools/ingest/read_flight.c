/*
 * From the content of PyTorch's flight recorder to the view that the verdict engine judges.
 *
 * Used by `ncclguard analyze`, from several threads with a reader each. The file is read into
 * memory, not mapped: its writer may truncate it meanwhile. What it does not contain is left
 * unknown, never guessed.
 *
 * An entry is a call. Operations of one NCCL group are consecutive, have one sequence number, and
 * are followed by a closing entry, the only one whose state is kept up to date; the view gets one
 * record for all of them, with the counts added up. Sends and receives keep a record each.
 */
#include "tools/ingest/read_flight.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/util/clock.h"
#include "core/util/macros.h"
#include "tools/base/owned.h"
#include "tools/base/search_path.h"

#define FILE_BYTES_MAX ((off_t)1 << 30)
#define RANKS_MAX      NG_VIEW_NRANKS_MAX
/* Of all lists of ranks in a file; in a damaged one, one list may be used for many groups. */
#define RANKS_BYTES_MAX ((uint64_t)1 << 28)

#define FRAME_TEXT_MAX 4096u /* of a file or a name; frames with longer ones are left out */

/* A file that is older than its newest entry by more than the longest deadline, plus this, was
 * copied. */
#define COPIED_AFTER_NS (3600 * NG_S)

/* A process group as this rank sees it. */
struct group {
    const struct ng_flight_group *config; /* NULL: pg_config does not have it */
    uint32_t place;                       /* of the member in the view, from 1; 0 none */
    struct ng_view_member *member;        /* NULL: this rank is not in it, or it is not known */
    uint32_t records;                     /* at most */
};

struct reading {
    struct ng_view *view;
    struct ng_flight *flight;
    struct group *groups; /* by the index of the name in ng_flight.names */
    int rank;
    bool whole;  /* no entry was overwritten */
    bool copied; /* the time of writing is not known */
    bool ours;   /* ncclguard wrote it */
    int64_t as_of_ns;
    uint64_t ranks_bytes;                  /* of the lists of ranks read so far */
    size_t not_configured, not_understood; /* entries left out */
    size_t overwritten;                    /* groups of which no entry is left */
};

void ng_flight_reader_init(struct ng_flight_reader *reader)
{
    *reader = (struct ng_flight_reader){0};
    ng_flight_init(&reader->flight);
}

void ng_flight_reader_fini(struct ng_flight_reader *reader)
{
    ng_flight_fini(&reader->flight);
    free(reader->bytes);
    free(reader->named);
    *reader = (struct ng_flight_reader){0};
}

int ng_flight_rank(const char *name)
{
    static const char *const endings[] = {".pkl", ".pickle", ".pt"};
    size_t end = strlen(name), digits = 0;
    uint64_t rank = 0, unit = 1;

    for (size_t i = 0; i < NG_COUNT(endings); i++) {
        size_t length = strlen(endings[i]);
        if (end > length && strcmp(name + end - length, endings[i]) == 0) {
            end -= length;
            break;
        }
    }
    for (; digits < end && digits < 9; digits++, unit *= 10) {
        char digit = name[end - digits - 1];
        if (digit < '0' || digit > '9')
            break;
        rank += (uint64_t)(digit - '0') * unit;
    }
    return digits && rank < RANKS_MAX ? (int)rank : -1;
}

/* --- the file --- */

static int read_whole(struct ng_flight_reader *reader, int fd, size_t bytes, char *why,
                      size_t why_bytes)
{
    size_t used = 0;

    if (bytes > reader->room) {
        uint8_t *bigger = realloc(reader->bytes, bytes);
        if (!bigger)
            return -ENOMEM;
        reader->bytes = bigger;
        reader->room = bytes;
    }
    while (used < bytes) {
        ssize_t got = read(fd, reader->bytes + used, bytes - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int error = -errno;
            snprintf(why, why_bytes, "%s", strerror(-error));
            return error;
        }
        if (got == 0) {
            snprintf(why, why_bytes, "it grew shorter while it was read");
            return -EBADMSG;
        }
        used += (size_t)got;
    }
    return 0;
}

static int load(struct ng_flight_reader *reader, const char *path, struct stat *ret_status,
                char *why, size_t why_bytes)
{
    NG_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int error = 0;

    if (fd < 0 || fstat(fd, ret_status) != 0) {
        error = -errno;
        snprintf(why, why_bytes, "%s", strerror(-error));
    } else if (ret_status->st_size > FILE_BYTES_MAX) {
        error = -E2BIG;
        snprintf(why, why_bytes, "larger than any flight recorder's dump");
    } else {
        error = read_whole(reader, fd, (size_t)ret_status->st_size, why, why_bytes);
    }
    return error;
}

/* --- process groups --- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* Names of 16 hex digits are ids already: dumps that ncclguard wrote name groups in this way. */
static uint64_t id_of_name(const struct ng_flight_text *name)
{
    uint64_t id = 0;

    for (uint32_t i = 0; i < name->length; i++) {
        char c = name->text[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0)
            return 0;
        id = id << 4 | (uint64_t)digit;
    }
    return name->length == 16 ? id : 0;
}

struct ranks {
    uint64_t id; /* of the group; 0: its list of ranks is implausible */
    int count;
    int own;   /* rank of this process in the group; -1 it is not a member */
    bool ours; /* named as in dumps that ncclguard wrote */
};

static int name_rank(struct ng_flight_reader *reader, uint64_t rank)
{
    size_t word = (size_t)(rank / 64);

    if (word >= reader->named_words) {
        size_t wanted = word + 16;
        uint64_t *bigger = reallocarray(reader->named, wanted, sizeof(*bigger));
        if (!bigger)
            return -ENOMEM;
        memset(bigger + reader->named_words, 0, (wanted - reader->named_words) * sizeof(*bigger));
        reader->named = bigger;
        reader->named_words = wanted;
    }
    reader->named[word] |= UINT64_C(1) << rank % 64;
    return 0;
}

/* "[0, 1, 2]" */
static int read_ranks(struct ng_flight_reader *reader, const struct ng_flight_group *group,
                      int own_rank, struct ranks *ret_ranks)
{
    const char *at = group->ranks.text, *end = at + group->ranks.length;
    struct ranks ranks = {.own = -1};
    uint64_t hash = group->key.length, ready = id_of_name(&group->key);

    for (uint32_t i = 0; i < group->key.length; i++)
        hash = mix(hash, (unsigned char)group->key.text[i]);
    while (at < end) {
        uint64_t rank = 0;
        if (*at < '0' || *at > '9') {
            at++;
            continue;
        }
        for (; at < end && *at >= '0' && *at <= '9' && rank < RANKS_MAX; at++)
            rank = rank * 10 + (uint64_t)(*at - '0');
        if (rank >= RANKS_MAX || ranks.count >= RANKS_MAX) {
            *ret_ranks = (struct ranks){.own = -1};
            return 0;
        }
        if (name_rank(reader, rank) != 0)
            return -ENOMEM;
        if ((int)rank == own_rank)
            ranks.own = ranks.count;
        hash = mix(hash, rank);
        ranks.count++;
    }
    ranks.ours = ready != 0;
    if (ranks.count)
        ranks.id = ready ? ready : hash ? hash : 1;
    *ret_ranks = ranks;
    return 0;
}

/* As PyTorch writes a process group: "0:default_pg". An id in the place of a name is not a name. */
static void name_group(const struct ng_flight_group *group, bool ours, char *ret_name, size_t bytes)
{
    int key = (int)(group->key.length < 40 ? group->key.length : 40);
    int desc = (int)(group->desc.length < 60 ? group->desc.length : 60);
    bool described = desc > 0 && !(desc == 9 && memcmp(group->desc.text, "undefined", 9) == 0);

    if (ours)
        snprintf(ret_name, bytes, "%.*s", desc, described ? group->desc.text : "");
    else if (described)
        snprintf(ret_name, bytes, "%.*s:%.*s", key, group->key.text, desc, group->desc.text);
    else
        snprintf(ret_name, bytes, "%.*s", key, group->key.text);
}

static struct group *group_named(struct reading *reading, const struct ng_flight_text *key)
{
    size_t index = ng_flight_find_name(reading->flight, key);

    return index < reading->flight->name_count ? &reading->groups[index] : NULL;
}

/* This rank's membership in a process group. */
static int add_member(struct reading *reading, struct ng_flight_reader *reader,
                      const struct ng_flight_group *config)
{
    struct ng_view *view = reading->view;
    struct group *group = config->key.text ? group_named(reading, &config->key) : NULL;
    struct ng_view_group told = {0};
    struct ranks ranks;

    if (!config->key.text || !config->ranks.text)
        return 0;
    reading->ranks_bytes += config->ranks.length;
    if (reading->ranks_bytes > RANKS_BYTES_MAX)
        return -E2BIG;
    int error = read_ranks(reader, config, reading->rank, &ranks);
    if (error || !ranks.id)
        return error;
    reading->ours |= ranks.ours;
    told.id = ranks.id;
    told.nranks = ranks.count;
    name_group(config, ranks.ours, told.name, sizeof(told.name));
    uint32_t index = ng_view_tell_group(view, &told);
    if (index == UINT32_MAX)
        return -ENOMEM;
    if (group)
        group->config = config;
    if (ranks.own < 0)
        return 0;
    struct ng_view_process *process = &view->processes[view->process_count - 1];
    if (ranks.count > process->world_size)
        process->world_size = ranks.count;
    /* Entries that were overwritten may all have been of this group: its progress is then not
     * known. */
    if (!group && !reading->whole) {
        reading->overwritten++;
        return 0;
    }
    struct ng_view_member *member =
        ng_view_add_member(view, view->process_count - 1, index, ranks.own);
    if (!member)
        return -ENOMEM;
    member->state = NG_GROUP_READY;
    member->last = (struct ng_signature){.dtype = -1, .redop = -1, .root = -1};
    if (group)
        group->place = view->member_count;
    return 0;
}

/* --- entries --- */

static int64_t age_at(const struct reading *reading, int64_t unix_ns)
{
    return unix_ns > 0 && unix_ns < reading->as_of_ns ? ng_view_age(reading->as_of_ns - unix_ns)
                                                      : 0;
}

static enum ng_record_state state_of(const struct ng_flight_entry *entry)
{
    return entry->state == NG_FLIGHT_COMPLETED ? NG_RECORD_COMPLETED
           : entry->state == NG_FLIGHT_STARTED ? NG_RECORD_STARTED
                                               : NG_RECORD_SCHEDULED;
}

/* "nccl:send 0->1", "nccl:recv 1<-0": ranks of the group, the other one last. */
static bool read_peer(const struct ng_flight_text *name, enum ng_op *ret_op, int *ret_peer)
{
    static const struct {
        const char *start, *arrow;
        enum ng_op op;
    } forms[] = {{"nccl:send ", "->", NG_OP_Send}, {"nccl:recv ", "<-", NG_OP_Recv}};
    char text[64];
    int end = 0;

    if (!name->text || name->length >= sizeof(text))
        return false;
    memcpy(text, name->text, name->length);
    text[name->length] = '\0';
    for (size_t i = 0; i < 2; i++) {
        size_t length = strlen(forms[i].start);
        const char *arrow = strstr(text, forms[i].arrow);
        if (strncmp(text, forms[i].start, length) != 0 || !arrow ||
            sscanf(arrow + 2, "%9d%n", ret_peer, &end) != 1 || arrow[2 + end] || *ret_peer < 0)
            continue;
        *ret_op = forms[i].op;
        return true;
    }
    return false;
}

static uint64_t count_of(const struct ng_flight_entry *entry, enum ng_flight_side side)
{
    switch (side) {
    case NG_FLIGHT_INPUT:
        return entry->input_count;
    case NG_FLIGHT_OUTPUT:
        return entry->output_count;
    case NG_FLIGHT_EITHER:
        return entry->input_count ? entry->input_count : entry->output_count;
    case NG_FLIGHT_NEITHER:
        break;
    }
    return 0;
}

static int16_t dtype_of(const struct ng_flight_entry *entry)
{
    return entry->input_dtype >= 0 ? entry->input_dtype : entry->output_dtype;
}

/* False: the operation is not known. */
static bool read_signature(const struct ng_flight_entry *entry, struct ng_signature *ret_signature)
{
    *ret_signature = (struct ng_signature){.dtype = dtype_of(entry), .redop = -1, .root = -1};
    if (entry->is_p2p) {
        enum ng_op op;
        int peer;
        if (!read_peer(&entry->profiling_name, &op, &peer))
            return false;
        ret_signature->op = op;
        ret_signature->root = peer;
        ret_signature->count = op == NG_OP_Send ? entry->input_count : entry->output_count;
        if (!ret_signature->count)
            ret_signature->count = count_of(entry, NG_FLIGHT_EITHER);
        return true;
    }
    if (!entry->op || entry->op->op == NG_OP_NONE)
        return false;
    ret_signature->op = entry->op->op;
    ret_signature->count = count_of(entry, entry->op->side);
    return true;
}

static void tell_state(const struct reading *reading, const struct ng_flight_entry *entry,
                       struct ng_view_record *record)
{
    record->state = state_of(entry);
    record->started_age_ns = age_at(reading, entry->started_ns);
    record->completed_age_ns = age_at(reading, entry->completed_ns);
}

static bool is_of(const struct ng_view_record *record, const struct ng_flight_entry *entry)
{
    return ng_view_record_is_p2p(record) ? record->p2p_seq == (uint64_t)entry->p2p_seq
                                         : record->coll_seq == (uint64_t)entry->coll_seq;
}

/* The closing entry of a NCCL group: the operations in it get its state. False: there are none. */
static bool close_group(const struct reading *reading, struct ng_view_member *member,
                        const struct ng_flight_entry *entry)
{
    uint32_t i = member->record_count;
    bool p2p = i > 0 && ng_view_record_is_p2p(&member->records[i - 1]);

    if (i == 0 || !is_of(&member->records[i - 1], entry))
        return false;
    for (; i > 0; i--) {
        struct ng_view_record *record = &member->records[i - 1];
        if (ng_view_record_is_p2p(record) != p2p || !is_of(record, entry))
            break;
        if (i < member->record_count)
            record[1].work_previous = record->id;
        tell_state(reading, entry, record);
        record->flags |= NG_RECORD_IN_GROUP;
    }
    member->records[member->record_count - 1].duration_ns = entry->duration_ns;
    return true;
}

/* Another collective of the same NCCL group as the previous one. */
static bool join_group(struct ng_view_member *member, const struct ng_flight_entry *entry,
                       const struct ng_signature *signature)
{
    struct ng_view_record *before =
        member->record_count ? &member->records[member->record_count - 1] : NULL;
    uint64_t count;

    if (entry->is_p2p || !before || ng_view_record_is_p2p(before) || !is_of(before, entry))
        return false;
    before->flags |= NG_RECORD_IN_GROUP;
    if (__builtin_add_overflow(before->signature.count, signature->count, &count))
        count = UINT64_MAX;
    before->signature.count = count;
    if (state_of(entry) < before->state)
        before->state = state_of(entry);
    return true;
}

/* Progress is counted even if the operation is not known. */
static void count_collective(struct ng_view_member *member, const struct ng_flight_entry *entry)
{
    uint64_t seq = (uint64_t)entry->coll_seq;

    if (seq > member->entered)
        member->entered = member->scheduled = seq;
    if (entry->state >= NG_FLIGHT_STARTED && seq > member->started)
        member->started = seq;
    if (entry->state == NG_FLIGHT_COMPLETED && seq > member->completed)
        member->completed = seq;
}

static void take_entry(struct reading *reading, const struct ng_flight_entry *entry)
{
    struct group *group =
        entry->group < reading->flight->name_count ? &reading->groups[entry->group] : NULL;
    struct ng_view_member *member = group ? group->member : NULL;
    struct ng_signature signature;

    /* Other dictionaries have a state as well. */
    if (entry->record_id < 0 && !entry->profiling_name.text)
        return;
    if (!member) {
        reading->not_configured += !group || !group->config;
        return;
    }
    if (entry->timeout_ms > 0 && entry->timeout_ms < INT64_MAX / NG_MS)
        member->timeout_ns = entry->timeout_ms * NG_MS;
    bool closes = entry->op && entry->op->closes && close_group(reading, member, entry);
    if (closes && ng_view_record_is_p2p(&member->records[member->record_count - 1]))
        return;
    if (!entry->is_p2p && entry->coll_seq > 0)
        count_collective(member, entry);
    if (closes)
        return;
    if (!read_signature(entry, &signature)) {
        reading->not_understood += !(entry->op && entry->op->closes);
        return;
    }
    if ((!entry->is_p2p && entry->coll_seq <= 0) || entry->record_id < 0 ||
        join_group(member, entry, &signature) || member->record_count >= group->records)
        return;
    member->records[member->record_count] = (struct ng_view_record){
        .id = (uint64_t)entry->record_id + 1,
        .signature = signature,
        .coll_seq = entry->is_p2p ? member->entered : (uint64_t)entry->coll_seq,
        .p2p_seq = entry->p2p_seq > 0 ? (uint64_t)entry->p2p_seq : 0,
        .entered_age_ns = age_at(reading, entry->created_ns),
        .flags = entry->is_p2p ? NG_RECORD_P2P : 0,
        .duration_ns = entry->duration_ns,
    };
    tell_state(reading, entry, &member->records[member->record_count]);
    member->record_count++;
}

/* --- sends and receives --- */

/* Number of sends to, and receives from, a peer so far. */
struct pair {
    int peer;
    uint32_t op;
    uint64_t count;
};

/* The ordinal of each send or receive with its peer, if the first ones are known; p2p_seq counts
 * calls, as ours does. */
static int number_pairs(struct reading *reading, struct ng_view_member *member)
{
    uint64_t count = 0, mask = 15;

    for (uint32_t i = 0; i < member->record_count; i++)
        count += ng_view_record_is_p2p(&member->records[i]);
    member->p2p_entered = count;
    if (!count)
        return 0;
    if (!reading->whole) {
        /* There were others before, and their number is not known. */
        member->p2p_entered++;
        for (uint32_t i = 0; i < member->record_count; i++)
            member->records[i].p2p_seq++;
        return 0;
    }
    while (mask < 2 * count)
        mask = mask * 2 + 1;
    struct pair *pairs = ng_arena_alloc(&reading->view->arena, (mask + 1) * sizeof(*pairs));
    if (!pairs)
        return -ENOMEM;
    uint64_t so_far = 0;
    NG_EACH (record, member->records, member->record_count) {
        if (!ng_view_record_is_p2p(record)) {
            record->p2p_seq = so_far;
            continue;
        }
        uint64_t at = mix(record->signature.op, (uint64_t)record->signature.root) & mask;
        while (pairs[at].count &&
               (pairs[at].peer != record->signature.root || pairs[at].op != record->signature.op))
            at = (at + 1) & mask;
        pairs[at].peer = record->signature.root;
        pairs[at].op = record->signature.op;
        record->peer_ordinal = ++pairs[at].count;
        record->p2p_seq = ++so_far;
    }
    return 0;
}

/*
 * The oldest work in flight. A communicator works in order, so operations before a completed one
 * are done, whatever their state is: the recorder does not update it after releasing them.
 */
static void find_pending(struct ng_view_member *member)
{
    const struct ng_view_record *pending = NULL;
    uint32_t done = 0;

    for (uint32_t i = 0; i < member->record_count; i++) {
        const struct ng_view_record *record = &member->records[i];
        if (!ng_view_record_is_p2p(record)) {
            member->last = record->coll_seq == member->entered ? record->signature : member->last;
            continue;
        }
        if (record->state == NG_RECORD_COMPLETED)
            done = i + 1;
        member->p2p_completed += record->state == NG_RECORD_COMPLETED;
    }
    for (uint32_t i = 0; i < member->record_count && !pending; i++) {
        struct ng_view_record *record = &member->records[i];
        bool p2p = ng_view_record_is_p2p(record);
        if (record->state == NG_RECORD_COMPLETED)
            continue;
        if (p2p ? i < done : record->coll_seq <= member->completed)
            record->state = NG_RECORD_COMPLETED;
        else
            pending = record;
    }
    if (!pending)
        return;
    /* A NCCL group is one operation on the device, identified by its last call. */
    const struct ng_view_record *last = pending, *end = member->records + member->record_count;
    while (last + 1 < end && last[1].work_previous && last[1].work_previous == last->id)
        last++;
    member->pending_record = last->id;
    member->pending_seq = ng_view_record_is_p2p(pending) ? 0 : pending->coll_seq;
    member->pending_started = pending->state == NG_RECORD_STARTED;
    member->pending_age_ns = pending->entered_age_ns > 0 ? pending->entered_age_ns : 1;
}

/* Measured collectives that ranks can compare, in order. */
static int add_samples(struct ng_view *view, struct ng_view_member *member)
{
    NG_EACH (record, member->records, member->record_count) {
        /* The number of calls in a NCCL group does not matter if all ranks have it. */
        struct ng_view_sample sample = {.seq = record->coll_seq,
                                        .calls = record->flags & NG_RECORD_IN_GROUP ? 2 : 1,
                                        .duration_ns = record->duration_ns};
        if (record->duration_ns > 0 && ng_op_is_symmetric(record->signature.op) &&
            !ng_view_add_sample(view, member, &sample))
            return -ENOMEM;
    }
    return 0;
}

/* --- stacks --- */

/* Other frames are of C++, which has them below Python's; ncclguard's own files have no lines of
 * those. */
static bool is_python(const struct ng_flight_frame *frame)
{
    const struct ng_flight_text *file = &frame->file;

    return file->length > 0 &&
           (file->text[0] == '<' ||
            (file->length > 3 && memcmp(file->text + file->length - 3, ".py", 3) == 0));
}

static const struct ng_view_module *module_of(struct ng_view *view,
                                              const struct ng_flight_text *file,
                                              const struct ng_view_module *before)
{
    if (before && strlen(before->path) == file->length &&
        memcmp(before->path, file->text, file->length) == 0)
        return before;
    char *path = ng_arena_strndup(&view->arena, file->text, file->length);
    return path ? ng_view_add_module(view, path, "") : NULL;
}

/* The call stack of an entry in the view; 0 none, or no memory. */
static uint32_t add_stack(struct reading *reading, const struct ng_flight_entry *entry)
{
    struct ng_view *view = reading->view;
    struct ng_view_frame frames[NG_VIEW_FRAMES];
    struct ng_view_call_stack stack = {.process = view->process_count - 1, .frames = frames};

    for (uint32_t i = 0; i < entry->frame_count; i++) {
        const struct ng_flight_frame *from =
            &reading->flight->frames[reading->flight->stacks[entry->first_frame + i]];
        const struct ng_view_module *before = stack.count ? frames[stack.count - 1].module : NULL;
        if (!is_python(from) || from->file.length > FRAME_TEXT_MAX ||
            from->name.length > FRAME_TEXT_MAX)
            continue;
        if (stack.count == NG_VIEW_FRAMES) {
            stack.python_cut = true;
            break;
        }
        frames[stack.count++] = (struct ng_view_frame){
            .is_python = true,
            .line = from->line,
            .module = module_of(view, &from->file, before),
            .name = from->name.length
                        ? ng_arena_strndup(&view->arena, from->name.text, from->name.length)
                        : NULL};
    }
    return stack.count ? ng_view_intern_call_stack(view, &stack) : 0;
}

/* Where a rank waits, or made its newest call: other stacks are not needed, and would be most of
 * what is kept of a large job. */
static void add_stacks(struct reading *reading)
{
    struct ng_flight *flight = reading->flight;
    uint64_t newest = 0;

    for (size_t i = 0; i < flight->name_count; i++) {
        const struct ng_view_member *member = reading->groups[i].member;
        if (member && member->record_count && member->records[member->record_count - 1].id > newest)
            newest = member->records[member->record_count - 1].id;
    }
    NG_EACH (entry, flight->entries, flight->entry_count) {
        struct ng_view_member *member =
            entry->group < flight->name_count ? reading->groups[entry->group].member : NULL;
        uint64_t id = entry->record_id >= 0 ? (uint64_t)entry->record_id + 1 : 0;
        if (!member || !id || !entry->frame_count || (id != newest && id != member->pending_record))
            continue;
        for (uint32_t k = member->record_count; k > 0; k--)
            if (member->records[k - 1].id == id && !member->records[k - 1].call_stack)
                member->records[k - 1].call_stack = add_stack(reading, entry);
    }
}

/* --- all of it --- */

static void look_at_times(struct reading *reading, const struct stat *status)
{
    int64_t newest_ns = 0, longest_ns = 0, smallest_id = INT64_MAX;
    bool any = false;
    int64_t written_ns = (int64_t)status->st_mtim.tv_sec * NG_S + status->st_mtim.tv_nsec;

    NG_EACH (entry, reading->flight->entries, reading->flight->entry_count) {
        int64_t times[] = {entry->created_ns, entry->started_ns, entry->completed_ns};
        /* Another object with a state, such as a communicator. */
        if (entry->record_id < 0 && !entry->profiling_name.text)
            continue;
        any = true;
        for (size_t k = 0; k < 3; k++)
            newest_ns = times[k] > newest_ns ? times[k] : newest_ns;
        if (entry->timeout_ms < 1000000000 && entry->timeout_ms * NG_MS > longest_ns)
            longest_ns = entry->timeout_ms * NG_MS;
        if (entry->record_id >= 0 && entry->record_id < smallest_id)
            smallest_id = entry->record_id;
    }
    /* Our files contain their time. For PyTorch's, the time of the file is all there is: they are
     * written long after their newest entry, when a deadline has passed. */
    bool told = reading->flight->dumped_ns > 0 && reading->flight->dumped_ns >= newest_ns;
    reading->copied =
        !told && (written_ns < newest_ns || written_ns - newest_ns >= longest_ns + COPIED_AFTER_NS);
    reading->as_of_ns = told              ? reading->flight->dumped_ns
                        : reading->copied ? newest_ns
                                          : written_ns;
    reading->whole = smallest_id == 0 || !any;
}

static int add_groups(struct reading *reading, struct ng_flight_reader *reader)
{
    struct ng_flight *flight = reading->flight;

    for (size_t i = 0; i < flight->group_count; i++) {
        int error = add_member(reading, reader, &flight->groups[i]);
        if (error)
            return error;
    }
    for (size_t i = 0; i < flight->entry_count; i++)
        if (flight->entries[i].group < flight->name_count)
            reading->groups[flight->entries[i].group].records++;
    NG_EACH (group, reading->groups, flight->name_count) {
        if (!group->place)
            continue;
        /* The members no longer move. */
        group->member = &reading->view->members[group->place - 1];
        group->member->records = ng_arena_alloc(
            &reading->view->arena, (group->records + 1) * sizeof(*group->member->records));
        if (!group->member->records)
            return -ENOMEM;
    }
    return 0;
}

static void note_left_out(const struct reading *reading, const char *source)
{
    if (reading->not_configured)
        ng_view_note(reading->view, "%s: %zu entries are of process groups that it does not list",
                     source, reading->not_configured);
    if (reading->overwritten)
        ng_view_note(reading->view, "%s: holds no entries of %zu of its process groups any more",
                     source, reading->overwritten);
    if (reading->not_understood)
        ng_view_note(reading->view, "%s: %zu entries are of operations that are not known", source,
                     reading->not_understood);
}

static int tell(struct ng_flight_reader *reader, struct reading *reading, const char *source)
{
    struct ng_view_process *process = ng_view_add_process(reading->view);
    struct ng_flight *flight = reading->flight;

    if (!process)
        return -ENOMEM;
    process->rank = reading->rank;
    process->life = NG_LIFE_UNKNOWN;
    process->moment_unix_ns = reading->as_of_ns;
    snprintf(process->source, sizeof(process->source), "%s", source);
    reading->groups =
        ng_arena_alloc(&reading->view->arena, (flight->name_count + 1) * sizeof(*reading->groups));
    if (!reading->groups)
        return -ENOMEM;
    int error = add_groups(reading, reader);
    for (size_t i = 0; !error && i < flight->entry_count; i++)
        take_entry(reading, &flight->entries[i]);
    for (size_t i = 0; !error && i < flight->name_count; i++) {
        struct ng_view_member *member = reading->groups[i].member;
        if (!member)
            continue;
        error = number_pairs(reading, member);
        if (!error)
            find_pending(member);
        error = error ?: add_samples(reading->view, member);
    }
    if (!error) {
        add_stacks(reading);
        note_left_out(reading, source);
    }
    return error;
}

int ng_read_flight(struct ng_flight_reader *reader, struct ng_view *view, const char *path,
                   const char *source, bool *ret_incident, char *why, size_t why_bytes)
{
    struct reading reading = {.view = view, .flight = &reader->flight};
    struct stat status;

    reading.rank = ng_flight_rank(ng_last_part(path));
    int error = load(reader, path, &status, why, why_bytes)
                    ?: ng_flight_parse(&reader->flight, reader->bytes, (size_t)status.st_size, why,
                                       why_bytes);
    if (error)
        return error;
    if (reading.rank < 0) {
        snprintf(why, why_bytes,
                 "a dump of PyTorch's flight recorder whose name does not end in its rank: call it "
                 "rank_<r>");
        return -EBADMSG;
    }
    look_at_times(&reading, &status);
    error = tell(reader, &reading, source);
    if (error)
        snprintf(why, why_bytes, "%s", strerror(-error));
    else
        *ret_incident = reading.copied || (reading.ours && !reader->flight.on_request);
    return error;
}
