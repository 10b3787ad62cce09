/* A made-up world around the conductor's core: jobs with ranks, workers with an arena each, reads,
 * and slots that hold stamps instead of bytes. A seed decides everything. Each command of the core
 * is checked when it comes, each event is one that a real world could report, or one that must be
 * refused. */
#ifndef SPDLD_TESTS_PIPELINE_SIM_H
#define SPDLD_TESTS_PIPELINE_SIM_H

#include "pipeline/pipeline_arena.h"
#include "pipeline/pipeline_core.h"

enum {
    SIM_JOBS_MAX = 4,
    SIM_STREAMS_MAX = 12,
    SIM_WORKERS = 3,
    SIM_SLOTS_MAX = 6,
    SIM_ROWS_MAX = 12,
    SIM_PAGES_MAX = 512,
    SIM_STALE_MAX = 32,
    SIM_SEAT_BYTES = 900, /* memory of a seat */
    SIM_NOWHERE = 255     /* a job without a stream */
};

/* What becomes of a sample; a function of its id alone. */
enum sim_fate { SIM_GOOD, SIM_BAD_LOOKUP, SIM_BAD_FETCH, SIM_BAD_DECODE, SIM_POISON };

/* What happened in all, to see that the schedules reach what they are for. */
struct sim_totals {
    uint64_t schedules, steps, commands, batches, kills, crashes, classed_crash, ranks_lost,
        reopened, memory_waits, refused_opens, bogus, orphans, policy_ends, size_ends, death_ends,
        attempt_ends, consecutive_ends, rate_ends, all_failed_ends, substituted_rows, zero_rows,
        in_place, padded_rows, queue_full, seats, refused_seats, worlds_frozen, worlds_hung,
        hung_reads;
};

struct sim_op {
    uint64_t ticket;
    bool fetch;
    bool orphan;
    bool in_place;
    bool alone; /* a decode that must have its worker for itself */
    uint32_t stream, slot, row, worker;
    uint64_t id, position, blob_offset, blob_bytes;
    uint32_t epoch, attempt;
};

enum sim_row_state {
    SIM_ROW_NONE,
    SIM_ROW_FETCHING,
    SIM_ROW_FETCHED,
    SIM_ROW_DECODING,
    SIM_ROW_DONE
};
struct sim_row {
    enum sim_row_state state;
    uint32_t attempt; /* that is at work, or is the next to be looked up */
    uint32_t crashes;
    uint64_t blob_offset, blob_bytes;
    uint64_t stamp; /* what stands in the row's place in the slot */
};

struct sim_slot {
    bool held;  /* published and not released */
    bool taken; /* by the rank */
    uint64_t sequence, sum;
    struct plan_batch batch;
    struct sim_row rows[SIM_ROWS_MAX];
};

enum sim_attach { SIM_ATTACH_NONE, SIM_ATTACH_SENT, SIM_ATTACH_DONE, SIM_ATTACH_DETACHING };

/* What is counted for the limits of failures, row by row in the order of the stream. */
struct sim_counts {
    uint64_t rows, failed, shown;
    uint32_t consecutive;
    uint64_t classes[SPDL_CLASS_COUNT];  /* of the failed rows */
    uint64_t failures[SPDL_CLASS_COUNT]; /* of all samples that failed */
};

/* A stream of the core, under its number. */
struct sim_stream {
    bool used, started, closing, unmapped, ended, end_seen;
    enum sim_attach attach;
    uint32_t job, worker, policy, slot_count, rows;
    uint64_t base; /* batch of the job that is the stream's first */
    uint64_t limit, memory_bytes, published, released, taken;
    struct sim_counts counts;
    int end_code; /* when ended: what END must say */
    enum spdl_class end_class;
    struct sim_slot slots[SIM_SLOTS_MAX];
};

/* What one rank wants: `target` batches of its schedule. */
struct sim_job {
    struct plan_schedule schedule;
    uint64_t seed, target, seen;
    uint32_t shuffle, worker, policy, slot_count, max_rate, max_consecutive;
    uint32_t stream; /* SIM_NOWHERE: it has none */
    bool has_limit, over;
};

/* A worker and its seat. */
struct sim_worker {
    bool seat_open, up;
    uint32_t deaths; /* in a row, without a finished row */
    uint32_t fetching, decoding;
    uint64_t page[SIM_PAGES_MAX]; /* what stands in it */
    bool page_used[SIM_PAGES_MAX];
    uint64_t pages_used;
};

struct sim {
    struct pipeline_core *core;
    struct pipeline_core_params params;
    uint64_t arena_bytes; /* of each seat */
    uint64_t random, salt;
    uint32_t bad_lookup, bad_fetch, bad_decode, poison, in_place; /* of 1000 */
    uint32_t blob_pages_max, weights[20];                         /* by enum sim_act */
    uint32_t held_max;                                            /* by a rank */
    uint32_t cost_ns;
    bool calm; /* no more trouble: all must come to its end */
    bool trace, failed;
    char failure[320];
    uint64_t step;
    struct sim_job jobs[SIM_JOBS_MAX];
    struct sim_stream streams[SIM_STREAMS_MAX];
    struct sim_worker workers[SIM_WORKERS];
    uint32_t frozen_worker; /* that finishes nothing; SIM_NOWHERE: none */
    uint32_t hung_job;      /* whose reads do not end; SIM_NOWHERE: none */
    uint32_t job_count, op_count;
    struct sim_op ops[PIPELINE_OPS_MAX];
    struct sim_op stale[SIM_STALE_MAX]; /* that were outstanding once */
    uint32_t stale_count;
    struct sim_totals *totals;
};

