/* A table for people. */
#include "client/ctl/ctl_table.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static uint32_t table_width(const char *string)
{
    uint32_t width = 0;
    for (; *string; string++)
        width += (*string & 0xc0) != 0x80;
    return width;
}

void ctl_table_cell(struct ctl_table *table, const char *string)
{
    size_t begin = table->cells.bytes;
    ctl_text_safe(&table->cells, string, strlen(string));
    ctl_text_put(&table->cells, "", 1);
    uint32_t column = table->count++ % table->columns;
    if (table->cells.failed)
        return;
    uint32_t width = table_width(table->cells.data + begin);
    if (width > table->widths[column])
        table->widths[column] = width;
}

void ctl_table_cellf(struct ctl_table *table, const char *format, ...)
{
    char cell[512];
    va_list list;
    va_start(list, format);
    vsnprintf(cell, sizeof cell, format, list);
    va_end(list);
    ctl_table_cell(table, cell);
}

static void table_pad(struct ctl_text *text, uint32_t width)
{
    for (; width > 0; width--)
        ctl_text_str(text, " ");
}

void ctl_table_print(struct ctl_table *table, bool bold, struct ctl_text *text)
{
    const char *at = table->cells.data;
    if (table->cells.failed) {
        text->failed = true;
        table->count = 0;
    }
    for (uint32_t i = 0; i < table->count; i++, at += strlen(at) + 1) {
        uint32_t column = i % table->columns;
        uint32_t gap = table->widths[column] - table_width(at);
        bool last = column + 1 == table->columns;
        if (column == 0)
            ctl_text_str(text, bold && i == 0 ? "\x1b[1m  " : "  ");
        if (table->right >> column & 1)
            table_pad(text, gap);
        ctl_text_str(text, at);
        if (!last)
            table_pad(text, (table->right >> column & 1 ? 0 : gap) + 2);
        else
            ctl_text_str(text, bold && i + 1 == table->columns ? "\x1b[0m\n" : "\n");
    }
    ctl_text_fini(&table->cells);
}

void ctl_text_size(struct ctl_text *text, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    unsigned unit = 0;
    for (; value >= 1024 && unit < 6; unit++)
        value /= 1024;
    ctl_text_printf(text, "%.*f %s", unit && value < 100 ? 1 : 0, value, units[unit]);
}

void ctl_text_duration(struct ctl_text *text, double seconds)
{
    uint64_t whole = seconds > 0 && seconds < 1e15 ? (uint64_t)seconds : 0;
    unsigned long long days = whole / 86400, hours = whole / 3600 % 24, minutes = whole / 60 % 60;
    if (days)
        ctl_text_printf(text, "%llu d %llu h", days, hours);
    else if (hours)
        ctl_text_printf(text, "%llu h %02llu min", hours, minutes);
    else if (minutes)
        ctl_text_printf(text, "%llu min %02llu s", minutes, (unsigned long long)whole % 60);
    else
        ctl_text_printf(text, "%.1f s", seconds);
}
