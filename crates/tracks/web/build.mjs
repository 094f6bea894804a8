// Fetches what the map is made of, and bundles it into `dist`, where builds embed it: node build.mjs [--force]
//
// Packages come by npm under the lock file into `target/web`, so that the source tree stays as it is, and only when the
// lock file is another one. Every file is compressed here, once, and named by its content, so that browsers may keep it
// for ever; only the page itself has a fixed name. `licences.txt` has the licence of each package that is bundled.

import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, 'dist');
const modules = join(here, '../../../target/web');
const packages = join(modules, 'node_modules');

if (Number(process.versions.node.split('.')[0]) < 20) {
  console.error(`error: this is Node ${process.versions.node}; the map needs 20 or newer`);
  process.exit(1);
}
fetchPackages(process.argv.includes('--force'));
const esbuild = createRequire(join(modules, 'package.json'))('esbuild');

const built = await esbuild.build({
  absWorkingDir: here,
  entryPoints: [
    { in: 'src/main.js', out: 'map' },
    { in: 'src/style.css', out: 'style' },
    { in: join(packages, 'maplibre-gl/dist/maplibre-gl-worker.mjs'), out: 'worker' },
  ],
  outdir: 'out',
  entryNames: '[name]-[hash]',
  bundle: true,
  minify: true,
  format: 'esm',
  target: 'es2022',
  nodePaths: [packages],
  legalComments: 'none',
  logLevel: 'warning',
  write: false,
});

const files = new Map(built.outputFiles.map((file) => [basename(file.path), Buffer.from(file.contents)]));
files.set('licences.txt', Buffer.from(licences()));
files.set('icon.svg', readFileSync(join(here, 'src/icon.svg')));
files.set('index.html', Buffer.from(page(readFileSync(join(here, 'src/index.html'), 'utf8'))));

// All of it or what was there before: nothing is written until everything else has worked. What is the same already
// stays untouched, so that no build begins for nothing.
mkdirSync(out, { recursive: true });
const before = readdirSync(out).filter((name) => name.endsWith('.gz'));
before.filter((name) => !files.has(name.slice(0, -3))).forEach((name) => rmSync(join(out, name)));
let total = 0;
for (const [name, bytes] of files) {
  const packed = gzipSync(bytes, { level: 9 });
  // The system is named in the tenth byte; the same sources shall give the same file everywhere.
  packed[9] = 255;
  const path = join(out, `${name}.gz`);
  if (!before.includes(`${name}.gz`) || !readFileSync(path).equals(packed)) writeFileSync(path, packed);
  total += packed.length;
}
console.log(`the map: ${files.size} files, ${Math.round(total / 1024)} KB compressed, in crates/tracks/web/dist`);

/** Has npm fetch the packages, unless they are there. The copy of the lock file that says so is written last. */
function fetchPackages(isForced) {
  const [lock, there] = [readFileSync(join(here, 'package-lock.json')), join(modules, 'fetched')];
  if (!isForced && existsSync(there) && readFileSync(there).equals(lock)) return;
  mkdirSync(modules, { recursive: true });
  rmSync(there, { force: true });
  for (const name of ['package.json', 'package-lock.json', '.npmrc'])
    copyFileSync(join(here, name), join(modules, name));
  console.error('fetching what the map is made of, with npm');
  const { status, error } = spawnSync('npm', ['ci', '--silent'], { cwd: modules, stdio: 'inherit' });
  if (status !== 0) {
    console.error(
      `error: npm ${error?.message ?? `ended with ${status}`}; install npm, and see that it reaches its registry`,
    );
    process.exit(1);
  }
  writeFileSync(there, lock);
}

/** The page with the names of what it loads. */
function page(html) {
  return html.replaceAll(/\{\{(\w+)\.(\w+)\}\}/g, (_, stem, extension) => {
    const found = [...files.keys()].find((name) => name.startsWith(`${stem}-`) && name.endsWith(`.${extension}`));
    if (!found) throw new Error(`index.html wants ${stem}.${extension}, which is not built`);
    return found;
  });
}

/** The licences of all packages that are not for development alone. */
function licences() {
  const lock = JSON.parse(readFileSync(join(modules, 'package-lock.json'), 'utf8'));
  const parts = [];
  for (const [path, entry] of Object.entries(lock.packages)) {
    if (path === '' || entry.dev || entry.optional) continue;
    const folder = join(modules, path);
    const about = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    const texts = readdirSync(folder).filter((name) => /^licen[cs]e/i.test(name));
    const text = texts.map((name) => readFileSync(join(folder, name), 'utf8').trim()).join('\n\n');
    const licence = about.license ?? entry.license;
    if (!licence) throw new Error(`${path} has no licence`);
    parts.push(`${about.name} ${about.version} (${licence})\n\n${text || 'The package has no text of its licence.'}\n`);
  }
  const line = `\n${'-'.repeat(80)}\n\n`;
  return `The map has code of these packages.\n${line}${parts.join(line)}`;
}
