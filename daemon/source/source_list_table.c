/* The table of a list's rows: see source_list_table.h. */
#include "source/source_list_table.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void source_list_table_fini(struct source_list_table *table)
{
    for (uint32_t i = 0; i < table->file_count; i++) {
        struct source_list_file *file = &table->files[i];
        free(file->path);
        free(file->real);
        free(file->root);
        free(file->root_real);
        free(file->columns);
        if (file->root_fd >= 0)
            close(file->root_fd);
    }
    free(table->files);
    free(table->entries);
    free(table->cells);
    free(table->labels);
    free(table->faults);
    free(table->text);
    free(table->slots.numbers);
    XXH3_freeState(table->digest);
}

/* Room for `more` items: the list, moved, or NULL: no memory, and it stays as it is. */
static void *grown(void *items, size_t *room, size_t count, size_t more, size_t item_bytes)
{
    if (more <= *room - count && items)
        return items;
    size_t larger = *room + *room / 2 + 64;
    if (larger < count + more)
        larger = count + more;
    void *moved = reallocarray(items, larger, item_bytes);
    if (moved)
        *room = larger;
    return moved;
}

int source_list_table_text(struct source_list_table *table, const char *text, size_t bytes,
                           uint64_t *ret_at)
{
    char *moved = grown(table->text, &table->text_room, table->text_bytes, bytes + 1, 1);
    if (!moved)
        return -ENOMEM;
    table->text = moved;
    *ret_at = table->text_bytes;
    memcpy(table->text + table->text_bytes, text, bytes);
    table->text[table->text_bytes + bytes] = 0;
    table->text_bytes += bytes + 1;
    return 0;
}

int source_list_table_entry(struct source_list_table *table, const struct source_list_entry *entry)
{
    struct source_list_entry *moved =
        grown(table->entries, &table->entry_room, table->entry_count, 1, sizeof *entry);
    if (!moved)
        return -ENOMEM;
    table->entries = moved;
    table->entries[table->entry_count++] = *entry;
    return 0;
}

int source_list_table_cell(struct source_list_table *table, const struct source_list_cell *cell)
{
    struct source_list_cell *moved =
        grown(table->cells, &table->cell_room, table->cell_count, 1, sizeof *cell);
    if (!moved)
        return -ENOMEM;
    table->cells = moved;
    table->cells[table->cell_count++] = *cell;
    return 0;
}

int source_list_table_fault(struct source_list_table *table, const struct source_list_fault *fault,
                            const char *key, const char *message)
{
    struct source_list_fault full = *fault;
    size_t key_bytes = strnlen(key, SOURCE_KEY_BYTES);
    int rc = source_list_table_text(table, key, key_bytes, &full.key_at);
    if (rc == 0)
        rc = source_list_table_text(table, message, strlen(message), &full.message_at);
    if (rc < 0)
        return rc;
    struct source_list_fault *moved =
        grown(table->faults, &table->fault_room, table->fault_count, 1, sizeof full);
    if (!moved)
        return -ENOMEM;
    table->faults = moved;
    full.key_bytes = (uint32_t)key_bytes;
    table->faults[table->fault_count++] = full;
    return 0;
}

/* --- labels --- */

static bool label_is(const struct source_list_table *table, uint32_t number, const char *text,
                     size_t bytes)
{
    const struct source_list_label *label = &table->labels[number];
    return label->bytes == bytes && memcmp(table->text + label->at, text, bytes) == 0;
}

static size_t slot_of(const struct source_list_slots *slots, const char *text, size_t bytes)
{
    return (size_t)XXH3_64bits(text, bytes) & (slots->room - 1);
}

static int slots_grow(struct source_list_table *table)
{
    struct source_list_slots larger = {.room = table->slots.room ? table->slots.room * 2 : 1024};
    if (table->label_count < table->slots.room / 2)
        return 0;
    larger.numbers = calloc(larger.room, sizeof *larger.numbers);
    if (!larger.numbers)
        return -ENOMEM;
    for (uint32_t i = 0; i < table->label_count; i++) {
        const struct source_list_label *label = &table->labels[i];
        size_t at = slot_of(&larger, table->text + label->at, label->bytes);
        while (larger.numbers[at])
            at = (at + 1) & (larger.room - 1);
        larger.numbers[at] = i + 1;
    }
    free(table->slots.numbers);
    table->slots = larger;
    return 0;
}

int source_list_table_label(struct source_list_table *table, const char *text, size_t bytes,
                            uint32_t *ret_number)
{
    int rc = slots_grow(table);
    if (rc < 0)
        return rc;
    size_t at = slot_of(&table->slots, text, bytes);
    for (; table->slots.numbers[at]; at = (at + 1) & (table->slots.room - 1)) {
        *ret_number = table->slots.numbers[at] - 1;
        if (label_is(table, *ret_number, text, bytes)) {
            table->labels[*ret_number].count++;
            return 0;
        }
    }
    struct source_list_label label = {.count = 1, .bytes = (uint32_t)bytes};
    rc = source_list_table_text(table, text, bytes, &label.at);
    if (rc < 0)
        return rc;
    struct source_list_label *moved =
        grown(table->labels, &table->label_room, table->label_count, 1, sizeof label);
    if (!moved)
        return -ENOMEM;
    table->labels = moved;
    *ret_number = (uint32_t)table->label_count;
    table->labels[table->label_count++] = label;
    table->slots.numbers[at] = *ret_number + 1;
    return 0;
}

/* --- names of parts --- */

uint32_t source_list_table_name(struct source_list_table *table, const char *text, size_t bytes)
{
    char name[FIELD_PART_BYTES] = "";
    while (bytes > 0 && (text[0] == ' ' || text[0] == '\t'))
        text++, bytes--;
    while (bytes > 0 && (text[bytes - 1] == ' ' || text[bytes - 1] == '\t'))
        bytes--;
    if (bytes == 0 || bytes >= sizeof name || text[0] == '.')
        return SOURCE_LIST_NONE;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        c = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
        bool fits =
            (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
        if (!fits)
            return SOURCE_LIST_NONE;
        name[i] = c;
    }
    uint32_t number = 0;
    while (number < table->name_count && strcmp(table->names[number], name) != 0)
        number++;
    if (number == SOURCE_LIST_NAMES_MAX)
        return SOURCE_LIST_NONE;
    if (number == table->name_count)
        memcpy(table->names[table->name_count++], name, sizeof name);
    return number;
}
