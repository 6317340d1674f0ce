/*
 * The folders of this host in which jobs have their black boxes.
 */
#ifndef NCCLGUARD_TOOLS_JOBS_HOST_FOLDERS_H
#define NCCLGUARD_TOOLS_JOBS_HOST_FOLDERS_H

/*
 * Call `each` with every folder that may hold black boxes, as of now: the one that `common` names
 * (NULL none: those that the guard chooses itself, one for each job of this user, and of every
 * user for root). A folder may be empty, or gone when it is opened.
 */
void ng_host_folders_each(const char *common, void (*each)(void *context, const char *folder),
                          void *context);

#endif
