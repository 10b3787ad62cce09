/* spdlctl status, datasets, streams: what the daemon is and does, on one screen or as JSON. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/ctl_json.h"
#include "client/ctl/ctl_query.h"
#include "client/ctl/ctl_table.h"
#include "client/ctl/ctl_verbs.h"

static void status_dataset_json(struct ctl_text *text, const Spdl__V1__DatasetStatus *dataset)
{
    ctl_json_open(text, '{');
    ctl_json_key_string(text, "name", dataset->name);
    ctl_json_key_string(text, "source", dataset->source);
    ctl_json_key_unsigned(text, "samples", dataset->samples);
    ctl_json_key_string(text, "state", dataset->state);
    ctl_json_key_string(text, "note", dataset->note);
    ctl_json_key_string(text, "plan_id", dataset->plan_id);
    ctl_json_key(text, "fields");
    ctl_json_open(text, '[');
    for (size_t i = 0; i < dataset->n_fields; i++)
        ctl_json_string(text, dataset->fields[i]);
    ctl_json_close(text, ']');
    ctl_json_key_unsigned(text, "ignored", dataset->ignored);
    ctl_json_key_unsigned(text, "seen", dataset->seen);
    ctl_json_key_unsigned(text, "short_rows", dataset->short_rows);
    ctl_json_key_string(text, "progress", dataset->progress);
    ctl_json_key_unsigned(text, "classes", dataset->classes);
    ctl_json_close(text, '}');
}

static void status_stream_json(struct ctl_text *text, const Spdl__V1__StreamStatus *stream)
{
    ctl_json_open(text, '{');
    ctl_json_key_unsigned(text, "stream", stream->stream);
    ctl_json_key_string(text, "dataset", stream->dataset);
    ctl_json_key_unsigned(text, "rank", stream->rank);
    ctl_json_key_unsigned(text, "world", stream->world);
    ctl_json_key_unsigned(text, "epoch", stream->epoch);
    ctl_json_key_unsigned(text, "step", stream->step);
    ctl_json_key_unsigned(text, "ready_slots", stream->ready_slots);
    ctl_json_key_unsigned(text, "slots", stream->slots);
    ctl_json_key_double(text, "starved_ratio", stream->starved_ratio, 4);
    ctl_json_key_double(text, "samples_per_s", stream->samples_per_s, 1);
    ctl_json_key(text, "failures");
    ctl_json_open(text, '{');
    for (size_t i = 0; i < stream->n_failures; i++)
        ctl_json_key_unsigned(text, stream->failures[i]->class_name, stream->failures[i]->count);
    ctl_json_close(text, '}');
    ctl_json_key_string(text, "waiting_for", stream->waiting_for);
    ctl_json_key_signed(text, "pid", stream->pid);
    ctl_json_key_unsigned(text, "uid", stream->uid);
    ctl_json_key_unsigned(text, "batches", stream->batches);
    ctl_json_key_unsigned(text, "samples", stream->samples);
    ctl_json_key_unsigned(text, "memory", stream->memory);
    ctl_json_key_string(text, "job", stream->job);
    ctl_json_key_string(text, "state", stream->state);
    ctl_json_close(text, '}');
}

static void status_datasets_json(struct ctl_text *text, const Spdl__V1__StatusReply *status)
{
    ctl_json_open(text, '[');
    for (size_t i = 0; i < status->n_datasets; i++)
        status_dataset_json(text, status->datasets[i]);
    ctl_json_close(text, ']');
}

static void status_streams_json(struct ctl_text *text, const Spdl__V1__StatusReply *status)
{
    ctl_json_open(text, '[');
    for (size_t i = 0; i < status->n_streams; i++)
        status_stream_json(text, status->streams[i]);
    ctl_json_close(text, ']');
}

/* What each worker has taken away from itself. */
static void status_workers_json(struct ctl_text *text, const Spdl__V1__StatusReply *status)
{
    ctl_json_open(text, '[');
    for (size_t i = 0; i < status->n_workers; i++) {
        const Spdl__V1__WorkerStatus *worker = status->workers[i];
        ctl_json_open(text, '{');
        ctl_json_key_signed(text, "pid", worker->pid);
        ctl_json_key_unsigned(text, "uid", worker->uid);
        ctl_json_key(text, "sandbox");
        ctl_json_open(text, '{');
        ctl_json_key(text, "seccomp");
        ctl_json_bool(text, worker->seccomp);
        ctl_json_key_unsigned(text, "landlock", worker->landlock);
        ctl_json_key(text, "no_new_privs");
        ctl_json_bool(text, worker->no_new_privs);
        ctl_json_key(text, "limits");
        ctl_json_bool(text, worker->limits);
        ctl_json_key(text, "relaxed");
        ctl_json_bool(text, worker->relaxed);
        ctl_json_close(text, '}');
        ctl_json_close(text, '}');
    }
    ctl_json_close(text, ']');
}

