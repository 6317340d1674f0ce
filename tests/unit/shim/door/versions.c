/*
 * A library with two versions of its functions, and with names that begin as NCCL's and CUDA's do.
 */
#define EXPORT __attribute__((visibility("default")))

EXPORT int old_number(void)
{
    return 1;
}

EXPORT int new_number(void)
{
    return 2;
}

__asm__(".symver old_number, door_number@DOOR_1");
__asm__(".symver new_number, door_number@@DOOR_2");
__asm__(".symver old_number, ncclDoorNumber@DOOR_1");
__asm__(".symver new_number, ncclDoorNumber@@DOOR_2");
__asm__(".symver old_number, cuDoorNumber@DOOR_1");
__asm__(".symver new_number, cuDoorNumber@@DOOR_2");

#define SAYS(name, number)                                                                         \
    EXPORT int name(void)                                                                          \
    {                                                                                              \
        return number;                                                                             \
    }

SAYS(n, 10)
SAYS(nc, 11)
SAYS(c, 12)
SAYS(cu, 13)
SAYS(ncurses_door, 14)
SAYS(nccl, 15)
SAYS(ncclDoor, 16)
SAYS(cuDoor, 17)
SAYS(cublasDoor, 18)
SAYS(ncclAllReduceDoor, 19)
SAYS(curl_door, 20)
