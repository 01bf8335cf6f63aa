// Draws a dashboard with the components of Grafana: panels in their places, with answers of a Prometheus API.
import React, { useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { lastValueFrom } from 'rxjs';
import {
  applyFieldOverrides, cacheFieldDisplayNames, CoreApp, createTheme, DataFrame, dataLinksOverrideProcessor,
  displayNameOverrideProcessor, EventBusSrv, Field, FieldType, getDisplayValueAlignmentFactors, getFieldDisplayName,
  getFieldDisplayValues,
  identityOverrideProcessor, numberOverrideProcessor, Registry, renderMarkdown, standardTransformers,
  standardTransformersRegistry, ThemeContext, thresholdsOverrideProcessor, transformDataFrame,
  valueMappingsOverrideProcessor,
} from '@grafana/data';
import {
  BarGauge, BigValue, Combobox, DataLinksContextMenu, GlobalStyles, InlineField, Input, LinkButton, MultiCombobox,
  PanelChrome, PanelContextProvider, TimeSeries, VizRepeater,
} from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { ALL, Dashboard, Mark, Panel, queryAnnotations, queryPanel, resolveVariables, Variable, View } from './data';

const params = new URLSearchParams(location.search);
const theme = createTheme({ colors: { mode: params.get('theme') === 'light' ? 'light' : 'dark' } });
const timeZone = 'utc';

// How each panel was drawn, for the check. Blank is a chart whose axis has no range, so that no line is visible.
type State = 'pending' | 'data' | 'empty' | 'blank' | 'error';
type Drawn = {
  id: number; panel: string; state: State; error?: string; empty: string[];
  columns?: Column[]; rows?: number; room?: number;
};
type Column = { name: string; identity: boolean; gauge: boolean; zeros: number };
const drawn: Drawn[] = [];
// Legends and tables are drawn again once measured: a page is settled after a second and ten frames without change.
let changed = performance.now();
let frames = 0;
const observer = new MutationObserver(() => (changed = performance.now()));
observer.observe(document, { subtree: true, childList: true, attributes: true });
// A chart wider than its place beside the legend was drawn before the legend was measured.
const fits = (layout: Element) => {
  const [place, plot] = [layout.firstElementChild!, layout.querySelector('.uplot')];
  return !plot || plot.getBoundingClientRect().right <= place.getBoundingClientRect().right + 1;
};
const settled = () => {
  const done = drawn.length > 0 && drawn.every((d) => d.state !== 'pending') && performance.now() - changed > 1000 &&
    [...document.querySelectorAll('[data-testid="data-testid viz-layout"]')].every(fits);
  frames = done ? frames + 1 : 0;
  return frames > 10;
};
const shows = (d: Drawn, text: string) => document.getElementById(`panel-${d.id}`)?.innerText.includes(text);
const report = () => drawn.map(({ columns, ...d }) =>
  ({ ...d, state: d.state === 'data' && shows(d, 'No data') ? 'empty' : d.state, faults: faults({ columns, ...d }) }));
// A resized page is settled again once its panels are.
const unsettle = () => {
  changed = performance.now();
  frames = 0;
};
performance.setResourceTimingBufferSize(5000);
// When the program is loaded and asks for the dashboard's first variable: Grafana too is loaded once for all dashboards.
let begun = 0;
const answers = () => {
  const all = performance.getEntriesByType('resource') as PerformanceResourceTiming[];
  const own = all.filter((e) => e.name.includes('/api/v1/'));
  return { start: begun / 1000, wall: (changed - begun) / 1000, queries: own.length, bytes: own.reduce((sum, e) => sum + e.decodedBodySize, 0) };
};
Object.assign(window, { settled, unsettle, report, answers });

/** Whether a text inside is higher than its element, and not shown whole: a title that is wrapped once too often. */
const low = (of: Element) => [of, ...of.querySelectorAll('*')].some((e) => e.scrollHeight > e.clientHeight + 1 &&
  e.clientHeight > 0 && getComputedStyle(e).overflowY !== 'visible' && e.textContent?.trim());

/** Whether a text inside is wider than its element, and not shown whole. */
const clipped = (of: Element) => [of, ...of.querySelectorAll('*')].some((e) => e.scrollWidth > e.clientWidth + 1 &&
  e.clientWidth > 0 && getComputedStyle(e).overflowX !== 'visible' && e.textContent?.trim());

/** Whether the text of a cell is wider than the cell, also to its left, where numbers end. */
function cutOff(cell: Element) {
  const text = document.createRange();
  text.selectNodeContents(cell);
  const [of, all] = [cell.getBoundingClientRect(), text.getBoundingClientRect()];
  return clipped(cell) || all.left < of.left - 1 || all.right > of.right + 1;
}

/**
 * What a user could not read: cut titles, columns and cells, rows that are left out, and unknown values drawn as 0 %.
 * On a page below 1600 px, tables may be scrolled sideways if their identity columns are first.
 */
function faults(d: Drawn): string[] {
  const panel = document.getElementById(`panel-${d.id}`)!;
  const out: string[] = [];
  const narrow = innerWidth < 1600;
  const title = panel.querySelector('h2');
  if (!title || clipped(title)) {
    out.push('title cut');
  }
  const grid = panel.querySelector('[role="grid"]');
  if (!d.columns || !grid) {
    return out;
  }
  const box = grid.getBoundingClientRect();
  const headers = [...grid.querySelectorAll('[role="columnheader"]')];
  const bottom = Math.max(...headers.map((h) => h.getBoundingClientRect().bottom));
  const values = d.columns.findIndex((c) => !c.identity);
  const identityFirst = values < 0 || !d.columns.slice(values).some((c) => c.identity && c.name !== 'UUID');
  if (grid.scrollWidth > grid.clientWidth + 1 && !(narrow && identityFirst)) {
    out.push(`columns ${grid.scrollWidth - grid.clientWidth} px wider than the panel`);
  }
  out.push(...headers.filter((h) => clipped(h) || low(h)).map((h) => `title of column ${h.textContent} cut`));
  const cells = [...grid.querySelectorAll('[role="gridcell"]')];
  d.columns.forEach(({ name, gauge, zeros }, i) => {
    const own = cells.filter((c) => c.getAttribute('aria-colindex') === String(i + 1));
    const cut = own.filter(cutOff);
    if (cut.length) {
      out.push(`${cut.length} of ${own.length} in ${name} cut: ${cut[0].textContent}`);
    }
    if (own.filter((c) => /^0(\.0+)?\s*%$/.test(c.textContent!.trim())).length > zeros) {
      out.push(`an unknown value of ${name} is 0 %`);
    }
    const unknown = own.filter((c) => c.textContent!.trim() === '–');
    // The edge of a bar has its color; what surrounds the bar has no edge.
    const drawn = (e: Element) => {
      const { borderRightWidth: width, borderRightColor: color } = getComputedStyle(e);
      return parseFloat(width) > 0 && !/^(transparent|rgba\(.*, 0\))$/.test(color);
    };
    if (gauge && unknown.some((c) => [...c.querySelectorAll('*')].some(drawn))) {
      out.push(`an unknown value of ${name} is a bar`);
    }
  });
  // A page of rows, or a grid that does not fill its panel, hides rows for which there is room.
  const tops = cells.map((c) => c.getBoundingClientRect());
  const height = tops[0]?.height ?? 36;
  const room = Math.floor((box.top + d.room! - bottom) / height);
  const shown = tops.filter((r) => r.top >= bottom - 1 && r.bottom <= box.top + d.room! + 1);
  const visible = new Set(shown.map((r) => r.top)).size;
  if (visible < Math.min(d.rows!, room)) {
    out.push(`${visible} of ${d.rows} rows, room for ${room}`);
  }
  return out;
}

const transformers = Object.values(standardTransformers).map((t: any) =>
  ({ id: t.id, name: t.name, transformation: () => Promise.resolve(t), editor: () => null }));
standardTransformersRegistry.setInit(() => [...new Map(transformers.map((t) => [t.id, t])).values()] as any);

// The field properties that Grafana registers in its app: id, how a value is read, and the fields that it applies to.
const notTime = (f: Field) => f.type !== FieldType.time;
const isNumber = (f: Field) => f.type === FieldType.number;
const property = (id: string, process: any = identityOverrideProcessor, shouldApply = (_: Field) => true) =>
  ({ id, name: id, path: id.replace(/^custom\./, ''), isCustom: id.startsWith('custom.'), process, shouldApply });
const fieldConfigRegistry: any = new Registry(() => [
  property('displayName', displayNameOverrideProcessor), property('noValue'), property('unit', undefined, notTime),
  property('min', numberOverrideProcessor, isNumber), property('max', numberOverrideProcessor, isNumber),
  property('decimals', numberOverrideProcessor, isNumber),
  property('thresholds', thresholdsOverrideProcessor, isNumber),
  property('mappings', valueMappingsOverrideProcessor, notTime), property('color', undefined, notTime),
  property('links', dataLinksOverrideProcessor, notTime),
  ...['minWidth', 'width', 'align', 'cellOptions', 'inspect', 'filterable', 'hidden', 'wrapText', 'drawStyle',
    'gradientMode', 'thresholdsStyle', 'lineWidth', 'lineInterpolation', 'lineStyle', 'fillOpacity', 'fillBelowTo',
    'showPoints', 'pointSize', 'axisPlacement', 'axisLabel', 'axisSoftMin', 'axisSoftMax', 'scaleDistribution',
    'stacking', 'hideFrom', 'spanNulls', 'wrapHeaderText',
  ].map((id) => property('custom.' + id)),
] as any);

type PanelProps = { view: View; panel: any; width: number; height: number; marks: Mark[] };
type DataProps = PanelProps & { data: DataFrame[]; result: Drawn };
const kinds: Record<string, (props: DataProps) => React.ReactNode> = {
  stat: Values, bargauge: Values, table: Table, timeseries: Lines, 'state-timeline': Substitute, heatmap: Substitute,
};

/** Queries, transforms and draws one panel. */
function Body(props: PanelProps) {
  const { view, panel, width } = props;
  const [data, setData] = useState<DataFrame[]>();
  const [error, setError] = useState('');
  const [result] = useState<Drawn>(() => ({ id: panel.id, panel: panel.title, state: 'pending', empty: [] }));
  useEffect(() => {
    drawn.push(result);
    (async () => {
      const { frames, empty } = await queryPanel(view, panel, width);
      const transformed = await lastValueFrom(transformDataFrame(panel.transformations ?? [], frames));
      const styled = applyFieldOverrides({
        data: transformed, fieldConfig: panel.fieldConfig, fieldConfigRegistry, replaceVariables: view.interpolate,
        theme, timeZone,
      });
      cacheFieldDisplayNames(styled);
      setData(styled);
      Object.assign(result, { empty, state: empty.length === panel.targets.length ? 'empty' : 'data' });
    })().catch((e) => {
      setError(String(e));
      Object.assign(result, { state: 'error', error: String(e) });
    });
  }, []);
  if (error) {
    return <div role="alert" style={{ color: theme.colors.error.text }}>{error}</div>;
  } else if (!data) {
    return null;
  } else if (kinds[panel.type] !== Values && !data.some((f) => f.fields.length && f.length)) {
    return <div style={{ display: 'grid', placeItems: 'center', height: props.height }}>
      {panel.fieldConfig?.defaults?.noValue ?? 'No data'}
    </div>;
  }
  const Kind = kinds[panel.type] ?? (() => <div>This page cannot draw a panel of type {panel.type}.</div>);
  return <Kind {...props} data={data} result={result} />;
}

function Values({ view, panel, data, width, height }: DataProps) {
  const { options: o, fieldConfig } = panel;
  const stat = panel.type === 'stat';
  const getValues = () => getFieldDisplayValues({
    fieldConfig, reduceOptions: o.reduceOptions, replaceVariables: view.interpolate, theme, data, timeZone,
    sparkline: stat && o.graphMode !== 'none',
  });
  const draw = ({ value: v, alignmentFactors, ...size }: any, menu: any) => {
    const { openMenu: onClick, targetClassName: className } = menu;
    const common = { ...size, alignmentFactors, theme: theme as any, onClick, className };
    return stat ? (
      <BigValue {...common} value={v.display} sparkline={v.sparkline} colorMode={o.colorMode} graphMode={o.graphMode}
        justifyMode={o.justifyMode} textMode={o.textMode} disableWideLayout={!o.wideLayout} hasLinks={v.hasLinks} />
    ) : (
      <BarGauge {...common} value={v.display} field={v.field} display={v.view?.getFieldDisplayProcessor(v.colIndex)}
        itemSpacing={10} displayMode={o.displayMode} showUnfilled={o.showUnfilled} valueDisplayMode={o.valueMode}
        namePlacement={o.namePlacement} />
    );
  };
  return (
    <VizRepeater getValues={getValues} getAlignmentFactors={getDisplayValueAlignmentFactors as any} renderCounter={0}
      source={data} width={width} height={height} orientation={o.orientation} itemSpacing={stat ? 3 : 10}
      minVizWidth={o.minVizWidth} minVizHeight={o.minVizHeight} maxVizHeight={o.maxVizHeight}
      renderValue={(v: any) => v.value.hasLinks
        ? <DataLinksContextMenu links={v.value.getLinks}>{(menu) => draw(v, menu)}</DataLinksContextMenu>
        : draw(v, {})} />
  );
}

function Table({ view, panel, data, result, width, height }: DataProps) {
  const { options: o, fieldConfig } = panel;
  const frame = data[o.frameIndex ?? 0];
  const seen = frame.fields.filter((f) => !f.config.custom?.hideFrom?.viz && !f.config.custom?.hidden);
  const columns = seen.map((f) => ({
    name: getFieldDisplayName(f, frame), identity: f.type === FieldType.string,
    gauge: f.config.custom?.cellOptions?.type === 'gauge',
    zeros: f.values.filter((v) => v != null && Math.abs(v) < 0.0005).length,
  }));
  Object.assign(result, { columns, rows: frame.length, room: height });
  const [sortBy, setSortBy] = useState(o.sortBy);
  return (
    <TableNG data={frame} width={width} height={height} noHeader={!o.showHeader}
      showTypeIcons={o.showTypeIcons} cellHeight={o.cellHeight} sortBy={sortBy} onSortByChange={setSortBy}
      enablePagination={o.enablePagination ?? o.footer?.enablePagination} timeRange={view.range}
      fieldConfig={fieldConfig} structureRev={1} getActions={() => []} />
  );
}

function Lines({ view, panel, data, result, marks, width, height }: DataProps) {
  const afterDraw = ({ ctx, bbox, valToPos, scales }: any) => {
    result.state = Object.values<any>(scales).every(({ min, max }) => max == null || max > min) ? 'data' : 'blank';
    ctx.save();
    ctx.setLineDash([4, 4]);
    for (const { at, color } of marks) {
      const x = valToPos(at, 'x', true);
      ctx.strokeStyle = theme.visualization.getColorByName(color);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  };
  return (
    <TimeSeries frames={data.filter((f) => f.length > 0)} structureRev={1} timeRange={view.range} timeZone={timeZone}
      width={width} height={height} legend={panel.options.legend} options={panel.options}>
      {(builder) => {
        builder.addHook('draw', afterDraw);
        return null;
      }}
    </TimeSeries>
  );
}

/** State timelines and heatmaps are not in Grafana's npm packages: their series are drawn as steps, under a note. */
function Substitute(props: DataProps) {
  const custom = { lineInterpolation: 'stepAfter', lineWidth: 1, fillOpacity: 0 };
  const restyle = ({ config, ...f }: Field) =>
    ({ ...f, config: { ...config, color: { mode: 'palette-classic' }, custom: { ...config.custom, ...custom } } });
  const data = props.data.map((frame) => ({ ...frame, fields: frame.fields.map(restyle) }));
  const legend = { showLegend: true, displayMode: 'list', placement: 'bottom', calcs: [] };
  const options = { ...props.panel.options, legend };
  return (
    <>
      <div style={{ color: theme.colors.text.secondary, lineHeight: '18px' }}>{props.panel.type}, drawn as steps</div>
      <Lines {...props} data={data} panel={{ ...props.panel, options }} height={props.height - 18} />
    </>
  );
}

/** The panels that are shown, each moved up to what is above it, as Grafana does. */
function layout(panels: Panel[], open: Set<number>) {
  const bottoms = new Array(24).fill(0);
  return panels.flatMap((p: any) => (open.has(p.id) ? [p, ...(p.panels ?? [])] : [p])).map((p) => {
    const { x, w, h } = p.gridPos;
    const y = Math.max(...bottoms.slice(x, x + w));
    bottoms.fill(y + h, x, x + w);
    return { ...p, gridPos: { x, y, w, h } };
  });
}

function go(change: (p: URLSearchParams) => void) {
  const next = new URLSearchParams(params);
  change(next);
  location.search = next.toString();
}

function Control({ variable: v }: { variable: Variable }) {
  const set = (values: string[]) => go((p) => {
    p.delete('var-' + v.name);
    values.forEach((value) => p.append('var-' + v.name, value));
  });
  if (v.type === 'textbox') {
    const changed = (text: string) => text !== v.values[0] && set([text]);
    return <Input width={10} defaultValue={v.values[0]} onBlur={(e) => changed(e.currentTarget.value)} />;
  } else if (!v.multi) {
    return (
      <Combobox width="auto" minWidth={16} options={v.choices} value={v.values[0]} onChange={(c) => set([c.value])} />
    );
  }
  const choose = (values: string[]) => {
    const all = values.length === 0 || (values.includes(ALL) && !v.values.includes(ALL));
    set(all ? [ALL] : values.filter((value) => value !== ALL));
  };
  return (
    <MultiCombobox width="auto" minWidth={16} options={v.choices} value={v.values}
      onChange={(chosen) => choose(chosen.map((c) => c.value))} />
  );
}

function Toolbar({ view, others }: { view: View; others: Dashboard[] }) {
  const from = String(view.range.raw.from);
  const ranges = [...new Set([from, 'now-1h', 'now-6h', 'now-24h', 'now-7d', 'now-30d'])];
  const variables = view.variables.filter((v) => v.type !== 'datasource' && v.hide !== 2);
  const link = (text: string, href: string) =>
    <LinkButton key={text} variant="secondary" fill="text" href={href}>{text}</LinkButton>;
  const otherTheme = theme.isDark ? 'light' : 'dark';
  return (
    <nav style={{ display: 'flex', flexWrap: 'wrap', gap: 4, marginBottom: 8 }}>
      {variables.map((v) => <InlineField key={v.name} label={v.label ?? v.name}><Control variable={v} /></InlineField>)}
      <InlineField label="From">
        <Combobox width={14} value={from} options={ranges.map((value) => ({ label: value, value }))}
          onChange={(c) => go((p) => (p.set('from', c.value), p.set('to', 'now')))} />
      </InlineField>
      {link(otherTheme + ' theme', '?' + new URLSearchParams({ ...Object.fromEntries(params), theme: otherTheme }))}
      {others.map((d) => link(d.title!, view.link(d.uid)))}
    </nav>
  );
}

function Page({ view, others, marks }: { view: View; others: Dashboard[]; marks: Mark[] }) {
  const { title, panels: all } = view.dashboard;
  const [width, setWidth] = useState(document.documentElement.clientWidth);
  const opened = all.filter((p: any) => p.type === 'row' && (!p.collapsed || params.get('rows') === 'open'));
  const [open, setOpen] = useState(new Set(opened.map((p) => p.id!)));
  useEffect(() => {
    window.addEventListener('resize', () => setWidth(document.documentElement.clientWidth));
  }, []);
  const toggle = (id: number) => setOpen((now) => now.symmetricDifference(new Set([id])));
  const panels = layout(all, open);
  const column = (width - 24) / 24; // 16 px of padding on both sides, and the last column's gap of 8 px
  const cell = 38;
  const content = (p: any, w: number, h: number) => p.type === 'row' ? (
    <button onClick={() => toggle(p.id)} style={{ all: 'unset', cursor: 'pointer', lineHeight: `${h}px` }}>
      {open.has(p.id) ? '⌄' : '›'} {view.interpolate(p.title)}
    </button>
  ) : (
    <PanelChrome title={view.interpolate(p.title)} description={p.description} width={w} height={h}>
      {(width, height) => p.type !== 'text' ? <Body {...{ view, panel: p, width, height, marks }} /> : (
        <div className="markdown-html" style={{ height, overflow: 'auto' }}
          dangerouslySetInnerHTML={{ __html: renderMarkdown(p.options.content) }} />
      )}
    </PanelChrome>
  );
  return (
    <main style={{ padding: '8px 16px 16px' }}>
      <h1 style={{ fontSize: 20, margin: '4px 0 8px' }}>{title}</h1>
      <Toolbar view={view} others={others} />
      <div style={{ position: 'relative', height: Math.max(...panels.map(({ gridPos: g }) => g.y + g.h)) * cell }}>
        {panels.map((p) => {
          const size = { width: column * p.gridPos.w - 8, height: cell * p.gridPos.h - 8 };
          const place = { position: 'absolute', left: column * p.gridPos.x, top: cell * p.gridPos.y, ...size } as const;
          return <section key={p.id} id={`panel-${p.id}`} style={place}>{content(p, size.width, size.height)}</section>;
        })}
      </div>
    </main>
  );
}

async function start() {
  const uid = location.pathname.split('/')[2];
  const all: Dashboard[] = await (await fetch('/dashboards')).json();
  const dashboard = all.find((d) => d.uid === uid);
  if (!dashboard) {
    throw new Error(`no dashboard ${uid}`);
  }
  const view = new View(dashboard, params);
  document.title = dashboard.title;
  const root = createRoot(document.getElementById('root')!);
  const context: any = { eventBus: new EventBusSrv(), eventsScope: 'page', sync: () => 0, app: CoreApp.Dashboard };
  const render = (children: React.ReactNode) => root.render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <PanelContextProvider value={context}>{children}</PanelContextProvider>
    </ThemeContext.Provider>);
  // Panels measure text: the fonts that the global styles name are loaded before anything is drawn.
  render(null);
  await new Promise(requestAnimationFrame);
  await Promise.all(['400 14px Inter', '500 14px Inter'].map((font) => document.fonts.load(font)));
  begun = performance.now();
  await resolveVariables(view);
  render(<Page view={view} others={all.filter((d) => d.uid !== uid)} marks={await queryAnnotations(view)} />);
}

start().catch((e) => {
  document.body.append(String(e));
  throw e;
});
