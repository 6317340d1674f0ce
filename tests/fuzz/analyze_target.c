/*
 * One damaged input of `ncclguard analyze`, from its bytes to what is printed.
 *
 * All that the command does, but its options: an input that is read without a fault may still be
 * one that the verdict engine or the report stumbles over.
 */
#include "tests/fuzz/analyze_target.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/report/trace.h"
#include "core/verdict/straggler.h"
#include "tests/fuzz/rewrite.h"
#include "tools/ingest/evidence.h"
#include "tools/ingest/mismatches.h"
#include "tools/ingest/view_merge.h"
#include "tools/judge/postmortem.h"
#include "tools/render/analyze_report.h"
#include "tools/render/page.h"
#include "tools/render/stack_groups.h"

static void check(int error, const char *what)
{
    if (!error)
        return;
    fprintf(stderr, "%s: %s\n", what, strerror(-error));
    abort();
}

static void ignore(void *context, const char *path, const char *why)
{
    if (!why[0]) {
        fprintf(stderr, "%s is refused without a reason\n", path);
        abort();
    }
}

/* What `--html` and `--trace` write, and a dump of what was read. */
static void write_files(const struct ng_view *view, const struct ng_verdict *verdict,
                        const struct ng_mismatches *mismatches, const char *folder, int nowhere)
{
    struct ng_stack_groups stacks = NG_STACK_GROUPS_NONE;
    struct ng_page page = {view, verdict, mismatches, &stacks};

    check(ng_stack_groups_add_folder(&stacks, folder), "stacks");
    check(ng_page_write(&page, "/dev/null"), "page");
    check(ng_trace_write(view, verdict, NG_TRACE_RECORDS_MAX, nowhere), "timeline");
    check(rewrite_dumps(view, nowhere), "dumps");
    ng_stack_groups_fini(&stacks);
}

static void judge(struct ng_view *view, struct ng_view_merge *digest,
                  const struct ng_evidence *evidence, const char *folder)
{
    struct ng_postmortem postmortem = {.stalled_ns = evidence->stalled_ns,
                                       .incident = evidence->incident};
    static int nowhere = -1;
    struct ng_mismatches mismatches;
    struct ng_verdict verdict;

    if (nowhere < 0)
        nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    check(ng_view_merge_finish(digest), "finish");
    ng_view_seal(view);
    check(ng_mismatches_find(view, &digest->histories, &mismatches), "mismatches");
    check(ng_postmortem_judge(view, &postmortem, &verdict), "judge");
    if (verdict.kind == NG_KIND_HEALTHY && mismatches.count)
        check(ng_mismatches_blame(&mismatches, view, &verdict), "blame");
    check(ng_straggler_blame(view, &verdict), "straggler");
    check(ng_analyze_write_text(view, &verdict, &mismatches, folder, nowhere), "text");
    check(ng_analyze_write_json(view, &verdict, &mismatches, nowhere), "JSON");
    write_files(view, &verdict, &mismatches, folder, nowhere);
    ng_verdict_fini(&verdict);
    ng_mismatches_fini(&mismatches);
}

size_t analyze_files(const char *const *paths, size_t count)
{
    struct ng_evidence_paths files = {0};
    struct ng_evidence evidence;
    struct ng_view_merge digest;
    struct ng_view view;
    char folder[512];

    /* Stacks lie beside the dumps. */
    snprintf(folder, sizeof(folder), "%s", paths[0]);
    *strrchr(folder, '/') = '\0';
    ng_view_init(&view);
    /* So few that every other input goes through the choice of records, too. */
    ng_view_merge_init(&digest, &view, 20);
    for (size_t i = 0; i < count; i++)
        check(ng_evidence_add_path(&files, paths[i], ignore, NULL), "path");
    check(ng_evidence_order(&files), "order");
    check(ng_evidence_gather(&files, &digest, ignore, NULL, &evidence), "gather");
    judge(&view, &digest, &evidence, folder);
    ng_view_merge_fini(&digest);
    ng_evidence_paths_fini(&files);
    ng_view_fini(&view);
    return evidence.usable;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static char path[128];
    const char *const paths[] = {path};

    if (!path[0]) {
        char folder[] = "/tmp/ncclguard-fuzz.XXXXXX";
        if (!mkdtemp(folder))
            abort();
        snprintf(path, sizeof(path), "%s/rank_1", folder);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, bytes, count) != (ssize_t)count)
        return 0;
    close(fd);
    analyze_files(paths, 1);
    unlink(path);
    return 0;
}
