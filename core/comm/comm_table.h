/*
 * For core/comm/comm.c: the table behind ng_comm_find, ng_comm_at and ng_comm_count
 * (core/comm/comm.h).
 */
#ifndef NCCLGUARD_CORE_COMM_COMM_TABLE_H
#define NCCLGUARD_CORE_COMM_COMM_TABLE_H

#include "core/comm/comm.h"

/* Reserve room for all records, once; false: no memory. Under the registry's lock, as are all
 * below. */
bool ng_comm_table_make(void);

/* The handle belongs to this record from now on. */
void ng_comm_table_insert(void *handle, struct ng_comm *comm);

/* Forget the handle, if it belongs to this record. */
void ng_comm_table_remove(const void *handle, const struct ng_comm *comm);

/* So many records are in use: those below are complete. */
void ng_comm_table_count(uint32_t count);

/* In a forked child: the parent's records are none of ours. */
void ng_comm_table_forget(void);

#endif
