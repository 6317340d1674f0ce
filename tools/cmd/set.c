/*
 * `ncclguard set`: its values, and the answer of the ranks.
 *
 * A rank answers in its black box, and over a store in the progress that it publishes, so that one
 * that is frozen is seen not to have answered.
 */
#include "tools/cmd/set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/config/config.h"
#include "core/config/settable.h"
#include "core/report/dump.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/util/text.h"
#include "core/view/view.h"
#include "tools/base/command.h"
#include "tools/base/usage.h"

#define COMMAND "set"

#define ANSWER_NS    (5 * NG_S) /* over a store, a process publishes its progress once a second */
#define PAUSE_NS     (20 * NG_MS)
#define PAUSE_MAX_NS (500 * NG_MS)
#define NAMED_MAX    16 /* of those without an answer */

/* ---- What is to be set ---- */

static const char *settable_name(const void *table, size_t index)
{
    return ng_settable_name((enum ng_settable)index);
}

/* "write timing=off|sampled|all or log=off|error|warn|info|debug" */
static void describe_choices(char *ret_text, size_t bytes)
{
    struct ng_text text = {ret_text, 0, bytes};

    ret_text[0] = '\0';
    for (unsigned i = NG_SETTABLES; i-- > 0;)
        ng_text_add(&text, "%s%s=%s", text.used ? " or " : "write ",
                    ng_settable_name((enum ng_settable)i),
                    ng_settable_option((enum ng_settable)i)->choices);
}

/* An option that is read at the start only, or none. Returns the exit status. */
static int refuse_name(const char *name)
{
    char mend[160], variable[96];

    describe_choices(mend, sizeof(mend));
    snprintf(variable, sizeof(variable), "%s", name);
    for (char *at = variable; *at; at++)
        *at = *at >= 'a' && *at <= 'z' ? (char)(*at - 'a' + 'A') : *at;
    char full[128];
    snprintf(full, sizeof(full), "NCCLGUARD_%s", variable);
    if (ng_config_find(variable) || ng_config_find(full))
        return ng_usage_error(COMMAND, mend,
                              "%s is read when a process starts, and cannot be set while it runs",
                              name);
    const char *nearest = ng_usage_nearest(name, settable_name, NULL, NG_SETTABLES);
    if (nearest)
        snprintf(mend, sizeof(mend), "did you mean %s=%s?", nearest,
                 ng_settable_option(ng_settable_find(nearest))->choices);
    return ng_usage_error(COMMAND, mend, "no option is called %s", name);
}

static int parse_word(const char *word, struct ng_command *command)
{
    const char *equals = strchr(word, '=');
    char name[64], mend[160], why[256];
    int value;

    describe_choices(mend, sizeof(mend));
    if (!equals || equals == word || equals - word >= (ptrdiff_t)sizeof(name))
        return ng_usage_error(COMMAND, mend, "%.200s is not of the form NAME=VALUE", word);
    snprintf(name, sizeof(name), "%.*s", (int)(equals - word), word);
    enum ng_settable settable = ng_settable_find(name);
    if (settable == NG_SETTABLES)
        return refuse_name(name);
    if (ng_config_parse_value(ng_settable_option(settable), equals + 1, &value, why, sizeof(why)) !=
        0)
        return ng_usage_error(COMMAND, why, "%.200s is not valid", word);
    if (command->set[settable])
        return ng_usage_error(COMMAND, "write each option once", "%s is set twice",
                              ng_settable_name(settable));
    command->set[settable] = (uint8_t)(value + 1);
    return 0;
}

int ng_set_parse(char *const *words, int count, struct ng_command *command)
{
    char mend[160];
    int status = 0;

    describe_choices(mend, sizeof(mend));
    if (count == 0)
        return ng_usage_error(COMMAND, mend, "nothing is to be set");
    for (int i = 0; i < count && status == 0; i++)
        status = parse_word(words[i], command);
    return status;
}

static struct ng_settable_values values_of(const struct ng_command *command)
{
    struct ng_settable_values values;

    memcpy(values.of, command->set, sizeof(values.of));
    return values;
}

