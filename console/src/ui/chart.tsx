/** Line and bar charts. uPlot is loaded with the first chart. */
import { useEffect, useRef } from 'preact/hooks';
import type uPlot from 'uplot';
import { onTheme } from './theme.ts';

export type Data = [(number | null)[], ...(number | null)[][]];

interface ChartProps {
  label: string;
  names: string[];
  data: Data;
  format: (value: number) => string;
  height?: number;
  /** Labels of the x values 0, 1, 2 …; without them the x axis is time. */
  ticks?: string[];
  bars?: boolean;
  /** Minimum length of the time axis in seconds. */
  span?: number;
}

const COLOURS = ['--plot-1', '--plot-2', '--plot-3', '--plot-4'];

export function Chart({ label, names, data, format, height = 160, ticks, bars = false, span = 60 }: ChartProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>();
  const latest = useRef({ data, ticks });
  latest.current = { data, ticks };
  useEffect(() => {
    let disposed = false;
    let resize: ResizeObserver | undefined;
    const draw = async () => {
      const [{ default: Plot }] = await Promise.all([import('uplot'), import('uplot/dist/uPlot.min.css')]);
      const box = host.current;
      if (disposed || !box) return;
      plot.current?.destroy();
      plot.current = new Plot(plotOptions(box, { names, format, height, bars, isTime: ticks === undefined, span, tick: (at) => latest.current.ticks?.[at] ?? '' }, Plot), latest.current.data as uPlot.AlignedData, box);
      resize ??= new ResizeObserver(() => plot.current?.setSize({ width: box.clientWidth, height }));
      resize.observe(box);
    };
    void draw();
    const stop = onTheme(() => void draw());
    return () => {
      disposed = true;
      stop();
      resize?.disconnect();
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [names.join('\n'), bars, height, span, ticks === undefined]);
  useEffect(() => plot.current?.setData(data as uPlot.AlignedData), [data]);
  const newest = names.map((name, index) => {
    const value = data[index + 1]?.findLast((each) => each !== null);
    return `${name} ${value === undefined || value === null ? 'no data' : format(value)}`;
  });
  return (
    <figure class="chart">
      <div class="plot" ref={host} role="img" aria-label={`${label}: ${newest.join(', ')}`} style={{ minHeight: `${height}px` }} />
      {names.length > 1 && <figcaption class="legend">{names.map((name, index) => <span key={name}><i class={`swatch swatch-${index + 1}`} />{name}</span>)}</figcaption>}
    </figure>
  );
}

interface PlotOptions {
  names: string[];
  format: (value: number) => string;
  height: number;
  bars: boolean;
  isTime: boolean;
  span: number;
  tick: (at: number) => string;
}

function plotOptions(box: HTMLElement, options: PlotOptions, Plot: typeof uPlot): uPlot.Options {
  const styles = getComputedStyle(box);
  const colour = (name: string) => styles.getPropertyValue(name).trim();
  const axis: uPlot.Axis = { stroke: colour('--text-2'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false }, font: '11px system-ui' };
  const paths = options.bars ? Plot.paths.bars?.({ size: [0.7, 48], radius: 0.15 }) : undefined;
  return {
    width: box.clientWidth || 300,
    height: options.height,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 } },
    scales: { x: { time: options.isTime, range: (_, min, max) => (options.isTime ? [Math.min(min, max - options.span), max] : options.bars ? [min - 0.6, max + 0.6] : [min, max]) }, y: { range: (_, min, max) => [Math.min(0, min), max > 0 ? max * 1.1 : min < 0 ? 0 : 1] } },
    axes: [
      options.isTime ? { ...axis, grid: { show: false }, space: 90, values: (_, splits) => splits.map((at) => new Date(at * 1000).toTimeString().slice(0, 8)) } : { ...axis, grid: { show: false }, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], values: (_, splits) => splits.map((at) => (Number.isInteger(at) ? options.tick(at).slice(0, 14) : '')) },
      { ...axis, size: 64, values: (_, splits) => splits.map((value) => options.format(value)) },
    ],
    series: [
      {},
      ...options.names.map((name, index) => {
        const stroke = colour(COLOURS[index % COLOURS.length] ?? '--plot-1');
        return { label: name, stroke, width: 1.5, points: { show: false }, ...(paths ? { paths, fill: stroke } : options.names.length === 1 ? { fill: `${stroke}22` } : {}) };
      }),
    ],
  };
}
