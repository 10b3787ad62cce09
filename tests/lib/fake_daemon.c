/* A small daemon in a thread: see fake_daemon.h. One thread, one poll loop; whatever is wrong with
 * the test itself aborts. */
#include "tests/lib/fake_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "shm/shm_segment.h"

enum {
    PEERS_MAX = 32,
    STREAM_ID = 4242, /* number in the daemon */
    NUMBER = 5,       /* on the connection */
    LABEL_OFFSET = SPDL_SHM_ALIGN,
    SLOT_DATA_BYTES = 2 * SPDL_SHM_ALIGN,
    TEXT_BYTES = 256,
    ORDER_COUNT = 128,
    FIELDS_AT = 512,
    ORDER_AT = 1024,
    SLOTS_AT = 4096,
    SLOT_STRIDE = 4096 + SPDL_SHM_MESSAGES_MAX * SPDL_SHM_MESSAGE_BYTES
};

struct peer {
    int fd;
    struct spdl_proto_in in;
    struct spdl_proto_out out;
    int is_open, is_closed, is_ended;
    struct spdl_shm_segment control, data;
    int pipe_fd;
    uint32_t slots;
    uint64_t free_slots; /* a bit each */
    uint32_t slot_of[256];
    uint64_t next; /* batch to be published */
    uint64_t limit;
    uint32_t epoch;
    uint64_t step;
};

struct work {
    struct fake_daemon *fake;
    struct peer peers[PEERS_MAX];
};

static void must(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "fake daemon: %s: %s\n", what, strerror(errno));
        abort();
    }
}

uint8_t fake_byte(uint32_t epoch, uint64_t step, uint32_t row, uint32_t index)
{
    return (uint8_t)(epoch * 101 + step * 37 + row * 11 + index + 1);
}

static uint64_t control_bytes_of(uint32_t slots)
{
    return SLOTS_AT + (uint64_t)slots * SLOT_STRIDE;
}

/* From constants: the header may be made to lie. */
static struct spdl_shm_slot *slot_at(const struct peer *peer, uint32_t slot)
{
    return (void *)((unsigned char *)peer->control.base + SLOTS_AT + (size_t)slot * SLOT_STRIDE);
}

static void fill_header(struct peer *peer)
{
    struct spdl_shm_header *h = peer->control.base;
    h->magic = SPDL_SHM_MAGIC;
    h->major = SPDL_SHM_MAJOR;
    h->minor = SPDL_SHM_MINOR;
    h->control_bytes = control_bytes_of(peer->slots);
    h->data_bytes = (uint64_t)SLOT_DATA_BYTES * peer->slots;
    h->stream_id = STREAM_ID;
    h->slot_count = peer->slots;
    h->order_count = ORDER_COUNT;
    h->field_count = 2;
    h->row_count = FAKE_ROWS;
    h->fields_offset = FIELDS_AT;
    h->order_offset = ORDER_AT;
    h->slots_offset = SLOTS_AT;
    h->slot_stride = SLOT_STRIDE;
    h->slot_data_bytes = SLOT_DATA_BYTES;
    struct spdl_shm_field *fields = (void *)((unsigned char *)peer->control.base + FIELDS_AT);
    fields[0] = (struct spdl_shm_field){.name = "image",
                                        .dtype = SPDL_DTYPE_UINT8,
                                        .dim_count = 3,
                                        .dims = {2, 2, 3},
                                        .row_bytes = FAKE_IMAGE_BYTES};
    fields[1] = (struct spdl_shm_field){
        .name = "label", .dtype = SPDL_DTYPE_INT64, .row_bytes = 8, .slot_offset = LABEL_OFFSET};
    atomic_store_explicit(&h->ready, SPDL_SHM_MAGIC, memory_order_release);
}

static void step_on(uint32_t *epoch, uint64_t *step)
{
    (*step)++;
    if (*step == FAKE_STEPS) {
        *step = 0;
        (*epoch)++;
    }
}

