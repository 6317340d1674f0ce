/* A preloaded library for test_programs: prints the arguments of every NCCL call and passes the
 * call on, so that a test knows what a program really called. With SPY_REDOP it falsifies results,
 * so that a test knows whether --check finds that. */
#include <dlfcn.h>
#include <nccl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SPY __attribute__((visibility("default")))

/* "spy R: …" in one write. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    const char *rank = getenv("RANK");
    char line[256];
    int length = snprintf(line, sizeof(line), "spy %s: ", rank ? rank : "0");
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(line + length, sizeof(line) - (size_t)length, format, arguments);
    va_end(arguments);
    if (write(STDERR_FILENO, line, (size_t)length) != length)
        abort();
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

SPY ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    say("CommInitRank nranks=%d rank=%d\n", nranks, rank);
    return REAL(ncclCommInitRank)(comm, nranks, id, rank);
}

SPY ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t dtype,
                               ncclRedOp_t redop, ncclComm_t comm, cudaStream_t stream)
{
    say("AllReduce count=%zu dtype=%d redop=%d%s\n", count, dtype, redop,
        send == recv ? " in place" : "");
    /* SPY_REDOP: wrong results, the same on every rank. */
    const char *other = getenv("SPY_REDOP");
    if (other)
        redop = (ncclRedOp_t)atoi(other);
    return REAL(ncclAllReduce)(send, recv, count, dtype, redop, comm, stream);
}

SPY ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t dtype,
                               int root, ncclComm_t comm, cudaStream_t stream)
{
    say("Broadcast count=%zu dtype=%d root=%d\n", count, dtype, root);
    return REAL(ncclBroadcast)(send, recv, count, dtype, root, comm, stream);
}

SPY ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t dtype, int peer,
                          ncclComm_t comm, cudaStream_t stream)
{
    say("Send count=%zu dtype=%d peer=%d\n", count, dtype, peer);
    return REAL(ncclSend)(send, count, dtype, peer, comm, stream);
}

SPY ncclResult_t ncclGroupStart(void)
{
    say("GroupStart\n");
    return REAL(ncclGroupStart)();
}

SPY ncclResult_t ncclGroupEnd(void)
{
    say("GroupEnd\n");
    return REAL(ncclGroupEnd)();
}