void ng_set_describe(const struct ng_command *command, char *ret_text, size_t bytes)
{
    struct ng_settable_values values = values_of(command);

    ng_settable_describe(&values, ret_text, bytes);
}

/* ---- Which ranks have taken it ---- */

bool ng_set_may_answer(const struct ng_view_process *process)
{
    return process->life == NG_LIFE_RUNNING || process->life == NG_LIFE_STOPPED ||
           process->life == NG_LIFE_UNKNOWN;
}

static bool has_taken(const struct ng_view_process *process,
                      const struct ng_settable_values *values)
{
    for (unsigned i = 0; i < NG_SETTABLES; i++)
        if (values->of[i] && process->set.of[i] != values->of[i])
            return false;
    return true;
}

struct answer {
    uint32_t living, taken, frozen; /* frozen: those without an answer that are stopped */
};

static struct answer count_answers(const struct ng_view *view,
                                   const struct ng_settable_values *values)
{
    struct answer answer = {0};

    NG_EACH (process, view->processes, view->process_count) {
        bool taken = has_taken(process, values);
        bool lives = ng_set_may_answer(process);
        answer.living += lives;
        answer.taken += lives && taken;
        answer.frozen += process->life == NG_LIFE_STOPPED && !taken;
    }
    return answer;
}

static int compare_ranks(const void *left, const void *right, void *view)
{
    int a = ng_dump_rank(view, *(const uint32_t *)left),
        b = ng_dump_rank(view, *(const uint32_t *)right);

    return NG_ORDER(a, b);
}

/* By rank, those without one first. */
static void name_silent(const struct ng_view *view, const struct ng_settable_values *values)
{
    uint32_t *silent = calloc(view->process_count + 1, sizeof(*silent)), count = 0;

    for (uint32_t i = 0; silent && i < view->process_count; i++)
        if (ng_set_may_answer(&view->processes[i]) && !has_taken(&view->processes[i], values))
            silent[count++] = i;
    if (count)
        qsort_r(silent, count, sizeof(*silent), compare_ranks, (void *)view);
    for (uint32_t i = 0; i < count && i < NAMED_MAX; i++) {
        const struct ng_view_process *process = &view->processes[silent[i]];
        char rank[32] = "a process";
        if (ng_dump_rank(view, silent[i]) >= 0)
            snprintf(rank, sizeof(rank), "rank %d", ng_dump_rank(view, silent[i]));
        printf("not taken by %s (host %s, pid %d): %s\n", rank, process->host, process->pid,
               process->life == NG_LIFE_STOPPED ? "it is frozen, and will when it continues"
                                                : "no answer within 5 s");
    }
    if (count > NAMED_MAX)
        printf("not taken by %u more\n", count - NAMED_MAX);
    free(silent);
}

/* Look once. 0, or -errno. */
static int look(struct ng_job *job, const struct ng_settable_values *values, struct ng_view *view,
                struct answer *ret_answer)
{
    ng_view_fini(view);
    ng_view_init(view);
    int count = ng_jobs_view(job, view);
    if (count < 0)
        return count;
    *ret_answer = count_answers(view, values);
    return 0;
}

int ng_set_await(struct ng_job *job, const struct ng_command *command)
{
    struct ng_settable_values values = values_of(command);
    int64_t until = ng_clock_mono_ns() + ANSWER_NS, pause_ns = PAUSE_NS;
    struct answer answer;
    struct ng_view view;
    bool over = false;
    int error;

    ng_view_init(&view);
    while ((error = look(job, &values, &view, &answer)) == 0 && !over &&
           answer.taken + answer.frozen < answer.living) {
        ng_clock_sleep(pause_ns);
        pause_ns = 2 * pause_ns < PAUSE_MAX_NS ? 2 * pause_ns : PAUSE_MAX_NS;
        over = ng_clock_mono_ns() >= until; /* one more look */
    }
    if (!error) {
        printf("%u of %u process%s took it\n", answer.taken, answer.living,
               answer.living == 1 ? "" : "es");
        name_silent(&view, &values);
    }
    ng_view_fini(&view);
    if (error)
        return ng_jobs_failed(COMMAND, job, error);
    return answer.taken && answer.taken == answer.living ? NG_EXIT_OK : NG_EXIT_FAILED;
}
