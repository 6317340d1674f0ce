/*
 * `ncclguard apis`: every public function of NCCL, tracked or passed (and why), from the shim's
 * table.
 */
#include <jansson.h>
#include <stdio.h>

#include "core/nccl/api.h"
#include "core/util/macros.h"
#include "tools/base/command.h"
#include "tools/base/usage.h"

enum { OPTION_JSON, OPTION_COUNT };

static const struct ng_usage_option options[OPTION_COUNT] = {
    [OPTION_JSON] = {"json", NULL, "print JSON"},
};

static const struct ng_usage usage = {
    .command = "apis",
    .synopsis = "[--json]",
    .about = "Print every NCCL API that the guard knows: the release that brought it, and whether\n"
             "it is tracked (recorded in the black box) or only passed on, and why.",
    .options = options,
    .option_count = OPTION_COUNT,
    .alone = "write `ncclguard apis`",
};

static int print_json(void)
{
    json_t *list = json_array();

    NG_EACH (api, ng_api_table, ng_api_count) {
        char name[64];
        snprintf(name, sizeof(name), "nccl%s", api->name);
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:s, s:b, s:s?, s:s?}", "name", name, "since", api->since_text,
                      "kind", api->tracked ? "tracked" : "passed", "tracked", api->tracked, "op",
                      api->tracked ? ng_op_name(api->op) : NULL, "reason", api->reason));
    }
    json_t *root = json_pack("{s:s, s:o}", "schema", "ncclguard.apis/1", "apis", list);
    int result = root ? json_dumpf(root, stdout, JSON_INDENT(2)) : -1;
    putchar('\n');
    json_decref(root);
    return result == 0 ? NG_EXIT_OK : NG_EXIT_FAILED;
}

int ng_command_apis(int argc, char **argv)
{
    const char *values[OPTION_COUNT];
    int operand, status;
    unsigned tracked = 0;

    if (!ng_usage_parse(&usage, argc, argv, values, &operand, &status))
        return status;
    if (values[OPTION_JSON])
        return print_json();

    NG_EACH (api, ng_api_table, ng_api_count) {
        char name[64];
        snprintf(name, sizeof(name), "nccl%s", api->name);
        printf("%-32s %-8s %-8s %s%s\n", name, api->since_text, api->tracked ? "tracked" : "passed",
               api->tracked ? "recorded as " : "",
               api->tracked ? ng_op_name(api->op) : api->reason);
        tracked += api->tracked;
    }
    printf("%u APIs: %u tracked, %u passed\n", ng_api_count, tracked, ng_api_count - tracked);
    return NG_EXIT_OK;
}
