/*
 * The helper process that stops this process's threads.
 *
 * It runs in our memory, with the thread-local storage of the guard thread that waits for it: it
 * must never touch errno or call the C library, and is built without sanitizers, whose runtimes
 * keep their own state there.
 */
#include "core/evidence/tracer.h"

#include <elf.h>
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "core/util/clock.h"
#include "core/util/macros.h"

#define PAUSE_NS (100 * NG_US)

/* Returns the kernel's result: no errno. */
static long call(long number, long a, long b, long c, long d)
{
#if defined(__x86_64__)
    register long fourth __asm__("r10") = d;
    register long fifth __asm__("r8") = 0;
    register long sixth __asm__("r9") = 0;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    return result;
#else
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = 0;
    register long x5 __asm__("x5") = 0;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
#endif
}

static int64_t now_ns(void)
{
    struct timespec now;

    call(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0, 0);
    return now.tv_sec * NG_S + now.tv_nsec;
}

void ng_tracer_await(struct ng_tracer *tracer, uint32_t step, int64_t until_ns)
{
    struct timespec pause = {.tv_nsec = 10 * NG_MS};

    for (;;) {
        uint32_t now = atomic_load_explicit(&tracer->step, memory_order_acquire);
        if (now >= step || now_ns() > until_ns)
            return;
        call(SYS_futex, (long)&tracer->step, FUTEX_WAIT, now, (long)&pause);
    }
}

static void read_registers(struct ng_traced *thread)
{
#if defined(__x86_64__)
    struct {
        uint64_t r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, orig_rax;
        uint64_t rip, cs, eflags, rsp, ss, fs_base, gs_base, ds, es, fs, gs;
    } user;
#else
    struct {
        uint64_t regs[31], sp, pc, pstate;
    } user;
#endif
    struct iovec place = {&user, sizeof(user)};

    if (call(SYS_ptrace, PTRACE_GETREGSET, thread->tid, NT_PRSTATUS, (long)&place) != 0)
        return;
#if defined(__x86_64__)
    const uint64_t by_number[NG_REGISTERS] = {
        user.rax, user.rdx, user.rcx, user.rbx, user.rsi, user.rdi, user.rbp, user.rsp, user.r8,
        user.r9,  user.r10, user.r11, user.r12, user.r13, user.r14, user.r15, user.rip};
    for (unsigned i = 0; i < NG_REGISTERS; i++)
        thread->registers.value[i] = by_number[i];
    thread->thread_pointer = user.fs_base;
#else
    for (unsigned i = 0; i < 31; i++)
        thread->registers.value[i] = user.regs[i];
    thread->registers.value[NG_REGISTER_STACK] = user.sp;
    thread->registers.value[NG_REGISTER_PROGRAM] = user.pc;
    struct iovec pointer = {&thread->thread_pointer, sizeof(thread->thread_pointer)};
    call(SYS_ptrace, PTRACE_GETREGSET, thread->tid, NT_ARM_TLS, (long)&pointer);
#endif
    thread->registers.known = (UINT64_C(1) << NG_REGISTERS) - 1;
    thread->state = NG_TRACED_HELD;
}

static void ask(struct ng_traced *thread)
{
    long error = call(SYS_ptrace, PTRACE_SEIZE, thread->tid, 0, 0);

    if (error == 0)
        error = call(SYS_ptrace, PTRACE_INTERRUPT, thread->tid, 0, 0);
    if (error == 0) {
        thread->state = NG_TRACED_ASKED;
        return;
    }
    thread->state = error == -ESRCH ? NG_TRACED_GONE : NG_TRACED_REFUSED;
    thread->error = (int)-error;
}

/* Collect threads that have stopped; returns how many are still expected. */
static unsigned collect(struct ng_tracer *tracer)
{
    unsigned expected = 0;

    NG_EACH (thread, tracer->threads, tracer->count) {
        if (thread->state != NG_TRACED_ASKED)
            continue;
        long got = call(SYS_wait4, thread->tid, (long)&thread->status, __WALL | WNOHANG, 0);
        if (got == thread->tid && WIFSTOPPED(thread->status))
            read_registers(thread);
        else if (got == thread->tid || got == -ECHILD)
            thread->state = NG_TRACED_GONE;
        else
            expected++;
    }
    return expected;
}

/* If a signal stopped a thread before we did, deliver it when the thread is released. */
static void let_go(struct ng_tracer *tracer)
{
    NG_EACH (thread, tracer->threads, tracer->count) {
        bool delivery = thread->status >> 16 == 0;
        if (thread->state == NG_TRACED_HELD)
            call(SYS_ptrace, PTRACE_DETACH, thread->tid, 0,
                 delivery ? WSTOPSIG(thread->status) : 0);
    }
    /* The kernel releases the threads that did not stop when we end. */
}

static int help(struct ng_tracer *tracer)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS};

    /* Without the thread that waits for us, we must end. */
    call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0);
    if (call(SYS_getppid, 0, 0, 0, 0) != tracer->parent)
        return 1;
    ng_tracer_await(tracer, NG_TRACER_MAY_TRACE, tracer->stop_until_ns);
    for (unsigned i = 0; i < tracer->count; i++)
        ask(&tracer->threads[i]);
    while (collect(tracer) > 0 && now_ns() < tracer->stop_until_ns)
        call(SYS_nanosleep, (long)&pause, 0, 0, 0);
    atomic_store_explicit(&tracer->step, NG_TRACER_HOLDS, memory_order_release);
    call(SYS_futex, (long)&tracer->step, FUTEX_WAKE, 1, 0);
    ng_tracer_await(tracer, NG_TRACER_MAY_GO, tracer->hold_until_ns);
    let_go(tracer);
    return 0;
}

/* Not through the C library: ThreadSanitizer treats its clone as a fork, although the memory is
 * shared. */
long ng_tracer_start(struct ng_tracer *tracer, void *stack_end)
{
    const long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_UNTRACED;
#if defined(__x86_64__)
    register long third __asm__("rdx") = 0;
    register long fourth __asm__("r10") = 0;
    register long fifth __asm__("r8") = 0;
    register struct ng_tracer *argument __asm__("r12") = tracer;
    register int (*function)(struct ng_tracer *) __asm__("r13") = help;
    long result;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "mov %%r12, %%rdi\n\t"
                     "call *%%r13\n\t"
                     "mov %%eax, %%edi\n\t"
                     "mov %[exit], %%eax\n\t"
                     "syscall\n"
                     "1:"
                     : "=a"(result)
                     : "a"((long)SYS_clone), "D"(flags), "S"(stack_end), "r"(third), "r"(fourth),
                       "r"(fifth), "r"(argument), "r"(function), [exit] "i"(SYS_exit)
                     : "rcx", "r11", "memory", "cc");
    return result;
#else
    register long x8 __asm__("x8") = SYS_clone;
    register long x0 __asm__("x0") = flags;
    register void *x1 __asm__("x1") = stack_end;
    register long x2 __asm__("x2") = 0;
    register long x3 __asm__("x3") = 0;
    register long x4 __asm__("x4") = 0;
    register struct ng_tracer *argument __asm__("x20") = tracer;
    register int (*function)(struct ng_tracer *) __asm__("x21") = help;
    __asm__ volatile("svc 0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, xzr\n\t"
                     "mov x0, x20\n\t"
                     "blr x21\n\t"
                     "mov x8, %[exit]\n\t"
                     "svc 0\n"
                     "1:"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(argument),
                       "r"(function), [exit] "i"(SYS_exit)
                     : "memory", "cc");
    return x0;
#endif
}
