/* The simulator carries out the core's commands, and checks each against the world as it is. */
#include <errno.h>
#include <string.h>

#include "tests/pipeline/sim.h"

#define NEED(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            sim_fail(sim, __VA_ARGS__);                                                            \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* --- rows --- */

/* What a row's command says must be what the plan says of it. */
static void row_check(struct sim *sim, const struct pipeline_command *command)
{
    const struct sim_stream *stream = &sim->streams[command->stream];
    NEED(stream->started && !stream->closing && !stream->ended,
         "a row of stream %u, which takes none", command->stream);
    NEED(command->slot < stream->slot_count && command->row < stream->rows,
         "row %u of slot %u is outside", command->row, command->slot);
    const struct sim_slot *slot = &stream->slots[command->slot];
    NEED(!slot->held, "slot %u is the rank's and a row is made in it", command->slot);
    struct pipeline_slot_view view;
    pipeline_core_slot(sim->core, command->stream, command->slot, &view);
    NEED(view.sequence >= stream->published &&
             view.sequence < stream->published + stream->slot_count,
         "batch %llu is made when %llu are published", (unsigned long long)view.sequence,
         (unsigned long long)stream->published);
    NEED(!stream->limit || view.sequence < stream->limit, "a batch behind the limit");
    NEED(command->row < view.batch.rows, "row %u of %u", command->row, view.batch.rows);
    const struct sim_job *job = &sim->jobs[stream->job];
    uint64_t k = stream->base + view.sequence;
    struct sim_truth truth = sim_truth_of(sim, job, k, command->row);
    struct sim_row *row = &sim->streams[command->stream].slots[command->slot].rows[command->row];
    /* What fails by the lookup alone was passed over. */
    while (row->attempt < truth.attempt &&
           sim_fate_of(sim, sim_id_of(job, k, command->row, row->attempt)) == SIM_BAD_LOOKUP)
        row->attempt++;
    NEED(command->id == sim_id_of(job, k, command->row, row->attempt) &&
             row->attempt <= truth.attempt && command->position == truth.position &&
             command->epoch == truth.epoch,
         "row %u of batch %llu is another sample", command->row, (unsigned long long)view.sequence);
}

static struct sim_op *op_new(struct sim *sim, const struct pipeline_command *command)
{
    for (uint32_t i = 0; i < sim->op_count; i++)
        if (sim->ops[i].ticket == command->ticket)
            sim_fail(sim, "two operations have one ticket");
    if (sim->op_count == PIPELINE_OPS_MAX) {
        sim_fail(sim, "too much in flight");
        return NULL;
    }
    struct sim_op *op = &sim->ops[sim->op_count++];
    *op = (struct sim_op){
        .ticket = command->ticket,
        .fetch = command->kind == PIPELINE_COMMAND_FETCH,
        .stream = command->stream,
        .slot = command->slot,
        .row = command->row,
        .worker = sim->streams[command->stream].worker,
        .id = command->id,
        .position = command->position,
        .epoch = command->epoch,
        .attempt = sim->streams[command->stream].slots[command->slot].rows[command->row].attempt,
        .blob_offset = command->blob_offset,
        .blob_bytes = command->blob_bytes};
    struct pipeline_row_ref ref = {0};
    if (pipeline_core_ticket_ref(sim->core, op->ticket, &ref) != 0 || ref.stream != op->stream ||
        ref.slot != op->slot || ref.row != op->row || ref.orphan || ref.id != op->id ||
        ref.attempt != op->attempt)
        sim_fail(sim, "a new ticket leads elsewhere");
    return op;
}

static void on_fetch(struct sim *sim, const struct pipeline_command *command)
{
    struct sim_row *row = &sim->streams[command->stream].slots[command->slot].rows[command->row];
    NEED(row->state == SIM_ROW_NONE, "a row is read twice");
    bool in_place = sim_is_in_place(sim, command->id);
    NEED(command->in_place == in_place &&
             command->blob_bytes == (in_place ? 0 : sim_blob_bytes_of(sim, command->id)) &&
             sim_blob_bytes_of(sim, command->id) > 0 &&
             sim_fate_of(sim, command->id) != SIM_BAD_LOOKUP,
         "a read that is not wanted");
    struct sim_op *op = op_new(sim, command);
    if (!op)
        return;
    op->in_place = in_place;
    const struct sim_stream *stream = &sim->streams[command->stream];
    struct sim_worker *worker = &sim->workers[stream->worker];
    if (in_place)
        row->stamp = 2; /* half written */
    else
        sim_pages_take(sim, stream->worker, command->blob_offset, command->blob_bytes);
    row->state = SIM_ROW_FETCHING;
    row->blob_offset = command->blob_offset;
    row->blob_bytes = command->blob_bytes;
    worker->fetching++;
    NEED(worker->fetching <= pipeline_core_reads_max(sim->params.fetch_depth),
         "%u reads of worker %u in flight", worker->fetching, stream->worker);
    uint32_t own = 0;
    for (uint32_t i = 0; i < sim->op_count; i++)
        own += sim->ops[i].fetch && sim->ops[i].stream == command->stream;
    NEED(own <= sim->params.fetch_depth, "%u reads of stream %u in flight", own, command->stream);
}

