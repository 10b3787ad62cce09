/* Rows of a list: see source_list_parse.h. */
#include "source/source_list_parse.h"

#include <string.h>

#include "base/json.h"
#include "item/class.h"

struct walk {
    const struct source_list_input *input;
    struct source_list_row *row;
    size_t at;
};

static void fault(struct walk *walk, uint32_t class_number, size_t at, const char *message)
{
    walk->row->class_number = class_number;
    walk->row->fault_at = at;
    walk->row->message = message;
}

/* Bytes up to the end of the line that `from` is in, with it. 0: it is not in the input. */
static size_t line_bytes(const struct source_list_input *input, size_t from)
{
    const uint8_t *end = memchr(input->data + from, '\n', input->bytes - from);
    if (end)
        return (size_t)(end - input->data) + 1;
    return input->is_end ? input->bytes : 0;
}

/* --- CSV --- */

enum csv_end { CSV_VALUE, CSV_ROW, CSV_FAULT, CSV_MORE };

/* Behind a value: a delimiter, the end of the line, or something that may not be there. */
static enum csv_end csv_behind(struct walk *walk)
{
    const struct source_list_input *input = walk->input;
    if (walk->at == input->bytes)
        return input->is_end ? CSV_ROW : CSV_MORE;
    uint8_t c = input->data[walk->at];
    if (c == (uint8_t)input->delimiter) {
        walk->at++;
        return CSV_VALUE;
    }
    if (c == '\r' && walk->at + 1 == input->bytes && !input->is_end)
        return CSV_MORE;
    if (c == '\r' && (walk->at + 1 == input->bytes || input->data[walk->at + 1] == '\n'))
        walk->at++;
    else if (c != '\n') {
        fault(walk, SPDL_CLASS_BAD_FORMAT, walk->at,
              "a value in quotes ends and something stands behind it; a quote inside is written "
              "twice");
        return CSV_FAULT;
    }
    walk->at += walk->at < input->bytes;
    walk->row->lines++;
    return CSV_ROW;
}

static enum csv_end csv_quoted(struct walk *walk, struct source_list_value *value)
{
    const struct source_list_input *input = walk->input;
    size_t from = ++walk->at;
    for (;;) {
        const uint8_t *quote = memchr(input->data + walk->at, '"', input->bytes - walk->at);
        if (!quote) {
            walk->at = input->bytes;
            if (!input->is_end)
                return CSV_MORE;
            fault(walk, SPDL_CLASS_TRUNCATED, from - 1, "a quote is opened and never closed");
            return CSV_FAULT;
        }
        walk->at = (size_t)(quote - input->data) + 1;
        if (walk->at == input->bytes && !input->is_end)
            return CSV_MORE;
        if (walk->at == input->bytes || input->data[walk->at] != '"')
            break;
        value->escape = ESCAPE_CSV;
        walk->at++;
    }
    value->at = (uint32_t)from;
    value->bytes = (uint32_t)(walk->at - 1 - from);
    for (const uint8_t *c = input->data + from;
         (c = memchr(c, '\n', walk->at - 1 - (size_t)(c - input->data))); c++)
        walk->row->lines++;
    return csv_behind(walk);
}

static enum csv_end csv_plain(struct walk *walk, struct source_list_value *value)
{
    const struct source_list_input *input = walk->input;
    size_t from = walk->at;
    while (walk->at < input->bytes && input->data[walk->at] != (uint8_t)input->delimiter &&
           input->data[walk->at] != '\n')
        walk->at++;
    if (walk->at == input->bytes && !input->is_end)
        return CSV_MORE;
    size_t end = walk->at;
    if (end > from && input->data[end - 1] == '\r' &&
        (end == input->bytes || input->data[end] == '\n'))
        walk->at = --end;
    value->at = (uint32_t)from;
    value->bytes = (uint32_t)(end - from);
    return csv_behind(walk);
}

static enum csv_end csv_value(struct walk *walk)
{
    struct source_list_row *row = walk->row;
    struct source_list_value value = {0};
    bool quoted = walk->at < walk->input->bytes && walk->input->data[walk->at] == '"';
    enum csv_end end = quoted ? csv_quoted(walk, &value) : csv_plain(walk, &value);
    if (row->value_count < SOURCE_LIST_COLUMNS_MAX)
        row->values[row->value_count++] = value;
    else
        row->further++;
    return end;
}

static bool csv_row(struct walk *walk)
{
    struct source_list_row *row = walk->row;
    enum csv_end end = CSV_VALUE;
    while (end == CSV_VALUE)
        end = csv_value(walk);
    if (end == CSV_MORE && walk->input->bytes < SOURCE_LIST_ROW_BYTES_MAX)
        return false;
    if (end == CSV_MORE) {
        fault(walk, SPDL_CLASS_LIMIT, 0,
              "a row of more than 16 MiB: is a quote opened that is never closed");
        end = CSV_FAULT;
    }
    row->bytes = row->looked = walk->at;
    if (end == CSV_FAULT) {
        size_t behind = line_bytes(walk->input, walk->input->goes_back ? 0 : walk->at);
        row->bytes = behind > 0 ? behind : walk->input->bytes;
        row->lines = 0;
        for (const uint8_t *c = walk->input->data, *stop = c + row->bytes;
             (c = memchr(c, '\n', (size_t)(stop - c))); c++)
            row->lines++;
    }
    if (end == CSV_ROW && row->value_count == 1 && row->values[0].bytes == 0 &&
        walk->input->data[0] != '"')
        row->value_count = 0;
    return true;
}

