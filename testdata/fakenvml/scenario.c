/* Reading the flat scenario. It is written by internal/standin/scenario, which has checked it: a line that does
 * not read is a bug, and is reported on stderr with its number. */
#include "fakenvml.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct answer_key {
    int owner;
    const char *key;
    struct answer *first, *last;
};

static void *grow(void *array, int count, size_t size)
{
    /* Room is doubled at the powers of two. */
    if (count != 0 && (count & (count - 1)) != 0)
        return array;
    void *bigger = realloc(array, (count == 0 ? 1 : 2 * (size_t)count) * size);
    if (bigger == NULL)
        abort();
    return bigger;
}

#define APPEND(array, count) \
    ((array) = grow((array), (count), sizeof *(array)), memset(&(array)[(count)], 0, sizeof *(array)), &(array)[(count)++])

static const char *const variable_names[] = {"1", "t", "busy", "membusy", "util", "memutil", "active", "power",
                                             "power_instant", "energy", "process_memory", "temperature"};

static int hexdigit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return NONE;
}

/* Undoes the percent encoding, in place. */
static char *decode(char *text)
{
    char *out = text;
    for (char *in = text; *in != 0; in++) {
        if (in[0] == '%' && hexdigit(in[1]) >= 0 && hexdigit(in[2]) >= 0) {
            *out++ = (char)(hexdigit(in[1]) * 16 + hexdigit(in[2]));
            in += 2;
        } else {
            *out++ = *in;
        }
    }
    *out = 0;
    return text;
}

/* "factor*variable,factor*variable;modulus" */
static bool read_sum(char *text, struct component *c)
{
    c->kind = COMPONENT_SUM;
    char *mod = strchr(text, ';');
    if (mod != NULL) {
        *mod++ = 0;
        c->modulus = strtod(mod, NULL);
    }
    char *save = NULL;
    for (char *t = strtok_r(text, ",", &save); t != NULL; t = strtok_r(NULL, ",", &save)) {
        struct term *term = APPEND(c->terms, c->nterms);
        char *end = NULL;
        term->factor = strtod(t, &end);
        if (*end != '*')
            return false;
        bool known = false;
        for (size_t i = 0; i < sizeof variable_names / sizeof *variable_names; i++) {
            if (strcmp(end + 1, variable_names[i]) == 0) {
                term->variable = (enum variable)i;
                known = true;
            }
        }
        if (!known)
            return false;
    }
    return c->nterms > 0;
}

static bool read_component(char *word, struct component *c)
{
    if (word[0] == 0 || word[1] != ':')
        return false;
    switch (word[0]) {
    case 's':
        c->kind = COMPONENT_TEXT;
        c->text = strdup(decode(word + 2));
        return true;
    case 'i':
        c->kind = COMPONENT_EXACT;
        c->exact = word[2] == '-' ? (uint64_t)strtoll(word + 2, NULL, 10) : strtoull(word + 2, NULL, 10);
        return true;
    case 'e':
        return read_sum(word + 2, c);
    }
    return false;
}

static unsigned key_hash(int owner, const char *key)
{
    unsigned h = 2166136261u ^ (unsigned)(owner + 1);
    for (; *key != 0; key++)
        h = (h ^ (unsigned char)*key) * 16777619u;
    return h;
}

static struct answer_key *find_key(const struct scenario *s, int owner, const char *key)
{
    if (s->nindex == 0)
        return NULL;
    for (unsigned h = key_hash(owner, key);; h++) {
        int i = s->index[h % (unsigned)s->nindex];
        if (i == 0)
            return NULL;
        struct answer_key *k = &s->keys[i - 1];
        if (k->owner == owner && strcmp(k->key, key) == 0)
            return k;
    }
}

static void index_key(struct scenario *s, int position)
{
    for (unsigned h = key_hash(s->keys[position].owner, s->keys[position].key);; h++) {
        int *slot = &s->index[h % (unsigned)s->nindex];
        if (*slot == 0) {
            *slot = position + 1;
            return;
        }
    }
}

static struct answer_key *add_key(struct scenario *s, int owner, const char *key)
{
    struct answer_key *k = APPEND(s->keys, s->nkeys);
    k->owner = owner;
    k->key = strdup(key);
    if (2 * s->nkeys > s->nindex) {
        s->nindex = s->nindex == 0 ? 256 : 2 * s->nindex;
        free(s->index);
        s->index = calloc((size_t)s->nindex, sizeof *s->index);
        if (s->index == NULL)
            abort();
        for (int i = 0; i < s->nkeys; i++)
            index_key(s, i);
    } else {
        index_key(s, s->nkeys - 1);
    }
    return &s->keys[s->nkeys - 1];
}

