/* Why a stream waits: counts how its time goes and says it in words, with the numbers that prove
 * it. Conductor role. */
#include <stdio.h>
#include <string.h>

#include "pipeline/pipeline_state.h"

enum { COUNT_EVERY_MS = 1, FADE_SECONDS = 5, RATE_EVERY_MS = 500, SILENT_MS = 1000 };
static const uint64_t NS_PER_MS = 1000000;

static const char *const reason_names[PIPELINE_REASON_COUNT] = {"none",  "opening", "rank",
                                                                "reads", "memory",  "decode"};

static void count_stream(struct pipeline_stream *stream, uint64_t now_ns)
{
    struct stream_times *times = &stream->times;
    struct pipeline_stream_view view;
    pipeline_core_stream(stream->pipeline->core, stream->number, &view);
    double seconds = times->last_ns ? (double)(now_ns - times->last_ns) * 1e-9 : 0;
    times->reason_s[times->reason] += seconds;
    times->starved_s += times->starved ? seconds : 0;
    times->all_s += seconds;
    if (times->all_s > 2 * FADE_SECONDS) { /* what is long ago weighs half, then a quarter, … */
        for (int i = 0; i < PIPELINE_REASON_COUNT; i++)
            times->reason_s[i] /= 2;
        times->starved_s /= 2;
        times->all_s /= 2;
    }
    times->last_ns = now_ns;
    times->reason = view.reason;
    times->starved = view.published == view.released && !view.ended;
    if (times->rate_ns == 0) {
        times->rate_ns = now_ns;
        times->rate_samples = view.samples;
    } else if (now_ns - times->rate_ns >= RATE_EVERY_MS * NS_PER_MS) {
        double rate = (double)(view.samples - times->rate_samples) /
                      ((double)(now_ns - times->rate_ns) * 1e-9);
        times->samples_per_s = times->samples_per_s > 0 ? (times->samples_per_s + rate) / 2 : rate;
        times->rate_ns = now_ns;
        times->rate_samples = view.samples;
    }
}

void pipeline_why_count(struct pipeline *pipeline, uint64_t now_ns)
{
    if (now_ns - pipeline->counted_ns < COUNT_EVERY_MS * NS_PER_MS)
        return;
    pipeline->counted_ns = now_ns;
    for (uint32_t i = 0, left = pipeline->stream_count; i < PIPELINE_STREAMS_MAX && left > 0; i++)
        if (pipeline->streams[i]) {
            left--;
            if (pipeline->streams[i]->phase == STREAM_OPEN)
                count_stream(pipeline->streams[i], now_ns);
        }
}

static enum pipeline_reason worst(const struct stream_times *times)
{
    enum pipeline_reason best = PIPELINE_REASON_NONE;
    for (int i = PIPELINE_REASON_OPENING; i < PIPELINE_REASON_COUNT; i++)
        if (times->reason_s[i] > times->reason_s[best] || best == PIPELINE_REASON_NONE)
            best = (enum pipeline_reason)i;
    return times->all_s > 0 ? best : PIPELINE_REASON_NONE;
}

/* How long the stream's worker has had rows and finished none; 0: it gets on. */
static double silent_s(const struct pipeline_stream *stream)
{
    const struct pipeline_seat *seat = &stream->pipeline->seats[stream->worker];
    uint64_t now_ns = loop_now_ns();
    bool gets_on = !seat->worker || now_ns < seat->moved_ns + SILENT_MS * NS_PER_MS;
    return gets_on ? 0 : (double)(now_ns - seat->moved_ns) * 1e-9;
}

/* What to do about slow reads. */
static void read_words(const struct pipeline_stream *stream, char *text, size_t bytes)
{
    struct pipeline_oldest oldest = pipeline_fetch_oldest(stream);
    if (oldest.path && oldest.age_s * 1000 >= SILENT_MS)
        snprintf(text, bytes, "look at the storage: %.100s has not been read for %.0f s",
                 oldest.path, oldest.age_s);
    else
        snprintf(text, bytes, "a faster disk, more reads in flight (fetch.depth), or larger files");
}

static void waiting_read(const struct pipeline_stream *stream, char *text, size_t bytes)
{
    struct pipeline_oldest oldest = pipeline_fetch_oldest(stream);
    uint32_t count = pipeline_core_fetching(stream->pipeline->core, stream->worker);
    if (oldest.path && oldest.tries > 0)
        snprintf(text, bytes, "reads: %.160s failed %u times and is tried again; %u in flight",
                 oldest.path, oldest.tries, count);
    else if (oldest.path && oldest.age_s * 1000 >= SILENT_MS)
        snprintf(text, bytes,
                 "reads: %.160s has not been read for %.0f s, the storage does not answer; %u in "
                 "flight",
                 oldest.path, oldest.age_s, count);
    else
        snprintf(text, bytes, "reads: %u in flight", count);
}

