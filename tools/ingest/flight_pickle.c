/*
 * From the pickle of PyTorch's flight recorder to its entries.
 *
 * Used by `ncclguard analyze`. The kind of a dictionary (entry, process group or stack frame) shows
 * only in its keys; data that is not needed is dropped.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/macros.h"
#include "tools/base/grow.h"
#include "tools/ingest/flight.h"

/* More than any recorder contains, so that a damaged file cannot claim all memory. */
#define ENTRIES_MAX    ((size_t)1 << 22)
#define GROUPS_MAX     ((size_t)1 << 20)
#define NAMES_MAX      ((size_t)1 << 20)
#define NAME_BYTES_MAX 1024
/* More are dropped: stacks are no evidence for a verdict. */
#define FRAMES_MAX          ((size_t)1 << 22)
#define FRAMES_OF_STACK_MAX 255u
/* No collective takes longer. */
#define DURATION_MAX_MS 1e9

/* Kinds of containers in such a pickle. */
enum shape {
    SHAPE_EMPTY,
    SHAPE_OTHER,
    SHAPE_SIZE,    /* list of integers; summary: their product */
    SHAPE_SIZES,   /* list of sizes; summary: their sum */
    SHAPE_DTYPES,  /* list of names of data types; summary: NCCL's number + 1, 0 none or several */
    SHAPE_NAME,    /* (name, description) of a process group; summary: index of the name */
    SHAPE_ENTRY,   /* summary: its index */
    SHAPE_ENTRIES, /* list of them */
    SHAPE_GROUP,   /* of pg_config; summary: its index */
    SHAPE_NAMED,   /* a frame or a group, of which only the name is known; summary: as of a frame */
    SHAPE_FRAME,   /* summary: its index */
    SHAPE_STACK,   /* list of them; summary: place of the first in ng_flight.stacks, and, in the
                      lowest byte, how many */
};

/* Words: keys, states, data types and profiling names, each kind from its first number on. */
enum { WORD_NONE, WORD_KEY = 1, WORD_STATE = 64, WORD_DTYPE = 80, WORD_OP = 128, WORD_END = 192 };

enum key {
#define KEYS(KEY)                                                                                  \
    KEY(record_id)                                                                                 \
    KEY(pg_id)                                                                                     \
    KEY(process_group)                                                                             \
    KEY(collective_seq_id)                                                                         \
    KEY(p2p_seq_id)                                                                                \
    KEY(op_id)                                                                                     \
    KEY(profiling_name)                                                                            \
    KEY(time_created_ns)                                                                           \
    KEY(timeout_ms)                                                                                \
    KEY(state)                                                                                     \
    KEY(input_sizes)                                                                               \
    KEY(output_sizes)                                                                              \
    KEY(input_dtypes)                                                                              \
    KEY(output_dtypes)                                                                             \
    KEY(is_p2p)                                                                                    \
    KEY(retired)                                                                                   \
    KEY(time_discovered_started_ns)                                                                \
    KEY(time_discovered_completed_ns)                                                              \
    KEY(duration_ms)                                                                               \
    KEY(frames)                                                                                    \
    KEY(thread_id)                                                                                 \
    KEY(thread_name)                                                                               \
    KEY(filename)                                                                                  \
    KEY(line)                                                                                      \
    KEY(name)                                                                                      \
    KEY(desc)                                                                                      \
    KEY(ranks)                                                                                     \
    KEY(version)                                                                                   \
    KEY(on_request)                                                                                \
    KEY(time_dumped_ns)                                                                            \
    KEY(entries)
#define KEY(name) KEY_##name,
    KEYS(KEY)
#undef KEY
        KEY_LAST_OF_ENTRY = KEY_thread_name,
};

static const char *const keys[] = {
#define KEY(name) #name,
    KEYS(KEY)
#undef KEY
};

static const struct {
    const char *name;
    enum ng_flight_state state;
} states[] = {
    {"scheduled", NG_FLIGHT_SCHEDULED},
    {"started", NG_FLIGHT_STARTED},
    {"completed", NG_FLIGHT_COMPLETED},
};

/* PyTorch's types as passed to NCCL: booleans are bytes, complex numbers two reals. */
static const struct {
    const char *name;
    int16_t dtype;
} dtypes[] = {
    {"Char", 0},     {"Byte", 1},           {"Bool", 1},         {"Int", 2},
    {"UInt32", 3},   {"Long", 4},           {"UInt64", 5},       {"Half", 6},
    {"Float", 7},    {"ComplexFloat", 7},   {"Double", 8},       {"ComplexDouble", 8},
    {"BFloat16", 9}, {"Float8_e4m3fn", 10}, {"Float8_e5m2", 11},
};