/* The answer at a time, or NULL. */
const struct answer *scenario_answer(const struct scenario *s, int owner, const char *key, int64_t now)
{
    const struct answer_key *k = find_key(s, owner, key);
    const struct answer *found = NULL;
    for (const struct answer *a = k == NULL ? NULL : k->first; a != NULL && a->at <= now; a = a->next)
        found = a;
    return found;
}

/* The words of one line. */
struct words {
    char *next;
    bool failed;
};

static char *word(struct words *w)
{
    char *start = w->next;
    while (*start == ' ')
        start++;
    if (*start == 0) {
        w->failed = true;
        return start;
    }
    char *end = strchr(start, ' ');
    if (end == NULL) {
        w->next = start + strlen(start);
    } else {
        *end = 0;
        w->next = end + 1;
    }
    return start;
}

static int64_t number(struct words *w)
{
    char *text = word(w), *end = NULL;
    int64_t value = strtoll(text, &end, 10);
    if (end == text || *end != 0)
        w->failed = true;
    return value;
}

static double real(struct words *w)
{
    char *text = word(w), *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end != 0)
        w->failed = true;
    return value;
}

static void text(struct words *w, char *out, size_t size)
{
    snprintf(out, size, "%s", decode(word(w)));
}

static int choice(struct words *w, const char *const *names, int count)
{
    const char *given = word(w);
    for (int i = 0; i < count; i++) {
        if (strcmp(given, names[i]) == 0)
            return i;
    }
    w->failed = true;
    return 0;
}
#define CHOICE(w, ...) choice(w, (const char *const[]){__VA_ARGS__}, (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)))

static struct gpu *which_gpu(struct scenario *s, struct words *w)
{
    int64_t i = number(w);
    if (i < 0 || i >= s->ngpus) {
        w->failed = true;
        return NULL;
    }
    return &s->gpus[i];
}

static void read_gpu(struct scenario *s, struct words *w)
{
    if (s->ngpus >= MAX_GPUS) {
        w->failed = true;
        return;
    }
    struct gpu *c = &s->gpus[s->ngpus];
    c->index = s->ngpus++;
    text(w, c->uuid, sizeof c->uuid);
    c->domain = (unsigned)number(w);
    c->bus = (unsigned)number(w);
    c->device = (unsigned)number(w);
    c->minor = (unsigned)number(w);
    c->ring_period = number(w);
    c->ring_entries = (unsigned)number(w);
    c->ring_sizing = (unsigned)number(w);
    c->ring_boot_clock = number(w) != 0;
    c->ring_zeros = number(w) != 0;
    c->ring_slots = number(w) != 0;
    c->ring_stops = number(w) != 0;
    c->ring_own_mean = number(w) != 0;
    c->window = number(w);
    c->idle_mw = real(w);
    c->busy_mw = real(w);
    c->idle_celsius = real(w);
    c->busy_celsius = real(w);
}

static void read_answer(struct scenario *s, struct words *w)
{
    int owner = (int)number(w);
    int64_t at = number(w);
    const char *key = word(w);
    struct answer *a = calloc(1, sizeof *a);
    if (a == NULL)
        abort();
    a->at = at;
    a->code = (int)number(w);
    a->type = (int)number(w);
    int count = (int)number(w);
    if (w->failed || count < 0 || count > MAX_COMPONENTS) {
        w->failed = true;
        free(a);
        return;
    }
    for (; a->ncomponents < count; a->ncomponents++) {
        if (!read_component(word(w), &a->components[a->ncomponents]))
            w->failed = true;
    }
    struct answer_key *k = find_key(s, owner, key);
    if (k == NULL)
        k = add_key(s, owner, key);
    if (k->last == NULL)
        k->first = a;
    else
        k->last->next = a;
    k->last = a;
}

static void read_demand(struct scenario *s, struct words *w)
{
    struct gpu *c = which_gpu(s, w);
    if (c == NULL)
        return;
    struct demand *d = APPEND(c->demands, c->ndemands);
    d->pid = (unsigned)number(w);
    d->kind = (int)number(w);
    d->gi = (int)number(w);
    d->ci = (int)number(w);
    int64_t memory = number(w);
    d->memory_unknown = memory < 0;
    d->memory = memory < 0 ? 0 : (uint64_t)memory;
    d->on = number(w);
    d->period = number(w);
    d->phase = number(w);
    d->from = number(w);
    d->to = number(w);
    d->dram = real(w);
    d->listed = number(w) != 0;
    if (d->period <= 0 || d->gi >= MAX_GI)
        w->failed = true;
}

static void read_profile(struct scenario *s, struct words *w)
{
    struct gpu *c = which_gpu(s, w);
    if (c == NULL)
        return;
    struct profile *p = APPEND(c->profiles, c->nprofiles);
    text(w, p->name, sizeof p->name);
    unsigned *fields[] = {&p->number, &p->id, &p->slices, &p->memory_mib, &p->sms, &p->count,
                          &p->ce, &p->dec, &p->enc, &p->jpg, &p->ofa};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        *fields[i] = (unsigned)number(w);
}

