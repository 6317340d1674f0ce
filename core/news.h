/*
 * News from the board: incidents that others claimed.
 *
 * Steps 9 and 10. Incident thread alone.
 */
#ifndef NCCLGUARD_CORE_NEWS_H
#define NCCLGUARD_CORE_NEWS_H

#include "core/board.h"

/* Hear of all that others have claimed or judged since the last time: log, join, obey. */
void ng_news_read(struct ng_board *board, enum ng_incident_source source);

/* In a forked child. */
void ng_news_after_fork(void);

#endif
