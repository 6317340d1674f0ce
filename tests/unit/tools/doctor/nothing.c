/* A program that does nothing, or starts the program that it is told. */
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc > 1)
        execv(argv[1], argv + 1);
    return 3;
}
