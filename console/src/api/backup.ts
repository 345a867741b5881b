/** Scheduled backups of the server. Times are milliseconds of the Unix epoch. */
import { ApiError, get, post, send } from './http.ts';

const PATH = '_node/_local/_backup';

export interface Attempt {
  started_ms: number;
  ended_ms: number;
  bytes?: number;
  sent_bytes?: number;
  error?: string;
}

export interface Backups {
  configured: boolean;
  location: string;
  interval_ms: number;
  next_ms: number | null;
  running: { started_ms: number; total_files: number; files: number; sent_bytes: number } | null;
  /** Since the start of the server, the oldest first. */
  attempts: Attempt[];
  /** Names in the bucket, the oldest first. */
  stored: string[];
}

/** Returns the state of the backups, or undefined if the server does not support them. */
export async function backups(signal: AbortSignal): Promise<Backups | undefined> {
  try {
    return await get<Backups>(PATH, signal);
  } catch (error) {
    if (error instanceof ApiError && [404, 405].includes(error.status)) return undefined;
    throw error;
  }
}

export const startBackup = () => post(PATH, {});

export async function restart(): Promise<void> {
  await send('POST', '_node/_local/_restart', { body: '{}' });
}