static void on_decode(struct sim *sim, const struct pipeline_command *command)
{
    const struct sim_stream *stream = &sim->streams[command->stream];
    struct sim_row *row = &sim->streams[command->stream].slots[command->slot].rows[command->row];
    NEED(command->worker == stream->worker && stream->attach == SIM_ATTACH_DONE &&
             sim->workers[command->worker].up,
         "worker %u has not mapped stream %u", command->worker, command->stream);
    NEED(!sim_is_in_place(sim, command->id), "a row is decoded that was read in place");
    if (sim_blob_bytes_of(sim, command->id) > 0)
        NEED(row->state == SIM_ROW_FETCHED && command->blob_bytes == row->blob_bytes &&
                 command->blob_offset == row->blob_offset,
             "a row is decoded that is not read, or from another place");
    else
        NEED(row->state == SIM_ROW_NONE && command->blob_bytes == 0, "a row is decoded twice");
    uint32_t *decoding = &sim->workers[command->worker].decoding;
    NEED(row->crashes == 0 || *decoding == 0, "a suspect is not tried alone");
    for (uint32_t i = 0; i < sim->op_count; i++)
        NEED(sim->ops[i].fetch || sim->ops[i].worker != command->worker || !sim->ops[i].alone,
             "a suspect gets company");
    struct sim_op *op = op_new(sim, command);
    if (!op)
        return;
    op->alone = row->crashes > 0;
    row->state = SIM_ROW_DECODING;
    row->stamp = 2; /* half written */
    ++*decoding;
    NEED(*decoding <= PIPELINE_QUEUE_MAX, "%u rows at one worker", *decoding);
    if (*decoding >= 2 * sim->params.threads)
        sim->totals->queue_full++;
}

/* --- batches --- */

static void publish_row_check(struct sim *sim, const struct pipeline_command *command,
                              uint64_t sequence, uint32_t number)
{
    const struct sim_stream *stream = &sim->streams[command->stream];
    const struct sim_row *row = &stream->slots[command->slot].rows[number];
    struct pipeline_row_view view;
    pipeline_core_row(sim->core, command->stream, command->slot, number, &view);
    struct sim_truth truth =
        sim_truth_of(sim, &sim->jobs[stream->job], stream->base + sequence, number);
    NEED(view.id == truth.id && view.failed_id == truth.failed_id &&
             view.attempt == truth.attempt && view.masked == truth.masked &&
             view.position == truth.position && view.padded == truth.padded,
         "row %u of batch %llu is another sample", number, (unsigned long long)sequence);
    NEED(view.class_number == truth.class_number, "row %u of batch %llu is %s and not %s", number,
         (unsigned long long)sequence, spdl_class_name(view.class_number),
         spdl_class_name(truth.class_number));
    NEED(sim_fate_of(sim, truth.id) == SIM_BAD_LOOKUP || row->state == SIM_ROW_DONE,
         "row %u of batch %llu is not done", number, (unsigned long long)sequence);
    NEED(truth.masked || row->stamp == sim_stamp_of(truth.id, truth.epoch, truth.position),
         "row %u of batch %llu has other bytes", number, (unsigned long long)sequence);
    sim->totals->padded_rows += truth.padded;
    sim->totals->substituted_rows += truth.attempt > 0;
}