static const struct ng_flight_op ops[] = {
    {"nccl:all_reduce", NG_OP_AllReduce, NG_FLIGHT_INPUT, false},
    {"nccl:all_reduce_barrier", NG_OP_AllReduce, NG_FLIGHT_INPUT, false},
    {"nccl:allreduce_coalesced", NG_OP_AllReduce, NG_FLIGHT_INPUT, true},
    {"nccl:broadcast", NG_OP_Broadcast, NG_FLIGHT_EITHER, false},
    {"nccl:_broadcast_oop", NG_OP_Broadcast, NG_FLIGHT_EITHER, false},
    {"nccl:reduce", NG_OP_Reduce, NG_FLIGHT_EITHER, false},
    {"nccl:_reduce_oop", NG_OP_Reduce, NG_FLIGHT_EITHER, false},
    {"nccl:all_gather", NG_OP_AllGather, NG_FLIGHT_INPUT, false},
    {"nccl:_all_gather_base", NG_OP_AllGather, NG_FLIGHT_INPUT, false},
    {"nccl:all_gather_into_tensor_coalesced", NG_OP_AllGather, NG_FLIGHT_INPUT, true},
    {"nccl:reduce_scatter", NG_OP_ReduceScatter, NG_FLIGHT_OUTPUT, false},
    {"nccl:_reduce_scatter_base", NG_OP_ReduceScatter, NG_FLIGHT_OUTPUT, false},
    {"nccl:reduce_scatter_tensor_coalesced", NG_OP_ReduceScatter, NG_FLIGHT_OUTPUT, true},
    {"nccl:gather", NG_OP_Gather, NG_FLIGHT_INPUT, false},
    {"nccl:scatter", NG_OP_Scatter, NG_FLIGHT_OUTPUT, false},
    /* The file does not say whether all parts have one size; they may differ. */
    {"nccl:all_to_all", NG_OP_AllToAllv, NG_FLIGHT_NEITHER, false},
    {"nccl:coalesced", NG_OP_NONE, NG_FLIGHT_NEITHER, true},
};

_Static_assert(NG_COUNT(keys) < WORD_STATE && NG_COUNT(states) <= WORD_DTYPE - WORD_STATE &&
                   NG_COUNT(dtypes) <= WORD_OP - WORD_DTYPE && NG_COUNT(ops) <= WORD_END - WORD_OP,
               "the numbers of words do not overlap");

/* All words, by the hash of their texts. Filled once, by the first caller. */
#define SLOTS 512
static struct {
    const char *text;
    uint32_t length;
    uint16_t word;
} slots[SLOTS];
static pthread_once_t filled = PTHREAD_ONCE_INIT;

