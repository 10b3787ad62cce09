/* Values out of nodes, complaints and nearest names: see config_read.h. */
#include "config/config_read.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/config_units.h"

enum { WHERE_BYTES = 200, WORD_BYTES = 48, NEAR_WORD_BYTES = 64, NAMES_BYTES = 256 };

void config_reader_init(struct config_reader *reader, const char *where,
                        struct config_complaints *complaints)
{
    *reader = (struct config_reader){.where = where, .complaints = complaints};
    reader->first =
        complaints->count < CONFIG_COMPLAINTS_MAX ? complaints->count : CONFIG_COMPLAINTS_MAX;
}

/* Control bytes must not reach a terminal or a log; a character that was cut in its middle goes
 * whole. */
static void text_clean(char *text)
{
    size_t bytes = strlen(text);
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)text[i] < 32 || text[i] == 127)
            text[i] = '?';
    }
    size_t tail = bytes;
    while (tail > 0 && bytes - tail < 3 && ((unsigned char)text[tail - 1] & 0xC0) == 0x80)
        tail--;
    if (tail == 0 || ((unsigned char)text[tail - 1] & 0xC0) != 0xC0)
        return;
    unsigned char lead = (unsigned char)text[tail - 1];
    size_t wanted = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (bytes - tail < wanted)
        text[tail - 1] = '\0';
}

int config_complain(struct config_reader *reader, const struct config_node *node,
                    const char *format, ...)
{
    struct config_complaints *all = reader->complaints;
    uint64_t place = node ? (uint64_t)node->line << 32 | node->column : 0;
    uint32_t kept = all->count < CONFIG_COMPLAINTS_MAX ? all->count : CONFIG_COMPLAINTS_MAX;
    all->count++;
    uint32_t at = kept;
    while (at > reader->first && reader->places[at - 1] > place)
        at--;
    if (at == CONFIG_COMPLAINTS_MAX)
        return -EINVAL;
    if (kept == CONFIG_COMPLAINTS_MAX)
        kept--;
    memmove(all->lines[at + 1 < CONFIG_COMPLAINTS_MAX ? at + 1 : at], all->lines[at],
            (kept - at) * sizeof all->lines[0]);
    for (uint32_t i = kept; i > at; i--)
        reader->places[i] = reader->places[i - 1];
    reader->places[at] = place;

    char *line = all->lines[at];
    size_t where_bytes = strlen(reader->where);
    bool cut = where_bytes > WHERE_BYTES;
    const char *where = cut ? reader->where + where_bytes - WHERE_BYTES : reader->where;
    int n = place ? snprintf(line, sizeof all->lines[0], "%s%s:%u:%u: ", cut ? "..." : "", where,
                             node->line, node->column)
                  : snprintf(line, sizeof all->lines[0], "%s%s: ", cut ? "..." : "", where);
    va_list args;
    va_start(args, format);
    vsnprintf(line + n, sizeof all->lines[0] - (size_t)n, format, args);
    va_end(args);
    text_clean(line);
    return -EINVAL;
}

static uint32_t min3(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Insertions, deletions, changes and swaps of neighbours. */
static uint32_t distance_of(const char *a, const char *b)
{
    size_t a_bytes = strlen(a), b_bytes = strlen(b);
    if (a_bytes > NEAR_WORD_BYTES || b_bytes > NEAR_WORD_BYTES)
        return UINT32_MAX;
    uint32_t rows[3][NEAR_WORD_BYTES + 1];
    uint32_t *before = rows[0], *last = rows[1], *now = rows[2];
    memset(rows, 0, sizeof rows);
    for (uint32_t j = 0; j <= b_bytes; j++)
        last[j] = j;
    for (uint32_t i = 1; i <= a_bytes; i++) {
        now[0] = i;
        for (uint32_t j = 1; j <= b_bytes; j++) {
            now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < now[j])
                now[j] = before[j - 2] + 1;
        }
        uint32_t *spare = before;
        before = last;
        last = now;
        now = spare;
    }
    return last[b_bytes];
}

