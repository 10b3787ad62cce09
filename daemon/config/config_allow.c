/* `allow` of a dataset: which users and groups may have streams of it. In: YAML. Out: names and
 * their numbers, which are looked up when the configuration is read; a name that the node does not
 * know stands for nobody until a reload finds it. Non-logging, any role; blocks for the look-up. */
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "config/config_dataset.h"
#include "config/config_read.h"
#include "config/config_values.h"

enum { LOOKUP_BYTES = 1 << 16 };

static uint32_t number_of(const char *name)
{
    char *end = NULL;
    unsigned long number = name[0] >= '0' && name[0] <= '9' ? strtoul(name, &end, 10) : 0;
    return end && !*end && number < CONFIG_ALLOW_NOBODY ? (uint32_t)number : CONFIG_ALLOW_NOBODY;
}

static uint32_t user_of(const char *name, char *room)
{
    struct passwd entry, *found = NULL;
    getpwnam_r(name, &entry, room, LOOKUP_BYTES, &found);
    return found ? found->pw_uid : number_of(name);
}

static uint32_t group_of(const char *name, char *room)
{
    struct group entry, *found = NULL;
    getgrnam_r(name, &entry, room, LOOKUP_BYTES, &found);
    return found ? found->gr_gid : number_of(name);
}

static void list_take(struct config_reader *reader, const struct config_node *node,
                      const char *name, struct config_allow_list *list,
                      uint32_t (*number)(const char *name, char *room))
{
    char show[CONFIG_SHOW_BYTES];
    if (node->kind != CONFIG_NODE_SEQUENCE) {
        config_complain(reader, node, "%s is a list of names, not %s", name,
                        config_show(node, show));
        return;
    }
    char *room = malloc(LOOKUP_BYTES);
    for (const struct config_item *item = node->first; room && item; item = item->next) {
        if (list->count == CONFIG_ALLOW_MAX) {
            config_complain(reader, item->value, "%s has more than %d names: make a group", name,
                            CONFIG_ALLOW_MAX);
            break;
        }
        char *to = list->names[list->count];
        if (config_read_text(reader, item->value, name, to, sizeof list->names[0]) == 0)
            list->ids[list->count++] = number(to, room);
    }
    free(room);
}

void config_allow_take(struct config_reader *reader, const struct config_node *node,
                       struct config_allow *ret_allow)
{
    static const struct config_key keys[] = {{"users", false}, {"groups", false}, {NULL, false}};
    const struct config_node *values[2] = {NULL};
    uint32_t complaints_before = reader->complaints->count;
    if (config_keys_take(reader, node, "allow", keys, values) < 0)
        return;
    if (values[0])
        list_take(reader, values[0], "users", &ret_allow->users, user_of);
    if (values[1])
        list_take(reader, values[1], "groups", &ret_allow->groups, group_of);
    ret_allow->is_given = true;
    if (ret_allow->users.count + ret_allow->groups.count == 0 &&
        reader->complaints->count == complaints_before)
        config_complain(reader, node,
                        "allow names nobody: it is {users: [NAME], groups: [NAME]}; without allow "
                        "everybody who may use the socket may use the dataset");
}

static bool has(const struct config_allow_list *list, uint32_t id)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->ids[i] == id && id != CONFIG_ALLOW_NOBODY)
            return true;
    return false;
}

bool config_allow_has(const struct config_allow *allow, uint32_t uid, const uint32_t *gids,
                      uint32_t gid_count)
{
    if (!allow->is_given || has(&allow->users, uid))
        return true;
    for (uint32_t i = 0; i < gid_count; i++)
        if (has(&allow->groups, gids[i]))
            return true;
    return false;
}

static void list_print(FILE *out, const char *name, const struct config_allow_list *list)
{
    fprintf(out, "%s: [", name);
    for (uint32_t i = 0; i < list->count; i++) {
        fputs(i ? ", " : "", out);
        config_values_quote(out, list->names[i]);
    }
    fputs("]", out);
}

void config_allow_print(FILE *out, const struct config_dataset *dataset)
{
    const struct config_allow *allow = &dataset->allow;
    if (!allow->is_given)
        return;
    fputs("{", out);
    if (allow->users.count > 0)
        list_print(out, "users", &allow->users);
    if (allow->groups.count > 0)
        list_print(out, allow->users.count > 0 ? ", groups" : "groups", &allow->groups);
    fputs("}", out);
}

/* "users alice, carol (not known here)" */
static size_t list_text(char *text, size_t bytes, const char *what,
                        const struct config_allow_list *list)
{
    size_t used = 0;
    for (uint32_t i = 0; i < list->count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s%s%s", i ? ", " : what,
                                 i                 ? ""
                                 : list->count > 1 ? "s "
                                                   : " ",
                                 list->names[i],
                                 list->ids[i] == CONFIG_ALLOW_NOBODY ? " (not known here)" : "");
    return used < bytes ? used : bytes - 1;
}

void config_allow_text(const struct config_allow *allow, char *text, size_t bytes)
{
    text[0] = 0;
    size_t used = list_text(text, bytes, "user", &allow->users);
    if (used > 0 && allow->groups.count > 0 && used + 6 < bytes)
        used += (size_t)snprintf(text + used, bytes - used, " and ");
    list_text(text + used, bytes - used, "group", &allow->groups);
}
