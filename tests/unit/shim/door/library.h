/*
 * What a library of the door tests found when its constructor ran.
 */
#ifndef NCCLGUARD_TESTS_UNIT_SHIM_DOOR_LIBRARY_H
#define NCCLGUARD_TESTS_UNIT_SHIM_DOOR_LIBRARY_H

struct door_early {
    int ran;
    void *next, *self, *version, *missing;
    char error[512];
};

typedef const char *door_where_function(void);
typedef void *door_look_function(void *handle, const char *name);
typedef void *door_look_version_function(void *handle, const char *name, const char *version);
typedef const struct door_early *door_early_function(void);

#endif