void config_nearest_init(struct config_nearest *nearest, const char *word)
{
    *nearest = (struct config_nearest){.word = word, .best = NULL, .best_distance = UINT32_MAX};
}

void config_nearest_try(struct config_nearest *nearest, const char *name)
{
    size_t bytes = strlen(nearest->word);
    uint32_t near = bytes <= 3 ? 1 : bytes <= 6 ? 2 : 3;
    uint32_t distance = distance_of(nearest->word, name);
    if (distance <= near && distance < strlen(name) && distance < nearest->best_distance) {
        nearest->best = name;
        nearest->best_distance = distance;
    }
}

void config_nearest_take(struct config_nearest *nearest, const char *name)
{
    if (nearest->best_distance > 0)
        *nearest = (struct config_nearest){.word = nearest->word, .best = name, .best_distance = 0};
}

const char *config_nearest_hint(const struct config_nearest *nearest, char hint[CONFIG_SHOW_BYTES])
{
    hint[0] = '\0';
    if (nearest->best)
        snprintf(hint, CONFIG_SHOW_BYTES, "; did you mean '%s'?", nearest->best);
    return hint;
}

bool config_node_is_empty(const struct config_node *node)
{
    if (node->kind != CONFIG_NODE_SCALAR || node->quoted)
        return false;
    return node->bytes == 0 || strcmp(node->text, "~") == 0 || strcmp(node->text, "null") == 0;
}

bool config_node_is(const struct config_node *node, const char *word)
{
    return node->kind == CONFIG_NODE_SCALAR && strcmp(node->text, word) == 0;
}

const char *config_show(const struct config_node *node, char show[CONFIG_SHOW_BYTES])
{
    if (node->kind == CONFIG_NODE_MAPPING)
        return "a mapping";
    if (node->kind == CONFIG_NODE_SEQUENCE)
        return "a list";
    if (config_node_is_empty(node))
        return "nothing";
    char word[WORD_BYTES];
    snprintf(word, sizeof word, "%s", node->text);
    text_clean(word);
    snprintf(show, CONFIG_SHOW_BYTES, "'%s'%s", word, node->bytes >= sizeof word ? "..." : "");
    return show;
}

static const char *names_of(const struct config_key *keys, char names[NAMES_BYTES])
{
    size_t used = 0;
    names[0] = '\0';
    for (const struct config_key *key = keys; key->name && used < NAMES_BYTES; key++) {
        if (!key->later)
            used += (size_t)snprintf(names + used, NAMES_BYTES - used, "%s%s", used ? " " : "",
                                     key->name);
    }
    return names;
}

static void key_unknown(struct config_reader *reader, const struct config_node *node,
                        const char *name, const struct config_key *keys)
{
    struct config_nearest nearest;
    config_nearest_init(&nearest, node->text);
    /* Beyond what is kept nobody reads the hint, and a long list of wrong keys stays cheap. */
    for (const struct config_key *key = keys;
         key->name && reader->complaints->count < CONFIG_COMPLAINTS_MAX; key++) {
        if (!key->later)
            config_nearest_try(&nearest, key->name);
    }
    char hint[CONFIG_SHOW_BYTES], show[CONFIG_SHOW_BYTES], names[NAMES_BYTES];
    if (nearest.best)
        config_complain(reader, node, "unknown key %s in %s%s", config_show(node, show), name,
                        config_nearest_hint(&nearest, hint));
    else
        config_complain(reader, node, "unknown key %s in %s: it takes %s", config_show(node, show),
                        name, names_of(keys, names));
}

int config_keys_take(struct config_reader *reader, const struct config_node *node, const char *name,
                     const struct config_key *keys, const struct config_node **ret_values)
{
    for (uint32_t i = 0; keys[i].name; i++)
        ret_values[i] = NULL;
    char names[NAMES_BYTES], show[CONFIG_SHOW_BYTES];
    if (config_node_is_empty(node))
        return 0;
    if (node->kind != CONFIG_NODE_MAPPING)
        return config_complain(reader, node, "%s is a mapping of %s, not %s", name,
                               names_of(keys, names), config_show(node, show));
    for (const struct config_item *item = node->first; item; item = item->next) {
        uint32_t i = 0;
        while (keys[i].name && strcmp(keys[i].name, item->key->text) != 0)
            i++;
        if (!keys[i].name)
            key_unknown(reader, item->key, name, keys);
        else if (keys[i].later)
            config_complain(reader, item->key, "%s is not supported in this version", keys[i].name);
        else if (ret_values[i])
            config_complain(reader, item->key, "%s is given twice in %s", keys[i].name, name);
        else
            ret_values[i] = item->value;
    }
    return 0;
}

