/*
 * Whether look-ups out of an IFUNC resolver found what they should; see resolver.c.
 */
#include <stdio.h>

extern int (*volatile door_pointer)(void);

int main(void)
{
    int answer = door_pointer();

    printf("%s look-ups while a library is linked: %d\n", answer == 1 ? "ok" : "not ok", answer);
    return answer != 1;
}
