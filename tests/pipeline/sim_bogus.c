/* Events that no true world reports: each must be refused, and nothing may change by it. */
#include <errno.h>
#include <string.h>

#include "tests/pipeline/sim.h"

/* All that can be seen of the core from outside. */
static uint64_t digest(const struct sim *sim)
{
    uint64_t sum = pipeline_core_memory_used(sim->core);
    for (uint32_t i = 0; i < SIM_WORKERS; i++) {
        sum = sim_mix(sum + pipeline_core_cost_ns(sim->core, i),
                      pipeline_core_decoding(sim->core, i));
        sum = sim_mix(sum + pipeline_core_arena_used(sim->core, i),
                      pipeline_core_fetching(sim->core, i));
    }
    for (uint32_t i = 0; i < SIM_STREAMS_MAX; i++) {
        if (!sim->streams[i].used)
            continue;
        struct pipeline_stream_view view;
        pipeline_core_stream(sim->core, i, &view);
        sum = sim_mix(sim_mix(sum, view.published), sim_mix(view.released, view.next_sequence));
        sum = sim_mix(sim_mix(sum, view.free_slots), sim_mix(view.held_slots, view.samples));
        sum = sim_mix(sim_mix(sum, (uint64_t)view.reason), view.ended);
        for (uint32_t c = 0; c < SPDL_CLASS_COUNT; c++)
            sum = sim_mix(sum, view.failures[c]);
    }
    return sum;
}

/* A completion that is not due: over already, another kind's, another worker's, of no class, of no
 * ticket that ever was. */
static bool completion(struct sim *sim, struct pipeline_event *event)
{
    const struct sim_op *now = sim->op_count ? &sim->ops[sim_below(sim, sim->op_count)] : NULL;
    const struct sim_op *old = NULL;
    if (sim->stale_count > 0)
        old = &sim->stale[sim_below(sim, sim->stale_count < SIM_STALE_MAX ? sim->stale_count
                                                                          : SIM_STALE_MAX)];
    event->class_number = SPDL_CLASS_OK;
    switch (sim_below(sim, 5)) {
    case 0:
        if (!old)
            return false;
        event->kind = old->fetch ? PIPELINE_EVENT_FETCHED : PIPELINE_EVENT_DECODED;
        event->ticket = old->ticket;
        event->worker = old->worker;
        return true;
    case 1:
        if (!now)
            return false;
        event->kind = now->fetch ? PIPELINE_EVENT_DECODED : PIPELINE_EVENT_FETCHED;
        event->ticket = now->ticket;
        event->worker = now->worker;
        return true;
    case 2:
        if (!now || now->fetch)
            return false;
        event->kind = PIPELINE_EVENT_DECODED;
        event->ticket = now->ticket;
        event->worker = sim_chance(sim, 500) ? now->worker + 1 : PIPELINE_WORKERS_MAX;
        return true;
    case 3:
        if (!now)
            return false;
        event->kind = now->fetch ? PIPELINE_EVENT_FETCHED : PIPELINE_EVENT_DECODED;
        event->ticket = now->ticket;
        event->worker = now->worker;
        event->class_number = (enum spdl_class)SPDL_CLASS_COUNT;
        return true;
    default:
        event->kind = sim_chance(sim, 500) ? PIPELINE_EVENT_FETCHED : PIPELINE_EVENT_DECODED;
        event->ticket = sim_below(sim, 2) << 32 |
                        ((SIM_WORKERS + sim_below(sim, PIPELINE_WORKERS_MAX)) * PIPELINE_OPS_MAX +
                         sim_below(sim, 3));
        return true;
    }
}

static bool is_held(const struct sim_stream *stream, uint64_t sequence)
{
    for (uint32_t i = 0; i < stream->slot_count; i++)
        if (stream->slots[i].held && stream->slots[i].sequence == sequence)
            return true;
    return false;
}

