// Queries a Prometheus API for the panels of a dashboard, as Grafana's Prometheus data source does.
import {
  DataFrame, dateMath, Field, FieldType, locationUtil, rangeUtil, ScopedVars, TimeRange, toDataFrame, urlUtil,
} from '@grafana/data';
import type { AnnotationQuery, Dashboard as Schema, Panel, VariableModel } from '@grafana/schema';

export type { Panel };
export const ALL = '$__all';

/** A template variable with the values chosen and those to choose from. */
export type Variable = VariableModel & { values: string[]; choices: Array<{ label: string; value: string }> };
export type Dashboard = Schema & { uid: string; panels: Panel[] };
interface Target { refId: string; expr: string; legendFormat?: string; instant?: boolean; format?: string }

const scrapeIntervalMs = 15_000; // as the data source assumes by default

/** What a dashboard is drawn with: its variables, and the time range of the page's address. */
export class View {
  readonly range: TimeRange;
  readonly variables: Variable[];

  constructor(readonly dashboard: Dashboard, readonly params: URLSearchParams) {
    this.variables = dashboard.templating!.list as Variable[];
    const raw = { from: params.get('from') ?? dashboard.time!.from!, to: params.get('to') ?? dashboard.time!.to! };
    const time = (text: string, roundUp: boolean) =>
      dateMath.toDateTime(/^\d+$/.test(text) ? +text : text, { roundUp })!;
    this.range = { from: time(raw.from, false), to: time(raw.to, true), raw };
    locationUtil.initialize({
      config: { appSubUrl: '' } as any,
      getVariablesUrlParams: () => Object.fromEntries(this.variables.map((v) => ['var-' + v.name, v.values])),
      getTimeRangeForUrl: () => raw,
    });
  }

  /** The address of another dashboard with this one's time range and variables. */
  link(uid: string): string {
    const theme = this.params.get('theme') ?? 'dark';
    return `/d/${uid}?${urlUtil.toUrlParams({ ...this.range.raw, theme })}&${locationUtil.getVariablesUrlParams()}`;
  }

  /** Replaces variables in a title or a link. */
  interpolate = (text: string, scoped?: ScopedVars, format?: string | Function): string =>
    text.replace(/\$\{([\w.]+)(?::(\w+))?\}|\$(\w+)/g, (match, braced, inlineFormat, bare) => {
      const name: string = braced ?? bare;
      const encode = (value = '') => (format === 'uriencode' ? encodeURIComponent(value) : value);
      const context = scoped?.__dataContext?.value;
      const [scope, part] = [name.replace(/\.\w+$/, ''), name.replace(/^.*\./, '')];
      if (name === '__url_time_range') {
        return locationUtil.getTimeRangeUrlParams();
      } else if (context && scope === '__field.labels') {
        return encode(context.field.labels?.[part]);
      } else if (context && scope === '__data.fields') {
        return encode(context.frame.fields.find((f: Field) => f.name === part)?.values[context.rowIndex ?? 0]);
      }
      const variable = this.variables.find((v) => v.name === name);
      if (!variable) {
        return match;
      } else if (inlineFormat === 'queryparam') {
        return urlUtil.toUrlParams({ ['var-' + name]: variable.values });
      }
      return encode(variable.values[0] === ALL ? 'All' : variable.values.join(' + '));
    });

  /** Replaces variables and macros in a query. */
  query(expr: string, stepMs: number): string {
    const rangeMs = this.range.to.valueOf() - this.range.from.valueOf();
    const macros: Record<string, string> = {
      __interval: stepMs + 'ms',
      __rate_interval: Math.max(stepMs + scrapeIntervalMs, 4 * scrapeIntervalMs) + 'ms',
      __range: Math.round(rangeMs / 1000) + 's',
      __range_s: String(Math.round(rangeMs / 1000)),
    };
    return expr.replace(/\$\{(\w+)(?::\w+)?\}|\$([A-Za-z_]\w*)/g, (match, braced, bare) => {
      const variable = this.variables.find((v) => v.name === (braced ?? bare));
      return macros[braced ?? bare] ?? (variable ? queryText(variable) : match);
    });
  }
}

