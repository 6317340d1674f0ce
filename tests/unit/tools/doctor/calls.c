/* A program that calls NCCL by its ordinary names, or, with CALLED, by another one. */
#ifndef CALLED
#define CALLED ncclAllReduce
#endif

int CALLED(void);

int main(void)
{
    return CALLED() == 0;
}