static void read_layout(struct scenario *s, struct words *w)
{
    struct gpu *c = which_gpu(s, w);
    if (c == NULL)
        return;
    struct layout *l = APPEND(c->layouts, c->nlayouts);
    l->at = number(w);
    l->current = number(w) != 0;
    l->pending = number(w) != 0;
    l->slices = (int)number(w);
}

/* A MIG device of the layout above it. */
static void read_device(struct scenario *s, struct words *w)
{
    struct gpu *c = which_gpu(s, w);
    if (c == NULL || c->nlayouts == 0 || c->layouts[c->nlayouts - 1].ndevices >= MAX_MIG_DEVICES) {
        w->failed = true;
        return;
    }
    struct layout *l = &c->layouts[c->nlayouts - 1];
    struct mig_device *d = &l->devices[l->ndevices++];
    d->index = (int)number(w);
    d->gi = (int)number(w);
    d->ci = (int)number(w);
    d->profile = (int)number(w);
    d->start = (int)number(w);
    d->size = (int)number(w);
    d->ci_slices = (int)number(w);
    text(w, d->uuid, sizeof d->uuid);
    if (d->gi < 0 || d->gi >= MAX_GI || d->profile < 0 || d->profile >= c->nprofiles)
        w->failed = true;
}

static void read_stall(struct scenario *s, struct words *w)
{
    int owner = (int)number(w);
    if (owner >= s->ngpus) {
        w->failed = true;
        return;
    }
    struct stall *st = owner < 0 ? APPEND(s->stalls, s->nstalls) : APPEND(s->gpus[owner].stalls, s->gpus[owner].nstalls);
    st->at = number(w);
    st->function = strdup(word(w));
    int64_t delay = number(w);
    st->delay = delay < 0 ? FOREVER : delay;
}

static void read_fault(struct scenario *s, struct words *w)
{
    struct gpu *c = which_gpu(s, w);
    if (c == NULL)
        return;
    struct fault *f = APPEND(c->faults, c->nfaults);
    f->at = number(w);
    f->kind = (enum fault_kind)CHOICE(w, "lose", "reset_required", "restore", "remove", "unbind", "bind");
}

static void read_event(struct scenario *s, struct words *w)
{
    struct event *e = APPEND(s->events, s->nevents);
    e->gpu = (int)number(w);
    e->at = number(w);
    e->type = (uint64_t)number(w);
    e->data = (uint64_t)number(w);
    e->gi = (unsigned)number(w);
    e->ci = (unsigned)number(w);
    if (e->gpu < 0 || e->gpu >= s->ngpus)
        w->failed = true;
}

static void read_driver(struct scenario *s, struct words *w)
{
    struct driver_step *d = APPEND(s->driver, s->ndriver);
    d->at = number(w);
    d->kind = (enum driver_kind)CHOICE(w, "load", "unload", "mismatch", "replace");
}

static const struct {
    const char *name;
    void (*read)(struct scenario *s, struct words *w);
} statements[] = {
    {"gpu", read_gpu},     {"answer", read_answer}, {"demand", read_demand}, {"profile", read_profile},
    {"layout", read_layout}, {"device", read_device}, {"stall", read_stall},   {"fault", read_fault},
    {"event", read_event},   {"driver", read_driver},
};

static bool read_line(struct scenario *s, char *line, int lineno)
{
    struct words w = {.next = line};
    const char *first = word(&w);
    if (lineno == 1)
        return strcmp(first, "fakenvml") == 0 && number(&w) == 1;
    if (*first == 0 || *first == '#')
        return true;
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (strcmp(first, statements[i].name) == 0) {
            w.failed = false;
            statements[i].read(s, &w);
            return !w.failed;
        }
    }
    return false;
}

/* Reads a flat scenario; NULL, with a message on stderr, if it cannot. */
struct scenario *scenario_load(const char *path)
{
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        fprintf(stderr, "fakenvml: %s: %s\n", path, strerror(errno));
        return NULL;
    }
    struct scenario *s = calloc(1, sizeof *s);
    if (s == NULL)
        abort();
    char *line = NULL;
    size_t room = 0;
    int lineno = 0;
    bool good = true;
    while (good && getline(&line, &room, f) > 0) {
        line[strcspn(line, "\r\n")] = 0;
        good = read_line(s, line, ++lineno);
    }
    if (!good || lineno == 0) {
        fprintf(stderr, "fakenvml: %s:%d: not a line of a flat scenario\n", path, lineno);
        s = NULL;
    }
    free(line);
    fclose(f);
    return s;
}
