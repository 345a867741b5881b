/** Icons on a grid of 24 by 24. They are hidden from screen readers: the adjacent text or the label must have the same meaning. */
const PATHS = {
  database: 'M4 6c0-1.700 3.600-3 8-3s8 1.300 8 3-3.600 3-8 3-8-1.300-8-3zM4 6v12c0 1.700 3.600 3 8 3s8-1.300 8-3V6M4 12c0 1.700 3.600 3 8 3s8-1.300 8-3',
  dashboard: 'M4 19V9M10 19V5M16 19v-7M21 19H3',
  activity: 'M3 12h4l3-8 4 16 3-8h4',
  replicate: 'M4 9h13l-4-4M20 15H7l4 4',
  users: 'M9 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM2 21c0-4 3-6 7-6s7 2 7 6M16 3.500a4 4 0 0 1 0 7.500M18 15.500c2.500.500 4 2.500 4 5.500',
  gear: 'M12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM12 2v3M12 19v3M4.900 4.900 7 7M17 17l2.100 2.100M2 12h3M19 12h3M4.900 19.100 7 17M17 7l2.100-2.100',
  server: 'M4 4h16v6H4zM4 14h16v6H4zM8 7h.01M8 17h.01',
  logs: 'M5 3h14v18H5zM9 8h6M9 12h6M9 16h4',
  plus: 'M12 5v14M5 12h14',
  search: 'M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM20 20l-4-4',
  trash: 'M4 7h16M9 7V4h6v3M6 7l1 14h10l1-14',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  check: 'M4 12l5 5L20 6',
  close: 'M6 6l12 12M18 6 6 18',
  menu: 'M4 7h16M4 12h16M4 17h16',
  sun: 'M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v2M12 20v2M4 12H2M22 12h-2M5 5l1.500 1.500M17.500 17.500 19 19M5 19l1.500-1.500M17.500 6.500 19 5',
  moon: 'M20 14A8 8 0 0 1 10 4a8 8 0 1 0 10 10z',
  user: 'M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21c0-4 3.500-6 8-6s8 2 8 6',
  file: 'M6 3h8l5 5v13H6zM14 3v5h5',
  upload: 'M12 16V4M7 9l5-5 5 5M4 20h16',
  download: 'M12 4v12M7 11l5 5 5-5M4 20h16',
  code: 'M8 7l-5 5 5 5M16 7l5 5-5 5',
  play: 'M7 4v16l13-8z',
  pause: 'M8 5v14M16 5v14',
  stop: 'M6 6h12v12H6z',
  refresh: 'M20 11a8 8 0 1 0-2 6M20 4v7h-7',
  info: 'M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 11v6M12 7.500h.01',
  warning: 'M12 3 2 20h20zM12 10v4M12 17h.01',
  lock: 'M6 11h12v9H6zM8 11V8a4 4 0 0 1 8 0v3',
  history: 'M4 12a8 8 0 1 0 3-6L4 8M4 3v5h5M12 8v4l3 2',
  attach: 'M20 11l-8.500 8.500a5 5 0 0 1-7-7L13 4a3.300 3.300 0 0 1 4.700 4.700l-8.500 8.500a1.700 1.700 0 0 1-2.400-2.400L14.500 7',
  branch: 'M6 3v12M6 21a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM18 9a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM18 9c0 5-6 4-10.500 7',
  right: 'M9 5l7 7-7 7',
  down: 'M5 9l7 7 7-7',
  up: 'M5 15l7-7 7 7',
  external: 'M14 4h6v6M20 4l-9 9M18 14v6H4V6h6',
  flask: 'M9 3h6M10 3v6L4 19a1.500 1.500 0 0 0 1.300 2h13.400a1.500 1.500 0 0 0 1.300-2L14 9V3M7.500 15h9',
  table: 'M3 5h18v14H3zM3 10h18M3 15h18M9 5v14',
  filter: 'M3 5h18l-7 8v6l-4 2v-8z',
  chart: 'M4 4v16h16M8 16v-4M12 16V8M16 16v-6',
  clock: 'M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3 2',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8"
      stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

export function Logo({ size = 28 }: { size?: number }) {
  return (
    <svg class="logo" width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="8" class="logo-back" />
      <g class="logo-front">
        <path d="M8 12.5a2.5 2.5 0 0 1 2.5-2.5h11a2.5 2.5 0 0 1 2.500 2.500V15h-1.200a2.800 2.800 0 0 0-2.800 2.800V18h-8v-.2A2.800 2.800 0 0 0 9.200 15H8z" />
        <path d="M5 17.8A1.800 1.800 0 0 1 6.800 16h.4A1.800 1.800 0 0 1 9 17.800V20h14v-2.200a1.800 1.800 0 0 1 1.800-1.800h.4a1.800 1.800 0 0 1 1.800 1.800V22a2 2 0 0 1-2 2H7a2 2 0 0 1-2-2z" />
      </g>
    </svg>
  );
}