const struct config_node *config_key_node(const struct config_node *mapping, const char *key)
{
    for (const struct config_item *item = mapping->first; item; item = item->next) {
        if (item->key && strcmp(item->key->text, key) == 0)
            return item->key;
    }
    return mapping;
}

static int scalar_check(struct config_reader *reader, const struct config_node *node,
                        const char *name, const char *what)
{
    char show[CONFIG_SHOW_BYTES];
    if (node->kind != CONFIG_NODE_SCALAR || config_node_is_empty(node))
        return config_complain(reader, node, "%s is %s, not %s", name, what,
                               config_show(node, show));
    return 0;
}

int config_read_text(struct config_reader *reader, const struct config_node *node, const char *name,
                     char *ret_text, size_t capacity)
{
    int rc = scalar_check(reader, node, name, "a text");
    if (rc < 0)
        return rc;
    if (node->bytes == 0)
        return config_complain(reader, node, "%s is empty", name);
    if (node->bytes >= capacity)
        return config_complain(reader, node, "%s is longer than %zu bytes", name, capacity - 1);
    for (size_t i = 0; i < node->bytes; i++) {
        if ((unsigned char)node->text[i] < 32 || node->text[i] == 127)
            return config_complain(reader, node, "%s holds a control character", name);
    }
    memcpy(ret_text, node->text, node->bytes + 1);
    return 0;
}

int config_read_count(struct config_reader *reader, const struct config_node *node,
                      const char *name, uint64_t min, uint64_t max, uint64_t *ret_count)
{
    char show[CONFIG_SHOW_BYTES];
    int rc = scalar_check(reader, node, name, "a whole number");
    if (rc < 0)
        return rc;
    uint64_t count = 0;
    rc = config_units_count(node->text, &count);
    if (rc == -EINVAL)
        return config_complain(reader, node, "%s is a whole number, not %s", name,
                               config_show(node, show));
    if (rc < 0 || count < min || count > max)
        return config_complain(reader, node, "%s: %s is outside %" PRIu64 " to %" PRIu64, name,
                               config_show(node, show), min, max);
    *ret_count = count;
    return 0;
}

int config_read_size(struct config_reader *reader, const struct config_node *node, const char *name,
                     uint64_t min, uint64_t max, uint64_t *ret_bytes)
{
    char show[CONFIG_SHOW_BYTES], low[CONFIG_UNITS_TEXT_BYTES], high[CONFIG_UNITS_TEXT_BYTES];
    int rc = scalar_check(reader, node, name, "a size");
    if (rc < 0)
        return rc;
    uint64_t bytes = 0;
    rc = config_units_size(node->text, &bytes);
    if (rc == -EINVAL)
        return config_complain(
            reader, node,
            "%s is a size, a number with KiB MiB GiB KB MB GB or bytes without, not %s", name,
            config_show(node, show));
    if (rc < 0 || bytes < min || bytes > max)
        return config_complain(reader, node, "%s: %s is outside %s to %s", name,
                               config_show(node, show), config_units_size_text(min, low),
                               config_units_size_text(max, high));
    *ret_bytes = bytes;
    return 0;
}

