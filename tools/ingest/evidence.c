/*
 * Evidence on disk, of any kind, merged into one view.
 *
 * Used by `ncclguard analyze`. Files are read by several threads, each into a small view of its
 * own; the views are merged in the order of the files, so that the same evidence gives the same
 * verdict however the threads ran. Must never let one bad file spoil the rest.
 */
#include "tools/ingest/evidence.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/recorder/box.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/util/text.h"
#include "tools/base/grow.h"
#include "tools/base/owned.h"
#include "tools/base/search_path.h"
#include "tools/ingest/read_box.h"
#include "tools/ingest/read_dump.h"

#define THREADS_MAX     16
#define FILES_OF_THREAD 4 /* fewer files than this are not worth a thread */
#define LEFT_OUT_JOBS   8 /* other jobs that are reported, */
#define LEFT_OUT_NAMED  8 /* with this many of their files by name */

/* --- one file --- */

/* By its first bytes; a black box also by its name, so that a damaged one is reported as a black
 * box. */
static int kind_of(const char *path, enum ng_evidence_kind *ret_kind, char *why, size_t why_bytes)
{
    unsigned char start[9] = {0};
    uint64_t magic;

    NG_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t bytes = fd >= 0 ? read(fd, start, sizeof(start)) : -1;
    int error = bytes < 0 ? -errno : 0;
    if (error) {
        snprintf(why, why_bytes, "%s", strerror(-error));
        return error;
    }
    memcpy(&magic, start, sizeof(magic));
    size_t blank = strspn((const char *)start, " \t\r\n");
    *ret_kind = NG_EVIDENCE_NONE;
    if (bytes == 0)
        snprintf(why, why_bytes, "empty");
    else if (magic == NG_BOX_MAGIC ||
             strncmp(ng_last_part(path), NG_BOX_PREFIX, strlen(NG_BOX_PREFIX)) == 0)
        *ret_kind = NG_EVIDENCE_BOX;
    /* Protocol 2 and later; 1; 0. */
    else if (start[0] == 0x80 || memcmp(start, "}q", 2) == 0 || memcmp(start, "(d", 2) == 0)
        *ret_kind = NG_EVIDENCE_FLIGHT;
    else if (blank < sizeof(start) && start[blank] == '{')
        *ret_kind = NG_EVIDENCE_DUMP;
    else
        snprintf(why, why_bytes,
                 "neither a black box nor a dump of ncclguard or of PyTorch's flight recorder");
    return *ret_kind == NG_EVIDENCE_NONE ? -EBADMSG : 0;
}

int ng_evidence_read(struct ng_flight_reader *reader, struct ng_view *view, const char *path,
                     int64_t now_mono_ns, struct ng_evidence_file *ret_file, char *why,
                     size_t why_bytes)
{
    struct ng_evidence_file file = {0};
    struct ng_box_header header;

    int error = kind_of(path, &file.kind, why, why_bytes);
    if (error)
        return error;
    switch (file.kind) {
    case NG_EVIDENCE_BOX:
        error = ng_read_box(view, path, ng_last_part(path), now_mono_ns, &header, why, why_bytes);
        if (!error)
            file.timeout_ns = header.timeout_ns;
        break;
    case NG_EVIDENCE_DUMP:
        error = ng_read_dump(view, path, ng_last_part(path), why, why_bytes);
        file.incident = !view->on_request;
        break;
    case NG_EVIDENCE_FLIGHT:
        error =
            ng_read_flight(reader, view, path, ng_last_part(path), &file.incident, why, why_bytes);
        break;
    case NG_EVIDENCE_NONE:
        error = -EBADMSG;
        break;
    }
    if (!error)
        *ret_file = file;
    return error;
}

/* --- all files --- */

struct job {
    char name[sizeof(((struct ng_view *)0)->job)];
    int64_t newest_unix_ns; /* that any of its processes states; 0 none does */
    bool kept;
};

/* The content of one file. */
struct source {
    uint32_t job;   /* index + 1; 0 not stated */
    uint32_t first; /* its processes in the view */
    uint32_t count;
};

