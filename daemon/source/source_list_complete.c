/* Which rows of lists are samples of a dataset: those that have a part for each of its fields. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "item/class.h"
#include "source/source_list_table.h"
#include "source/source_need.h"

/* What can be made from the parts that the entry has: as a sample is made of it. */
static uint32_t bits_of(const struct source_list_table *table,
                        const struct source_list_entry *entry, const uint32_t *has,
                        bool has_classes)
{
    const struct source_list_file *file = &table->files[entry->list];
    uint32_t bits = has[entry->name] | has[file->path_name];
    for (uint32_t c = 0; c < entry->cell_count; c++) {
        uint32_t name = table->cells[entry->first_cell + c].name;
        bits |= has_classes && name == file->label_name ? 0 : has[name];
    }
    return has_classes && entry->label != SOURCE_LIST_NONE ? bits | has[file->label_name] : bits;
}

static int leave_out(struct source_list_table *table, const struct source_list_entry *entry,
                     const char *lack)
{
    char message[SOURCE_NEED_MESSAGE_BYTES + 32], key[SOURCE_KEY_BYTES + 1];
    struct source_list_fault fault = {
        .offset = entry->row_at, .list = entry->list, .class_number = SPDL_CLASS_INCOMPLETE};
    snprintf(message, sizeof message, "line %" PRIu32 ": %s", entry->line, lack);
    snprintf(key, sizeof key, "%s", table->text + entry->path_at); /* the text moves as it grows */
    return source_list_table_fault(table, &fault, key, message);
}

int source_list_table_complete(struct source_list_table *table, bool has_classes,
                               const struct source_spec *spec)
{
    struct source_need need;
    uint32_t has[SOURCE_LIST_NAMES_MAX];
    size_t kept = 0;
    int rc = source_need_init(spec, &need);
    const uint32_t of_class = rc == 0 && has_classes ? source_need_bits(&need, "cls") : 0;
    for (uint32_t n = 0; rc == 0 && n < table->name_count; n++)
        has[n] = source_need_bits(&need, table->names[n]);
    for (size_t i = 0; rc == 0 && need.all != 0 && i < table->entry_count; i++) {
        struct source_list_entry entry = table->entries[i];
        uint32_t bits = bits_of(table, &entry, has, has_classes);
        bits |= entry.label != SOURCE_LIST_NONE ? of_class : 0;
        if ((bits & need.all) == need.all)
            table->entries[kept++] = entry;
        else
            rc = leave_out(table, &entry, source_need_message(&need, bits));
    }
    if (rc == 0 && need.all != 0)
        table->entry_count = kept;
    source_need_fini(&need);
    return rc;
}
