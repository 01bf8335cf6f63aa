/* What a GPU is doing. Demands (processes and loads) are square waves: on for a part of each period.
 * The GPU is busy while at least one is on; those that are on at once share the time equally. Under MIG
 * each GPU instance is a small GPU of its own, and counts with its share of the compute slices.
 *
 * internal/standin/scenario computes the same integrals in truth.go: tests compare the two. */
#include "fakenvml.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

/* The layout at a time: an entry without MIG if there is none. */
const struct layout *model_layout(const struct gpu *c, int64_t now)
{
    static const struct layout whole = {0};
    const struct layout *found = &whole;
    for (int i = 0; i < c->nlayouts && c->layouts[i].at <= now; i++)
        found = &c->layouts[i];
    return found;
}

static int gi_slices(const struct gpu *c, const struct layout *l, int gi)
{
    int device = mig_first_device(l, gi);
    return device < 0 ? 0 : (int)c->profiles[l->devices[device].profile].slices;
}

/* The group in which a demand runs: 0 the whole GPU, 1+gi an instance, NONE nowhere. */
static int group_of(const struct demand *d, const struct layout *l)
{
    if (!l->current)
        return d->gi < 0 ? 0 : NONE;
    return d->gi >= 0 && mig_first_device(l, d->gi) >= 0 ? 1 + d->gi : NONE;
}

bool model_alive(const struct gpu *c, const struct demand *d, int64_t now)
{
    return now >= d->from && now < d->to && group_of(d, model_layout(c, now)) != NONE;
}

/* Whether a demand is on, and until when that stays so. */
static bool wave(const struct demand *d, int64_t t, int64_t *until)
{
    if (t < d->from) {
        *until = d->from;
        return false;
    }
    if (t >= d->to || d->on <= 0) {
        *until = FOREVER;
        return false;
    }
    *until = d->to;
    if (d->on >= d->period)
        return true;
    int64_t position = (t - d->from - d->phase) % d->period;
    if (position < 0)
        position += d->period;
    bool on = position < d->on;
    int64_t edge = t + (on ? d->on : d->period) - position;
    if (edge < *until)
        *until = edge;
    return on;
}

#define MAX_DEMANDS 256

/* Adds up what happened in [t0, t1). share, if given, has one element for each demand. */
void model_integrate(const struct gpu *c, int64_t t0, int64_t t1, struct sums *out, double *share)
{
    int ndemands = c->ndemands < MAX_DEMANDS ? c->ndemands : MAX_DEMANDS;
    for (int64_t t = t0 < 0 ? 0 : t0, next; t < t1; t = next) {
        const struct layout *l = model_layout(c, t);
        next = t1;
        for (int i = 0; i < c->nlayouts; i++) {
            if (c->layouts[i].at > t && c->layouts[i].at < next)
                next = c->layouts[i].at;
        }
        int group[MAX_DEMANDS], on[MAX_GI + 1] = {0}, compute[MAX_GI][MAX_CI] = {0};
        for (int i = 0; i < ndemands; i++) {
            int64_t until;
            group[i] = wave(&c->demands[i], t, &until) ? group_of(&c->demands[i], l) : NONE;
            if (until < next)
                next = until;
            if (group[i] >= 0)
                on[group[i]]++;
            if (group[i] > 0 && c->demands[i].ci < MAX_CI)
                compute[group[i] - 1][c->demands[i].ci < 0 ? 0 : c->demands[i].ci]++;
        }
        double dt = (double)(next - t), weights[MAX_GI + 1];
        for (int g = 0; g <= MAX_GI; g++) {
            weights[g] = 1;
            if (on[g] == 0)
                continue;
            if (g > 0) {
                out->gi[g - 1] += dt;
                for (int k = 0; k < MAX_CI; k++)
                    out->ci[g - 1][k] += compute[g - 1][k] > 0 ? dt : 0;
                weights[g] = (double)gi_slices(c, l, g - 1) / (l->slices > 0 ? l->slices : 7);
            }
            out->busy += dt * weights[g];
        }
        for (int i = 0; i < ndemands; i++) {
            if (group[i] < 0)
                continue;
            double part = dt / on[group[i]];
            out->dram += part * c->demands[i].dram * weights[group[i]];
            if (share != NULL)
                share[i] += part;
        }
    }
}

/* Integrals since second 0 are remembered, so that a day costs no more than a second: one up to the last
 * moment asked for, one up to the last load of the driver. */
struct integral {
    int64_t until;
    struct sums sums;
};
struct cumulative {
    struct integral now, loaded;
};
static pthread_mutex_t cumulating = PTHREAD_MUTEX_INITIALIZER;

