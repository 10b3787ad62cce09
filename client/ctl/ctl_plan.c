/* spdlctl plan: what a stream would read, in which order, with how much memory. */
#include <inttypes.h>
#include <string.h>

#include "client/ctl/ctl_json.h"
#include "client/ctl/ctl_query.h"
#include "client/ctl/ctl_stream.h"
#include "client/ctl/ctl_table.h"
#include "client/ctl/ctl_verbs.h"

enum { PLAN_BATCH = 64 };

static void plan_rows_json(struct ctl_text *text, const Spdl__V1__PlanReply *plan)
{
    ctl_json_key(text, "first");
    ctl_json_open(text, '[');
    for (size_t i = 0; i < plan->n_rows; i++) {
        const Spdl__V1__PlanRow *row = plan->rows[i];
        ctl_json_open(text, '{');
        ctl_json_key_unsigned(text, "position", row->position);
        ctl_json_key_unsigned(text, "id", row->id);
        ctl_json_key_unsigned(text, "bytes", row->bytes);
        ctl_json_key(text, "key");
        ctl_json_bytes(text, row->key.data, row->key.len);
        ctl_json_close(text, '}');
    }
    ctl_json_close(text, ']');
}

static void plan_json(struct ctl_text *text, const Spdl__V1__PlanReply *plan)
{
    ctl_json_open(text, '{');
    ctl_json_key_string(text, "dataset", plan->dataset);
    ctl_json_key_string(text, "source", plan->source);
    ctl_json_key_string(text, "plan_id", plan->plan_id);
    ctl_json_key_string(text, "shuffle", plan->shuffle);
    ctl_json_key_unsigned(text, "block_samples", plan->block_samples);
    ctl_json_key_unsigned(text, "lanes", plan->lanes);
    ctl_json_key_unsigned(text, "seed", plan->seed);
    ctl_json_key_string(text, "last", plan->last);
    ctl_json_key_unsigned(text, "epoch", plan->epoch);
    ctl_json_key_unsigned(text, "step", plan->step);
    ctl_json_key_unsigned(text, "samples", plan->samples);
    ctl_json_key_unsigned(text, "steps_per_epoch", plan->steps_per_epoch);
    ctl_json_key_unsigned(text, "batch", plan->batch);
    ctl_json_key_unsigned(text, "rank", plan->rank);
    ctl_json_key_unsigned(text, "world", plan->world);
    ctl_json_key_unsigned(text, "shards", plan->shards);
    ctl_json_key_unsigned(text, "shards_open", plan->shards_open);
    ctl_json_key_unsigned(text, "epoch_bytes", plan->epoch_bytes);
    ctl_json_key(text, "estimated");
    ctl_json_bool(text, plan->is_estimate);
    ctl_json_key_unsigned(text, "largest_bytes", plan->largest_bytes);
    ctl_json_key_unsigned(text, "slots", plan->slots);
    ctl_json_key_unsigned(text, "slot_bytes", plan->slot_bytes);
    ctl_json_key_unsigned(text, "table_bytes", plan->table_bytes);
    ctl_json_key_unsigned(text, "stream_bytes", plan->stream_bytes);
    ctl_json_key_unsigned(text, "memory_limit", plan->memory_limit);
    ctl_json_key_unsigned(text, "memory_used", plan->memory_used);
    ctl_json_key_unsigned(text, "unit_memory", plan->unit_bytes);
    ctl_json_key_string(text, "warning", plan->warning);
    plan_rows_json(text, plan);
    ctl_json_close(text, '}');
    ctl_text_str(text, "\n");
}

static void plan_size(struct ctl_text *text, const char *before, uint64_t bytes, const char *behind)
{
    ctl_text_str(text, before);
    ctl_text_size(text, bytes);
    ctl_text_str(text, behind);
}

static void plan_order(struct ctl_text *text, const Spdl__V1__PlanReply *plan)
{
    ctl_text_str(text, "order      ");
    ctl_text_safe(text, plan->shuffle, strlen(plan->shuffle));
    if (plan->block_samples)
        ctl_text_printf(text, ", windows of %" PRIu64 " samples", plan->block_samples);
    if (plan->lanes > 1)
        ctl_text_printf(text, ", %u lanes", plan->lanes);
    ctl_text_printf(text, ", seed %" PRIu64 ", last ", plan->seed);
    ctl_text_safe(text, plan->last, strlen(plan->last));
    ctl_text_printf(text,
                    "\n           epoch %u, step %" PRIu64 " first; %" PRIu64 " steps of %" PRIu64
                    " samples an epoch, %" PRIu64 " for each rank of %u\n",
                    plan->epoch, plan->step, plan->steps_per_epoch, plan->batch,
                    plan->world ? plan->batch / plan->world : plan->batch, plan->world);
    if (plan->shards > 1 || plan->block_samples)
        ctl_text_printf(text, "shards     %u, of which %u are read at a time\n", plan->shards,
                        plan->shards_open);
}

static void plan_memory(struct ctl_text *text, const Spdl__V1__PlanReply *plan)
{
    uint64_t left =
        plan->memory_limit > plan->memory_used ? plan->memory_limit - plan->memory_used : 0;
    plan_size(text, "memory     ", plan->stream_bytes, " for each rank's stream: ");
    ctl_text_printf(text, "%u slots of ", plan->slots);
    plan_size(text, "", plan->slot_bytes, "");
    if (plan->table_bytes)
        plan_size(text, ", tables of shards ", plan->table_bytes, "");
    plan_size(text, "\n           ", left, " of the daemon's ");
    plan_size(text, "", plan->memory_limit, " are free");
    ctl_text_str(text, plan->stream_bytes > left ? ": TOO LITTLE\n" : "\n");
    ctl_text_printf(text,
                    "           MemoryMax=%" PRIu64
                    "M in a unit holds `memory`, one user's decoding "
                    "(limits.worker) and spdld itself\n",
                    (plan->unit_bytes + (1u << 20) - 1) >> 20);
    ctl_text_str(text, "cache      none: each epoch reads everything again\n");
}

