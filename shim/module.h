/*
 * Files beside the library, loaded only where something asks for them.
 */
#ifndef NCCLGUARD_SHIM_MODULE_H
#define NCCLGUARD_SHIM_MODULE_H

/* The file that this library was loaded from, as the dynamic linker knows it; NULL not known. */
const char *ng_module_self(void);

/* Load the file, for good, and give the address of what it calls `symbol`; NULL: it is not there.
 * Takes the dynamic linker's lock: not on a program's thread. */
const void *ng_module_symbol(const char *path, const char *symbol);

#endif