static void on_publish(struct sim *sim, const struct pipeline_command *command)
{
    struct sim_stream *stream = &sim->streams[command->stream];
    NEED(stream->started && !stream->closing && !stream->ended, "a batch of an ended stream");
    NEED(command->slot < stream->slot_count, "slot %u is outside", command->slot);
    struct sim_slot *slot = &stream->slots[command->slot];
    NEED(!slot->held, "slot %u is published twice", command->slot);
    struct pipeline_slot_view view;
    pipeline_core_slot(sim->core, command->stream, command->slot, &view);
    NEED(view.sequence == stream->published, "batch %llu comes where %llu should",
         (unsigned long long)view.sequence, (unsigned long long)stream->published);
    NEED(!stream->limit || view.sequence < stream->limit, "a batch behind the limit");
    struct plan_batch batch;
    plan_batch_at(&sim->jobs[stream->job].schedule, stream->base + view.sequence, &batch);
    NEED(view.batch.epoch == batch.epoch && view.batch.step == batch.step &&
             view.batch.first_position == batch.first_position && view.batch.rows == batch.rows &&
             view.batch.next_epoch == batch.next_epoch &&
             view.batch.next_position == batch.next_position &&
             view.batch.next_step == batch.next_step,
         "batch %llu is not as planned", (unsigned long long)view.sequence);
    for (uint32_t i = 0; i < sim->op_count; i++)
        NEED(sim->ops[i].stream != command->stream || sim->ops[i].slot != command->slot,
             "slot %u is published while a row of it is at work", command->slot);
    uint32_t row = 0;
    NEED(sim_count_batch(sim, &sim->jobs[stream->job], stream->base + view.sequence,
                         &stream->counts, &row) == PIPELINE_LIMIT_NONE,
         "batch %llu is published, and row %u passes a limit", (unsigned long long)view.sequence,
         row);
    for (uint32_t r = 0; r < batch.rows && !sim->failed; r++)
        publish_row_check(sim, command, view.sequence, r);
    slot->held = true;
    slot->taken = false;
    slot->sequence = view.sequence;
    slot->batch = batch;
    slot->sum = sim_slot_sum(stream, slot);
    stream->published++;
    sim->totals->batches++;
    sim->totals->zero_rows += batch.rows == 0;
}

/* --- streams --- */

/* It ends by a row of the next batch that passes a limit: the first that does. */
static void end_by_row_check(struct sim *sim, const struct pipeline_command *command)
{
    struct sim_stream *stream = &sim->streams[command->stream];
    const struct sim_job *job = &sim->jobs[stream->job];
    uint32_t row = 0;
    uint64_t k = stream->base + stream->published;
    enum pipeline_limit limit = sim_count_batch(sim, job, k, &stream->counts, &row);
    struct pipeline_slot_view view;
    pipeline_core_slot(sim->core, command->stream, command->slot, &view);
    NEED(limit != PIPELINE_LIMIT_NONE && limit == command->limit &&
             view.sequence == stream->published && command->has_row && command->row == row,
         "it ends by limit %d of row %u and not by limit %d of row %u", (int)command->limit,
         command->row, (int)limit, row);
    enum spdl_class class_number = sim_most_class(&stream->counts);
    if (limit == PIPELINE_LIMIT_FIRST)
        class_number = sim_truth_of(sim, job, k, row).class_number;
    else if (limit == PIPELINE_LIMIT_ATTEMPTS || stream->counts.shown == 0)
        class_number = SPDL_CLASS_ALL_FAILED;
    NEED(command->class_number == class_number, "it ends as %s and not as %s",
         spdl_class_name(command->class_number), spdl_class_name(class_number));
    sim->totals->policy_ends += limit == PIPELINE_LIMIT_FIRST;
    sim->totals->attempt_ends += limit == PIPELINE_LIMIT_ATTEMPTS;
    sim->totals->consecutive_ends += limit == PIPELINE_LIMIT_CONSECUTIVE;
    sim->totals->rate_ends += limit == PIPELINE_LIMIT_RATE;
    sim->totals->all_failed_ends +=
        limit != PIPELINE_LIMIT_ATTEMPTS && class_number == SPDL_CLASS_ALL_FAILED;
}

/* It ends since a blob is larger than the whole arena. */
static void end_by_size_check(struct sim *sim, const struct pipeline_command *command)
{
    NEED(command->has_row && command->slot < sim->streams[command->stream].slot_count &&
             command->class_number == SPDL_CLASS_RESOURCE,
         "it does not say by which row it ends");
    struct pipeline_row_view view;
    pipeline_core_row(sim->core, command->stream, command->slot, command->row, &view);
    NEED(!sim_is_in_place(sim, view.id) &&
             sim_blob_bytes_of(sim, view.id) >
                 sim->arena_bytes / PIPELINE_ARENA_ALIGN * PIPELINE_ARENA_ALIGN,
         "the blob of sample %llu fits", (unsigned long long)view.id);
    sim->totals->size_ends++;
}