struct gathering {
    const struct ng_evidence_paths *paths;
    struct ng_view_merge *merge;
    ng_evidence_refuse_fn *refuse;
    void *context;
    int64_t
        now_mono_ns; /* ages of black boxes are as of now, however long it takes to read them all */

    /* Protects all below, and the merged view. Nests inside nothing. Never held while a file is
     * read. */
    pthread_mutex_t lock;
    pthread_cond_t turned;
    size_t next; /* next file that no thread has taken */
    size_t turn; /* next file to be merged into the view */
    struct ng_evidence found;
    int error; /* -ENOMEM */
    uint64_t *named;
    size_t named_words;
    struct source *sources; /* by the index of the path */
    struct job *jobs;
    uint32_t job_count, job_room, last_job;
};

static void take_threshold(struct ng_evidence *found, int64_t ns)
{
    if (ns > 0 && (!found->stalled_ns || ns < found->stalled_ns))
        found->stalled_ns = ns;
}

static void refuse(struct gathering *gathering, const char *path, const char *why)
{
    if (gathering->refuse)
        gathering->refuse(gathering->context, path, why);
    ng_view_note(gathering->merge->view, "%s: %s", ng_last_part(path), why);
    gathering->found.unusable++;
}

/* Index of the job of this name; UINT32_MAX if memory is short. Most files are of the same job as
 * the one before. */
static uint32_t find_job(struct gathering *gathering, const char *name)
{
    if (gathering->job_count && strcmp(gathering->jobs[gathering->last_job].name, name) == 0)
        return gathering->last_job;
    for (uint32_t i = 0; i < gathering->job_count; i++)
        if (strcmp(gathering->jobs[i].name, name) == 0)
            return gathering->last_job = i;
    if (!NG_GROW(gathering->jobs, gathering->job_count, gathering->job_room))
        return UINT32_MAX;
    struct job *job = &gathering->jobs[gathering->job_count];
    *job = (struct job){0};
    snprintf(job->name, sizeof(job->name), "%s", name);
    return gathering->last_job = gathering->job_count++;
}

/* The job and the time of a file. */
static int tell_job(struct gathering *gathering, const struct ng_view *view, struct source *source)
{
    if (!view->job[0])
        return 0;
    uint32_t index = find_job(gathering, view->job);
    if (index == UINT32_MAX)
        return -ENOMEM;
    struct job *job = &gathering->jobs[index];
    for (uint32_t i = 0; i < view->process_count; i++)
        if (view->processes[i].moment_unix_ns > job->newest_unix_ns)
            job->newest_unix_ns = view->processes[i].moment_unix_ns;
    source->job = index + 1;
    return 0;
}

/* Merge the content of one file, in its turn. With the lock held. */
static void put_together(struct gathering *gathering, size_t index, const struct ng_view *view,
                         const struct ng_evidence_file *file, int error, char *why,
                         size_t why_bytes)
{
    const char *path = gathering->paths->paths[index];
    struct source *source = &gathering->sources[index];
    struct ng_evidence *found = &gathering->found;

    source->first = gathering->merge->view->process_count;
    error = error ?: tell_job(gathering, view, source);
    error = error ?: ng_view_merge_add(gathering->merge, view, why, why_bytes);
    source->count = gathering->merge->view->process_count - source->first;
    if (error == -EALREADY)
        return;
    /* Reported to show which of the two was used, but not counted as missing. A PyTorch file has
     * only the rank, so it may be of another process, and is counted below. */
    if (error == -EEXIST && view->process_count && view->processes[0].pid > 0) {
        if (gathering->refuse)
            gathering->refuse(gathering->context, path, why);
        return;
    }
    if (error == -ENOMEM) {
        gathering->error = error;
    } else if (error) {
        refuse(gathering, path, why);
    } else {
        found->usable++;
        found->incident |= file->incident;
        take_threshold(found, file->timeout_ns);
        for (uint32_t i = 0; i < view->process_count; i++)
            take_threshold(found, view->processes[i].suspect_ns);
    }
}

