/*
 * Each function looks up the user again; nothing is kept between calls. In the child, groups are
 * changed first and the user last, because after setresuid the right to change groups is gone.
 * PR_SET_DUMPABLE is set again: the kernel clears it when the user changes, and the process could
 * then not read its own /proc/self.
 */
#include "supervisor/user.h"

#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/proc/config.h"

static int find_user(const struct config *c, struct passwd *ret, struct err *e)
{
    /* The supervisor has one thread. */
    // cppcheck-suppress getpwnamCalled
    const struct passwd *p = getpwnam(c->user);

    if (!p)
        return err_set(e, ERR_CONFIG, "--user %s: there is no such user", c->user);
    *ret = *p;
    return 0;
}

int user_check(const struct config *c, struct err *e)
{
    struct passwd who = {0};

    if (!c->user)
        return 0;
    if (find_user(c, &who, e))
        return -1;
    if (geteuid() != 0 && geteuid() != who.pw_uid)
        return err_set(e, ERR_CONFIG, "--user %s: only root can become another user", c->user);
    return 0;
}

int user_chown(const struct config *c, const char *path, struct err *e)
{
    struct passwd who = {0};

    if (!c->user || geteuid() != 0)
        return 0;
    if (find_user(c, &who, e))
        return -1;
    if (lchown(path, who.pw_uid, who.pw_gid))
        return err_sys(e, ERR_IO, "cannot give %s to --user %s", path, c->user);
    return 0;
}

int user_owns(const struct config *c, const char *path, struct err *e)
{
    struct passwd who = {0};
    struct stat st;

    if (!c->user)
        return 0;
    if (find_user(c, &who, e))
        return -1;
    if (stat(path, &st))
        return err_sys(e, ERR_IO, "cannot look at %s", path);
    if (st.st_uid != who.pw_uid)
        return err_set(
            e, ERR_CONFIG,
            "%s is not the folder of --user %s (its owner has number %u): chown -R %s it", path,
            c->user, (unsigned)st.st_uid, c->user);
    return 0;
}

int user_become(const struct config *c, struct err *e)
{
    struct passwd who = {0};

    if (!c->user || geteuid() != 0)
        return 0;
    if (find_user(c, &who, e))
        return -1;
    if (initgroups(c->user, who.pw_gid) || setresgid(who.pw_gid, who.pw_gid, who.pw_gid) ||
        setresuid(who.pw_uid, who.pw_uid, who.pw_uid))
        return err_sys(e, ERR_CONFIG, "--user %s", c->user);
    (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); /* so that the process may read /proc/self again */
    return 0;
}
