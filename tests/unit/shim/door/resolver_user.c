/*
 * A library that asks for a function of resolver.c as soon as it is linked itself.
 */
int door_resolved(void);

__attribute__((visibility("default"))) int (*volatile door_pointer)(void) = door_resolved;