/* Merge the ranks that the files of this thread named. With the lock held. */
static void put_named(struct gathering *gathering, const struct ng_flight_reader *reader)
{
    if (reader->named_words > gathering->named_words) {
        uint64_t *bigger =
            reallocarray(gathering->named, reader->named_words, sizeof(*gathering->named));
        if (!bigger) {
            gathering->error = -ENOMEM;
            return;
        }
        memset(bigger + gathering->named_words, 0,
               (reader->named_words - gathering->named_words) * sizeof(*bigger));
        gathering->named = bigger;
        gathering->named_words = reader->named_words;
    }
    for (size_t i = 0; i < reader->named_words; i++)
        gathering->named[i] |= reader->named[i];
}

static void *read_files(void *argument)
{
    struct gathering *gathering = argument;
    struct ng_flight_reader reader;
    struct ng_arena arena = {0}; /* of the views, one after another */

    ng_flight_reader_init(&reader);
    pthread_mutex_lock(&gathering->lock);
    while (gathering->next < gathering->paths->count && !gathering->error) {
        size_t index = gathering->next++;
        const char *path = gathering->paths->paths[index];
        struct ng_evidence_file file = {0};
        struct ng_view view;
        char why[256] = "";

        pthread_mutex_unlock(&gathering->lock);
        ng_view_init(&view);
        view.arena = arena;
        int error =
            ng_evidence_read(&reader, &view, path, gathering->now_mono_ns, &file, why, sizeof(why));
        pthread_mutex_lock(&gathering->lock);
        while (gathering->turn != index)
            pthread_cond_wait(&gathering->turned, &gathering->lock);
        put_together(gathering, index, &view, &file, error, why, sizeof(why));
        gathering->turn++;
        pthread_cond_broadcast(&gathering->turned);
        pthread_mutex_unlock(&gathering->lock);
        arena = view.arena;
        ng_arena_recycle(&arena);
        pthread_mutex_lock(&gathering->lock);
    }
    put_named(gathering, &reader);
    pthread_mutex_unlock(&gathering->lock);
    ng_flight_reader_fini(&reader);
    ng_arena_reset(&arena);
    return NULL;
}

static size_t threads_for(size_t files)
{
    cpu_set_t processors;
    size_t count = 1;

    if (sched_getaffinity(0, sizeof(processors), &processors) == 0)
        count = (size_t)CPU_COUNT(&processors);
    if (count > files / FILES_OF_THREAD)
        count = files / FILES_OF_THREAD;
    return count < 1 ? 1 : count > THREADS_MAX ? THREADS_MAX : count;
}

/* Ranks that process groups name but that have no file: nothing is known of them. */
static int note_missing(struct gathering *gathering)
{
    struct ng_view *view = gathering->merge->view;
    char text[160];
    uint32_t count = 0;

    for (uint32_t i = 0; i < view->process_count; i++) {
        int rank = view->processes[i].rank;
        if (rank >= 0 && (size_t)rank / 64 < gathering->named_words)
            gathering->named[rank / 64] &= ~(UINT64_C(1) << rank % 64);
    }
    for (size_t i = 0; i < gathering->named_words; i++)
        count += (uint32_t)__builtin_popcountll(gathering->named[i]);
    if (!count)
        return 0;
    NG_FREED int *ranks = malloc(count * sizeof(*ranks));
    if (!ranks)
        return -ENOMEM;
    uint32_t used = 0;
    for (size_t i = 0; i < gathering->named_words * 64; i++)
        if (gathering->named[i / 64] & UINT64_C(1) << i % 64)
            ranks[used++] = (int)i;
    ng_text_ranks(ranks, used, text, sizeof(text));
    ng_view_note(view, "no file of rank%s %s, which process groups have", used == 1 ? "" : "s",
                 text);
    return 0;
}

/* All files, into the merged view. 0 or -ENOMEM. */
static int read_all(struct gathering *gathering)
{
    pthread_t threads[THREADS_MAX];
    size_t wanted = threads_for(gathering->paths->count), started = 0;

    gathering->sources = calloc(gathering->paths->count + 1, sizeof(*gathering->sources));
    if (!gathering->sources)
        return -ENOMEM;
    /* This thread is one of them; if no other can be started it does all. */
    while (started + 1 < wanted &&
           pthread_create(&threads[started], NULL, read_files, gathering) == 0)
        started++;
    read_files(gathering);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    if (!gathering->error)
        gathering->error = note_missing(gathering);
    return gathering->error;
}

