/* spdlctl quarantine and errors: the samples that failed, one by one, and the distinct reasons. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/ctl_json.h"
#include "client/ctl/ctl_query.h"
#include "client/ctl/ctl_stream.h"
#include "client/ctl/ctl_table.h"
#include "client/ctl/ctl_verbs.h"

enum { PAGES_MAX = 65536 };

/* All pages of the daemon's list. */
struct list {
    Spdl__V1__ToClient **pages;
    size_t page_count;
    const Spdl__V1__Quarantined **samples; /* of all pages */
    size_t count;
    uint64_t left_out;
};

static void list_fini(struct list *list)
{
    for (size_t i = 0; i < list->page_count; i++)
        spdl__v1__to_client__free_unpacked(list->pages[i], NULL);
    free(list->pages);
    free(list->samples);
}

/* Adds a page, which the list owns from then on. False: no memory. */
static bool list_add(struct list *list, Spdl__V1__ToClient *page)
{
    const Spdl__V1__QuarantineReply *reply = page->quarantine;
    Spdl__V1__ToClient **pages = realloc(list->pages, (list->page_count + 1) * sizeof(*pages));
    if (!pages) {
        spdl__v1__to_client__free_unpacked(page, NULL);
        return false;
    }
    list->pages = pages;
    list->pages[list->page_count++] = page;
    const Spdl__V1__Quarantined **samples =
        realloc(list->samples, (list->count + reply->n_samples + 1) * sizeof(*samples));
    if (!samples)
        return false;
    list->samples = samples;
    for (size_t i = 0; i < reply->n_samples; i++)
        list->samples[list->count++] = reply->samples[i];
    list->left_out = reply->left_out;
    return true;
}

static int list_ask(struct spdl_connection *connection, const struct ctl_options *options,
                    struct list *list)
{
    char none[] = "";
    char *dataset = options->operand_count ? strdup(options->operands[0]) : none;
    Spdl__V1__QuarantineRequest question;
    Spdl__V1__ToDaemon request = SPDL__V1__TO_DAEMON__INIT;
    spdl__v1__quarantine_request__init(&question);
    request.body_case = SPDL__V1__TO_DAEMON__BODY_QUARANTINE;
    request.quarantine = &question;
    question.dataset = dataset;
    int code = dataset ? 0 : ctl_fail(CTL_EXIT_FAILED, "out of memory");
    do {
        Spdl__V1__ToClient *page = NULL;
        if (code == 0)
            code = ctl_query(connection, &request, SPDL__V1__TO_CLIENT__BODY_QUARANTINE, &page);
        if (code != 0)
            break;
        question.start = page->quarantine->next > question.start ? page->quarantine->next : 0;
        if (!list_add(list, page))
            code = ctl_fail(CTL_EXIT_FAILED, "out of memory");
    } while (code == 0 && question.start != 0 && list->page_count < PAGES_MAX);
    if (dataset != none)
        free(dataset);
    return code;
}

static int list_get(const struct ctl_options *options, struct list *list)
{
    struct spdl_connection *connection = NULL;
    int code = ctl_connect(options, &connection);
    if (code == 0)
        code = list_ask(connection, options, list);
    spdl_disconnect(connection);
    return code;
}