static void evidence(const struct pipeline_stream *stream, enum pipeline_reason reason,
                     struct pipeline_why *why)
{
    const struct pipeline *pipeline = stream->pipeline;
    const struct pipeline_seat *seat = &pipeline->seats[stream->worker];
    struct fetch_stats reads;
    fetch_stats(seat->fetch, &reads);
    double percent = 100 * why->share;
    unsigned cost_us = pipeline_core_cost_ns(pipeline->core, stream->worker) / 1000;
    switch (reason) {
    case PIPELINE_REASON_NONE:
        snprintf(why->evidence, sizeof why->evidence,
                 "the stream has ended, or has only just begun");
        break;
    case PIPELINE_REASON_OPENING:
        snprintf(why->evidence, sizeof why->evidence,
                 "%.0f %% of the time its worker was being started or had not taken it yet%s%s",
                 percent, seat->note[0] ? "; " : "", seat->note);
        snprintf(why->advice, sizeof why->advice, "%s",
                 seat->note[0] ? "look at the log for what the worker died of"
                               : "look at the worker's process: is it stopped?");
        break;
    case PIPELINE_REASON_RANK:
        snprintf(why->evidence, sizeof why->evidence,
                 "the rank: %.0f %% of the time it had batches waiting for it (of %u slots)",
                 percent, stream->slots);
        snprintf(why->advice, sizeof why->advice, "nothing: data is not the bottleneck");
        break;
    case PIPELINE_REASON_READS:
        snprintf(why->evidence, sizeof why->evidence,
                 "reads: %.0f %% of the time its next batch waited for files; %u of %u reads in "
                 "flight, the oldest for %llu ms",
                 percent, pipeline_core_fetching(pipeline->core, stream->worker),
                 pipeline->fetch_depth, (unsigned long long)(reads.longest_wait_ns / NS_PER_MS));
        read_words(stream, why->advice, sizeof why->advice);
        break;
    case PIPELINE_REASON_MEMORY:
        snprintf(why->evidence, sizeof why->evidence,
                 "memory: %.0f %% of the time its next batch waited for room for blobs; %llu of "
                 "%llu bytes are taken",
                 percent,
                 (unsigned long long)pipeline_core_arena_used(pipeline->core, stream->worker),
                 (unsigned long long)pipeline->arena_bytes);
        snprintf(why->advice, sizeof why->advice, "raise fetch.memory (and `memory`)");
        break;
    case PIPELINE_REASON_DECODE:
        snprintf(why->evidence, sizeof why->evidence,
                 "decode: %.0f %% of the time its next batch waited for decoding; %u threads, %u "
                 "rows handed over, %u us a row",
                 percent, pipeline->threads, pipeline_core_decoding(pipeline->core, stream->worker),
                 cost_us);
        snprintf(why->advice, sizeof why->advice, "%s",
                 silent_s(stream) > 0
                     ? "look at the worker's process: is it stopped, or without a CPU?"
                     : "more decoding threads (threads.decode), or smaller pictures");
        break;
    case PIPELINE_REASON_COUNT:
        break;
    }
}

/* What a stream waits for that is not open yet. */
static void opening_words(const struct pipeline_stream *stream, char *text, size_t bytes)
{
    if (stream->phase != STREAM_LISTING)
        snprintf(text, bytes, "memory for its ring");
    else if (!pipeline_progress_words(&stream->dataset->progress, text, bytes))
        snprintf(text, bytes, "the list of the dataset's samples");
}

void pipeline_stream_why(const struct pipeline_stream *stream, struct pipeline_why *ret_why)
{
    *ret_why = (struct pipeline_why){0};
    enum pipeline_reason reason = worst(&stream->times);
    snprintf(ret_why->bottleneck, sizeof ret_why->bottleneck, "%s", reason_names[reason]);
    if (stream->times.all_s > 0)
        ret_why->share = stream->times.reason_s[reason] / stream->times.all_s;
    if (stream->phase != STREAM_OPEN) {
        char words[96];
        snprintf(ret_why->bottleneck, sizeof ret_why->bottleneck, "opening");
        opening_words(stream, words, sizeof words);
        snprintf(ret_why->evidence, sizeof ret_why->evidence, "%s: %s",
                 stream->dataset->config.name, words);
        ret_why->share = 1;
        return;
    }
    evidence(stream, reason, ret_why);
}

