/* A library that is loaded and unloaded again and again; its functions are named for its build. */
#define JOINED(a, b) a##b
#define JOIN(a, b)   JOINED(a, b)
#define NAME(prefix) JOIN(prefix, WALKED_WHICH)

typedef void body_fn(void *context);

/* So that the builds' addresses differ. */
#if WALKED_PADDED
int NAME(walked_padding)(int number)
{
    volatile int kept = number;

    for (int i = 0; i < number; i++)
        kept = kept * 3 + i;
    return kept;
}
#endif

void NAME(walked_by_)(body_fn *body, void *context)
{
    volatile int kept = 1;

    body(context);
    kept++;
}

void walked_library(body_fn *body, void *context)
{
    volatile int kept = 1;

    NAME(walked_by_)(body, context);
    kept++;
}
