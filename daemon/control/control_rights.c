/* Who may change a running daemon: root, the daemon's own user, and the group spdld-admin. And who
 * may use which dataset. */
#include <errno.h>
#include <grp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/control_state.h"

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59 /* Linux 4.13 */
#endif

static const char admin_group[] = "spdld-admin";

void control_peer_read(const struct session *session, struct control_peer *ret_peer)
{
    struct ucred peer = {.gid = (gid_t)-1};
    socklen_t bytes = sizeof peer;
    getsockopt(session->fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
    ret_peer->pid = session->pid;
    ret_peer->uid = session->uid;
    ret_peer->gid = peer.gid;
    bytes = sizeof ret_peer->groups; /* a process of more groups has none here */
    bool has_groups =
        getsockopt(session->fd, SOL_SOCKET, SO_PEERGROUPS, ret_peer->groups, &bytes) == 0;
    ret_peer->group_count = has_groups ? (uint32_t)(bytes / sizeof(gid_t)) : 0;
}

bool control_peer_is_owner(const struct control_peer *peer)
{
    return peer->uid == 0 || peer->uid == geteuid();
}

/* 0; -ENOENT: there is no such group; another: it cannot be looked up. */
static int admin_gid(gid_t *ret_gid)
{
    enum { ROOM = 1 << 20 }; /* for the names of all members */
    struct group entry, *found = NULL;
    char *room = malloc(ROOM);
    if (!room)
        return -ENOMEM;
    int rc = getgrnam_r(admin_group, &entry, room, ROOM, &found);
    if (found)
        *ret_gid = found->gr_gid;
    free(room);
    return found ? 0 : rc > 0 ? -rc : -ENOENT;
}

int control_peer_check(const struct control_peer *peer, struct err *reterr)
{
    gid_t gid = 0;
    if (control_peer_is_owner(peer))
        return 0;
    int rc = admin_gid(&gid);
    bool is_member = rc == 0 && peer->gid == gid;
    for (uint32_t i = 0; rc == 0 && i < peer->group_count && !is_member; i++)
        is_member = peer->groups[i] == gid;
    if (is_member)
        return 0;
    return err_set(reterr, -EACCES,
                   "user %u may not change this daemon: root, its own user (%u) and members of the "
                   "group %s may%s",
                   (unsigned)peer->uid, (unsigned)geteuid(), admin_group,
                   rc == -ENOENT ? " (there is no such group on this node)"
                   : rc < 0      ? " (the group cannot be looked up)"
                                 : "");
}

int control_may_use(const struct session *session, const char *name, struct err *reterr)
{
    enum { WHO_BYTES = 512 };
    const struct config_dataset *dataset =
        config_dataset_find(session->control->params.config, name);
    struct control_peer peer;
    char who[WHO_BYTES];
    if (!dataset || !dataset->allow.is_given || session->uid == 0)
        return 0;
    control_peer_read(session, &peer);
    if (config_allow_has(&dataset->allow, peer.uid, &peer.gid, 1) ||
        config_allow_has(&dataset->allow, peer.uid, peer.groups, peer.group_count))
        return 0;
    config_allow_text(&dataset->allow, who, sizeof who);
    return err_set(reterr, -EACCES, "user %u may not use dataset %s: %s may", (unsigned)peer.uid,
                   dataset->name, who);
}