static void decode_words(const struct pipeline_stream *stream, char *text, size_t bytes)
{
    const struct pipeline *pipeline = stream->pipeline;
    uint32_t rows = pipeline_core_decoding(pipeline->core, stream->worker);
    double silence_s = silent_s(stream);
    if (silence_s > 0)
        snprintf(text, bytes,
                 "decoding: the worker (process %d) has %u rows and finished none for %.0f s: it "
                 "is stopped, or a picture takes that long",
                 (int)pipeline_worker_pid(pipeline->seats[stream->worker].worker), rows, silence_s);
    else
        snprintf(text, bytes, "decoding: %u rows handed over to %u threads", rows,
                 pipeline->threads);
}

/* Of a stream that is at its end: batches may still lie there. */
static void none_words(const struct pipeline_stream_view *view, char *text, size_t bytes)
{
    unsigned left = (unsigned)(view->published - view->released);
    if (view->ended && left > 0)
        snprintf(text, bytes, "the rank: all is made, and %u batch%s for the rank, ready or held",
                 left, left == 1 ? " waits" : "es wait");
    else
        snprintf(text, bytes, "%s", view->ended ? "nothing: it has ended" : "");
}

static void waiting_words(const struct pipeline_stream *stream,
                          const struct pipeline_stream_view *view, char *text, size_t bytes)
{
    const struct pipeline *pipeline = stream->pipeline;
    const struct pipeline_seat *seat = &pipeline->seats[stream->worker];
    switch (view->reason) {
    case PIPELINE_REASON_NONE:
        none_words(view, text, bytes);
        break;
    case PIPELINE_REASON_OPENING:
        if (seat->worker && seat->was_ready)
            snprintf(text, bytes, "its worker (process %d) has not taken it yet",
                     (int)pipeline_worker_pid(seat->worker));
        else
            snprintf(text, bytes, "its worker is being started%s%s", seat->note[0] ? ": " : "",
                     seat->note);
        break;
    case PIPELINE_REASON_RANK:
        snprintf(text, bytes, "the rank: %u of %u slots are ready or held",
                 (unsigned)(view->published - view->released), stream->slots);
        break;
    case PIPELINE_REASON_READS:
        waiting_read(stream, text, bytes);
        break;
    case PIPELINE_REASON_MEMORY:
        snprintf(text, bytes,
                 "room for blobs in memory (fetch.memory): %llu of %llu bytes are taken",
                 (unsigned long long)pipeline_core_arena_used(pipeline->core, stream->worker),
                 (unsigned long long)pipeline->arena_bytes);
        break;
    case PIPELINE_REASON_DECODE:
        decode_words(stream, text, bytes);
        break;
    case PIPELINE_REASON_COUNT:
        break;
    }
}

void pipeline_stream_status(const struct pipeline_stream *stream,
                            struct pipeline_stream_status *ret_status)
{
    *ret_status = (struct pipeline_stream_status){.number = stream->number + 1,
                                                  .dataset = stream->dataset->config.name,
                                                  .job = stream->job,
                                                  .plan_id = stream->plan_id_text,
                                                  .rank = stream->rank,
                                                  .world = stream->world,
                                                  .slots = stream->slots,
                                                  .pid = stream->pid,
                                                  .uid = stream->uid,
                                                  .memory_bytes = stream->memory_bytes};
    memcpy(ret_status->state, stream->last_state, sizeof stream->last_state);
    if (stream->phase == STREAM_LISTING)
        ret_status->number = 0;
    if (stream->phase != STREAM_OPEN) {
        opening_words(stream, ret_status->waiting_for, sizeof ret_status->waiting_for);
        return;
    }
    struct pipeline_stream_view view;
    pipeline_core_stream(stream->pipeline->core, stream->number, &view);
    ret_status->epoch = view.next_batch.epoch;
    ret_status->step = view.next_batch.step;
    ret_status->ready_slots = (uint32_t)(view.published - view.released);
    ret_status->batches = view.published;
    ret_status->samples = view.samples;
    ret_status->samples_per_s = stream->times.samples_per_s;
    ret_status->starved_ratio =
        stream->times.all_s > 0 ? stream->times.starved_s / stream->times.all_s : 0;
    memcpy(ret_status->failures, view.failures, sizeof view.failures);
    waiting_words(stream, &view, ret_status->waiting_for, sizeof ret_status->waiting_for);
}