static uint32_t hash_of(const char *text, uint32_t length)
{
    uint32_t hash = length;

    for (uint32_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash ^ hash >> 15;
}

static void add_word(const char *text, size_t word)
{
    uint32_t length = (uint32_t)strlen(text), at = hash_of(text, length) % SLOTS;

    while (slots[at].text)
        at = (at + 1) % SLOTS;
    slots[at].text = text;
    slots[at].length = length;
    slots[at].word = (uint16_t)word;
}

static void fill_slots(void)
{
    for (size_t i = 0; i < NG_COUNT(keys); i++)
        add_word(keys[i], WORD_KEY + i);
    for (size_t i = 0; i < NG_COUNT(states); i++)
        add_word(states[i].name, WORD_STATE + i);
    for (size_t i = 0; i < NG_COUNT(dtypes); i++)
        add_word(dtypes[i].name, WORD_DTYPE + i);
    for (size_t i = 0; i < NG_COUNT(ops); i++)
        add_word(ops[i].name, WORD_OP + i);
}

static uint16_t find_word(void *context, const char *text, uint32_t length)
{
    if (length > 40)
        return WORD_NONE;
    for (uint32_t at = hash_of(text, length) % SLOTS; slots[at].text; at = (at + 1) % SLOTS)
        if (slots[at].length == length && memcmp(slots[at].text, text, length) == 0)
            return slots[at].word;
    return WORD_NONE;
}

static struct ng_flight_text text_of(const struct ng_unpickle_value *value)
{
    if (value->kind != NG_UNPICKLE_TEXT)
        return (struct ng_flight_text){0};
    return (struct ng_flight_text){value->text, value->length};
}

static int64_t number_of(const struct ng_unpickle_value *value, int64_t otherwise)
{
    return value->kind == NG_UNPICKLE_INT && value->number >= 0 ? value->number : otherwise;
}

/* From milliseconds; 0 for any other value. */
static int64_t duration_of(const struct ng_unpickle_value *value)
{
    double ms = value->kind == NG_UNPICKLE_FLOAT ? value->real : (double)number_of(value, 0);

    return ms > 0 && ms < DURATION_MAX_MS ? (int64_t)(ms * 1e6) : 0;
}

static bool is_name(const struct ng_flight *flight, size_t index, const struct ng_flight_text *text)
{
    const struct ng_flight_text *name = &flight->names[index];

    return name->length == text->length &&
           (name->text == text->text || memcmp(name->text, text->text, text->length) == 0);
}

/* The position of the name in the hash table, or the free one for it. */
static uint32_t *slot_of(const struct ng_flight *flight, const struct ng_flight_text *text)
{
    size_t mask = flight->slot_count - 1, at = hash_of(text->text, text->length) & mask;

    while (flight->slots[at] && !is_name(flight, flight->slots[at] - 1, text))
        at = (at + 1) & mask;
    return &flight->slots[at];
}

static int make_slots(struct ng_flight *flight)
{
    size_t count = flight->slot_count;

    if (flight->name_count < count / 2)
        return 0;
    count = count ? count * 2 : 64;
    uint32_t *bigger = reallocarray(flight->slots, count, sizeof(*bigger));
    if (!bigger)
        return -ENOMEM;
    memset(bigger, 0, count * sizeof(*bigger));
    flight->slots = bigger;
    flight->slot_count = count;
    for (size_t i = 0; i < flight->name_count; i++)
        *slot_of(flight, &flight->names[i]) = (uint32_t)i + 1;
    return 0;
}

/* An entry mostly names the same process group as the previous one. */
static int intern_name(struct ng_flight *flight, const struct ng_flight_text *text,
                       size_t *ret_index)
{
    if (flight->last_name < flight->name_count && is_name(flight, flight->last_name, text)) {
        *ret_index = flight->last_name;
        return 0;
    }
    if (flight->name_count >= NAMES_MAX)
        return -E2BIG;
    if (make_slots(flight) != 0)
        return -ENOMEM;
    uint32_t *slot = slot_of(flight, text);
    if (!*slot) {
        if (!NG_GROW(flight->names, flight->name_count, flight->name_room))
            return -ENOMEM;
        flight->names[flight->name_count++] = *text;
        *slot = (uint32_t)flight->name_count;
    }
    *ret_index = flight->last_name = *slot - 1;
    return 0;
}

size_t ng_flight_find_name(const struct ng_flight *flight, const struct ng_flight_text *name)
{
    if (!flight->name_count || name->length > NAME_BYTES_MAX)
        return SIZE_MAX;
    return (size_t)*slot_of(flight, name) - 1;
}

static uint64_t multiply(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    uint64_t both;
    return __builtin_add_overflow(a, b, &both) ? UINT64_MAX : both;
}

static enum shape shape_of_items(const struct ng_unpickle_value *container,
                                 const struct ng_unpickle_value *first)
{
    bool tuple = container->kind == NG_UNPICKLE_TUPLE;

    if (first->kind == NG_UNPICKLE_INT)
        return SHAPE_SIZE;
    if (first->kind == NG_UNPICKLE_TEXT && tuple)
        return first->length <= NAME_BYTES_MAX ? SHAPE_NAME : SHAPE_OTHER;
    if (first->kind == NG_UNPICKLE_TEXT)
        return SHAPE_DTYPES;
    if (first->kind == NG_UNPICKLE_DICT && first->shape == SHAPE_ENTRY)
        return SHAPE_ENTRIES;
    if (first->kind == NG_UNPICKLE_DICT && first->shape == SHAPE_FRAME && !tuple)
        return SHAPE_STACK;
    bool sized = first->shape == SHAPE_SIZE || first->shape == SHAPE_EMPTY;
    return (first->kind == NG_UNPICKLE_LIST || first->kind == NG_UNPICKLE_TUPLE) && sized
               ? SHAPE_SIZES
               : SHAPE_OTHER;
}

static void add_size(struct ng_unpickle_value *size, const struct ng_unpickle_value *items,
                     size_t count, bool first)
{
    uint64_t elements = first ? 1 : size->summary;

    for (size_t i = 0; i < count; i++)
        elements = multiply(elements, (uint64_t)number_of(&items[i], 0));
    size->summary = elements;
}

static void add_sizes(struct ng_unpickle_value *sizes, const struct ng_unpickle_value *items,
                      size_t count)
{
    /* A tensor without dimensions has one element. */
    for (size_t i = 0; i < count; i++)
        sizes->summary = sum(sizes->summary, items[i].shape == SHAPE_SIZE    ? items[i].summary
                                             : items[i].shape == SHAPE_EMPTY ? 1
                                                                             : 0);
}

static void add_dtypes(struct ng_unpickle_value *list, const struct ng_unpickle_value *items,
                       size_t count, bool first)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t number = items[i].word >= WORD_DTYPE && items[i].word < WORD_OP
                              ? (uint64_t)dtypes[items[i].word - WORD_DTYPE].dtype + 1
                              : 0;
        list->summary = first || number == list->summary ? number : 0;
        first = false;
    }
}