/* --- JSON lines --- */

static bool json_fault(struct walk *walk, const struct json_scan *scan)
{
    uint32_t class_number = SPDL_CLASS_BAD_FORMAT;
    if (scan->fault == JSON_DEEP)
        class_number = SPDL_CLASS_LIMIT;
    else if (scan->at >= scan->end && walk->input->is_end && scan->end == walk->input->bytes)
        class_number = SPDL_CLASS_TRUNCATED;
    fault(walk, class_number, scan->at, scan->message);
    return false;
}

static bool json_expect(struct walk *walk, struct json_scan *scan, char wanted, const char *message)
{
    json_space(scan);
    if (scan->at < scan->end && scan->data[scan->at] == (uint8_t)wanted) {
        scan->at++;
        json_space(scan);
        return true;
    }
    scan->fault = JSON_WRONG;
    scan->message = message;
    return json_fault(walk, scan);
}

/* A string without its quotes; any other value as it stands. */
static void json_place(const struct json_scan *scan, size_t from, uint32_t *ret_at,
                       uint32_t *ret_bytes, uint8_t *ret_escape)
{
    bool is_string = scan->data[from] == '"';
    *ret_at = (uint32_t)(from + is_string);
    *ret_bytes = (uint32_t)(scan->at - from - (is_string ? 2 : 0));
    *ret_escape = ESCAPE_NONE;
    if (is_string && memchr(scan->data + *ret_at, '\\', *ret_bytes))
        *ret_escape = ESCAPE_JSON;
}

static bool json_member(struct walk *walk, struct json_scan *scan)
{
    struct source_list_row *row = walk->row;
    struct source_list_value value = {0};
    size_t from = scan->at;
    if (scan->at == scan->end || scan->data[scan->at] != '"') {
        scan->fault = JSON_WRONG;
        scan->message = "the name of a member is missing";
        return json_fault(walk, scan);
    }
    if (!json_string(scan))
        return json_fault(walk, scan);
    json_place(scan, from, &value.name_at, &value.name_bytes, &value.name_escape);
    if (!json_expect(walk, scan, ':', "a ':' is missing"))
        return false;
    from = scan->at;
    if (!json_value(scan))
        return json_fault(walk, scan);
    json_place(scan, from, &value.at, &value.bytes, &value.escape);
    value.is_null = scan->data[from] == 'n';
    if (row->value_count == SOURCE_LIST_COLUMNS_MAX) {
        fault(walk, SPDL_CLASS_LIMIT, from, "more than 60 members");
        return false;
    }
    row->values[row->value_count++] = value;
    return true;
}

static void json_row(struct walk *walk, size_t bytes)
{
    struct json_scan scan;
    scan.data = walk->input->data;
    scan.at = 0;
    scan.end = bytes;
    json_space(&scan);
    if (scan.at == scan.end)
        return;
    if (!json_expect(walk, &scan, '{', "a row is an object: {\"path\": \"a.jpg\", \"label\": 0}"))
        return;
    if (scan.at < scan.end && scan.data[scan.at] == '}') {
        fault(walk, SPDL_CLASS_INCOMPLETE, scan.at, "the object is empty");
        return;
    }
    for (;;) {
        if (!json_member(walk, &scan))
            return;
        json_space(&scan);
        if (scan.at == scan.end || scan.data[scan.at] != ',')
            break;
        scan.at++;
        json_space(&scan);
    }
    if (json_expect(walk, &scan, '}', "a ',' or '}' is missing") && scan.at < scan.end)
        fault(walk, SPDL_CLASS_BAD_FORMAT, scan.at, "there is more behind the object");
}

bool source_list_row(const struct source_list_input *input, struct source_list_row *ret_row)
{
    struct walk walk = {.input = input, .row = ret_row};
    ret_row->lines = ret_row->value_count = ret_row->further = 0;
    ret_row->class_number = SPDL_CLASS_OK;
    ret_row->fault_at = 0;
    ret_row->message = "";
    if (input->delimiter != SOURCE_LIST_JSON)
        return csv_row(&walk);
    size_t bytes = line_bytes(input, 0);
    if (bytes == 0 && input->bytes < SOURCE_LIST_ROW_BYTES_MAX)
        return false;
    ret_row->bytes = ret_row->looked = bytes > 0 ? bytes : input->bytes;
    ret_row->lines = bytes > 0 && input->data[bytes - 1] == '\n';
    if (bytes == 0) {
        fault(&walk, SPDL_CLASS_LIMIT, 0, "a row of more than 16 MiB");
        return true;
    }
    json_row(&walk, bytes - ret_row->lines);
    return true;
}
