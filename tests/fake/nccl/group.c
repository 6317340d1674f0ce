/* Group calls and the jobs in them. What a thread says between the outermost start and end is held
 * back; at the end the jobs (init, split, destroy, ...) run on threads of their own, then channels
 * are connected, then kernels are launched. With nonblocking communicators all that happens on one
 * more thread, and the caller gets ncclInProgress. */
#include "tests/fake/nccl/fake.h"

#include <signal.h>
#include <stdlib.h>

struct fake_group {
    int depth;
    ncclResult_t error;
    int blocking; /* -1 not known yet */
    struct fake_job *jobs;
    struct fake_plan *plans;
};

static _Thread_local struct fake_group *group;

/* Protects done and result of jobs that run on threads. Innermost. */
static pthread_mutex_t jobs_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t jobs_cond = PTHREAD_COND_INITIALIZER;

int fake_thread_start(pthread_t *ret_thread, bool detached, void *(*run)(void *), void *arg)
{
    sigset_t all, old;
    pthread_attr_t attr;
    pthread_t thread;
    int err;
    /* The program's signals are for the program's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr,
                                detached ? PTHREAD_CREATE_DETACHED : PTHREAD_CREATE_JOINABLE);
    err = pthread_create(&thread, &attr, run, arg);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err)
        return -err;
    *ret_thread = thread;
    return 0;
}

void fake_group_start(void)
{
    if (!group) {
        group = fake_new(sizeof(*group));
        group->blocking = -1;
    }
    group->depth++;
}

ncclResult_t fake_group_error(ncclResult_t result)
{
    if (group && result != ncclSuccess && result != ncclInProgress && group->error == ncclSuccess)
        group->error = result;
    return result;
}

static void job_free(struct fake_job *job)
{
    fake_comm_put(job->comm);
    fake_comm_put(job->parent);
    free(job->exclude);
    free(job);
}

static void group_free(struct fake_group *g)
{
    while (g->jobs) {
        struct fake_job *job = g->jobs;
        g->jobs = job->next;
        job_free(job);
    }
    while (g->plans) {
        struct fake_plan *plan = g->plans;
        g->plans = plan->next;
        fake_plan_free(plan);
    }
    free(g);
}

static ncclResult_t group_mode(const struct ncclComm *comm)
{
    if (group->blocking == -1)
        group->blocking = comm->config.blocking;
    REFUSE_IF(group->blocking != comm->config.blocking, ncclInvalidArgument,
              "Blocking and nonblocking communicators are not allowed in the same group.");
    return ncclSuccess;
}

ncclResult_t fake_group_add_job(struct fake_job *job)
{
    struct fake_job **at = &group->jobs;
    ncclResult_t result = ncclSuccess;
    if (!job->teardown)
        result = group_mode(job->comm ? job->comm : job->parent);
    if (result != ncclSuccess) {
        job_free(job);
        return result;
    }
    while (*at)
        at = &(*at)->next;
    *at = job;
    return ncclSuccess;
}

ncclResult_t fake_group_plan(struct ncclComm *comm, CUstream stream, struct fake_plan **ret_plan)
{
    struct fake_plan **at = &group->plans, *plan;
    TRY(group_mode(comm));
    while (*at && (*at)->comm != comm)
        at = &(*at)->next;
    plan = *at;
    if (!plan) {
        plan = fake_new(sizeof(*plan));
        fake_comm_ref(comm);
        plan->comm = comm;
        *at = plan;
    }
    *ret_plan = plan;
    for (int i = 0; i < plan->nstreams; i++)
        if (plan->streams[i] == stream)
            return ncclSuccess;
    plan->streams = fake_resize(plan->streams, (size_t)(plan->nstreams + 1) * sizeof(CUstream));
    plan->streams[plan->nstreams++] = stream;
    return ncclSuccess;
}

/* ---- running ---- */

static void *job_main(void *arg)
{
    struct fake_job *job = arg;
    ncclResult_t result = job->run(job);
    FAKE_HOLD(&jobs_lock);
    job->result = result;
    job->done = true;
    pthread_cond_broadcast(&jobs_cond);
    return NULL;
}

/* Runs all jobs side by side. When one fails the others' communicators are aborted, so that they
 * end too; the first failure is the result. */
static ncclResult_t run_jobs(struct fake_job *jobs)
{
    ncclResult_t result = ncclSuccess;
    for (struct fake_job *job = jobs; job; job = job->next) {
        if (fake_thread_start(&job->thread, false, job_main, job) != 0) {
            fake_warn("Call to pthread_create failed");
            job->done = true;
            job->result = ncclSystemError;
        } else {
            job->started = true;
        }
    }
    pthread_mutex_lock(&jobs_lock);
    for (;;) {
        struct fake_job *open = NULL, *failed = NULL;
        for (struct fake_job *job = jobs; job; job = job->next) {
            if (!job->done)
                open = job;
            else if (job->result != ncclSuccess)
                failed = job;
        }
        if (failed && result == ncclSuccess) {
            result = failed->result;
            pthread_mutex_unlock(&jobs_lock);
            for (struct fake_job *job = jobs; job; job = job->next)
                if (!job->teardown && job != failed)
                    fake_comm_set_abort(job->comm ? job->comm : job->parent);
            pthread_mutex_lock(&jobs_lock);
            continue;
        }
        if (!open)
            break;
        pthread_cond_wait(&jobs_cond, &jobs_lock);
    }
    pthread_mutex_unlock(&jobs_lock);
    for (struct fake_job *job = jobs; job; job = job->next)
        if (job->started)
            pthread_join(job->thread, NULL);
    return result;
}

struct connect_job {
    struct fake_job job;
    struct fake_plan *plan;
};

static ncclResult_t connect_run(struct fake_job *job)
{
    return fake_plan_connect(((struct connect_job *)job)->plan);
}

static ncclResult_t connect_plans(struct fake_plan *plans)
{
    struct fake_job *list = NULL;
    ncclResult_t result;
    if (!plans)
        return ncclSuccess;
    if (!plans->next)
        return fake_plan_connect(plans);
    for (struct fake_plan *plan = plans; plan; plan = plan->next) {
        if (!fake_plan_is_cold(plan))
            continue;
        struct connect_job *job = fake_new(sizeof(*job));
        *job = (struct connect_job){{.run = connect_run, .comm = plan->comm, .next = list}, plan};
        list = &job->job;
    }
    result = run_jobs(list);
    while (list) {
        struct fake_job *job = list;
        list = job->next;
        free((struct connect_job *)job);
    }
    return result;
}

static void settle(struct ncclComm *comm, ncclResult_t result)
{
    int expected = ncclInProgress;
    /* An error that was set meanwhile stays. */
    atomic_compare_exchange_strong(&comm->state, &expected, (int)result);
}

static ncclResult_t group_run(struct fake_group *g)
{
    ncclResult_t result = ncclSuccess;
    if (g->jobs)
        result = run_jobs(g->jobs);
    for (struct fake_job *job = g->jobs; job; job = job->next) {
        if (job->teardown)
            continue;
        fake_comm_leave(job->comm);
        fake_comm_leave(job->parent);
    }
    /* In the background each is settled once, at its end: the next call may come right behind it.
     */
    for (struct fake_job *job = g->jobs; g->blocking != 0 && job; job = job->next)
        if (job->comm && !job->teardown)
            settle(job->comm, job->result);
    if (result == ncclSuccess)
        result = connect_plans(g->plans);
    for (struct fake_plan *plan = g->plans; plan && result != ncclSuccess; plan = plan->next)
        fake_comm_leave(plan->comm);
    while (result == ncclSuccess && g->plans) {
        struct fake_plan *plan = g->plans;
        struct ncclComm *comm = plan->comm;
        g->plans = plan->next;
        fake_comm_ref(comm);
        result = fake_plan_launch(plan); /* owns the plan now */
        fake_comm_put(comm);
    }
    return result;
}

/* The communicators of a nonblocking group: a copy, since running it consumes plans and jobs. */
struct background {
    struct fake_group *group;
    struct ncclComm **comms;
    int ncomms;
};

static void *background_main(void *arg)
{
    struct background *b = arg;
    bool jobless = !b->group->jobs;
    ncclResult_t result = group_run(b->group);
    group_free(b->group);
    if (jobless && b->ncomms)
        fake_comm_linger(b->comms[0]);
    for (int i = 0; i < b->ncomms; i++) {
        struct ncclComm *comm = b->comms[i];
        settle(comm, result);
        fake_comm_count(comm, &comm->jobs, -1);
        fake_comm_put(comm);
    }
    free(b->comms);
    free(b);
    return NULL;
}

static void background_add(struct background *b, struct ncclComm *comm)
{
    int expected = ncclSuccess;
    if (!comm)
        return;
    for (int i = 0; i < b->ncomms; i++)
        if (b->comms[i] == comm)
            return;
    b->comms = fake_resize(b->comms, (size_t)(b->ncomms + 1) * sizeof(comm));
    b->comms[b->ncomms++] = comm;
    fake_comm_ref(comm);
    atomic_compare_exchange_strong(&comm->state, &expected, ncclInProgress);
    fake_comm_count(comm, &comm->jobs, 1);
}

static ncclResult_t group_run_in_background(struct fake_group *g)
{
    struct background *b = fake_new(sizeof(*b));
    pthread_t thread;
    b->group = g;
    for (struct fake_job *job = g->jobs; job; job = job->next)
        if (!job->teardown)
            background_add(b, job->comm ? job->comm : job->parent);
    for (struct fake_plan *plan = g->plans; plan; plan = plan->next)
        background_add(b, plan->comm);
    if (fake_thread_start(&thread, true, background_main, b) != 0) {
        fake_warn("Call to pthread_create failed");
        background_main(b);
        return ncclSystemError;
    }
    return ncclInProgress;
}

ncclResult_t fake_group_end(void)
{
    struct fake_group *g = group;
    ncclResult_t result;
    REFUSE_IF(!g || g->depth == 0, ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
    if (--g->depth > 0)
        return ncclSuccess;
    group = NULL;
    result = g->error;
    if (result == ncclSuccess && (g->jobs || g->plans)) {
        if (g->blocking == 0)
            return group_run_in_background(g);
        result = group_run(g);
    } else if (result != ncclSuccess) {
        for (struct fake_job *job = g->jobs; job; job = job->next)
            if (job->comm && !job->teardown)
                settle(job->comm, result);
        /* A nonblocking communicator with calls in it is in that error from now on, whosever it
         * was. */
        for (struct fake_plan *plan = g->plans; g->blocking == 0 && plan; plan = plan->next)
            atomic_store(&plan->comm->state, (int)result);
    }
    group_free(g);
    return result;
}

ncclResult_t fake_group_leave(ncclResult_t result)
{
    ncclResult_t ended;
    fake_group_error(result);
    ended = fake_group_end();
    return result != ncclSuccess ? result : ended;
}

FAKE_FORM(ncclResult_t, ncclGroupStart, (void), (fake_group_start(), ncclSuccess))
FAKE_FORM(ncclResult_t, ncclGroupEnd, (void), fake_group_end())

FAKE_API(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * info))
{
    struct fake_group *g = group;
    float bytes = 0;
    ncclResult_t result;
    REFUSE_IF(!g || g->depth == 0, ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
    REFUSE_IF(info && info->magic != 0x74685283, ncclInvalidArgument,
              "ncclSimInfo_t argument not initialized via NCCL_SIM_INFO_INITIALIZER");
    if (--g->depth > 0)
        return ncclSuccess;
    group = NULL;
    result = g->error;
    for (struct fake_plan *plan = g->plans; plan; plan = plan->next)
        for (int i = 0; i < plan->ncolls; i++)
            bytes += (float)(plan->colls[i].count * fake_type_bytes(plan->colls[i].type));
    if (info && result == ncclSuccess && info->size >= sizeof(*info))
        info->estimatedTime = 5.0f + bytes * 1e-5f;
    group_free(g);
    return result;
}
