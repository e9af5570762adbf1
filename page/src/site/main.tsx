/** The script of the site: search, theme and menu, and the live cells of its pages. */

import { render, type ComponentChild } from "preact";
import type { ExerciseTexts } from "./answers";
import { AttentionCell } from "./attention_cell";
import { ExerciseCell } from "./exercise_cell";
import { locate, startSearch } from "./search";
import { SpeechCell } from "./speech_cell";
import { switchTheme } from "./theme";
import { TranslatorCell } from "./translator_cell";
import { words } from "./words";

interface PageData {
  cells: Record<string, { kind: string; data: any }>;
  texts: ExerciseTexts;
}

const CELLS: Record<string, (data: any, texts: ExerciseTexts) => ComponentChild> = {
  attention: (data) => <AttentionCell data={data} />,
  exercise: (data, texts) => <ExerciseCell exercise={data} texts={texts} />,
  speech: (data) => <SpeechCell data={data} />,
  translator: (data) => <TranslatorCell data={data} />,
};

function mountCells(): void {
  const page = document.getElementById("site-cells");
  if (!page) return;
  const { cells, texts }: PageData = JSON.parse(page.textContent!);
  for (const element of document.querySelectorAll<HTMLElement>("[data-cell]")) {
    const { kind, data } = cells[element.dataset.cell!];
    element.replaceChildren(); // the text that is shown without scripts
    render(CELLS[kind](data, texts), element);
    element.dataset.ready = "true";
  }
}

function addCopyButtons(): void {
  for (const block of document.querySelectorAll<HTMLElement>(".highlight")) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "copy", textContent: words.copy });
    button.addEventListener("click", async () => {
      const code = block.querySelector("code")!.cloneNode(true) as HTMLElement;
      for (const part of code.querySelectorAll(".gp, .go")) part.remove(); // prompts and outputs of a console
      await navigator.clipboard.writeText(code.textContent!.replace(/^\n+/gm, "").trimEnd());
      button.textContent = words.copied;
      setTimeout(() => (button.textContent = words.copy), 1500);
    });
    block.append(button);
  }
}

function wrapTables(): void {
  for (const table of document.querySelectorAll("article table:not(.highlighttable, .weights)")) {
    if (table.parentElement!.classList.contains("table-scroll")) continue;
    const frame = Object.assign(document.createElement("div"), { className: "table-scroll" });
    table.replaceWith(frame);
    frame.append(table);
  }
}

function startMenu(): void {
  const button = document.querySelector<HTMLElement>("[data-action=menu]")!;
  const toggle = (isOpen: boolean) => {
    document.body.classList.toggle("menu-open", isOpen);
    button.setAttribute("aria-expanded", String(isOpen));
  };
  button.addEventListener("click", () => toggle(!document.body.classList.contains("menu-open")));
  addEventListener("keydown", (event) => event.key === "Escape" && toggle(false));
}

/** Write the address of the wheel beside the site into the command that installs it. */
function completeInstallLine(): void {
  const element = document.querySelector<HTMLElement>("[data-wheel]");
  if (!element) return;
  const address = new URL(locate(element.dataset.wheel!), location.href);
  const place = address.protocol === "file:" ? decodeURIComponent(address.pathname) : address.href;
  element.textContent = address.protocol === "file:" ? `pip install "${place}[all]"` : `pip install "jumok[all] @ ${place}"`;
}

completeInstallLine();
wrapTables();
mountCells();
addCopyButtons();
startMenu();
startSearch();
document.querySelector("[data-action=theme]")!.addEventListener("click", switchTheme);