static const char *time_text(int64_t seconds, char text[32])
{
    time_t when = (time_t)seconds;
    struct tm parts;
    if (!gmtime_r(&when, &parts) || strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        text[0] = 0;
    return text;
}

static void safe_cell(struct ctl_table *table, const void *data, size_t bytes)
{
    struct ctl_text text = {0};
    ctl_text_safe(&text, data, bytes);
    ctl_text_put(&text, "", 1);
    ctl_table_cell(table, text.failed ? "?" : text.data);
    ctl_text_fini(&text);
}

static void times_json(struct ctl_text *text, int64_t first_s, int64_t last_s)
{
    char when[32];
    ctl_json_key_string(text, "first", time_text(first_s, when));
    ctl_json_key_string(text, "last", time_text(last_s, when));
}

static void sample_json(struct ctl_text *text, const Spdl__V1__Quarantined *sample)
{
    ctl_json_open(text, '{');
    ctl_json_key_string(text, "dataset", sample->dataset);
    ctl_json_key(text, "key");
    ctl_json_bytes(text, sample->key.data, sample->key.len);
    ctl_json_key(text, "source");
    ctl_json_bytes(text, sample->path.data, sample->path.len);
    ctl_json_key_unsigned(text, "offset", sample->offset);
    ctl_json_key(text, "fault");
    if (sample->has_fault)
        ctl_json_unsigned(text, sample->fault);
    else
        ctl_json_null(text);
    ctl_json_key_string(text, "class", sample->class_name);
    ctl_json_key_string(text, "message", sample->message);
    ctl_json_key_unsigned(text, "count", sample->count);
    times_json(text, sample->first_s, sample->last_s);
    ctl_json_close(text, '}');
}

static void left_out_note(const struct list *list, struct ctl_text *text)
{
    if (list->left_out > 0)
        ctl_text_printf(text, "%" PRIu64 " failures had no room on the list\n", list->left_out);
}

static void samples_people(const struct list *list, struct ctl_text *text)
{
    static const char *const head[] = {"DATASET", "CLASS", "COUNT",  "LAST",
                                       "OFFSET",  "KEY",   "MESSAGE"};
    struct ctl_table table = {.columns = 7, .right = 1U << 2 | 1U << 4};
    for (size_t i = 0; i < 7; i++)
        ctl_table_cell(&table, head[i]);
    for (size_t i = 0; i < list->count; i++) {
        const Spdl__V1__Quarantined *sample = list->samples[i];
        char when[32];
        ctl_table_cell(&table, sample->dataset);
        ctl_table_cell(&table, sample->class_name);
        ctl_table_cellf(&table, "%" PRIu64, sample->count);
        ctl_table_cell(&table, time_text(sample->last_s, when));
        ctl_table_cellf(&table, "%" PRIu64, sample->has_fault ? sample->fault : sample->offset);
        safe_cell(&table, sample->key.data, sample->key.len);
        ctl_table_cell(&table, sample->message);
    }
    if (list->count > 0)
        ctl_table_print(&table, isatty(STDOUT_FILENO) == 1, text);
    else
        ctl_text_str(text, "no sample has failed\n");
    ctl_text_fini(&table.cells);
    left_out_note(list, text);
}

int ctl_quarantine(const struct ctl_options *options)
{
    struct list list = {0};
    struct ctl_text text = {0};
    int code = list_get(options, &list);
    if (code == 0 && options->json) {
        ctl_json_open(&text, '[');
        for (size_t i = 0; i < list.count; i++)
            sample_json(&text, list.samples[i]);
        ctl_text_str(&text, "]\n");
    } else if (code == 0) {
        samples_people(&list, &text);
    }
    list_fini(&list);
    return code == 0 ? ctl_print(&text) : code;
}

/* --- errors --- */

/* Samples of one dataset that failed with one class and message. */
struct reason {
    const Spdl__V1__Quarantined *example;
    uint64_t samples, count;
    int64_t first_s, last_s;
};

static struct reason *reason_of(struct reason *reasons, size_t *count,
                                const Spdl__V1__Quarantined *sample)
{
    for (size_t i = 0; i < *count; i++) {
        const Spdl__V1__Quarantined *example = reasons[i].example;
        if (strcmp(example->class_name, sample->class_name) == 0 &&
            strcmp(example->message, sample->message) == 0 &&
            strcmp(example->dataset, sample->dataset) == 0)
            return &reasons[i];
    }
    reasons[*count] =
        (struct reason){.example = sample, .first_s = sample->first_s, .last_s = sample->last_s};
    return &reasons[(*count)++];
}

static size_t reasons_make(const struct list *list, struct reason *reasons)
{
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        const Spdl__V1__Quarantined *sample = list->samples[i];
        struct reason *reason = reason_of(reasons, &count, sample);
        reason->samples++;
        reason->count += sample->count;
        if (sample->first_s < reason->first_s)
            reason->first_s = sample->first_s;
        if (sample->last_s > reason->last_s)
            reason->last_s = sample->last_s;
    }
    return count;
}

static void reason_json(struct ctl_text *text, const struct reason *reason)
{
    ctl_json_open(text, '{');
    ctl_json_key_string(text, "dataset", reason->example->dataset);
    ctl_json_key_string(text, "class", reason->example->class_name);
    ctl_json_key_string(text, "message", reason->example->message);
    ctl_json_key_unsigned(text, "samples", reason->samples);
    ctl_json_key_unsigned(text, "count", reason->count);
    times_json(text, reason->first_s, reason->last_s);
    ctl_json_key(text, "example");
    ctl_json_bytes(text, reason->example->key.data, reason->example->key.len);
    ctl_json_close(text, '}');
}

static void reasons_people(const struct list *list, const struct reason *reasons, size_t count,
                           struct ctl_text *text)
{
    static const char *const head[] = {"DATASET", "CLASS",       "SAMPLES",
                                       "COUNT",   "FOR EXAMPLE", "MESSAGE"};
    struct ctl_table table = {.columns = 6, .right = 1U << 2 | 1U << 3};
    for (size_t i = 0; i < 6; i++)
        ctl_table_cell(&table, head[i]);
    for (size_t i = 0; i < count; i++) {
        const Spdl__V1__Quarantined *example = reasons[i].example;
        ctl_table_cell(&table, example->dataset);
        ctl_table_cell(&table, example->class_name);
        ctl_table_cellf(&table, "%" PRIu64, reasons[i].samples);
        ctl_table_cellf(&table, "%" PRIu64, reasons[i].count);
        safe_cell(&table, example->key.data, example->key.len);
        ctl_table_cell(&table, example->message);
    }
    if (count > 0)
        ctl_table_print(&table, isatty(STDOUT_FILENO) == 1, text);
    else
        ctl_text_str(text, "no sample has failed\n");
    ctl_text_fini(&table.cells);
    left_out_note(list, text);
}

int ctl_errors(const struct ctl_options *options)
{
    struct list list = {0};
    struct ctl_text text = {0};
    int code = list_get(options, &list);
    struct reason *reasons = code == 0 ? calloc(list.count + 1, sizeof(*reasons)) : NULL;
    if (code == 0 && !reasons)
        code = ctl_fail(CTL_EXIT_FAILED, "out of memory");
    if (code == 0 && reasons) {
        size_t count = reasons_make(&list, reasons);
        if (options->json)
            ctl_json_open(&text, '[');
        for (size_t i = 0; options->json && i < count; i++)
            reason_json(&text, &reasons[i]);
        if (options->json)
            ctl_text_str(&text, "]\n");
        else
            reasons_people(&list, reasons, count, &text);
    }
    free(reasons);
    list_fini(&list);
    return code == 0 ? ctl_print(&text) : code;
}
