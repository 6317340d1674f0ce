/*
 * What to look at next. Pure data; any thread.
 */
#ifndef NCCLGUARD_TOOLS_RENDER_ADVICE_H
#define NCCLGUARD_TOOLS_RENDER_ADVICE_H

#include "core/verdict/verdict.h"

/* Step `index`, from 0, of what to do about a verdict of this kind, as a sentence; NULL: there are
 * no more. */
const char *ng_advice_step(enum ng_verdict_kind kind, unsigned index);

#endif