static void on_end(struct sim *sim, const struct pipeline_command *command)
{
    struct sim_stream *stream = &sim->streams[command->stream];
    NEED(stream->started && !stream->closing && !stream->end_seen, "an end too much");
    stream->end_seen = true;
    if (stream->ended)
        NEED(command->code == stream->end_code && command->class_number == stream->end_class,
             "it ends with code %d and not %d", command->code, stream->end_code);
    else if (command->code == -EBADMSG)
        end_by_row_check(sim, command);
    else if (command->code == -ENOSPC)
        end_by_size_check(sim, command);
    else
        NEED(command->code == 0 && stream->limit && stream->published == stream->limit,
             "it ends with code %d after %llu batches", command->code,
             (unsigned long long)stream->published);
    sim_stream_end(sim, command->stream, command->code, command->class_number);
}

static void on_attach(struct sim *sim, const struct pipeline_command *command)
{
    struct sim_stream *stream = &sim->streams[command->stream];
    NEED(stream->started && !stream->closing && stream->attach == SIM_ATTACH_NONE &&
             command->worker == stream->worker && sim->workers[stream->worker].up,
         "stream %u cannot be attached now", command->stream);
    stream->attach = SIM_ATTACH_SENT;
}

static bool has_ops(const struct sim *sim, uint32_t stream, bool decodes_only)
{
    for (uint32_t i = 0; i < sim->op_count; i++)
        if (sim->ops[i].stream == stream && !(decodes_only && sim->ops[i].fetch))
            return true;
    return false;
}

static void on_detach(struct sim *sim, const struct pipeline_command *command)
{
    struct sim_stream *stream = &sim->streams[command->stream];
    NEED(stream->closing && command->worker == stream->worker &&
             (stream->attach == SIM_ATTACH_SENT || stream->attach == SIM_ATTACH_DONE),
         "stream %u cannot be detached now", command->stream);
    NEED(!has_ops(sim, command->stream, true), "it is detached while rows of it are decoded");
    stream->attach = SIM_ATTACH_DETACHING;
}

static void on_forget(struct sim *sim, const struct pipeline_command *command)
{
    struct sim_stream *stream = &sim->streams[command->stream];
    NEED(stream->closing && stream->unmapped && stream->attach == SIM_ATTACH_NONE,
         "stream %u is forgotten while it is mapped", command->stream);
    NEED(!has_ops(sim, command->stream, false), "it is forgotten while rows of it are at work");
    memset(stream, 0, sizeof *stream);
}

static void carry_out(struct sim *sim, const struct pipeline_command *command)
{
    static const char *const names[] = {"?",       "ATTACH", "FETCH",  "DECODE",
                                        "PUBLISH", "END",    "DETACH", "FORGET"};
    NEED(command->kind >= PIPELINE_COMMAND_ATTACH && command->kind <= PIPELINE_COMMAND_FORGET,
         "a command of no kind");
    sim_trace(sim, "-> %s stream %u slot %u row %u ticket %llx id %llu worker %u code %d",
              names[command->kind], command->stream, command->slot, command->row,
              (unsigned long long)command->ticket, (unsigned long long)command->id, command->worker,
              command->code);
    NEED(command->stream < SIM_STREAMS_MAX && sim->streams[command->stream].used,
         "a command for stream %u, which is not there", command->stream);
    switch (command->kind) {
    case PIPELINE_COMMAND_ATTACH:
        on_attach(sim, command);
        break;
    case PIPELINE_COMMAND_FETCH:
        row_check(sim, command);
        if (!sim->failed)
            on_fetch(sim, command);
        break;
    case PIPELINE_COMMAND_DECODE:
        row_check(sim, command);
        if (!sim->failed)
            on_decode(sim, command);
        break;
    case PIPELINE_COMMAND_PUBLISH:
        on_publish(sim, command);
        break;
    case PIPELINE_COMMAND_END:
        on_end(sim, command);
        break;
    case PIPELINE_COMMAND_DETACH:
        on_detach(sim, command);
        break;
    case PIPELINE_COMMAND_FORGET:
        on_forget(sim, command);
        break;
    }
}

uint32_t sim_carry_out(struct sim *sim, uint32_t commands_max)
{
    struct pipeline_command command;
    uint32_t count = 0;
    for (; count < commands_max && !sim->failed && pipeline_core_next(sim->core, &command); count++)
        carry_out(sim, &command);
    sim->totals->commands += count;
    return count;
}

/* --- what the core says of itself --- */

