// SPDX-License-Identifier: LGPL-2.1-or-later
// Builds the page, its unit tests or the API that the tests fake:
//
//     node build.mjs page|tests|fake DIRECTORY
//
// The same sources and the same package-lock.json give the same bytes.
import { build } from 'esbuild';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const LIBRARIES = ['preact', 'uplot'];

const common = {
    absWorkingDir: here,
    bundle: true,
    charset: 'ascii',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    logLevel: 'warning',
    target: ['es2020'],
};

/** The licenses of what is bundled, which have to go wherever the bundle goes. */
function licenses() {
    const texts = LIBRARIES.map((name) => {
        const folder = join(here, 'node_modules', name);
        const { version } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
        const text = readFileSync(join(folder, 'LICENSE'), 'utf8').trim();
        return `${name} ${version}\n\n${text}`;
    });
    const lines = ['perfguard\n\nSPDX-License-Identifier: LGPL-2.1-or-later', ...texts]
        .join('\n\n----\n\n').replace(/[^\n\x20-\x7e]/g, '').split('\n');
    return ['/*!', ...lines.map((line) => ` * ${line}`.trimEnd()), ' */'].join('\n');
}

async function page(target) {
    await build({
        ...common,
        entryPoints: { page: 'src/main.tsx' },
        outdir: target,
        format: 'iife',
        minify: true,
        legalComments: 'none',
        banner: { js: licenses(), css: '/*! Licenses: see page.js */' },
        define: { 'process.env.NODE_ENV': '"production"' },
    });
    writeFileSync(join(target, 'index.html'), readFileSync(join(here, 'src', 'index.html')));
}

async function forNode(target, entryPoints) {
    await build({
        ...common,
        entryPoints,
        outdir: target,
        outExtension: { '.js': '.mjs' },
        platform: 'node',
        format: 'esm',
        sourcemap: 'inline',
    });
}

const kinds = {
    page,
    tests: (target) => forNode(target, readdirSync(join(here, 'tests'))
        .filter((name) => name.endsWith('.test.ts')).map((name) => join('tests', name))),
    fake: (target) => forNode(target, ['tests/fake/server.ts']),
};

const [kind, where] = process.argv.slice(2);
if (!kinds[kind] || !where) {
    console.error('usage: node build.mjs page|tests|fake DIRECTORY');
    process.exit(2);
}
const target = resolve(where);
rmSync(target, { recursive: true, force: true });
mkdirSync(target, { recursive: true });
await kinds[kind](target);
