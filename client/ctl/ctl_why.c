/* spdlctl why: for each stream a sentence that names what it spends its time waiting for, the
 * evidence, and what to do. */
#include <inttypes.h>
#include <string.h>

#include "client/ctl/ctl_json.h"
#include "client/ctl/ctl_query.h"
#include "client/ctl/ctl_stream.h"
#include "client/ctl/ctl_verbs.h"

static void why_json(struct ctl_text *text, const Spdl__V1__Why *why)
{
    ctl_json_open(text, '{');
    ctl_json_key_unsigned(text, "stream", why->stream);
    ctl_json_key_string(text, "dataset", why->dataset);
    ctl_json_key_unsigned(text, "rank", why->rank);
    ctl_json_key_unsigned(text, "world", why->world);
    ctl_json_key_string(text, "waiting_for", why->waiting_for);
    ctl_json_key_string(text, "bottleneck", why->bottleneck);
    ctl_json_key_double(text, "share", why->share, 4);
    ctl_json_key_string(text, "evidence", why->evidence);
    ctl_json_key_string(text, "advice", why->advice);
    ctl_json_close(text, '}');
}

static void why_line(struct ctl_text *text, const char *before, const char *sentence)
{
    if (!*sentence)
        return;
    ctl_text_str(text, before);
    ctl_text_safe(text, sentence, strlen(sentence));
    ctl_text_str(text, "\n");
}

static void why_people(struct ctl_text *text, const Spdl__V1__Why *why)
{
    ctl_text_printf(text, "stream %" PRIu64 " (", why->stream);
    ctl_text_safe(text, why->dataset, strlen(why->dataset));
    ctl_text_printf(text, "%srank %u of %u): ", *why->dataset ? ", " : "", why->rank, why->world);
    if (strcmp(why->bottleneck, "none") == 0 || !*why->bottleneck) {
        ctl_text_str(text, "nothing holds it up\n");
    } else {
        ctl_text_str(text, "the bottleneck is ");
        ctl_text_safe(text, why->bottleneck, strlen(why->bottleneck));
        ctl_text_printf(text, ", %.0f %% of the time\n", why->share * 100);
    }
    why_line(text, "  evidence: ", why->evidence);
    why_line(text, "  now:      ", why->waiting_for);
    why_line(text, "  advice:   ", why->advice);
}

int ctl_why(const struct ctl_options *options)
{
    uint64_t only = 0;
    if (options->operand_count && !ctl_parse_unsigned(options->operands[0], UINT64_MAX, &only))
        return ctl_fail(CTL_EXIT_USAGE, "why %s: STREAM is a number of `spdlctl streams`",
                        options->operands[0]);
    struct spdl_connection *connection = NULL;
    Spdl__V1__WhyRequest question = SPDL__V1__WHY_REQUEST__INIT;
    Spdl__V1__ToDaemon request = SPDL__V1__TO_DAEMON__INIT;
    Spdl__V1__ToClient *reply = NULL;
    question.all = true;
    request.body_case = SPDL__V1__TO_DAEMON__BODY_WHY;
    request.why = &question;
    int code = ctl_connect(options, &connection);
    if (code == 0)
        code = ctl_query(connection, &request, SPDL__V1__TO_CLIENT__BODY_WHY, &reply);
    spdl_disconnect(connection);
    if (code != 0)
        return code;

    struct ctl_text text = {0};
    uint32_t shown = 0;
    if (options->json)
        ctl_json_open(&text, '[');
    for (size_t i = 0; i < reply->why->n_streams; i++) {
        const Spdl__V1__Why *why = reply->why->streams[i];
        if (options->operand_count && why->stream != only)
            continue;
        if (options->json)
            why_json(&text, why);
        else
            why_people(&text, why);
        shown++;
    }
    if (options->json)
        ctl_text_str(&text, "]\n");
    else if (!shown && !options->operand_count)
        ctl_text_str(&text, "no stream is open\n");
    spdl__v1__to_client__free_unpacked(reply, NULL);
    if (!shown && options->operand_count) {
        ctl_text_fini(&text);
        return ctl_fail(CTL_EXIT_FAILED, "there is no stream %" PRIu64, only);
    }
    return ctl_print(&text);
}