static void status_json(struct ctl_text *text, const Spdl__V1__StatusReply *status)
{
    ctl_json_open(text, '{');
    ctl_json_key_string(text, "version", status->version);
    ctl_json_key_signed(text, "pid", status->pid);
    ctl_json_key_double(text, "uptime_s", status->uptime_s, 3);
    ctl_json_key_unsigned(text, "generation", status->generation);
    ctl_json_key(text, "memory");
    ctl_json_open(text, '{');
    ctl_json_key_unsigned(text, "limit", status->memory_limit);
    ctl_json_key_unsigned(text, "used", status->memory_used);
    ctl_json_close(text, '}');
    ctl_json_key(text, "arena");
    ctl_json_open(text, '{');
    ctl_json_key_unsigned(text, "bytes", status->arena_bytes);
    ctl_json_key_unsigned(text, "used", status->arena_used);
    ctl_json_close(text, '}');
    ctl_json_key_string(text, "engine", status->engine);
    ctl_json_key_string(text, "engine_note", status->engine_note);
    ctl_json_key_string(text, "shm", status->shm);
    ctl_json_key_unsigned(text, "decode_threads", status->decode_threads);
    ctl_json_key(text, "worker_pids");
    ctl_json_open(text, '[');
    for (size_t i = 0; i < status->n_worker_pids; i++)
        ctl_json_signed(text, status->worker_pids[i]);
    ctl_json_close(text, ']');
    ctl_json_key(text, "workers");
    status_workers_json(text, status);
    ctl_json_key_unsigned(text, "worker_restarts", status->worker_restarts);
    ctl_json_key_unsigned(text, "lost_clients", status->lost_clients);
    ctl_json_key_unsigned(text, "protocol_errors", status->protocol_errors);
    ctl_json_key_double(text, "cpu_s", status->cpu_s, 6);
    ctl_json_key_double(text, "pss_mib", status->pss_mib, 2);
    ctl_json_key_unsigned(text, "reads", status->reads);
    ctl_json_key_unsigned(text, "read_bytes", status->read_bytes);
    ctl_json_key(text, "datasets");
    status_datasets_json(text, status);
    ctl_json_key(text, "streams");
    status_streams_json(text, status);
    ctl_json_close(text, '}');
}

static void status_fields(struct ctl_text *text, const Spdl__V1__DatasetStatus *dataset)
{
    for (size_t i = 0; i < dataset->n_fields; i++)
        ctl_text_printf(text, "%s%s", i ? "; " : "", dataset->fields[i]);
    const char *note = *dataset->progress ? dataset->progress : dataset->note;
    if (*note)
        ctl_text_printf(text, "%s%s", dataset->n_fields ? "; " : "", note);
    ctl_text_put(text, "", 1);
}

static void status_datasets(struct ctl_text *text, const Spdl__V1__StatusReply *status, bool bold)
{
    struct ctl_table table = {.columns = 5, .right = 1U << 2};
    static const char *const head[] = {"DATASET", "STATE", "SAMPLES", "SOURCE", "FIELDS"};
    for (size_t i = 0; i < 5; i++)
        ctl_table_cell(&table, head[i]);
    for (size_t i = 0; i < status->n_datasets; i++) {
        const Spdl__V1__DatasetStatus *dataset = status->datasets[i];
        struct ctl_text fields = {0};
        status_fields(&fields, dataset);
        ctl_table_cell(&table, dataset->name);
        ctl_table_cell(&table, dataset->state);
        if (dataset->samples)
            ctl_table_cellf(&table, "%" PRIu64, dataset->samples);
        else
            ctl_table_cell(&table, "-");
        ctl_table_cell(&table, dataset->source);
        ctl_table_cell(&table, fields.failed ? "" : fields.data);
        ctl_text_fini(&fields);
    }
    ctl_table_print(&table, bold, text);
}