static void end_gathering(struct gathering *gathering)
{
    free(gathering->named);
    free(gathering->sources);
    free(gathering->jobs);
}

/* --- of several jobs --- */

/* Names differ if they were set separately on each host; processes that share a communicator belong
 * to one job all the same. */
static int keep_relatives(struct gathering *gathering)
{
    const struct ng_view *view = gathering->merge->view;
    NG_FREED uint32_t *job_of_process =
        calloc((size_t)view->process_count + 1, sizeof(*job_of_process));
    NG_FREED bool *of_kept = calloc((size_t)view->group_count + 1, sizeof(*of_kept));

    for (size_t i = 0; job_of_process && i < gathering->paths->count; i++)
        for (uint32_t k = 0; k < gathering->sources[i].count; k++)
            job_of_process[gathering->sources[i].first + k] = gathering->sources[i].job;
    for (int turn = 0; job_of_process && of_kept && turn < 2; turn++)
        NG_EACH (member, view->members, view->member_count) {
            uint32_t job = job_of_process[member->process];
            if (turn == 0 && job && gathering->jobs[job - 1].kept)
                of_kept[member->group] = true;
            else if (turn == 1 && job && of_kept[member->group])
                gathering->jobs[job - 1].kept = true;
        }
    return job_of_process && of_kept ? 0 : -ENOMEM;
}

/* Find and mark the newest job, and those that are the same one. NULL: there is only one, or it
 * cannot be determined. */
static const struct job *choose_job(struct gathering *gathering)
{
    struct job *newest = NULL;

    NG_EACH (job, gathering->jobs, gathering->job_count) {
        if (!job->newest_unix_ns)
            return NULL;
        if (!newest || job->newest_unix_ns > newest->newest_unix_ns)
            newest = job;
    }
    if (gathering->job_count < 2)
        return NULL;
    newest->kept = true;
    gathering->error = keep_relatives(gathering);
    return gathering->error ? NULL : newest;
}

/* "rank_2.json, rank_3.json: of another job, …" */
static void tell_left_out(const struct gathering *gathering, const struct job *newest)
{
    unsigned told = 0;

    for (uint32_t j = 0; j < gathering->job_count && told < LEFT_OUT_JOBS; j++) {
        char names[512] = "", why[400];
        struct ng_text text = {names, 0, sizeof(names)};
        unsigned count = 0;
        if (gathering->jobs[j].kept)
            continue;
        told++;
        for (size_t i = 0; i < gathering->paths->count; i++)
            if (gathering->sources[i].job == j + 1 && count++ < LEFT_OUT_NAMED)
                ng_text_add(&text, "%s%.50s", text.used ? ", " : "",
                            ng_last_part(gathering->paths->paths[i]));
        if (count > LEFT_OUT_NAMED)
            ng_text_add(&text, " and %u more", count - LEFT_OUT_NAMED);
        snprintf(why, sizeof(why), "of another job, %s, which is older than %s: left out",
                 gathering->jobs[j].name, newest->name);
        gathering->refuse(gathering->context, names, why);
    }
}

/* Read the files that are not of another job again, into an empty view; notes that precede all
 * files stay. */
static int read_newest(struct gathering *gathering, const struct job *newest, char **notes,
                       uint32_t note_count)
{
    struct ng_evidence_paths kept = {0};
    struct gathering again = {
        .paths = &kept,
        .merge = gathering->merge,
        .now_mono_ns = ng_clock_mono_ns(),
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .turned = PTHREAD_COND_INITIALIZER,
    };
    struct ng_view *view = gathering->merge->view;

    kept.paths = calloc(gathering->paths->count + 1, sizeof(*kept.paths));
    if (!kept.paths)
        return -ENOMEM;
    for (size_t i = 0; i < gathering->paths->count; i++)
        if (!gathering->sources[i].job || gathering->jobs[gathering->sources[i].job - 1].kept)
            kept.paths[kept.count++] = gathering->paths->paths[i];
    ng_view_merge_restart(gathering->merge);
    for (uint32_t i = 0; i < note_count; i++)
        ng_view_note(view, "%s", notes[i]);
    snprintf(view->job, sizeof(view->job), "%s", newest->name);
    int error = read_all(&again);
    gathering->found = again.found;
    end_gathering(&again);
    free(kept.paths);
    return error;
}