static int add_frames(struct ng_flight *flight, struct ng_unpickle_value *stack,
                      const struct ng_unpickle_value *items, size_t count)
{
    if (!(stack->summary & FRAMES_OF_STACK_MAX))
        stack->summary = (uint64_t)flight->stack_count << 8;
    for (size_t i = 0; i < count; i++) {
        uint64_t used = stack->summary & FRAMES_OF_STACK_MAX;
        /* A list that goes on after another one has begun, as no writer makes it, is cut. */
        if (used == FRAMES_OF_STACK_MAX || items[i].shape != SHAPE_FRAME ||
            flight->stack_count == FRAMES_MAX ||
            (stack->summary >> 8) + used != flight->stack_count)
            break;
        if (!NG_GROW(flight->stacks, flight->stack_count, flight->stack_room))
            return -ENOMEM;
        flight->stacks[flight->stack_count++] = (uint32_t)items[i].summary;
        stack->summary++;
    }
    return 0;
}

static int take_items(void *context, struct ng_unpickle_value *container,
                      const struct ng_unpickle_value *items, size_t count)
{
    struct ng_flight *flight = context;
    bool first = container->shape == SHAPE_EMPTY;
    struct ng_flight_text name;
    size_t index;
    int error;

    if (first)
        container->shape = (uint8_t)shape_of_items(container, &items[0]);
    switch ((enum shape)container->shape) {
    case SHAPE_SIZE:
        add_size(container, items, count, first);
        break;
    case SHAPE_SIZES:
        add_sizes(container, items, count);
        break;
    case SHAPE_DTYPES:
        add_dtypes(container, items, count, first);
        break;
    case SHAPE_NAME:
        if (!first)
            break;
        name = text_of(&items[0]);
        error = intern_name(flight, &name, &index);
        if (error)
            return error;
        container->summary = index;
        break;
    case SHAPE_STACK:
        return add_frames(flight, container, items, count);
    default:
        break;
    }
    return 0;
}

static void take_sizes(const struct ng_unpickle_value *value, uint64_t *ret_count)
{
    if (value->shape == SHAPE_SIZES)
        *ret_count = value->summary;
}

static void take_dtypes(const struct ng_unpickle_value *value, int16_t *ret_dtype)
{
    if (value->shape == SHAPE_DTYPES)
        *ret_dtype = (int16_t)((int)value->summary - 1);
}

static void take_profiling_name(struct ng_flight_entry *entry,
                                const struct ng_unpickle_value *value)
{
    entry->profiling_name = text_of(value);
    if (value->kind == NG_UNPICKLE_TEXT && value->word >= WORD_OP)
        entry->op = &ops[value->word - WORD_OP];
}