static void status_stream(struct ctl_table *table, const Spdl__V1__StreamStatus *stream)
{
    struct ctl_text failures = {0};
    for (size_t i = 0; i < stream->n_failures; i++)
        ctl_text_printf(&failures, "%s%s %" PRIu64, i ? ", " : "", stream->failures[i]->class_name,
                        stream->failures[i]->count);
    ctl_text_str(&failures, failures.bytes ? "" : "-");
    ctl_text_put(&failures, "", 1);
    ctl_table_cellf(table, "%" PRIu64, stream->stream);
    ctl_table_cell(table, *stream->dataset ? stream->dataset : "-");
    ctl_table_cellf(table, "%u/%u", stream->rank, stream->world);
    ctl_table_cellf(table, "%" PRId64, stream->pid);
    ctl_table_cellf(table, "%u:%" PRIu64, stream->epoch, stream->step);
    ctl_table_cellf(table, "%u/%u", stream->ready_slots, stream->slots);
    ctl_table_cellf(table, "%.0f", stream->samples_per_s);
    ctl_table_cellf(table, "%.1f %%", stream->starved_ratio * 100);
    ctl_table_cell(table, failures.failed ? "?" : failures.data);
    ctl_table_cell(table, *stream->waiting_for ? stream->waiting_for : "-");
    ctl_text_fini(&failures);
}

static void status_streams(struct ctl_text *text, const Spdl__V1__StatusReply *status, bool bold)
{
    static const char *const head[] = {"STREAM", "DATASET",   "RANK",    "PID",      "STEP",
                                       "READY",  "SAMPLES/S", "STARVED", "FAILURES", "WAITING FOR"};
    struct ctl_table table = {.columns = 10, .right = 1U << 0 | 1U << 3 | 1U << 6 | 1U << 7};
    for (size_t i = 0; i < 10; i++)
        ctl_table_cell(&table, head[i]);
    for (size_t i = 0; i < status->n_streams; i++)
        status_stream(&table, status->streams[i]);
    ctl_table_print(&table, bold, text);
}

static void status_memory(struct ctl_text *text, const Spdl__V1__StatusReply *status)
{
    enum { BAR = 24 };
    uint64_t limit = status->memory_limit;
    double share = limit ? (double)status->memory_used / (double)limit : 0;
    int full = share >= 1 ? BAR : share > 0 ? (int)(share * BAR + 0.5) : 0;
    ctl_text_printf(text, "memory   [%.*s%.*s] ", full, "########################", BAR - full,
                    "........................");
    ctl_text_size(text, status->memory_used);
    ctl_text_str(text, " of ");
    ctl_text_size(text, limit);
    if (status->arena_bytes) {
        ctl_text_str(text, "; samples on their way ");
        ctl_text_size(text, status->arena_used);
        ctl_text_str(text, " of ");
        ctl_text_size(text, status->arena_bytes);
    }
    ctl_text_str(text, "\n");
}

/* What holds for every worker; they differ only while a kernel is changed under a container. */
static void status_sandbox(struct ctl_text *text, const Spdl__V1__StatusReply *status)
{
    if (status->n_workers == 0)
        return;
    bool seccomp = true, landlock = true, privs = true, limits = true, relaxed = false;
    for (size_t i = 0; i < status->n_workers; i++) {
        const Spdl__V1__WorkerStatus *worker = status->workers[i];
        seccomp = seccomp && worker->seccomp;
        landlock = landlock && worker->landlock > 0;
        privs = privs && worker->no_new_privs;
        limits = limits && worker->limits;
        relaxed = relaxed || worker->relaxed;
    }
    ctl_text_str(text, "; sandbox:");
    if (!seccomp && !landlock && !privs && !limits)
        ctl_text_str(text, status->n_worker_pids ? " none" : " none, they are threads of spdld");
    ctl_text_str(text, seccomp ? " seccomp" : "");
    ctl_text_str(text, landlock ? " landlock" : "");
    ctl_text_str(text, privs ? " no_new_privs" : "");
    ctl_text_str(text, limits ? " limits" : "");
    ctl_text_str(text, relaxed ? " (relaxed: built with a sanitizer)" : "");
}

