/** Worked examples: a model, a text, a head and what to look at. The numbers are in examples.json, and measured by a test. */

import type { App } from "../app";
import type { Edit } from "../protocol";
import { checkSelection } from "../selection";
import type { Words } from "../words";
import list from "./examples.json";

export type ExampleName = keyof Words["examples"];

export interface Example {
  name: ExampleName;
  model: string;
  text: string;
  site: string; // the selected head
  head: number;
  query: number;
  key: number;
  query_label: string;
  key_label: string;
  weight: number; // of the selected cell
  other: { query: number; key: number; query_label: string; key_label: string; weight: number } | null; // another cell of the head
  prediction: { position: number; label: string; clean: number; edited: number; edits: Edit[] } | null; // a probability without and with edits
}

export const EXAMPLES = list as unknown as Example[];

/** The examples that this page can answer: a program runs their models, a saved file has its own run only. */
export function listExamples(app: App): Example[] {
  const { hello, run } = app;
  if (!hello.value || app.desk.isActive.value) return [];
  const models = hello.value.models.map(({ name }) => name);
  const isShown = ({ model, text }: Example) => run.current.value?.model.name === model && run.current.value.text === text;
  return EXAMPLES.filter((example) => (app.can("run") && models.includes(example.model)) || isShown(example));
}

/** Show an example: run its text without edits, and select its cell. */
export async function openExample(app: App, example: Example): Promise<boolean> {
  if (app.can("run")) {
    app.edits.forget();
    if (!(await app.run.execute(example.model, example.text))) return false;
  }
  const run = app.run.current.value!;
  const site = run.sites.findIndex(({ name }) => name === example.site);
  app.view.value = "map";
  app.selection.current.value = checkSelection(run, { site, head: example.head, query: example.query, key: example.key });
  return true;
}
