/* Questions to the daemon: config, and what the other verbs share. */
#include "client/ctl/ctl_query.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/ctl_json.h"
#include "client/ctl/ctl_stream.h"
#include "client/ctl/ctl_verbs.h"

int ctl_query_code(int rc)
{
    if (rc == -EPIPE || rc == -ETIMEDOUT || rc == -ECONNREFUSED)
        return CTL_EXIT_NO_DAEMON;
    if (rc == -EACCES || rc == -EPERM || rc == -ENOSPC)
        return CTL_EXIT_REFUSED;
    return rc == -EINVAL ? CTL_EXIT_USAGE : CTL_EXIT_FAILED;
}

static int query_failed(struct spdl_connection *connection, int rc)
{
    const char *said = spdl_connection_error(connection);
    const char *sentence = *said ? said : strerror(-rc);
    /* A daemon that is gone, or something that it looked for and did not find. */
    bool absent = rc == -ENOENT && strcmp(spdl_client_error_class(connection), "DAEMON_GONE") == 0;
    return ctl_fail(absent ? CTL_EXIT_NO_DAEMON : ctl_query_code(rc), "%s", sentence);
}

int ctl_query_end(struct spdl_connection *connection, int rc, Spdl__V1__ToClient__BodyCase wanted,
                  Spdl__V1__ToClient **reply)
{
    if (rc < 0)
        return query_failed(connection, rc);
    if ((*reply)->body_case != wanted) {
        spdl__v1__to_client__free_unpacked(*reply, NULL);
        *reply = NULL;
        return ctl_fail(CTL_EXIT_FAILED, "the daemon answered with another message than asked for; "
                                         "it may be of another version");
    }
    return 0;
}

int ctl_query(struct spdl_connection *connection, Spdl__V1__ToDaemon *request,
              Spdl__V1__ToClient__BodyCase wanted, Spdl__V1__ToClient **ret_reply)
{
    int rc = spdl_client_query(connection, request, ret_reply);
    return ctl_query_end(connection, rc, wanted, ret_reply);
}

int ctl_query_status(const struct ctl_options *options, Spdl__V1__ToClient **ret_reply)
{
    struct spdl_connection *connection = NULL;
    Spdl__V1__StatusRequest question = SPDL__V1__STATUS_REQUEST__INIT;
    Spdl__V1__ToDaemon request = SPDL__V1__TO_DAEMON__INIT;
    request.body_case = SPDL__V1__TO_DAEMON__BODY_STATUS;
    request.status = &question;
    int code = ctl_connect(options, &connection);
    if (code == 0)
        code = ctl_query(connection, &request, SPDL__V1__TO_CLIENT__BODY_STATUS, ret_reply);
    spdl_disconnect(connection);
    return code;
}

int ctl_print(struct ctl_text *text)
{
    int rc = ctl_text_write(text, STDOUT_FILENO);
    ctl_text_fini(text);
    if (rc == 0)
        return CTL_EXIT_DONE;
    return rc == -EPIPE ? CTL_EXIT_FAILED
                        : ctl_fail(CTL_EXIT_FAILED, "standard output: %s", strerror(-rc));
}

static void pending_json(struct ctl_text *text, const Spdl__V1__ConfigReply *reply)
{
    ctl_json_key(text, "pending");
    ctl_changes_json(text, reply->pending, reply->n_pending);
    ctl_json_key(text, "complaints");
    ctl_json_open(text, '[');
    for (size_t i = 0; i < reply->n_complaints; i++)
        ctl_json_string(text, reply->complaints[i]);
    ctl_json_close(text, ']');
}

/* As comments: what is printed stays YAML. */
static void pending_people(struct ctl_text *text, const Spdl__V1__ConfigReply *reply)
{
    if (reply->n_pending > 0)
        ctl_text_str(text, "# `spdlctl reload` would change:\n");
    ctl_changes_people(text, "#   ", reply->pending, reply->n_pending);
    for (size_t i = 0; i < reply->n_complaints; i++)
        ctl_text_printf(text, "# `spdlctl reload` is refused: %s\n", reply->complaints[i]);
}

int ctl_config(const struct ctl_options *options)
{
    struct spdl_connection *connection = NULL;
    Spdl__V1__ConfigRequest question = SPDL__V1__CONFIG_REQUEST__INIT;
    Spdl__V1__ToDaemon request = SPDL__V1__TO_DAEMON__INIT;
    Spdl__V1__ToClient *reply = NULL;
    question.only_differences = options->diff;
    request.body_case = SPDL__V1__TO_DAEMON__BODY_CONFIG;
    request.config = &question;
    int code = ctl_connect(options, &connection);
    if (code == 0)
        code = ctl_query(connection, &request, SPDL__V1__TO_CLIENT__BODY_CONFIG, &reply);
    spdl_disconnect(connection);
    if (code != 0 || !reply)
        return code;
    struct ctl_text text = {0};
    const char *yaml = reply->config->yaml;
    if (options->json) {
        ctl_json_open(&text, '{');
        ctl_json_key_string(&text, "yaml", yaml);
        if (options->diff)
            pending_json(&text, reply->config);
        ctl_json_close(&text, '}');
        ctl_text_str(&text, "\n");
    } else {
        ctl_text_str(&text, yaml);
        if (text.bytes && text.data[text.bytes - 1] != '\n')
            ctl_text_str(&text, "\n");
        pending_people(&text, reply->config);
    }
    spdl__v1__to_client__free_unpacked(reply, NULL);
    return ctl_print(&text);
}