static void take_field(struct ng_flight_entry *entry, unsigned key,
                       const struct ng_unpickle_value *value)
{
    switch (key) {
    case KEY_record_id:
        entry->record_id = number_of(value, -1);
        break;
    case KEY_process_group:
        if (value->shape == SHAPE_NAME)
            entry->group = (uint32_t)value->summary;
        break;
    case KEY_collective_seq_id:
        entry->coll_seq = number_of(value, -1);
        break;
    case KEY_p2p_seq_id:
        entry->p2p_seq = number_of(value, -1);
        break;
    case KEY_profiling_name:
        take_profiling_name(entry, value);
        break;
    case KEY_time_created_ns:
        entry->created_ns = number_of(value, 0);
        break;
    case KEY_time_discovered_started_ns:
        entry->started_ns = number_of(value, 0);
        break;
    case KEY_time_discovered_completed_ns:
        entry->completed_ns = number_of(value, 0);
        break;
    case KEY_duration_ms:
        entry->duration_ns = duration_of(value);
        break;
    case KEY_timeout_ms:
        entry->timeout_ms = number_of(value, 0);
        break;
    case KEY_state:
        if (value->word >= WORD_STATE && value->word < WORD_DTYPE)
            entry->state = states[value->word - WORD_STATE].state;
        break;
    case KEY_input_sizes:
        take_sizes(value, &entry->input_count);
        break;
    case KEY_output_sizes:
        take_sizes(value, &entry->output_count);
        break;
    case KEY_input_dtypes:
        take_dtypes(value, &entry->input_dtype);
        break;
    case KEY_output_dtypes:
        take_dtypes(value, &entry->output_dtype);
        break;
    case KEY_frames:
        if (value->shape == SHAPE_STACK) {
            entry->first_frame = (uint32_t)(value->summary >> 8);
            entry->frame_count = value->summary & FRAMES_OF_STACK_MAX;
        }
        break;
    case KEY_is_p2p:
        entry->is_p2p = value->kind == NG_UNPICKLE_BOOL && value->number;
        break;
    default:
        break;
    }
}

/* WORD_NONE and values that are not keys sort after all keys. */
static unsigned key_of(const struct ng_unpickle_value *value)
{
    return value->kind == NG_UNPICKLE_TEXT && value->word >= WORD_KEY && value->word < WORD_STATE
               ? value->word - (unsigned)WORD_KEY
               : UINT32_MAX;
}

/* The first key that identifies the kind of a dictionary; a name alone may be that of a stack
 * frame. */
static enum shape shape_of_pairs(const struct ng_unpickle_value *pairs, size_t count)
{
    enum shape shape = SHAPE_OTHER;

    for (size_t i = 0; i < count; i++) {
        unsigned key = key_of(&pairs[2 * i]);
        if (key <= KEY_LAST_OF_ENTRY)
            return SHAPE_ENTRY;
        if (key == KEY_desc || key == KEY_ranks)
            return SHAPE_GROUP;
        if (key == KEY_filename || key == KEY_line)
            return SHAPE_FRAME;
        if (key == KEY_name)
            shape = SHAPE_NAMED;
    }
    return shape;
}

static int begin_dict(struct ng_flight *flight, struct ng_unpickle_value *dict)
{
    if (flight->entry_count >= ENTRIES_MAX || flight->group_count >= GROUPS_MAX)
        return -E2BIG;
    if (dict->shape == SHAPE_ENTRY) {
        if (!NG_GROW(flight->entries, flight->entry_count, flight->entry_room))
            return -ENOMEM;
        dict->summary = flight->entry_count;
        flight->entries[flight->entry_count++] = (struct ng_flight_entry){.record_id = -1,
                                                                          .coll_seq = -1,
                                                                          .p2p_seq = -1,
                                                                          .input_dtype = -1,
                                                                          .output_dtype = -1,
                                                                          .group = UINT32_MAX};
    } else if (dict->shape == SHAPE_GROUP) {
        if (!NG_GROW(flight->groups, flight->group_count, flight->group_room))
            return -ENOMEM;
        dict->summary = flight->group_count;
        flight->groups[flight->group_count++] = (struct ng_flight_group){0};
    } else if (dict->shape == SHAPE_FRAME || dict->shape == SHAPE_NAMED) {
        if (flight->frame_count >= FRAMES_MAX)
            dict->shape = SHAPE_OTHER;
        else if (!NG_GROW(flight->frames, flight->frame_count, flight->frame_room))
            return -ENOMEM;
        else
            flight->frames[dict->summary = flight->frame_count++] = (struct ng_flight_frame){0};
    }
    return 0;
}

/* What a dictionary is: protocol 0 adds its pairs one by one. */
static int find_shape(struct ng_flight *flight, struct ng_unpickle_value *dict,
                      const struct ng_unpickle_value *pairs, size_t count)
{
    enum shape shape = shape_of_pairs(pairs, count);

    if (dict->shape == SHAPE_NAMED && (shape == SHAPE_OTHER || shape == SHAPE_NAMED))
        return 0;
    bool begun = dict->shape == SHAPE_NAMED && shape == SHAPE_FRAME;
    dict->shape = (uint8_t)shape;
    return begun ? 0 : begin_dict(flight, dict);
}