/** The values of a variable as a part of a query: several become a regular expression. */
function queryText(v: Variable): string {
  if (v.values[0] === ALL && v.allValue) {
    return v.allValue;
  } else if (!v.multi && !v.includeAll) {
    return (v.values[0] ?? '').replace(/\\/g, '\\\\');
  }
  const values = v.values[0] === ALL ? v.choices.map((c) => c.value).filter((value) => value !== ALL) : v.values;
  const escaped = values.map((value) => value.replace(/\\/g, '\\\\\\\\').replace(/[$^*{}[\]'+?.()|]/g, '\\\\$&'));
  return escaped.length === 1 ? escaped[0] : `(${escaped.join('|')})`;
}

async function api(path: string, params: Record<string, string>): Promise<any> {
  const init = path.startsWith('query') ? { method: 'POST', body: new URLSearchParams(params) } : undefined;
  let response!: Response;
  let body: any;
  for (let attempt = 1; ; attempt++) {
    try {
      response = await fetch(`/api/v1/${path}`, init);
      body = await response.json();
      break;
    } catch (err) { // the database closed an idle connection: no response, or half of one
      if (attempt === 3) {
        throw err;
      }
      await new Promise((resolve) => setTimeout(resolve, 500 * attempt));
    }
  }
  if (body.status !== 'success') {
    throw new Error(body.error ?? response.statusText);
  }
  return body.data;
}

/** Fills in the choices and values of the variables, in order: later ones may refer to earlier ones. */
export async function resolveVariables(view: View): Promise<void> {
  const [start, end] = [view.range.from, view.range.to].map((at) => String(at.valueOf() / 1000));
  for (const v of view.variables) {
    const query = view.query(String(v.query ?? ''), 60_000);
    const [, selector, label] = query.match(/^label_values\((?:(.+),\s*)?(\w+)\)$/s) ?? [];
    const [, expr] = query.match(/^query_result\((.+)\)$/s) ?? [];
    let texts = [query];
    if (label) {
      texts = await api(`label/${label}/values?${urlUtil.toUrlParams({ start, end, 'match[]': selector })}`, {});
    } else if (expr) {
      const labels = (s: any) => Object.entries(s.metric).map(([name, value]) => `${name}="${value}"`).join(',');
      texts = (await api('query', { query: expr, time: end })).result.map((s: any) => `{${labels(s)}}`);
    }
    const regex = v.regex ? new RegExp(v.regex.slice(1, v.regex.lastIndexOf('/'))) : /(?<value>.*)/;
    v.choices = texts.flatMap((text) => {
      const { value, text: shown } = text.match(regex)?.groups ?? {};
      return value ? [{ label: shown ?? value, value }] : [];
    });
    if (v.includeAll) {
      v.choices.unshift({ label: 'All', value: ALL });
    }
    const first = v.choices.slice(0, 1).map((c) => c.value);
    const candidates = [view.params.getAll('var-' + v.name), [v.current?.value ?? []].flat(), first];
    v.values = candidates.find((values) => values.length) ?? [];
  }
}

/** Queries one target; each series becomes a frame with a time field and a value field. */
async function queryTarget(view: View, t: Target, stepMs: number): Promise<DataFrame[]> {
  const aligned = (at: number) => String((Math.floor(at / stepMs) * stepMs) / 1000);
  const query = view.query(t.expr, stepMs);
  const { result } = t.instant
    ? await api('query', { query, time: String(view.range.to.valueOf() / 1000) })
    : await api('query_range', {
        query, step: String(stepMs / 1000),
        start: aligned(view.range.from.valueOf()), end: aligned(view.range.to.valueOf()),
      });
  return result.map(({ metric, value, values }: any) => {
    const samples: Array<[number, string]> = values ?? [value];
    const displayNameFromDS = t.legendFormat?.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => metric[label] ?? '');
    const number = (text: string) => (text.endsWith('Inf') ? Infinity * (text[0] === '-' ? -1 : 1) : parseFloat(text));
    const numbers = samples.map(([, text]) => number(text));
    return toDataFrame({
      refId: t.refId,
      fields: [
        { name: 'Time', type: FieldType.time, config: { interval: stepMs }, values: samples.map(([at]) => at * 1000) },
        { name: 'Value', type: FieldType.number, labels: metric, config: { displayNameFromDS }, values: numbers },
      ],
    });
  });
}

/** The table of one query: time, a column for each label in the order of appearance, value. */
function tableFrame(frames: DataFrame[], valueName: string): DataFrame {
  const labels = [...new Set(frames.flatMap((f) => Object.keys(f.fields[1].labels ?? {}).sort()))];
  const column = (name: string) =>
    frames.flatMap(({ fields: [, f] }) => f.values.map(() => f.labels?.[name] ?? ''));
  return toDataFrame({
    refId: frames[0].refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: frames.flatMap((f) => f.fields[0].values) },
      ...labels.map((name) => ({ name, type: FieldType.string, config: { filterable: true }, values: column(name) })),
      { name: valueName, type: FieldType.number, values: frames.flatMap((f) => f.fields[1].values) },
    ],
  });
}

/** Queries the targets of a panel of this width. Empty lists the queries without a series. */
export async function queryPanel(view: View, p: Panel, width: number) {
  const targets = (p.targets ?? []) as unknown as Target[];
  const { intervalMs } = rangeUtil.calculateInterval(view.range, Math.max(width, 100), p.interval);
  const results = await Promise.all(targets.map((t) => queryTarget(view, t, intervalMs)));
  const frames = results.flatMap((found, i) => {
    const { refId, format } = targets[i];
    const name = targets.length > 1 ? `Value #${refId}` : 'Value';
    return format === 'table' && found.length ? [tableFrame(found, name)] : found;
  });
  return { frames, empty: targets.filter((_, i) => results[i].length === 0).map((t) => t.refId) };
}

export type Mark = { at: number; color: string };

/** Where the enabled annotations begin. */
export async function queryAnnotations(view: View): Promise<Mark[]> {
  type Annotation = AnnotationQuery & { expr?: string };
  const enabled = ((view.dashboard.annotations?.list ?? []) as Annotation[]).filter((a) => a.enable && a.expr);
  const stepMs = rangeUtil.calculateInterval(view.range, 1000, '1m').intervalMs;
  const found = await Promise.all(enabled.map(async (a) => {
    const frames = await queryTarget(view, { refId: a.name, expr: a.expr! }, stepMs);
    const begins = (at: number, i: number, times: number[]) => times[i - 1] !== at - stepMs;
    return frames.flatMap((f) => f.fields[0].values.filter(begins).map((at) => ({ at, color: a.iconColor })));
  }));
  return found.flat();
}
