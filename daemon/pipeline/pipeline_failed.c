/* What of a dataset failed goes into its quarantine, and comes out of it in pages. Conductor role.
 */
#include <string.h>
#include <time.h>

#include "pipeline/pipeline_state.h"

void pipeline_dataset_failed(struct pipeline_dataset *dataset, uint64_t id,
                             enum spdl_class class_number, uint64_t fault, const char *message)
{
    struct source_sample sample;
    if (pipeline_dataset_damaged(dataset))
        return;
    source_sample(dataset->source, id, &sample);
    struct pipeline_quarantined bad = {.key = sample.key,
                                       .key_bytes = sample.key_bytes,
                                       .path = "",
                                       .fault = UINT64_MAX,
                                       .class_number = class_number,
                                       .message = message};
    for (uint32_t i = 0; i < sample.part_count; i++)
        if (sample.parts[i].kind == SOURCE_PART_FILE) {
            bad.path = sample.parts[i].path;
            bad.offset = sample.parts[i].offset;
            if (fault != UINT64_MAX)
                bad.fault = bad.offset + fault;
            break;
        }
    pipeline_quarantine_note(&dataset->quarantine, &bad, (int64_t)time(NULL));
    dataset->keep.quarantine_changed = true;
}

void pipeline_dataset_left_out(struct pipeline_dataset *dataset)
{
    uint32_t before = pipeline_quarantine_count(dataset->quarantine);
    uint64_t broken = source_counts(dataset->source)->broken;
    for (uint64_t i = 0; i < broken && i < PIPELINE_QUARANTINE_MAX; i++) {
        struct source_fault fault;
        source_fault(dataset->source, i, &fault);
        struct pipeline_quarantined bad = {.key = fault.key,
                                           .key_bytes = fault.key_bytes,
                                           .path = fault.path,
                                           .offset = fault.offset,
                                           .fault = UINT64_MAX,
                                           .class_number = (enum spdl_class)fault.class_number,
                                           .message = fault.message};
        pipeline_quarantine_note_once(&dataset->quarantine, &bad, (int64_t)time(NULL));
    }
    if (pipeline_quarantine_count(dataset->quarantine) != before)
        dataset->keep.quarantine_changed = true;
}

uint32_t pipeline_quarantine_list(const struct pipeline *pipeline, const char *dataset,
                                  uint64_t start, struct pipeline_quarantine_page *ret_page)
{
    uint32_t count = 0;
    ret_page->total = ret_page->left_out = 0;
    for (const struct pipeline_dataset *at = pipeline->datasets; at; at = at->next) {
        if (dataset[0] && strcmp(dataset, at->config.name) != 0)
            continue;
        uint32_t here = pipeline_quarantine_count(at->quarantine);
        for (uint64_t i = start > ret_page->total ? start - ret_page->total : 0;
             i < here && count < PIPELINE_QUARANTINE_PAGE; i++, count++) {
            pipeline_quarantine_at(at->quarantine, (uint32_t)i, &ret_page->samples[count]);
            ret_page->samples[count].dataset = at->config.name;
        }
        ret_page->total += here;
        ret_page->left_out += pipeline_quarantine_left_out(at->quarantine);
    }
    return count;
}
