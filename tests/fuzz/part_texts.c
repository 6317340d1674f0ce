/*
 * What people write: the faults of NCCLGUARD_FAULT, and the rules of NCCLGUARD_RULES.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/comm/rules.h"
#include "core/config/fault_spec.h"
#include "core/fault/fault_match.h"
#include "tests/fuzz/parts.h"

static size_t make(const char *const *texts, size_t count, struct damage_sample *samples)
{
    char name[32];

    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "text %zu", i);
        samples[i] = damage_sample_make(name, (uint8_t *)strdup(texts[i]), strlen(texts[i]));
    }
    return count;
}

/* ---- Faults ---- */

static const char *const faults[] = {
    "rank=1,op=AllReduce,nth=10:hang",
    "rank=1,op=AllReduce,nth=10:hang;*:delay=500ms;op=Comm*:error=ncclSystemError",
    "group=\"tensor parallel: 1\",every=3,nth=7:count=+1;op=[SR]e?[dv]*:root=-1",
    "prob=0.25,seed=42,op=AllReduce:dtype=bfloat16;rank=0,op=Reduce*:redop=max",
    "rank=2,op=Broadcast:root=3;rank=3:swap;rank=4:gpu-stall;rank=5:nan",
    "op=CommInitRank:in-progress=2s;op=CommInitRank:init-hang;*:bad-id;*:bad-nranks",
    "*:abort-hang;*:store-drop;*:store-delay=1h;rank=1:exit=3;rank=1:kill;rank=1:stop;rank=1:segv",
    "group=0123456789abcdef,prob=1e-3:async-error=ncclRemoteError",
    " rank = 1 , op = AllReduce : skip ",
};

static size_t make_faults(struct damage_sample samples[PART_SAMPLES_MAX])
{
    return make(faults, sizeof(faults) / sizeof(faults[0]), samples);
}

/* A variable of the environment: up to the first end. */
static char *text_of(const uint8_t *bytes, size_t count)
{
    char *text = strndup((const char *)bytes, count);

    if (!text)
        exit(1);
    return text;
}

static bool take_faults(const uint8_t *bytes, size_t count)
{
    static struct ng_fault_spec spec;
    struct ng_fault_mistake mistake;
    char *text = text_of(bytes, count), line[600];
    int error = ng_fault_spec_parse(text, &spec, &mistake);

    if (error) {
        ng_fault_mistake_text(&mistake, line, sizeof(line));
        part_promise(mistake.what[0] && line[0], "refused without a reason");
        part_promise(mistake.column >= 1 && mistake.column <= strlen(text) + 1,
                     "a mistake that is not in the text");
    } else {
        part_promise(spec.count <= NG_FAULTS_MAX, "more faults than there is room for");
        for (uint32_t i = 0; i < spec.count; i++)
            part_promise(spec.faults[i].kind < NG_FAULT_KINDS &&
                             strnlen(spec.faults[i].text, NG_FAULT_TEXT_BYTES) <
                                 NG_FAULT_TEXT_BYTES &&
                             strnlen(spec.faults[i].group, 64) < 64,
                         "a fault that is none");
    }
    free(text);
    return !error;
}

const struct part part_faults = {"faults", make_faults, take_faults};

/* ---- Rules ---- */

static const char *const rules[] = {
    "# the pipeline's small groups are fast, and only told of\n"
    "group=pp_* size=2..8      : timeout=30s suspect=3s policy=log\n"
    "size=1024 op=Broadcast    : timeout=20m\n"
    "parent=world op=Comm*     : timeout=2m\n"
    "*                         : suspect=10s\n",
    "device=0..3 : name=\"tensor parallel\"\r\ndevice=0000:1b:* : rename=tp policy=abort\n",
    "group=0123456789abcdef : timeout=0 suspect=0 name=\"a 'b' : c\"",
    "op=AllReduce,Reduce*,[SR]e?[dv]* size=..4 : timeout=1h\nsize=4.. parent=\"x y\" : "
    "policy=teardown\n",
    "group=[!a-z]*x? size=1 : name=a\n* : policy=kill\n\n   # nothing\n* : timeout=5ms # end",
};

static size_t make_rules(struct damage_sample samples[PART_SAMPLES_MAX])
{
    return make(rules, sizeof(rules) / sizeof(rules[0]), samples);
}

static void report(void *context, const char *line)
{
    uint32_t *told = context;

    part_promise(line[0] != '\0' && strchr(line, '\n') == NULL, "a mistake that is no line");
    ++*told;
}

static bool take_rules(const uint8_t *bytes, size_t count)
{
    static const char *const names[] = {"", "pp_1", "tensor parallel", "[", "xxxxxxxxxxxxxxxx"};
    static struct ng_rules read;
    uint32_t told = 0;
    uint32_t mistakes = ng_rules_parse("rules", (const char *)bytes, count, &read, report, &told);

    part_promise((mistakes == 0) == (told == 0) && told <= NG_RULES_TOLD + 1,
                 "mistakes that nobody is told of");
    for (size_t i = 0; !mistakes && i < sizeof(names) / sizeof(names[0]); i++) {
        struct ng_rules_group group = {.name = names[i],
                                       .id = UINT64_C(0x0123456789abcdef) * i,
                                       .parent_id = i,
                                       .parent_name = "world",
                                       .nranks = (int)i * 2,
                                       .device = (int)i - 1,
                                       .pci_id = i % 2 ? "0000:1b:00.0" : ""};
        struct ng_deadline_limits limits;
        char name[NG_RULES_NAME];
        ng_rules_match(&read, &group, &limits, name);
        part_promise(strnlen(name, sizeof(name)) < sizeof(name), "a name without its end");
    }
    return !mistakes;
}

const struct part part_rules = {"rules", make_rules, take_rules};
