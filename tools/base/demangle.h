/*
 * Names of C++ functions as their programmers write them.
 */
#ifndef NCCLGUARD_TOOLS_BASE_DEMANGLE_H
#define NCCLGUARD_TOOLS_BASE_DEMANGLE_H

/*
 * A copy of a text in which each mangled name of C++ (Itanium C++ ABI: `_ZN5torch3runEi`) is the
 * function's own, without its parameters and return type (`torch::run`). What is none stays as it
 * is; in a build without libsupc++ everything does. The caller frees. NULL: no memory. Any thread.
 */
char *ng_demangle(const char *text);

/* Write what is left to read of one file to another, demangled. 0 or -errno. */
int ng_demangle_copy(int from_fd, int to_fd);

#endif