/* Row 1 of step 3 is one that failed. */
static void fill_rows(struct peer *peer, struct spdl_shm_slot *slot, unsigned char *data)
{
    unsigned char *base = peer->control.base;
    struct spdl_shm_row *rows = (void *)(base + slot->rows_offset);
    char *text = (char *)base + slot->text_offset;
    uint32_t at = 0;
    for (uint32_t r = 0; r < FAKE_ROWS; r++) {
        int failed = slot->step == 3 && r == 1;
        char key[32];
        uint32_t key_bytes = (uint32_t)snprintf(key, sizeof(key), "k/%u-%llu-%u", slot->epoch,
                                                (unsigned long long)slot->step, r);
        memcpy(text + at, key, key_bytes);
        rows[r] = (struct spdl_shm_row){.id = slot->step * FAKE_ROWS + r,
                                        .key_offset = at,
                                        .key_bytes = key_bytes,
                                        .valid = !failed,
                                        .flags = SPDL_SHM_ROW_DRAWS | SPDL_SHM_ROW_HFLIP,
                                        .crop = {1, 2, 3, 4}};
        if (failed) {
            rows[r].failed_key_offset = at;
            rows[r].failed_key_bytes = key_bytes;
            rows[r].class_number = 3;
            rows[r].message = 1;
            memcpy(base + slot->messages_offset, "ends early", 11);
        }
        at += key_bytes;
        for (uint32_t i = 0; i < FAKE_IMAGE_BYTES; i++)
            data[r * FAKE_IMAGE_BYTES + i] = fake_byte(slot->epoch, slot->step, r, i);
        int64_t label = (int64_t)(slot->step * 10 + r);
        memcpy(data + LABEL_OFFSET + r * 8, &label, 8);
    }
}

