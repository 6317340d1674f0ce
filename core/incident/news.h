/*
 * Reads news from the board: incidents that other processes have claimed, and commands.
 *
 * Incident thread alone.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_NEWS_H
#define NCCLGUARD_CORE_INCIDENT_NEWS_H

#include "core/nccl/board.h"
#include "core/util/clock.h"

/* Handle everything that others have claimed, judged or commanded since the last call: log, join,
 * obey. */
void ng_news_read(struct ng_board *board, enum ng_incident_source source);

/* The process exits by itself: keep the verdicts of others on a deadline
 * (core/incident/incident_response.h), and wait for them no longer than this. */
#define NG_NEWS_LAST_NS (5 * NG_S)
void ng_news_finish(struct ng_board *board);

#endif