static void add(struct sums *sums, const struct sums *more, double sign)
{
    sums->busy += sign * more->busy;
    sums->dram += sign * more->dram;
    for (int g = 0; g < MAX_GI; g++) {
        sums->gi[g] += sign * more->gi[g];
        for (int k = 0; k < MAX_CI; k++)
            sums->ci[g][k] += sign * more->ci[g][k];
    }
}

/* Moves an integral to another time, forward or, with two threads, back. */
static void move(const struct gpu *c, struct integral *i, int64_t to)
{
    struct sums between = {0};
    if (to >= i->until)
        model_integrate(c, i->until, to, &between, NULL);
    else
        model_integrate(c, to, i->until, &between, NULL);
    add(&i->sums, &between, to >= i->until ? 1 : -1);
    i->until = to;
}

/* When the driver was last loaded. */
int64_t model_loaded_since(const struct scenario *s, int64_t now)
{
    int64_t since = 0;
    for (int i = 0; i < s->ndriver && s->driver[i].at <= now; i++) {
        if (s->driver[i].kind == DRIVER_LOAD || s->driver[i].kind == DRIVER_REPLACE)
            since = s->driver[i].at;
    }
    return since;
}

void model_since_load(const struct scenario *s, const struct gpu *gpu, int64_t now, struct sums *out)
{
    struct gpu *c = (struct gpu *)gpu; /* what is remembered is all that changes */
    pthread_mutex_lock(&cumulating);
    if (c->cumulative == NULL)
        c->cumulative = calloc(1, sizeof *c->cumulative);
    if (c->cumulative == NULL)
        abort();
    move(c, &c->cumulative->now, now);
    move(c, &c->cumulative->loaded, model_loaded_since(s, now));
    *out = c->cumulative->now.sums;
    add(out, &c->cumulative->loaded.sums, -1);
    pthread_mutex_unlock(&cumulating);
}

/* The busy part of the window that ends now; before the window is full, of what there was. */
double model_utilization(const struct gpu *c, int64_t now, int64_t window, double *dram)
{
    struct sums sums = {0};
    int64_t from = now > window ? now - window : 0;
    model_integrate(c, from, now, &sums, NULL);
    double length = (double)(now - from);
    if (dram != NULL)
        *dram = length > 0 ? sums.dram / length : 0;
    return length > 0 ? sums.busy / length : 0;
}

static double held(const struct gpu *c, int64_t now)
{
    double bytes = 0;
    for (int i = 0; i < c->ndemands; i++) {
        if (model_alive(c, &c->demands[i], now))
            bytes += (double)c->demands[i].memory;
    }
    return bytes;
}

static double power(const struct gpu *c, int64_t now, int64_t window)
{
    return c->idle_mw + (c->busy_mw - c->idle_mw) * model_utilization(c, now, window, NULL);
}

static double variable(const struct moment *m, enum variable v)
{
    const struct gpu *c = m->gpu;
    if (v == VAR_ONE)
        return 1;
    double seconds = (double)(m->now - model_loaded_since(m->scenario, m->now)) / SECOND;
    if (v == VAR_T)
        return seconds;
    if (c == NULL)
        return 0;
    double dram = 0;
    struct sums sums = {0};
    switch (v) {
    case VAR_BUSY:
        if (m->windowed)
            return m->busy_seconds;
        model_since_load(m->scenario, c, m->now, &sums);
        return sums.busy / SECOND;
    case VAR_MEMBUSY:
        model_since_load(m->scenario, c, m->now, &sums);
        return sums.dram / SECOND;
    case VAR_UTIL:
        return m->windowed ? m->util : model_utilization(c, m->now, c->window, NULL);
    case VAR_MEMUTIL:
        model_utilization(c, m->now, c->window, &dram);
        return dram;
    case VAR_ACTIVE:
        return model_utilization(c, m->now, c->window, NULL) > 0 ? 1 : 0;
    case VAR_POWER:
        return power(c, m->now, SECOND);
    case VAR_POWER_INSTANT:
        return power(c, m->now, SECOND / 50);
    case VAR_ENERGY:
        model_since_load(m->scenario, c, m->now, &sums);
        return c->idle_mw * seconds + (c->busy_mw - c->idle_mw) * sums.busy / SECOND;
    case VAR_PROCESS_MEMORY:
        return held(c, m->now);
    case VAR_TEMPERATURE:
        return c->idle_celsius + (c->busy_celsius - c->idle_celsius) * model_utilization(c, m->now, 10 * SECOND, NULL);
    default:
        return 0;
    }
}

double model_value(const struct moment *m, const struct component *c)
{
    if (c->kind == COMPONENT_EXACT)
        return (double)c->exact;
    double sum = 0;
    for (int i = 0; i < c->nterms; i++)
        sum += c->terms[i].factor * variable(m, c->terms[i].variable);
    return c->modulus > 0 ? sum - c->modulus * floor(sum / c->modulus) : sum;
}
