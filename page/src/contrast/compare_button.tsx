/** The button that opens the view of two inputs. */

import { useApp } from "../app";

export function CompareButton() {
  const app = useApp();
  const words = app.words.value.contrast;
  const run = app.run.current.value;
  if (!run || !app.can("contrast") || run.answered || app.view.value === "contrast") return null;
  if (run.text === null && (app.hello.value?.models.length ?? 0) < 2) return null;
  return (
    <button data-action="contrast" onClick={() => (app.view.value = "contrast")}>
      ⇄ {run.text === null ? words.openModel : words.open}
    </button>
  );
}