static void plan_people(struct ctl_text *text, const Spdl__V1__PlanReply *plan)
{
    ctl_text_str(text, "dataset    ");
    ctl_text_safe(text, plan->dataset, strlen(plan->dataset));
    ctl_text_printf(text, ": %" PRIu64 " samples, ", plan->samples);
    ctl_text_safe(text, plan->source, strlen(plan->source));
    ctl_text_str(text, "\nplan id    ");
    ctl_text_safe(text, plan->plan_id, strlen(plan->plan_id));
    ctl_text_str(text, "\n");
    plan_order(text, plan);
    plan_size(text, plan->is_estimate ? "reads      about " : "reads      ", plan->epoch_bytes,
              " an epoch, by all ranks together; largest sample ");
    plan_size(text, "", plan->largest_bytes, "\n");
    plan_memory(text, plan);
    if (*plan->warning) {
        ctl_text_str(text, "warning    ");
        ctl_text_safe(text, plan->warning, strlen(plan->warning));
        ctl_text_str(text, "\n");
    }
    ctl_text_printf(text, "first      of rank %u:\n", plan->rank);
    for (size_t i = 0; i < plan->n_rows; i++) {
        const Spdl__V1__PlanRow *row = plan->rows[i];
        ctl_text_printf(text, "           position %" PRIu64 ": sample %" PRIu64 ", ",
                        row->position, row->id);
        ctl_text_safe(text, row->key.data, row->key.len);
        plan_size(text, ", ", row->bytes, "\n");
    }
}

/* Fills the question; strings are borrowed from the options and from `yaml`. */
static int plan_ask(const struct ctl_options *options, char *yaml,
                    struct spdl_connection *connection, Spdl__V1__ToClient **ret_reply)
{
    char name[256] = "";
    char state[512] = "";
    Spdl__V1__Place place = SPDL__V1__PLACE__INIT;
    Spdl__V1__Open open;
    Spdl__V1__PlanRequest question = SPDL__V1__PLAN_REQUEST__INIT;
    Spdl__V1__ToDaemon request = SPDL__V1__TO_DAEMON__INIT;
    const char *from[] = {options->source ? "" : options->operands[0],
                          options->state ? options->state : ""};
    spdl__v1__open__init(&open);
    if (strlen(from[0]) >= sizeof name)
        return ctl_fail(CTL_EXIT_USAGE, "plan: no dataset has so long a name");
    if (strlen(from[1]) >= sizeof state)
        return ctl_fail(CTL_EXIT_USAGE, "--state is too long to be one");
    memcpy(name, from[0], strlen(from[0]) + 1);
    memcpy(state, from[1], strlen(from[1]) + 1);
    open.dataset = name;
    open.dataset_yaml = yaml;
    open.batch = options->batch ? options->batch : PLAN_BATCH;
    open.rank = (uint32_t)options->rank;
    open.world = (uint32_t)options->world;
    open.slots = (uint32_t)options->slots;
    if (options->has_seed) {
        open.seed_choice_case = SPDL__V1__OPEN__SEED_CHOICE_SEED;
        open.seed = options->seed;
    }
    place.epoch = (uint32_t)options->epoch;
    place.step = options->step;
    open.from_case = *state ? SPDL__V1__OPEN__FROM_STATE : SPDL__V1__OPEN__FROM_PLACE;
    if (*state)
        open.state = state;
    else
        open.place = &place;
    question.open = &open;
    request.body_case = SPDL__V1__TO_DAEMON__BODY_PLAN;
    request.plan = &question;
    int rc = spdl_client_query(connection, &request, ret_reply);
    if (rc < 0)
        return ctl_open_failed(options, connection, rc);
    if ((*ret_reply)->body_case == SPDL__V1__TO_CLIENT__BODY_PLAN)
        return 0;
    spdl__v1__to_client__free_unpacked(*ret_reply, NULL);
    return ctl_fail(CTL_EXIT_FAILED, "the daemon answered with another message than asked for; "
                                     "it may be of another version");
}

int ctl_plan(const struct ctl_options *options)
{
    struct spdl_connection *connection = NULL;
    Spdl__V1__ToClient *reply = NULL;
    struct ctl_text text = {0};
    if (options->state && (options->has_epoch || options->has_step))
        return ctl_fail(CTL_EXIT_USAGE, "--state says the epoch and the step itself");
    int code = ctl_stream_check(options, PLAN_BATCH);
    if (code == 0 && options->source)
        code = ctl_source_yaml(options->source, options->preset, &text);
    ctl_text_put(&text, "", 1);
    if (code == 0 && text.failed)
        code = ctl_fail(CTL_EXIT_FAILED, "out of memory");
    if (code == 0)
        code = ctl_connect(options, &connection);
    if (code == 0)
        code = plan_ask(options, text.data, connection, &reply);
    spdl_disconnect(connection);
    ctl_text_clear(&text);
    if (code != 0 || !reply) {
        ctl_text_fini(&text);
        return code;
    }
    if (options->json)
        plan_json(&text, reply->plan);
    else
        plan_people(&text, reply->plan);
    spdl__v1__to_client__free_unpacked(reply, NULL);
    return ctl_print(&text);
}