static void fill_slot(struct peer *peer, uint32_t number)
{
    uint64_t start = SLOTS_AT + (uint64_t)number * SLOT_STRIDE;
    struct spdl_shm_slot *slot = slot_at(peer, number);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint32_t epoch = peer->epoch;
    uint64_t step = peer->step;
    *slot = (struct spdl_shm_slot){.sequence = peer->next,
                                   .epoch = epoch,
                                   .step = step,
                                   .rows = FAKE_ROWS,
                                   .valid = FAKE_ROWS - (step == 3),
                                   .error_count = step == 3,
                                   .data_offset = (uint64_t)number * SLOT_DATA_BYTES,
                                   .rows_offset = start + 1024,
                                   .text_offset = start + 2048,
                                   .text_bytes = TEXT_BYTES,
                                   .messages_offset = start + 4096,
                                   .publish_ns =
                                       (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec};
    step_on(&epoch, &step);
    int n =
        snprintf(slot->state, sizeof(slot->state), "fake:%u:%llu", epoch, (unsigned long long)step);
    slot->state_bytes = (uint32_t)n;
    slot->next_epoch = epoch;
    slot->next_step = step;
    fill_rows(peer, slot, (unsigned char *)peer->data.base + slot->data_offset);
}

static void send_reply(struct peer *peer, const Spdl__V1__ToClient *message, const int *fds,
                       int count)
{
    must(spdl_proto_queue_to_client(&peer->out, message, fds, count) == 0, "queue");
}

static void send_error(struct peer *peer, uint32_t id, int code, uint32_t class_number,
                       const char *text)
{
    char copy[128];
    snprintf(copy, sizeof(copy), "%s", text);
    Spdl__V1__Error error;
    spdl__v1__error__init(&error);
    error.code = code;
    error.class_number = class_number;
    error.message = copy;
    Spdl__V1__ToClient message = SPDL__V1__TO_CLIENT__INIT;
    message.id = id;
    message.body_case = SPDL__V1__TO_CLIENT__BODY_ERROR;
    message.error = &error;
    send_reply(peer, &message, NULL, 0);
}

static void send_end(struct peer *peer, int code, uint32_t class_number, const char *text)
{
    char copy[128];
    snprintf(copy, sizeof(copy), "%s", text);
    Spdl__V1__StreamEnd end;
    spdl__v1__stream_end__init(&end);
    end.stream = NUMBER;
    end.sequences = peer->next;
    end.code = code;
    end.class_number = class_number;
    end.message = copy;
    Spdl__V1__ToClient message = SPDL__V1__TO_CLIENT__INIT;
    message.body_case = SPDL__V1__TO_CLIENT__BODY_STREAM_END;
    message.stream_end = &end;
    send_reply(peer, &message, NULL, 0);
    peer->is_ended = 1;
}

static void peer_drop(struct peer *peer)
{
    if (peer->fd >= 0)
        close(peer->fd);
    if (peer->is_open) {
        spdl_shm_segment_destroy(&peer->control);
        spdl_shm_segment_destroy(&peer->data);
        close(peer->pipe_fd);
    }
    spdl_proto_in_fini(&peer->in);
    spdl_proto_out_fini(&peer->out);
    memset(peer, 0, sizeof(*peer));
    peer->fd = -1;
}

static void publish(struct work *work, struct peer *peer)
{
    struct fake_daemon *fake = work->fake;
    if (!peer->is_open)
        return;
    _Atomic uint64_t *order = (void *)((unsigned char *)peer->control.base + ORDER_AT);
    while (!peer->is_closed && !peer->is_ended && fake->allowed != 0) {
        if (peer->limit > 0 && peer->next == peer->limit) {
            send_end(peer, 0, 0, "");
            return;
        }
        if (fake->end_code != 0 && peer->next == fake->end_after) {
            send_end(peer, fake->end_code, 17, "the storage does not answer");
            return;
        }
        if (peer->free_slots == 0 && fake->lie != FAKE_LIE_SLOT_TWICE)
            return;
        uint32_t slot = peer->free_slots != 0 ? (uint32_t)__builtin_ctzll(peer->free_slots) : 0;
        peer->free_slots &= ~(UINT64_C(1) << slot);
        peer->slot_of[peer->next % 256] = slot;
        fill_slot(peer, slot);
        if (fake->mutate_slot)
            fake->mutate(fake->mutate_argument, peer->control.base);
        uint64_t k = peer->next++;
        step_on(&peer->epoch, &peer->step);
        if (fake->allowed > 0)
            fake->allowed--;
        fake->published++;
        atomic_store_explicit(&order[k % ORDER_COUNT], spdl_shm_order_entry(k, slot),
                              memory_order_release);
        ssize_t n = write(peer->pipe_fd, "", 1);
        (void)n; /* full: it is awake */
    }
}

static void keep_open(struct fake_daemon *fake, const Spdl__V1__Open *open)
{
    struct fake_open *kept = &fake->opens[fake->open_count % FAKE_OPENS_MAX];
    memset(kept, 0, sizeof(*kept));
    snprintf(kept->dataset, sizeof(kept->dataset), "%s", open->dataset);
    if (open->from_case == SPDL__V1__OPEN__FROM_STATE)
        snprintf(kept->state, sizeof(kept->state), "%s", open->state);
    if (open->from_case == SPDL__V1__OPEN__FROM_PLACE) {
        kept->epoch = open->place->epoch;
        kept->step = open->place->step;
    }
    kept->limit = open->limit;
    kept->batch = open->batch;
    kept->has_seed = open->seed_choice_case == SPDL__V1__OPEN__SEED_CHOICE_SEED;
    kept->seed = kept->has_seed ? open->seed : 0;
    fake->open_count++;
}

/* Makes segments and pipe; the reply's descriptors are borrowed from them. */
static void make_ring(struct fake_daemon *fake, struct peer *peer, int *ret_pipe_read)
{
    uint64_t free_bytes;
    int fds[2];
    must(spdl_shm_segment_create(&peer->control, SPDL_SHM_MEMFD, SPDL_SHM_READ_BY_OTHERS,
                                 control_bytes_of(peer->slots), 0, &free_bytes) == 0,
         "control segment");
    must(spdl_shm_segment_create(&peer->data, SPDL_SHM_MEMFD, SPDL_SHM_WRITTEN_BY_OTHERS,
                                 (uint64_t)SLOT_DATA_BYTES * peer->slots, 0, &free_bytes) == 0,
         "data segment");
    must(pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0, "pipe");
    peer->pipe_fd = fds[1];
    *ret_pipe_read = fds[0];
    fill_header(peer);
    if (fake->mutate) {
        fill_slot(peer, 0);
        fake->mutate(fake->mutate_argument, peer->control.base);
    }
}

static void handle_open(struct work *work, struct peer *peer, const Spdl__V1__ToDaemon *message)
{
    struct fake_daemon *fake = work->fake;
    const Spdl__V1__Open *open = message->open;
    keep_open(fake, open);
    if (fake->refuse_code != 0) {
        int code = fake->refuse_code;
        if (fake->refuse_count > 0 && --fake->refuse_count == 0)
            fake->refuse_code = 0;
        send_error(peer, message->id, code, 0, "the fake refuses");
        return;
    }
    peer->slots = fake->slots;
    peer->free_slots = (UINT64_C(1) << peer->slots) - 1;
    peer->limit = open->limit;
    peer->epoch = 0;
    peer->step = 0;
    if (open->from_case == SPDL__V1__OPEN__FROM_STATE) {
        unsigned long long step = 0;
        must(sscanf(open->state, "fake:%u:%llu", &peer->epoch, &step) == 2, "state");
        peer->step = step;
    } else if (open->from_case == SPDL__V1__OPEN__FROM_PLACE) {
        peer->epoch = open->place->epoch;
        peer->step = open->place->step;
    }
    int pipe_read;
    make_ring(fake, peer, &pipe_read);
    peer->is_open = 1;
    char plan_id[64], warning[] = "a warning";
    snprintf(plan_id, sizeof(plan_id), "%s", fake->plan_id);
    Spdl__V1__OpenReply reply;
    spdl__v1__open_reply__init(&reply);
    reply.stream = NUMBER;
    reply.control_bytes = control_bytes_of(peer->slots);
    reply.data_bytes = (uint64_t)SLOT_DATA_BYTES * peer->slots;
    if (fake->lie == FAKE_LIE_SMALL_DATA)
        reply.data_bytes = 1 << 20;
    reply.samples = FAKE_STEPS * FAKE_ROWS;
    reply.steps_per_epoch = FAKE_STEPS;
    reply.epoch = peer->epoch;
    reply.step = peer->step;
    reply.plan_id = plan_id;
    reply.seed = 99;
    reply.warning = warning;
    Spdl__V1__ToClient answer = SPDL__V1__TO_CLIENT__INIT;
    answer.id = message->id;
    answer.body_case = SPDL__V1__TO_CLIENT__BODY_OPEN;
    answer.open = &reply;
    int fds[3] = {peer->control.read_only_fd, peer->data.read_only_fd,
                  fake->lie == FAKE_LIE_PIPE ? peer->data.read_only_fd : pipe_read};
    send_reply(peer, &answer, fds, fake->lie == FAKE_LIE_TWO_FDS ? 2 : 3);
    close(pipe_read);
}

static void handle_hello(struct fake_daemon *fake, struct peer *peer, uint32_t id)
{
    fake->hellos++;
    char version[] = "fake";
    Spdl__V1__HelloReply reply;
    spdl__v1__hello_reply__init(&reply);
    reply.protocol = fake->lie == FAKE_LIE_PROTOCOL ? 77 : SPDL_PROTO_VERSION;
    reply.layout_major = SPDL_SHM_MAJOR;
    reply.version = version;
    reply.pid = getpid();
    reply.generation = fake->generation;
    Spdl__V1__ToClient answer = SPDL__V1__TO_CLIENT__INIT;
    answer.id = id;
    answer.body_case = SPDL__V1__TO_CLIENT__BODY_HELLO;
    answer.hello = &reply;
    send_reply(peer, &answer, NULL, 0);
}

static void handle_release(struct fake_daemon *fake, struct peer *peer,
                           const Spdl__V1__Release *release)
{
    must(peer->is_open && release->stream == NUMBER, "release of another stream");
    for (size_t i = 0; i < release->n_sequences; i++) {
        must(release->sequences[i] < peer->next, "release of a batch that was never published");
        uint64_t bit = UINT64_C(1) << peer->slot_of[release->sequences[i] % 256];
        must((peer->free_slots & bit) == 0, "release of a free slot");
        peer->free_slots |= bit;
        fake->releases++;
    }
}

static void handle_why(struct peer *peer, uint32_t id)
{
    char waiting[] = "reads of photos", bottleneck[] = "reads",
         evidence[] = "0 of 3 rows are there", advice[] = "raise fetch.depth",
         other[] = "something else";
    Spdl__V1__Why first, second;
    spdl__v1__why__init(&first);
    spdl__v1__why__init(&second);
    first.stream = 1;
    first.waiting_for = other;
    second.stream = STREAM_ID;
    second.waiting_for = waiting;
    second.bottleneck = bottleneck;
    second.evidence = evidence;
    second.advice = advice;
    second.share = 0.75;
    Spdl__V1__Why *streams[] = {&first, &second};
    Spdl__V1__WhyReply reply;
    spdl__v1__why_reply__init(&reply);
    reply.n_streams = 2;
    reply.streams = streams;
    Spdl__V1__ToClient answer = SPDL__V1__TO_CLIENT__INIT;
    answer.id = id;
    answer.body_case = SPDL__V1__TO_CLIENT__BODY_WHY;
    answer.why = &reply;
    send_reply(peer, &answer, NULL, 0);
}

static void handle_compare(struct fake_daemon *fake, struct peer *peer,
                           const Spdl__V1__ToDaemon *message)
{
    const Spdl__V1__ConfigCompare *compare = message->config_compare;
    fake->compares++;
    snprintf(fake->compared, sizeof(fake->compared), "%s|%s", compare->file,
             compare->n_sets > 0 ? compare->sets[0] : "");
    char differences[128];
    snprintf(differences, sizeof(differences), "%s", fake->differences ? fake->differences : "");
    Spdl__V1__ConfigCompareReply reply;
    spdl__v1__config_compare_reply__init(&reply);
    reply.differences = differences;
    Spdl__V1__ToClient answer = SPDL__V1__TO_CLIENT__INIT;
    answer.id = message->id;
    answer.body_case = SPDL__V1__TO_CLIENT__BODY_CONFIG_COMPARE;
    answer.config_compare = &reply;
    send_reply(peer, &answer, NULL, 0);
}

static void handle(struct work *work, struct peer *peer, const Spdl__V1__ToDaemon *message)
{
    struct fake_daemon *fake = work->fake;
    if (message->body_case == SPDL__V1__TO_DAEMON__BODY_HELLO)
        handle_hello(fake, peer, message->id);
    else if (message->body_case == SPDL__V1__TO_DAEMON__BODY_OPEN)
        handle_open(work, peer, message);
    else if (message->body_case == SPDL__V1__TO_DAEMON__BODY_RELEASE)
        handle_release(fake, peer, message->release);
    else if (message->body_case == SPDL__V1__TO_DAEMON__BODY_WHY) {
        fake->whys++;
        handle_why(peer, message->id);
    } else if (message->body_case == SPDL__V1__TO_DAEMON__BODY_CONFIG_COMPARE)
        handle_compare(fake, peer, message);
    else if (message->body_case == SPDL__V1__TO_DAEMON__BODY_CLOSE) {
        fake->closes++;
        peer->is_closed = 1;
    } else if (message->body_case == SPDL__V1__TO_DAEMON__BODY_UNMAPPED)
        fake->unmapped++;
    else
        send_error(peer, message->id, -ENOTSUP, 0, "the fake does not know this");
}

/* Reads what came; 0, or -1 when the peer is to be dropped. */
static int serve(struct work *work, struct peer *peer)
{
    struct fake_daemon *fake = work->fake;
    int rc = spdl_proto_receive(peer->fd, &peer->in, 0);
    const uint8_t *payload;
    size_t bytes;
    while (fake->lie != FAKE_LIE_SILENCE && spdl_proto_next(&peer->in, &payload, &bytes) == 1) {
        Spdl__V1__ToDaemon *message = spdl__v1__to_daemon__unpack(NULL, bytes, payload);
        must(message != NULL, "message");
        handle(work, peer, message);
        int is_open = message->body_case == SPDL__V1__TO_DAEMON__BODY_OPEN;
        int is_hello = message->body_case == SPDL__V1__TO_DAEMON__BODY_HELLO;
        spdl__v1__to_daemon__free_unpacked(message, NULL);
        spdl_proto_next_done(&peer->in);
        static const uint8_t garbage[] = {8,    0,    0,    0,    0xff, 0xfe,
                                          0xfd, 0xfc, 0xfb, 0xfa, 0xf9, 0xf8};
        static const uint8_t oversized[] = {0xff, 0xff, 0xff, 0xff, 0};
        if (is_hello && fake->lie == FAKE_LIE_GARBAGE) {
            spdl_proto_flush(peer->fd, &peer->out);
            must(send(peer->fd, garbage, sizeof(garbage), MSG_NOSIGNAL) > 0, "send");
        }
        if (is_hello && fake->lie == FAKE_LIE_OVERSIZED) {
            spdl_proto_flush(peer->fd, &peer->out);
            must(send(peer->fd, oversized, sizeof(oversized), MSG_NOSIGNAL) > 0, "send");
        }
        if (is_open && fake->die_after_open) {
            spdl_proto_flush(peer->fd, &peer->out);
            return -1;
        }
    }
    return rc == 0 || rc == -EAGAIN ? 0 : -1;
}

static void accept_peer(struct work *work)
{
    int fd = accept4(work->fake->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    for (uint32_t i = 0; i < PEERS_MAX; i++) {
        if (work->peers[i].fd < 0) {
            work->peers[i].fd = fd;
            work->peers[i].out.limit = 1 << 20;
            return;
        }
    }
    must(0, "too many peers");
}

static void serve_all(struct work *work, const struct pollfd *fds, uint32_t count)
{
    for (uint32_t i = 2; i < count; i++) {
        if (fds[i].revents == 0)
            continue;
        for (uint32_t p = 0; p < PEERS_MAX; p++) {
            if (work->peers[p].fd == fds[i].fd && serve(work, &work->peers[p]) < 0)
                peer_drop(&work->peers[p]);
        }
    }
    if (fds[0].revents != 0) {
        char bytes[64];
        ssize_t n = read(work->fake->wake[0], bytes, sizeof(bytes));
        (void)n;
    }
    if (count > 1 && fds[1].revents != 0)
        accept_peer(work);
    for (uint32_t p = 0; p < PEERS_MAX && !work->fake->paused; p++) {
        publish(work, &work->peers[p]);
        if (work->peers[p].fd >= 0)
            spdl_proto_flush(work->peers[p].fd, &work->peers[p].out);
    }
}

static void *run(void *argument)
{
    struct work *work = argument;
    struct fake_daemon *fake = work->fake;
    sigset_t pipe_signal; /* a rank may have closed its end of the pipe */
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, NULL);
    for (;;) {
        struct pollfd fds[2 + PEERS_MAX];
        uint32_t count = 0;
        fds[count++] = (struct pollfd){.fd = fake->wake[0], .events = POLLIN};
        pthread_mutex_lock(&fake->lock);
        int stop = fake->stop, paused = fake->paused;
        pthread_mutex_unlock(&fake->lock);
        if (stop)
            break;
        if (!paused) {
            fds[count++] = (struct pollfd){.fd = fake->listener, .events = POLLIN};
            for (uint32_t p = 0; p < PEERS_MAX; p++) {
                if (work->peers[p].fd >= 0)
                    fds[count++] = (struct pollfd){.fd = work->peers[p].fd, .events = POLLIN};
            }
        }
        must(poll(fds, count, -1) >= 0 || errno == EINTR, "poll");
        pthread_mutex_lock(&fake->lock);
        serve_all(work, fds, count);
        pthread_mutex_unlock(&fake->lock);
    }
    for (uint32_t p = 0; p < PEERS_MAX; p++)
        peer_drop(&work->peers[p]);
    free(work);
    return NULL;
}

void fake_init(struct fake_daemon *fake, const char *socket)
{
    memset(fake, 0, sizeof(*fake));
    fake->socket = socket;
    fake->slots = 4;
    fake->allowed = -1;
    fake->plan_id = "0123456789abcdef0123456789abcdef";
    fake->listener = -1;
    pthread_mutex_init(&fake->lock, NULL);
    must(pipe2(fake->wake, O_CLOEXEC | O_NONBLOCK) == 0, "pipe");
}

void fake_start(struct fake_daemon *fake)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", fake->socket);
    unlink(fake->socket);
    fake->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    must(bind(fake->listener, (const struct sockaddr *)&address, sizeof(address)) == 0, "bind");
    must(listen(fake->listener, 64) == 0, "listen");
    fake->stop = 0;
    fake->generation++;
    struct work *work = calloc(1, sizeof(*work));
    must(work != NULL, "calloc");
    work->fake = fake;
    for (uint32_t p = 0; p < PEERS_MAX; p++)
        work->peers[p].fd = -1;
    must(pthread_create(&fake->thread, NULL, run, work) == 0, "thread");
}

