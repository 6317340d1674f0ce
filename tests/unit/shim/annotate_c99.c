/* ncclguard.h in strict C99: compiles without a warning, and does what it says. */
#include "tests/unit/shim/annotate_body.h"
