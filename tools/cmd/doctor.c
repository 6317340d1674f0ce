/*
 * `ncclguard doctor`: what would be guarded here, what would not, and why.
 *
 * Read-only: reads files, and queries the dynamic linker and a Python interpreter in bounded child
 * processes. Must never run the program that it examines, nor load NCCL or CUDA.
 */
#include "tools/cmd/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tools/base/command.h"
#include "tools/base/usage.h"

enum { OPTION_JSON, OPTION_STORE, OPTION_COUNT };

static const struct ng_usage_option options[OPTION_COUNT] = {
    [OPTION_JSON] = {"json", NULL, "print JSON: [{finding, object, why, mend}]"},
    [OPTION_STORE] = {"store", "URL",
                      "look at this store (default: NCCLGUARD_STORE, else local:); ps does not\n"
                      "show the password"},
};

static const struct ng_usage usage = {
    .command = "doctor",
    .synopsis = "[--json] [--store URL] [--] [PROG ARGS…]",
    .about =
        "Tell what `ncclguard run` would guard here and what would slip by, why, and what mends\n"
        "it. With PROG: of that program, its libraries and its interpreter's packages. PROG is\n"
        "not run. Each finding is \"ok\", \"guarded\", \"warning\" or \"out of reach\".\n"
        "Exit status: 0 all that was found can be guarded, 1 something is out of reach or cannot\n"
        "work, 2 usage error.",
    .options = options,
    .option_count = OPTION_COUNT,
    .stop_at_operand = true,
};

static void print_conclusion(const struct ng_doctor *doctor, const char *name)
{
    char *program = name ? ng_findings_safe_copy(name) : NULL;
    size_t out = ng_findings_count(&doctor->findings, NG_FINDING_OUT);
    size_t warnings = ng_findings_count(&doctor->findings, NG_FINDING_WARNING);
    size_t guarded = ng_findings_count(&doctor->findings, NG_FINDING_GUARDED);

    if (out > 0)
        printf("conclusion: %zu out of reach; the mends stand beside\n", out);
    else if (doctor->partly)
        printf("conclusion: not all that %s starts gets LD_PRELOAD\n", program ? program : "it");
    else if (guarded == 0 && doctor->nccl_count == 0 && doctor->not_followed)
        printf("conclusion: no NCCL was seen, but what %s starts was not looked at: name that "
               "program\n",
               program ? program : "it");
    else if (guarded == 0 && doctor->nccl_count == 0)
        printf("conclusion: no NCCL was found%s%s; what is loaded later is guarded unless it hides "
               "from preloading\n",
               program ? " in " : " here", program ? program : "");
    else
        printf("conclusion: all that was found can be guarded\n");
    if (warnings > 0 && out == 0)
        printf("            %zu warning%s: see above\n", warnings, warnings > 1 ? "s" : "");
    free(program);
}

int ng_command_doctor(int argc, char **argv)
{
    const char *values[OPTION_COUNT];
    struct ng_doctor doctor = {0};
    struct rlimit files;
    int operand, status;

    if (!ng_usage_parse(&usage, argc, argv, values, &operand, &status))
        return status;
    if (operand < argc && !*argv[operand])
        return ng_usage_error("doctor", "write `ncclguard doctor -- PROG ARGS…`",
                              "the program's name is empty");
    if (values[OPTION_STORE])
        setenv("NCCLGUARD_STORE", values[OPTION_STORE], 1);
    /* The libraries of a program are examined together. */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 1024) {
        files.rlim_cur = files.rlim_max < 1024 ? files.rlim_max : 1024;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    ng_loader_init(&doctor.loader, getenv("LD_LIBRARY_PATH"));
    ng_doctor_machine(&doctor);
    if (operand < argc)
        ng_doctor_program(&doctor, argv + operand);
    else
        ng_doctor_nccl_of_machine(&doctor);

    status = ng_findings_count(&doctor.findings, NG_FINDING_OUT) || doctor.findings.out_of_memory
                 ? NG_EXIT_FAILED
                 : NG_EXIT_OK;
    if (values[OPTION_JSON]) {
        if (!ng_findings_print_json(&doctor.findings))
            status = NG_EXIT_FAILED;
    } else {
        ng_findings_print(&doctor.findings);
        print_conclusion(&doctor, operand < argc ? argv[operand] : NULL);
    }
    ng_findings_fini(&doctor.findings);
    ng_loader_fini(&doctor.loader);
    free(doctor.seen);
    return status;
}
