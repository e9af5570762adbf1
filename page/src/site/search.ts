/** The search: one index for each language, loaded when it is needed, as a script so that it also works from disk. */

import { getLanguage } from "./words";

type Page = [address: string, title: string, sections: [anchor: string, heading: string, text: string][]];
interface Hit {
  score: number;
  address: string;
  title: string;
  heading: string;
  text: string;
}

const MOST_HITS = 30;
const CONTEXT = 70; // characters before and behind the first hit

let index: Promise<Page[]> | null = null;

export function loadScript(address: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = address;
    script.onload = () => resolve();
    script.onerror = () => reject(new Error(address));
    document.head.append(script);
  });
}

/** Return the address of a file of the site, from this page. */
export function locate(path: string): string {
  return `${document.documentElement.dataset.base}/${path}`;
}

function loadIndex(): Promise<Page[]> {
  index ??= new Promise((resolve, reject) => {
    (globalThis as any).jumokSearch = resolve;
    loadScript(locate(`assets/search-${getLanguage()}.js`)).catch(reject);
  });
  return index;
}

/** Return the sections that contain all words of a query, those with the words in a heading first. */
function findSections(pages: Page[], query: string): Hit[] {
  const terms = query.normalize("NFC").toLowerCase().split(/\s+/).filter(Boolean);
  if (!terms.length) return [];
  const hits: Hit[] = [];
  for (const [address, title, sections] of pages) {
    const isInner = /reference\/jumok\.\w+\./.test(address);
    for (const [anchor, heading, text] of sections) {
      const fields = [title, heading, text].map((field) => field.toLowerCase());
      let score = isInner ? -4 : 0;
      for (const term of terms) {
        const name = fields[1].split(/[.\s]/).pop() === term || fields[1] === term;
        const best = name ? 40 : fields[1].startsWith(term) ? 20 : fields[1].includes(term) ? 14 : fields[0].includes(term) ? 8 : fields[2].includes(term) ? 3 : 0;
        if (!best) {
          score = 0;
          break;
        }
        score += best;
      }
      if (score > 0) hits.push({ score, address: anchor ? `${address}#${anchor}` : address, title, heading, text: cutText(text, terms) });
    }
  }
  return hits.sort((a, b) => b.score - a.score).slice(0, MOST_HITS);
}

/** Return the whole words around the first hit. */
function cutText(text: string, terms: string[]): string {
  const positions = terms.map((term) => text.toLowerCase().indexOf(term)).filter((position) => position >= 0);
  const first = positions.length ? Math.min(...positions) : 0;
  const begin = first > CONTEXT ? text.indexOf(" ", first - CONTEXT) + 1 : 0;
  const end = text.length > begin + 2 * CONTEXT ? text.lastIndexOf(" ", begin + 2 * CONTEXT) : text.length;
  return `${begin ? "… " : ""}${text.slice(begin, end)}${end < text.length ? " …" : ""}`;
}

/** Write a text with the searched words marked. */
function writeMarked(element: HTMLElement, text: string, terms: string[]): void {
  const pattern = new RegExp(`(${terms.map((term) => term.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`, "gi");
  text.split(pattern).forEach((part, position) => {
    if (!part) return;
    if (position % 2 === 0) element.append(part);
    else element.append(Object.assign(document.createElement("mark"), { textContent: part }));
  });
}

export function startSearch(): void {
  const dialog = document.querySelector<HTMLDialogElement>("#site-search")!;
  const input = dialog.querySelector("input")!;
  const list = dialog.querySelector("ol")!;
  const status = dialog.querySelector<HTMLElement>(".search-status")!;
  const open = () => {
    dialog.showModal();
    input.select();
    void loadIndex();
  };
  const show = async () => {
    const query = input.value;
    const pages = await loadIndex();
    if (query !== input.value) return;
    const hits = findSections(pages, query);
    const terms = query.toLowerCase().split(/\s+/).filter(Boolean);
    status.textContent = query.trim() && !hits.length ? status.dataset.none! : "";
    list.replaceChildren(
      ...hits.map((hit) => {
        const link = Object.assign(document.createElement("a"), { href: locate(hit.address) });
        const title = document.createElement("strong");
        writeMarked(title, hit.heading && hit.heading !== hit.title ? `${hit.heading} · ${hit.title}` : hit.title, terms);
        const text = document.createElement("span");
        writeMarked(text, hit.text, terms);
        link.append(title, text);
        const item = document.createElement("li");
        item.append(link);
        return item;
      }),
    );
  };
  document.querySelector("[data-action=search]")!.addEventListener("click", open);
  input.addEventListener("input", () => void show());
  list.addEventListener("click", (event) => (event.target as HTMLElement).closest("a") && dialog.close());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("keydown", (event) => {
    const links = [...list.querySelectorAll("a")];
    const current = links.indexOf(document.activeElement as HTMLAnchorElement);
    if (event.key === "ArrowDown") links[current + 1]?.focus();
    else if (event.key === "ArrowUp") (links[current - 1] ?? input).focus();
    else if (event.key === "Enter" && current < 0) links[0]?.click();
    else return;
    event.preventDefault();
  });
  addEventListener("keydown", (event) => {
    const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test((event.target as HTMLElement).tagName);
    const isShortcut = (event.key === "/" && !isTyping) || (event.key === "k" && (event.ctrlKey || event.metaKey));
    if (!isShortcut || dialog.open) return;
    event.preventDefault();
    open();
  });
}