/* NULL: no memory. */
static char **copy_notes(const struct ng_view *view, struct ng_arena *arena)
{
    char **notes = ng_arena_alloc(arena, ((size_t)view->note_count + 1) * sizeof(*notes));

    for (uint32_t i = 0; notes && i < view->note_count; i++) {
        notes[i] = ng_arena_strdup(arena, view->notes[i] ? view->notes[i] : "");
        if (!notes[i])
            return NULL;
    }
    return notes;
}

/* ---- Notes ---- */

#define ALIKE_MAX 4 /* notes with one reason that still get a line each */
#define NAMED     3 /* files that a merged note names */

struct note {
    char *text;
    const char *reason; /* within the text; "" none */
    uint32_t place;     /* among all notes */
};

static int compare_reasons(const void *left, const void *right)
{
    const struct note *a = left, *b = right;
    int order = strcmp(a->reason, b->reason);

    return order ?: NG_ORDER(a->place, b->place);
}

static char *fold(struct ng_view *view, const struct note *notes, uint32_t count)
{
    char text[512] = "";
    struct ng_text line = {text, 0, sizeof(text)};

    for (uint32_t i = 0; i < NAMED; i++)
        ng_text_add(&line, "%s%.*s", i ? ", " : "", (int)(notes[i].reason - notes[i].text - 2),
                    notes[i].text);
    ng_text_add(&line, " and %u more: %s", (unsigned)(count - NAMED), notes[0].reason);
    return ng_arena_strdup(&view->arena, text);
}

/* Notes are "FILE: reason". Many notes with the same reason are merged into one, in the place of
 * the first, since a job of thousands of ranks would give thousands of equal lines: "rank_0,
 * rank_1, rank_2 and 5 more: reason". 0 or -ENOMEM. */
static int fold_notes(struct ng_view *view)
{
    uint32_t count = view->note_count;
    NG_FREED struct note *notes = calloc((size_t)count + 1, sizeof(*notes));

    if (!notes)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        /* It is missing only if memory was short. */
        char *text = view->notes[i], *colon = text ? strstr(text, ": ") : NULL;
        notes[i] = (struct note){text, colon ? colon + 2 : "", i};
    }
    qsort(notes, count, sizeof(*notes), compare_reasons);
    for (uint32_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && strcmp(notes[end].reason, notes[i].reason) == 0;)
            end++;
        if (!notes[i].reason[0] || end - i <= ALIKE_MAX)
            continue;
        char *folded = fold(view, &notes[i], end - i);
        for (uint32_t k = i; folded && k < end; k++)
            view->notes[notes[k].place] = k == i ? folded : NULL;
    }
    NG_KEEP(note, view->notes, view->note_count, *note != NULL);
    return 0;
}

int ng_evidence_gather(const struct ng_evidence_paths *paths, struct ng_view_merge *merge,
                       ng_evidence_refuse_fn *refuse, void *context,
                       struct ng_evidence *ret_evidence)
{
    struct gathering gathering = {
        .paths = paths,
        .merge = merge,
        .refuse = refuse,
        .context = context,
        .now_mono_ns = ng_clock_mono_ns(),
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .turned = PTHREAD_COND_INITIALIZER,
    };
    uint32_t note_count = merge->view->note_count;
    struct ng_arena arena = {0};
    char **notes = copy_notes(merge->view, &arena);

    int error = notes ? read_all(&gathering) : -ENOMEM;
    const struct job *newest = error ? NULL : choose_job(&gathering);
    if (newest) {
        tell_left_out(&gathering, newest);
        error = read_newest(&gathering, newest, notes, note_count);
    } else if (!error) {
        error = gathering.error;
    }
    error = error ?: fold_notes(merge->view);
    *ret_evidence = gathering.found;
    end_gathering(&gathering);
    ng_arena_reset(&arena);
    return error;
}