static void stream_compare(struct sim *sim, uint32_t number)
{
    const struct sim_stream *stream = &sim->streams[number];
    struct pipeline_stream_view view;
    pipeline_core_stream(sim->core, number, &view);
    uint32_t held = 0;
    for (uint32_t i = 0; i < stream->slot_count; i++) {
        const struct sim_slot *slot = &stream->slots[i];
        held += slot->held;
        NEED(!slot->held || slot->sum == sim_slot_sum(stream, slot),
             "slot %u of stream %u changed while it was the rank's", i, number);
    }
    NEED(view.published == stream->published && view.released == stream->released,
         "stream %u: %llu published and %llu released are counted", number,
         (unsigned long long)view.published, (unsigned long long)view.released);
    NEED(view.held_slots == held && view.free_slots + held <= stream->slot_count,
         "stream %u has %u slots at its rank and counts %u", number, held, view.held_slots);
    NEED(view.memory_bytes == stream->memory_bytes, "memory of stream %u", number);
    NEED((unsigned)view.reason < PIPELINE_REASON_COUNT &&
             (view.reason == PIPELINE_REASON_NONE) == (stream->ended || stream->closing),
         "stream %u has reason %d", number, (int)view.reason);
    const struct sim_counts *counts = &stream->counts;
    NEED(view.counted_rows == counts->rows && view.failed_rows == counts->failed &&
             view.consecutive_rows == counts->consecutive &&
             view.most_class == sim_most_class(counts) &&
             view.most_rows == counts->classes[view.most_class],
         "stream %u counts %llu rows and %llu that failed", number,
         (unsigned long long)view.counted_rows, (unsigned long long)view.failed_rows);
    for (uint32_t i = 0; i < SPDL_CLASS_COUNT; i++) /* with its end, others are counted too */
        NEED(view.ended || view.failures[i] == counts->failures[i],
             "stream %u counts %llu failures of class %u and not %llu", number,
             (unsigned long long)view.failures[i], i, (unsigned long long)counts->failures[i]);
    sim->totals->memory_waits += view.reason == PIPELINE_REASON_MEMORY;
}

/* When all that is wanted was carried out, nothing that can be done is left undone. */
static void idle_check(struct sim *sim, uint32_t number)
{
    const struct sim_stream *stream = &sim->streams[number];
    struct pipeline_stream_view view;
    if (!stream->started || stream->ended)
        return;
    pipeline_core_stream(sim->core, number, &view);
    NEED(view.free_slots == 0 || (stream->limit && view.next_sequence == stream->limit),
         "a slot of stream %u is free and no batch is begun in it", number);
    if (!sim->workers[stream->worker].up)
        return;
    NEED(stream->attach != SIM_ATTACH_NONE, "stream %u is not attached", number);
    if (stream->attach != SIM_ATTACH_DONE || sim->workers[stream->worker].decoding > 0)
        return;
    for (uint32_t i = 0; i < stream->slot_count; i++)
        for (uint32_t r = 0; r < stream->rows; r++)
            NEED(stream->slots[i].rows[r].state != SIM_ROW_FETCHED,
                 "worker %u is idle and stream %u has rows to decode", stream->worker, number);
}

void sim_compare(struct sim *sim, bool idle)
{
    if (sim->failed)
        return;
    uint64_t memory = 0;
    for (uint32_t i = 0; i < SIM_STREAMS_MAX && !sim->failed; i++) {
        memory += sim->streams[i].memory_bytes;
        if (sim->streams[i].used)
            stream_compare(sim, i);
        if (sim->streams[i].used && idle && !sim->failed)
            idle_check(sim, i);
    }
    for (uint32_t i = 0; i < SIM_WORKERS; i++) {
        const struct sim_worker *worker = &sim->workers[i];
        uint64_t used = pipeline_core_arena_used(sim->core, i);
        memory += worker->seat_open ? SIM_SEAT_BYTES : 0;
        NEED(used == worker->pages_used * PIPELINE_ARENA_ALIGN,
             "the arena of worker %u has %llu bytes in use where %llu pages are", i,
             (unsigned long long)used, (unsigned long long)worker->pages_used);
        NEED(pipeline_core_fetching(sim->core, i) == worker->fetching,
             "reads in flight of worker %u are miscounted", i);
        NEED(pipeline_core_decoding(sim->core, i) == worker->decoding,
             "rows at worker %u are miscounted", i);
    }
    NEED(pipeline_core_memory_used(sim->core) == memory, "memory in use is not what is open");
}
