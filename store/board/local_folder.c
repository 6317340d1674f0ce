/*
 * All processes of a folder of black boxes, as of now, for tools.
 *
 * Entered by a tool's thread. Must never wait for another process, nor change anything.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/clock.h"
#include "core/util/folder.h"
#include "store/board/local.h"
#include "store/board/local_parts.h"

void ng_local_close_folder(struct ng_peers *folder)
{
    for (uint32_t i = 0; i < folder->count; i++)
        ng_local_close_peer(&folder->list[i]);
    free(folder->list);
}

static bool append(struct ng_peers *folder, const struct ng_peer *peer)
{
    struct ng_peer *longer = reallocarray(folder->list, folder->count + 1, sizeof(*longer));

    if (!longer)
        return false;
    folder->list = longer;
    longer[folder->count] = *peer;
    longer[folder->count].linked = folder->count;
    folder->count++;
    return true;
}

int ng_local_open_folder(const char *path, struct ng_view *view, struct ng_peers *ret_folder)
{
    struct ng_local local = {.inotify = NG_DESCRIPTOR_NONE};
    struct ng_peers folder = {0};
    struct ng_folder entries;
    struct ng_peer peer;
    const char *name;

    ng_local_identify(&local);
    int failed = ng_folder_open(&entries, path, true);
    if (failed)
        return failed;
    while ((name = ng_folder_next(&entries))) {
        if (!ng_local_is_box_name(name))
            continue;
        int error = ng_local_open_peer(path, name, local.boot_id, local.pid_namespace, &peer);
        if (!error) {
            ng_local_refresh_peer(&peer);
            if (!append(&folder, &peer)) {
                ng_local_close_peer(&peer);
                error = -ENOMEM;
            }
        }
        if (error && view)
            ng_view_note(view, "%s: %s", name,
                         error == -EBADMSG  ? "not a black box"
                         : error == -EPROTO ? "of another version of ncclguard"
                         : error == -EIO    ? "damaged or cut off"
                         : error == -ESTALE ? "from before the last boot"
                                            : strerror(-error));
    }
    ng_folder_close(&entries);
    ng_local_find_runs(folder.list, folder.count);
    *ret_folder = folder;
    return 0;
}

int ng_local_collect(const char *path, uint64_t run, struct ng_view *view)
{
    struct ng_peers folder;
    int count = 0;

    int failed = ng_local_open_folder(path, view, &folder);
    if (failed)
        return failed;
    int64_t now = ng_clock_mono_ns();
    for (uint32_t i = 0; i < folder.count; i++) {
        if (run && ng_local_run_id(&folder, folder.list[i].run) != run)
            continue;
        int error = ng_local_add_to_view(&folder.list[i], now, view);
        if (error)
            ng_view_note(view, "%s: %s", folder.list[i].name, strerror(-error));
        else
            count++;
    }
    ng_local_close_folder(&folder);
    ng_view_seal(view);
    return count;
}

static void set_run(struct ng_local_run *ret_run, uint64_t id, const struct ng_peers *folder,
                    const struct ng_peer *peer)
{
    const struct ng_box_header *header = peer->box.header;

    *ret_run = (struct ng_local_run){.id = id, .pid = peer->pid};
    ng_local_name_run(folder, peer->run, ret_run->name);
    snprintf(ret_run->job, sizeof(ret_run->job), "%.*s", (int)sizeof(header->job) - 1, header->job);
}

int ng_local_runs(const char *path, struct ng_local_run *ret_runs, uint32_t room)
{
    struct ng_peers folder;
    uint32_t count = 0;

    int failed = ng_local_open_folder(path, NULL, &folder);
    if (failed)
        return failed;
    for (uint32_t i = 0; i < folder.count; i++) {
        uint64_t id = ng_local_run_id(&folder, folder.list[i].run);
        uint32_t at = 0;
        while (at < count && ret_runs[at].id != id)
            at++;
        if (at == room)
            continue;
        if (at == count)
            set_run(&ret_runs[count++], id, &folder, &folder.list[i]);
        ret_runs[at].processes++;
        ret_runs[at].living += !folder.list[i].gone;
    }
    ng_local_close_folder(&folder);
    return (int)count;
}

int ng_local_find_runs_of(const char *path, struct ng_local_process *processes, uint32_t count)
{
    struct ng_peers folder;

    int failed = ng_local_open_folder(path, NULL, &folder);
    if (failed)
        return failed;
    for (uint32_t i = 0; i < count; i++) {
        processes[i].run = 0;
        for (uint32_t k = 0; k < folder.count && !processes[i].run; k++)
            if (folder.list[k].pid == processes[i].pid &&
                folder.list[k].start_ticks == processes[i].start_ticks)
                processes[i].run = ng_local_run_id(&folder, folder.list[k].run);
    }
    ng_local_close_folder(&folder);
    return 0;
}