void fake_wake(struct fake_daemon *fake)
{
    ssize_t n = write(fake->wake[1], "", 1);
    (void)n;
}

void fake_kill(struct fake_daemon *fake)
{
    if (fake->listener < 0)
        return;
    pthread_mutex_lock(&fake->lock);
    fake->stop = 1;
    pthread_mutex_unlock(&fake->lock);
    fake_wake(fake);
    pthread_join(fake->thread, NULL);
    close(fake->listener);
    fake->listener = -1;
}

void fake_fini(struct fake_daemon *fake)
{
    fake_kill(fake);
    unlink(fake->socket);
    close(fake->wake[0]);
    close(fake->wake[1]);
    pthread_mutex_destroy(&fake->lock);
}

void fake_allow(struct fake_daemon *fake, int64_t batches)
{
    pthread_mutex_lock(&fake->lock);
    if (batches < 0 || fake->allowed < 0)
        fake->allowed = batches;
    else
        fake->allowed += batches;
    pthread_mutex_unlock(&fake->lock);
    fake_wake(fake);
}

void fake_pause(struct fake_daemon *fake, int paused)
{
    pthread_mutex_lock(&fake->lock);
    fake->paused = paused;
    pthread_mutex_unlock(&fake->lock);
    fake_wake(fake);
}

uint64_t fake_await(struct fake_daemon *fake, const uint64_t *counter, uint64_t value)
{
    for (int i = 0; i < 10000; i++) {
        pthread_mutex_lock(&fake->lock);
        uint64_t now = *counter;
        pthread_mutex_unlock(&fake->lock);
        if (now >= value)
            return now;
        struct timespec wait = {.tv_nsec = 1000000};
        nanosleep(&wait, NULL);
    }
    return 0;
}