/* Of a stream that is there, but not so far or farther. */
static bool out_of_turn(struct sim *sim, struct pipeline_event *event)
{
    event->stream = (uint32_t)sim_below(sim, SIM_STREAMS_MAX);
    const struct sim_stream *stream = &sim->streams[event->stream];
    if (!stream->used)
        return false;
    switch (sim_below(sim, 4)) {
    case 0:
        event->kind = PIPELINE_EVENT_ATTACHED;
        return stream->attach == SIM_ATTACH_NONE || stream->attach == SIM_ATTACH_DONE;
    case 1:
        event->kind = PIPELINE_EVENT_DETACHED;
        return stream->attach != SIM_ATTACH_DETACHING;
    case 2: /* given back before, or not yet published, or never to be */
        event->kind = PIPELINE_EVENT_RELEASE;
        event->sequence = stream->published + sim_below(sim, 9) - 4;
        return !is_held(stream, event->sequence);
    default: /* a stranger's, whose stream is far from here */
        event->kind = PIPELINE_EVENT_RELEASE;
        event->sequence = sim_below(sim, UINT64_MAX);
        return !is_held(stream, event->sequence);
    }
}

static bool of_nothing(struct sim *sim, struct pipeline_event *event)
{
    static const enum pipeline_event_kind kinds[] = {
        PIPELINE_EVENT_START, PIPELINE_EVENT_ATTACHED, PIPELINE_EVENT_RELEASE,
        PIPELINE_EVENT_CLOSE, PIPELINE_EVENT_UNMAPPED, PIPELINE_EVENT_DETACHED,
        PIPELINE_EVENT_FAIL};
    switch (sim_below(sim, 4)) {
    case 0:
        event->stream = (uint32_t)sim_below(sim, SIM_STREAMS_MAX);
        event->kind = kinds[sim_below(sim, sizeof kinds / sizeof kinds[0])];
        return !sim->streams[event->stream].used;
    case 1:
        event->stream = PIPELINE_STREAMS_MAX - (uint32_t)sim_below(sim, 2);
        event->kind = kinds[sim_below(sim, sizeof kinds / sizeof kinds[0])];
        return true;
    case 2:
        event->worker = PIPELINE_WORKERS_MAX + (uint32_t)sim_below(sim, 2);
        event->kind = sim_chance(sim, 500) ? PIPELINE_EVENT_WORKER_UP : PIPELINE_EVENT_WORKER_DOWN;
        return true;
    default: {
        unsigned number = sim_chance(sim, 500) ? 0 : PIPELINE_EVENT_WORKER_DOWN + 1;
        memcpy(&event->kind, &number, sizeof event->kind);
        return true;
    }
    }
}

bool sim_bogus(struct sim *sim)
{
    struct pipeline_event event = {0};
    bool made = false;
    sim_carry_out(sim, UINT32_MAX);
    switch (sim_below(sim, 3)) {
    case 0:
        made = completion(sim, &event);
        break;
    case 1:
        made = out_of_turn(sim, &event);
        break;
    default:
        made = of_nothing(sim, &event);
        break;
    }
    if (!made)
        return false;
    sim->totals->bogus++;
    uint64_t before = digest(sim);
    struct pipeline_row_ref ref = {77, 77, 77, true, 77, 77};
    sim_feed(sim, &event, -EPROTO, &ref);
    if (ref.stream != 77 || ref.slot != 77 || ref.row != 77)
        sim_fail(sim, "a refused event leads somewhere");
    struct pipeline_row_ref gone;
    if (sim->stale_count > 0 &&
        pipeline_core_ticket_ref(sim->core, sim->stale[0].ticket, &gone) == 0)
        sim_fail(sim, "a ticket that is over leads somewhere");
    if (sim_carry_out(sim, UINT32_MAX) > 0 || digest(sim) != before)
        sim_fail(sim, "a refused event has changed something");
    return true;
}
