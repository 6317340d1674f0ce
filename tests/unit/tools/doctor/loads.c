/* A program that loads what it is told, in one of the two ways. */
#include <dlfcn.h>

int main(int argc, char **argv)
{
#ifdef NAMESPACE
    return argc > 1 && !dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
#else
    return argc > 1 && !dlopen(argv[1], RTLD_NOW);
#endif
}