static void take_frame_field(struct ng_flight_frame *frame, unsigned key,
                             const struct ng_unpickle_value *value)
{
    if (key == KEY_name)
        frame->name = text_of(value);
    else if (key == KEY_filename)
        frame->file = text_of(value);
    else if (key == KEY_line && number_of(value, 0) <= INT32_MAX)
        frame->line = (int32_t)number_of(value, 0);
}

static void take_group_field(struct ng_flight_group *group, unsigned key,
                             const struct ng_unpickle_value *value)
{
    if (key == KEY_desc)
        group->desc = text_of(value);
    else if (key == KEY_ranks)
        group->ranks = text_of(value);
}

/* The file itself, pg_config, and anything else without the keys of an entry or a group. */
static void take_other(struct ng_flight *flight, const struct ng_unpickle_value *key,
                       const struct ng_unpickle_value *value)
{
    if (value->kind == NG_UNPICKLE_DICT && value->shape == SHAPE_GROUP)
        flight->groups[value->summary].key = text_of(key);
    else if (key_of(key) == KEY_version)
        flight->version = text_of(value);
    else if (key_of(key) == KEY_on_request)
        flight->on_request = value->kind == NG_UNPICKLE_BOOL && value->number;
    else if (key_of(key) == KEY_time_dumped_ns)
        flight->dumped_ns = value->kind == NG_UNPICKLE_INT && value->number > 0 ? value->number : 0;
    else if (key_of(key) == KEY_entries && value->kind == NG_UNPICKLE_LIST)
        flight->is_flight = true;
}

static int take_pairs(void *context, struct ng_unpickle_value *dict,
                      const struct ng_unpickle_value *pairs, size_t count)
{
    struct ng_flight *flight = context;

    if (dict->shape == SHAPE_EMPTY || dict->shape == SHAPE_NAMED) {
        int error = find_shape(flight, dict, pairs, count);
        if (error)
            return error;
    }
    for (size_t i = 0; i < count; i++) {
        const struct ng_unpickle_value *key = &pairs[2 * i], *value = key + 1;
        if (dict->shape == SHAPE_ENTRY)
            take_field(&flight->entries[dict->summary], key_of(key), value);
        else if (dict->shape == SHAPE_GROUP)
            take_group_field(&flight->groups[dict->summary], key_of(key), value);
        else if (dict->shape == SHAPE_FRAME || dict->shape == SHAPE_NAMED)
            take_frame_field(&flight->frames[dict->summary], key_of(key), value);
        else
            take_other(flight, key, value);
    }
    return 0;
}

void ng_flight_init(struct ng_flight *flight)
{
    *flight = (struct ng_flight){0};
    ng_unpickle_init(&flight->pickle);
}

void ng_flight_fini(struct ng_flight *flight)
{
    free(flight->entries);
    free(flight->groups);
    free(flight->names);
    free(flight->frames);
    free(flight->stacks);
    free(flight->slots);
    ng_unpickle_fini(&flight->pickle);
    ng_flight_init(flight);
}

int ng_flight_parse(struct ng_flight *flight, uint8_t *bytes, size_t count, char *why,
                    size_t why_bytes)
{
    static const struct ng_unpickle_sink sink = {find_word, take_items, take_pairs};
    struct ng_unpickle_value root;

    pthread_once(&filled, fill_slots);
    flight->entry_count = flight->group_count = flight->name_count = flight->last_name = 0;
    flight->frame_count = flight->stack_count = 0;
    flight->version = (struct ng_flight_text){0};
    flight->is_flight = flight->on_request = false;
    flight->dumped_ns = 0;
    if (flight->slot_count)
        memset(flight->slots, 0, flight->slot_count * sizeof(*flight->slots));
    int error =
        ng_unpickle_read(&flight->pickle, bytes, count, &sink, flight, &root, why, why_bytes);
    if (error)
        return error;
    if (root.kind != NG_UNPICKLE_DICT || !flight->is_flight) {
        snprintf(why, why_bytes,
                 "a Python pickle, but not of PyTorch's flight recorder: it has no entries");
        return -EBADMSG;
    }
    return 0;
}
