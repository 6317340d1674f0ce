/* A program that gets the registration of its buffers wrong, one way after the other, each in a
 * function of its own. Nothing of it ends badly on the stand-ins; the last line: `all done`. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#define BYTES ((size_t)4 << 20)
/* A call in the last place must not become a jump. */
#define STAY __asm__ volatile("")

static ncclComm_t comm;

static void check(int result, const char *what)
{
    if (result == 0)
        return;
    fprintf(stderr, "misregistered: %s: %d\n", what, result);
    exit(3);
}

__attribute__((noinline)) void *register_buffer(void *buffer)
{
    void *handle = NULL;
    check(ncclCommRegister(comm, buffer, BYTES, &handle), "ncclCommRegister");
    return handle;
}

__attribute__((noinline)) void *register_again(void *buffer)
{
    void *handle = NULL;
    check(ncclCommRegister(comm, buffer, BYTES, &handle), "ncclCommRegister");
    return handle;
}

__attribute__((noinline)) void deregister_nothing(void)
{
    (void)ncclCommDeregister(comm, (void *)0x1230);
    STAY;
}

__attribute__((noinline)) void free_registered(void *buffer)
{
    check(ncclMemFree(buffer), "ncclMemFree");
    STAY;
}

__attribute__((noinline)) void cuda_free_registered(void *buffer)
{
    check(cudaFree(buffer), "cudaFree");
    STAY;
}

int main(void)
{
    int device = 0;
    void *buffer, *plain, *handles[2];

    check(ncclCommInitAll(&comm, 1, &device), "ncclCommInitAll");
    check(ncclMemAlloc(&buffer, BYTES), "ncclMemAlloc");
    check(cudaMalloc(&plain, BYTES), "cudaMalloc");
    handles[0] = register_buffer(buffer);
    handles[1] = register_again(buffer);
    check(ncclCommDeregister(comm, handles[0]), "ncclCommDeregister");
    check(ncclCommDeregister(comm, handles[1]), "ncclCommDeregister");
    deregister_nothing();
    handles[0] = register_buffer(buffer);
    free_registered(buffer);
    handles[1] = register_buffer(plain);
    cuda_free_registered(plain);
    check(ncclCommDestroy(comm), "ncclCommDestroy");
    printf("all done\n");
    return 0;
}