int config_read_duration(struct config_reader *reader, const struct config_node *node,
                         const char *name, uint64_t min_ns, uint64_t max_ns, uint64_t *ret_ns)
{
    char show[CONFIG_SHOW_BYTES], low[CONFIG_UNITS_TEXT_BYTES], high[CONFIG_UNITS_TEXT_BYTES];
    int rc = scalar_check(reader, node, name, "a duration");
    if (rc < 0)
        return rc;
    uint64_t ns = 0;
    rc = config_units_duration(node->text, &ns);
    if (rc == -EINVAL)
        return config_complain(reader, node,
                               "%s is a duration, a number with us ms s min h, not %s", name,
                               config_show(node, show));
    if (rc < 0 || ns < min_ns || ns > max_ns)
        return config_complain(reader, node, "%s: %s is outside %s to %s", name,
                               config_show(node, show), config_units_duration_text(min_ns, low),
                               config_units_duration_text(max_ns, high));
    *ret_ns = ns;
    return 0;
}

int config_read_mode(struct config_reader *reader, const struct config_node *node, const char *name,
                     uint32_t *ret_mode)
{
    char show[CONFIG_SHOW_BYTES];
    int rc = scalar_check(reader, node, name, "a file mode such as \"0660\"");
    if (rc < 0)
        return rc;
    size_t digits = strspn(node->text, "01234567");
    uint32_t mode = 0;
    for (size_t i = 0; i < digits && i < 4; i++)
        mode = mode * 8 + (uint32_t)(node->text[i] - '0');
    if (digits != node->bytes || digits < 3 || digits > 4 || mode > 0777)
        return config_complain(reader, node, "%s is a file mode such as \"0660\", not %s", name,
                               config_show(node, show));
    *ret_mode = mode;
    return 0;
}

int config_read_double(struct config_reader *reader, const struct config_node *node,
                       const char *name, double min, double max, double *ret_value)
{
    char show[CONFIG_SHOW_BYTES], low[CONFIG_UNITS_TEXT_BYTES], high[CONFIG_UNITS_TEXT_BYTES];
    int rc = scalar_check(reader, node, name, "a number");
    if (rc < 0)
        return rc;
    double value = 0;
    rc = config_units_double(node->text, &value);
    if (rc == -EINVAL)
        return config_complain(reader, node, "%s is a number, not %s", name,
                               config_show(node, show));
    if (rc < 0 || !(value >= min && value <= max))
        return config_complain(reader, node, "%s: %s is outside %s to %s", name,
                               config_show(node, show), config_units_double_text(min, low),
                               config_units_double_text(max, high));
    *ret_value = value;
    return 0;
}

int config_read_doubles(struct config_reader *reader, const struct config_node *node,
                        const char *name, uint32_t count, double *ret_values)
{
    char show[CONFIG_SHOW_BYTES];
    if (node->kind != CONFIG_NODE_SEQUENCE)
        return config_complain(reader, node, "%s is a list of %u numbers, not %s", name, count,
                               config_show(node, show));
    if (node->count != count)
        return config_complain(reader, node, "%s is a list of %u numbers, not of %u", name, count,
                               node->count);
    int rc = 0;
    uint32_t i = 0;
    for (const struct config_item *item = node->first; item; item = item->next, i++) {
        int one = config_read_double(reader, item->value, name, -1e9, 1e9, &ret_values[i]);
        rc = rc < 0 ? rc : one;
    }
    return rc;
}

int config_read_choice(struct config_reader *reader, const struct config_node *node,
                       const char *name, const struct config_choice *choices, uint32_t *ret_value)
{
    char show[CONFIG_SHOW_BYTES], hint[CONFIG_SHOW_BYTES], names[NAMES_BYTES] = "";
    size_t used = 0;
    struct config_nearest nearest;
    config_nearest_init(&nearest, node->kind == CONFIG_NODE_SCALAR ? node->text : "");
    for (const struct config_choice *choice = choices; choice->name; choice++) {
        if (choice->value == 0) {
            if (config_node_is(node, choice->name))
                return config_complain(reader, node, "%s: %s is not supported in this version",
                                       name, choice->name);
            continue;
        }
        if (config_node_is(node, choice->name)) {
            *ret_value = choice->value;
            return 0;
        }
        config_nearest_try(&nearest, choice->name);
        if (used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? " " : "",
                                     choice->name);
    }
    return config_complain(reader, node, "%s is one of %s, not %s%s", name, names,
                           config_show(node, show), config_nearest_hint(&nearest, hint));
}
