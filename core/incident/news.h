/*
 * News from the board: incidents that others claimed.
 *
 * Incident thread alone.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_NEWS_H
#define NCCLGUARD_CORE_INCIDENT_NEWS_H

#include "core/nccl/board.h"
#include "core/util/clock.h"

/* Hear of all that others have claimed or judged since the last time: log, join, obey. */
void ng_news_read(struct ng_board *board, enum ng_incident_source source);

/* The process ends by itself: keep what others say of a deadline
 * (core/incident/incident_response.h), and wait for it no longer than this. */
#define NG_NEWS_LAST_NS (5 * NG_S)
void ng_news_finish(struct ng_board *board);

/* In a forked child. */
void ng_news_after_fork(void);

#endif