/* Runs one schedule. Returns 0, or -1 with sim->failure. */
int sim_run(struct sim *sim, uint64_t seed, bool trace, struct sim_totals *totals);

/* --- inside --- */

uint64_t sim_mix(uint64_t a, uint64_t b);
uint64_t sim_below(struct sim *sim, uint64_t n); /* 0 … n - 1 */
bool sim_chance(struct sim *sim, uint32_t of_1000);
void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_trace(const struct sim *sim, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The model: row `row` of batch `k` of a job. */
struct sim_truth {
    uint64_t id, failed_id, position;
    uint32_t epoch, attempt;
    enum spdl_class class_number; /* of the sample of the order */
    bool masked, padded;
};
struct sim_truth sim_truth_of(const struct sim *sim, const struct sim_job *job, uint64_t k,
                              uint32_t row);
/* The sample of one attempt. */
uint64_t sim_id_of(const struct sim_job *job, uint64_t k, uint32_t row, uint32_t attempt);
/* Counts batch k for the limits of its stream; *ret_row is the row that passes one. */
enum pipeline_limit sim_count_batch(const struct sim *sim, const struct sim_job *job, uint64_t k,
                                    struct sim_counts *counts, uint32_t *ret_row);
enum spdl_class sim_most_class(const struct sim_counts *counts);
enum sim_fate sim_fate_of(const struct sim *sim, uint64_t id);
enum spdl_class sim_class_of(const struct sim *sim, uint64_t id);
uint64_t sim_blob_bytes_of(const struct sim *sim, uint64_t id);
/* Its bytes are the row's: it is read there and not decoded. */
bool sim_is_in_place(const struct sim *sim, uint64_t id);
uint64_t sim_stamp_of(uint64_t id, uint32_t epoch, uint64_t position);
void sim_lookup(void *context, uint32_t stream, const struct pipeline_place *place,
                struct pipeline_sample *ret_sample);

void sim_pages_take(struct sim *sim, uint32_t worker, uint64_t offset, uint64_t bytes);
void sim_pages_give(struct sim *sim, uint32_t worker, uint64_t offset, uint64_t bytes);
uint64_t sim_slot_sum(const struct sim_stream *stream, const struct sim_slot *slot);

/* The stream makes no more batches; the first cause counts. */
void sim_stream_end(struct sim *sim, uint32_t stream, int code, enum spdl_class class_number);

/* Carries out what the core wants, at most `commands_max` commands. Returns how many. */
uint32_t sim_carry_out(struct sim *sim, uint32_t commands_max);
/* Compares what the core says of itself with the world. idle: all that it wanted was carried out.
 */
void sim_compare(struct sim *sim, bool idle);

/* Something that can happen now, chosen by the seed; false: of that kind nothing can. */
enum sim_act {
    SIM_ACT_FETCHED,
    SIM_ACT_DECODED,
    SIM_ACT_TAKE,
    SIM_ACT_RELEASE,
    SIM_ACT_WORKER_UP,
    SIM_ACT_ATTACHED,
    SIM_ACT_DETACHED,
    SIM_ACT_START,
    SIM_ACT_UNMAP,
    SIM_ACT_OPEN,
    SIM_ACT_CLOSE_OVER, /* the job has all that it wants */
    SIM_ACT_SEAT_CLOSE, /* nobody has a stream there */
    SIM_ACT_HELPFUL,    /* those before it bring the world on; the others are trouble */
    SIM_ACT_KILL_WORKER = SIM_ACT_HELPFUL,
    SIM_ACT_KILL_RANK,
    SIM_ACT_FAIL,
    SIM_ACT_THREADS,
    SIM_ACT_BOGUS,
    SIM_ACT_COUNT
};
bool sim_act(struct sim *sim, enum sim_act act);
bool sim_rank_act(struct sim *sim, enum sim_act act);
bool sim_bogus(struct sim *sim);
void sim_feed(struct sim *sim, const struct pipeline_event *event, int wanted,
              struct pipeline_row_ref *ret_ref);
/* The worker is gone, with all that it worked on. `suspects` may name tickets of anything. */
void sim_worker_down(struct sim *sim, uint32_t worker, bool crashed, const uint64_t *suspects,
                     uint32_t suspect_count);
void sim_feed_stream(struct sim *sim, enum pipeline_event_kind kind, uint32_t stream);
/* A stream that `wanted` says yes to, by chance; SIM_NOWHERE: none. */
uint32_t sim_stream_choose(struct sim *sim,
                           bool (*wanted)(const struct sim *, const struct sim_stream *));

#endif
