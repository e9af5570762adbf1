// Build the bundle that is committed under src/jumok/web/static. `node build.mjs --check` compares instead of writing,
// and `node build.mjs --site` builds the scripts of the documentation site, which are not committed.
import { build } from "esbuild";
import { readFileSync, writeFileSync, mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = fileURLToPath(new URL(".", import.meta.url));
const target = `${here}../src/jumok/web/static/`;
if (process.argv.includes("--site")) {
  await build({
    absWorkingDir: here,
    entryPoints: { site: "src/site/main.tsx", engine: "src/site/engine_entry.ts" },
    bundle: true,
    minify: true,
    format: "iife", // a module would not load from disk
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    jsx: "automatic",
    jsxImportSource: "preact",
    outdir: `${here}../tools/site/theme/assets/`,
  });
  process.exit();
}
const result = await build({
  absWorkingDir: here,
  entryPoints: { jumok: "src/main.tsx", "jumok.css": "src/style.css" },
  entryNames: "[name]",
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  outdir: target,
  write: false,
});

let isCurrent = true;
for (const file of result.outputFiles) {
  const name = file.path.split(/[\\/]/).pop().replace("jumok.css.css", "jumok.css");
  const path = target + name;
  if (process.argv.includes("--check")) {
    let committed = Buffer.alloc(0);
    try {
      committed = readFileSync(path);
    } catch {}
    if (!committed.equals(Buffer.from(file.contents))) {
      isCurrent = false;
      console.error(`src/jumok/web/static/${name} differs from what page/ builds; run: make page`);
    }
  } else {
    mkdirSync(target, { recursive: true });
    writeFileSync(path, file.contents);
    console.log(`${name}: ${file.contents.length} bytes, ${gzipSync(file.contents, { level: 9 }).length} gzipped`);
  }
}

const MAX_ENGINE = 25_000; // bytes, gzipped: a site may load the engine without the page
const engine = await build({ absWorkingDir: here, entryPoints: ["src/engine/index.ts"], bundle: true, minify: true, format: "esm", target: "es2022", charset: "utf8", write: false });
const size = gzipSync(engine.outputFiles[0].contents, { level: 9 }).length;
if (!process.argv.includes("--check")) console.log(`the engine alone: ${engine.outputFiles[0].contents.length} bytes, ${size} gzipped`);
if (size > MAX_ENGINE) {
  isCurrent = false;
  console.error(`the engine has ${size} bytes gzipped, more than ${MAX_ENGINE}`);
}
if (!isCurrent) process.exit(1);
