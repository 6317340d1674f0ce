/*
 * Where the sources of core's tests are: a file by itself, since a compiler's cache serves no other
 * folder with it.
 */
#include "tests/unit/core/helpers/folder.h"

const char ng_test_folder[] = NG_TEST_FOLDER;
