/* Preloaded in place of the library where the test is about the command alone. */
__attribute__((visibility("default"))) int ncclAllReduce(void);

int ncclAllReduce(void)
{
    return 1;
}
