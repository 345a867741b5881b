// Client of Marionette, the protocol by which every Firefox is remote-controlled, because the Firefox of playwright is a different build.
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Path of Firefox, or undefined if it is not installed. */
export const FIREFOX = [process.env.FIREFOX, '/usr/bin/firefox', '/usr/bin/firefox-esr'].find((path) => path && existsSync(path));

const START_TIMEOUT = 60_000;
const POLL_INTERVAL = 100;
const PREFS = {
  'marionette.port': 0, 'ui.prefersReducedMotion': 1, 'browser.shell.checkDefaultBrowser': false, 'datareporting.policy.dataSubmissionEnabled': false, 'app.update.enabled': false,
  'toolkit.telemetry.enabled': false, 'browser.startup.homepage_override.mstone': 'ignore', 'network.captive-portal-service.enabled': false, 'network.connectivity-service.enabled': false,
};

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function activePort(profile) {
  const file = join(profile, 'MarionetteActivePort');
  for (const start = Date.now(); Date.now() - start < START_TIMEOUT; await pause(POLL_INTERVAL)) {
    const text = existsSync(file) ? readFileSync(file, 'utf8').trim() : '';
    if (text !== '') return Number(text);
  }
  throw new Error('Firefox opened no Marionette port.');
}

/** Connects to Marionette. Returns a function that sends a command and returns its result. Packets are `length:JSON`. */
async function client(port) {
  const socket = connect(port, '127.0.0.1');
  const waiting = new Map();
  let received = Buffer.alloc(0);
  let last = 0;
  const greeting = new Promise((resolve, reject) => {
    waiting.set(0, { resolve, reject });
    socket.on('error', reject);
  });
  socket.on('data', (chunk) => {
    received = Buffer.concat([received, chunk]);
    for (let colon = received.indexOf(':'); colon > 0; colon = received.indexOf(':')) {
      const end = colon + 1 + Number(received.subarray(0, colon));
      if (received.length < end) return;
      const packet = JSON.parse(received.subarray(colon + 1, end));
      received = received.subarray(end);
      const [, id, error, result] = Array.isArray(packet) ? packet : [1, 0, null, packet];
      const { resolve, reject } = waiting.get(id);
      waiting.delete(id);
      if (error) reject(new Error(`${error.error}: ${error.message}`));
      else resolve(result);
    }
  });
  await greeting;
  return {
    send: (command, parameters = {}) => new Promise((resolve, reject) => {
      last += 1;
      waiting.set(last, { resolve, reject });
      const packet = Buffer.from(JSON.stringify([0, last, command, parameters]));
      socket.write(Buffer.concat([Buffer.from(`${packet.length}:`), packet]));
    }),
    close: () => socket.destroy(),
  };
}

/** Launches Firefox without a window and with an empty profile. */
export async function launchFirefox({ width = 1400, height = 900 } = {}) {
  const profile = mkdtempSync(join(tmpdir(), 'settee-firefox-'));
  writeFileSync(join(profile, 'user.js'), Object.entries(PREFS).map(([name, value]) => `user_pref(${JSON.stringify(name)}, ${JSON.stringify(value)});\n`).join(''));
  const child = spawn(FIREFOX, ['--headless', '--marionette', '--no-remote', '--profile', profile], { env: { ...process.env, NO_PROXY: '*' }, stdio: 'ignore' });
  const stop = () => {
    const gone = child.exitCode !== null ? Promise.resolve() : new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    return gone.then(() => rmSync(profile, { recursive: true, force: true, maxRetries: 5 }));
  };
  try {
    const { send, close } = await client(await activePort(profile));
    await send('WebDriver:NewSession', { capabilities: { alwaysMatch: {} } });
    await send('WebDriver:SetWindowRect', { width, height });
    return {
      send,
      /** Runs the body of a function in the page and returns its result. */
      run: (script, ...args) => send('WebDriver:ExecuteScript', { script, args }).then(({ value }) => value),
      stop: () => {
        close();
        return stop();
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Waits until a script returns a true value. */
export async function until(firefox, what, script, ...args) {
  const start = Date.now();
  for (;;) {
    const value = await firefox.run(script, ...args);
    if (value) return value;
    if (Date.now() - start > 15_000) throw new Error(`${what} did not happen: ${await firefox.run('return `${location.href}\\n${document.body.innerText.slice(0, 500)}`')}`);
    await pause(POLL_INTERVAL);
  }
}
