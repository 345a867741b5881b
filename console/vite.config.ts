import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { defineConfig, type Plugin } from 'vite';

/** Writes a gzip copy of each file of the build. The server embeds and sends the copies. */
function compressed(): Plugin {
  return {
    name: 'compressed',
    apply: 'build',
    // After the files are written, because other plugins change them until then.
    writeBundle({ dir }, bundle) {
      if (dir === undefined) throw new Error('the build has no directory');
      for (const name of Object.keys(bundle)) {
        const path = join(dir, name);
        writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
      }
    },
  };
}

// Links within the pages are relative, so that they work below any prefix.
export default defineConfig({
  base: './',
  esbuild: { jsx: 'automatic', jsxImportSource: 'preact' },
  build: {
    target: 'es2022',
    assetsDir: 'assets',
    // Assets are not inlined, because inlined ones would need exceptions in the content security policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 1000,
  },
  plugins: [compressed()],
  // `COUCHDB_URL=http://127.0.0.1:5984 npm run dev` uses any CouchDB-compatible server.
  server: {
    proxy: {
      '^/(?!_utils/)': { target: process.env['COUCHDB_URL'] ?? 'http://127.0.0.1:5984', changeOrigin: true },
    },
  },
  // The random tests take seconds on a machine that also compiles.
  test: { include: ['src/**/*.test.ts'], testTimeout: 60_000 },
} as Parameters<typeof defineConfig>[0]);
