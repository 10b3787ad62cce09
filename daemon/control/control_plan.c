/* The answer to a PlanRequest, made of what the pipeline worked out. */
#include <stdio.h>

#include "control/control_state.h"

static void order_fill(struct pipeline_planned *planned, Spdl__V1__PlanReply *reply)
{
    const struct config_dataset *dataset = planned->dataset;
    if (dataset->shuffle == CONFIG_SHUFFLE_BLOCK)
        reply->block_samples = dataset->block_samples;
    reply->lanes = dataset->lanes;
    reply->seed = planned->seed;
    reply->epoch = planned->epoch;
    reply->step = planned->step;
    reply->samples = planned->samples;
    reply->steps_per_epoch = planned->steps_per_epoch;
    reply->batch = planned->batch;
    reply->rank = planned->rank;
    reply->world = planned->world;
}

static void sizes_fill(const struct pipeline_planned *planned, Spdl__V1__PlanReply *reply)
{
    reply->shards = planned->shards;
    reply->shards_open = planned->shards_open;
    reply->epoch_bytes = planned->epoch_bytes;
    reply->is_estimate = planned->is_estimate;
    reply->largest_bytes = planned->largest_bytes;
    reply->slots = planned->slots;
    reply->slot_bytes = planned->slot_bytes;
    reply->table_bytes = planned->table_bytes;
    reply->stream_bytes = planned->stream_bytes;
    reply->memory_limit = planned->memory_limit;
    reply->memory_used = planned->memory_used;
    reply->unit_bytes = planned->unit_bytes;
}

void control_plan_reply(struct session *session, uint32_t request, struct pipeline_planned *planned)
{
    Spdl__V1__PlanRow rows[PIPELINE_PLAN_ROWS];
    Spdl__V1__PlanRow *row_list[PIPELINE_PLAN_ROWS];
    char name[CONFIG_NAME_BYTES], plan_id[64], shuffle[16], last[16], warning[256];
    Spdl__V1__PlanReply reply;
    spdl__v1__plan_reply__init(&reply);
    snprintf(name, sizeof name, "%s", planned->dataset->name);
    snprintf(plan_id, sizeof plan_id, "%s", planned->plan_id);
    snprintf(shuffle, sizeof shuffle, "%s", planned->shuffle);
    snprintf(last, sizeof last, "%s", planned->last);
    snprintf(warning, sizeof warning, "%s", planned->warning);
    reply.dataset = name;
    reply.source = planned->source;
    reply.plan_id = plan_id;
    reply.shuffle = shuffle;
    reply.last = last;
    reply.warning = warning;
    order_fill(planned, &reply);
    sizes_fill(planned, &reply);
    for (uint32_t r = 0; r < planned->row_count; r++) {
        struct pipeline_plan_row *row = &planned->rows[r];
        spdl__v1__plan_row__init(&rows[r]);
        rows[r].position = row->position;
        rows[r].id = row->id;
        rows[r].bytes = row->bytes;
        rows[r].key.data = row->key;
        rows[r].key.len = row->key_bytes;
        row_list[r] = &rows[r];
    }
    reply.n_rows = planned->row_count;
    reply.rows = row_list;
    Spdl__V1__ToClient message;
    spdl__v1__to_client__init(&message);
    message.id = request;
    message.body_case = SPDL__V1__TO_CLIENT__BODY_PLAN;
    message.plan = &reply;
    control_session_reply(session, &message, NULL, 0);
}