static void status_daemon(struct ctl_text *text, const Spdl__V1__StatusReply *status)
{
    ctl_text_printf(text, "spdld %s  pid %" PRId64 "  up ", status->version, status->pid);
    ctl_text_duration(text, status->uptime_s);
    ctl_text_str(text, "\n");
    status_memory(text, status);
    ctl_text_printf(text, "reads    %s", status->engine);
    if (*status->engine_note)
        ctl_text_printf(text, " (%s)", status->engine_note);
    ctl_text_printf(text, ", %" PRIu64 " done, ", status->reads);
    ctl_text_size(text, status->read_bytes);
    ctl_text_printf(text, "\ndecoding %u threads", status->decode_threads);
    if (status->n_worker_pids)
        ctl_text_str(text, status->n_worker_pids == 1 ? " in process" : " in processes");
    for (size_t i = 0; i < status->n_worker_pids; i++)
        ctl_text_printf(text, " %" PRId64, status->worker_pids[i]);
    status_sandbox(text, status);
    if (status->worker_restarts)
        ctl_text_printf(text, ", restarted %" PRIu64 " times", status->worker_restarts);
    ctl_text_printf(text, "\nCPU      %.1f s;  resident %.1f MiB;  segments %s\n", status->cpu_s,
                    status->pss_mib, status->shm);
    if (status->lost_clients || status->protocol_errors)
        ctl_text_printf(text,
                        "clients  %" PRIu64 " died, %" PRIu64 " sent what nobody understands\n",
                        status->lost_clients, status->protocol_errors);
}

enum status_part { STATUS_ALL, STATUS_DATASETS, STATUS_STREAMS };

static void status_people(struct ctl_text *text, const Spdl__V1__StatusReply *status,
                          enum status_part part)
{
    bool bold = isatty(STDOUT_FILENO);
    if (part == STATUS_ALL)
        status_daemon(text, status);
    if (part == STATUS_ALL)
        ctl_text_str(text, status->n_datasets ? "\n" : "\nno dataset is configured\n");
    if (part == STATUS_DATASETS || (part == STATUS_ALL && status->n_datasets))
        status_datasets(text, status, bold);
    if (part == STATUS_ALL)
        ctl_text_str(text, status->n_streams ? "\n" : "\nno stream is open\n");
    if (part == STATUS_STREAMS || (part == STATUS_ALL && status->n_streams))
        status_streams(text, status, bold);
}

static int status_show(const struct ctl_options *options, enum status_part part)
{
    Spdl__V1__ToClient *reply = NULL;
    int code = ctl_query_status(options, &reply);
    if (code != 0)
        return code;
    struct ctl_text text = {0};
    if (!options->json) {
        status_people(&text, reply->status, part);
        spdl__v1__to_client__free_unpacked(reply, NULL);
        return ctl_print(&text);
    }
    switch (part) {
    case STATUS_ALL:
        status_json(&text, reply->status);
        break;
    case STATUS_DATASETS:
        status_datasets_json(&text, reply->status);
        break;
    case STATUS_STREAMS:
        status_streams_json(&text, reply->status);
        break;
    }
    ctl_text_str(&text, "\n");
    spdl__v1__to_client__free_unpacked(reply, NULL);
    return ctl_print(&text);
}

int ctl_status(const struct ctl_options *options)
{
    return status_show(options, STATUS_ALL);
}

int ctl_datasets(const struct ctl_options *options)
{
    return status_show(options, STATUS_DATASETS);
}

int ctl_streams(const struct ctl_options *options)
{
    return status_show(options, STATUS_STREAMS);
}
