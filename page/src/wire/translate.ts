/** Messages in Korean, by their English templates; the same as jumok.translation. What no template matches remains. */

export type Templates = Readonly<Record<string, string>>; // those with the most letters of their own first

const PLACEHOLDER = /\{(\w+)\}/;
const END = "; "; // of a sentence inside a message
const TWO_WORDS = /(\S+) and (\S+)/g;

export function translate(message: string, templates: Templates): string {
  const korean = fillTemplate(message, templates);
  if (korean !== null) return korean;
  const splitAt = (mark: string) => {
    const at = message.indexOf(mark);
    return at < 0 ? null : ([message.slice(0, at), message.slice(at + mark.length)] as const);
  };
  const sentences = splitAt(END);
  if (sentences) {
    const parts = sentences.map((part) => translate(part, templates));
    return parts.join(END) === message ? message : parts.join(". ");
  }
  const [place, problem] = splitAt(": ") ?? [];
  return problem === undefined ? message : `${place}: ${translate(problem, templates)}`;
}

function fillTemplate(message: string, templates: Templates): string | null {
  if (Object.hasOwn(templates, message)) return templates[message];
  for (const [template, korean] of Object.entries(templates)) {
    const [begin, ...parts] = template.split(PLACEHOLDER);
    // no placeholder goes beyond a sentence, and the first word of a template is no place such as "data.csv:7: "
    const texts = parts.map((part, index) => (index % 2 ? escape(part) : `(?<${part}>(?:(?!; ${index || begin ? "" : "|: "}).)*?)`));
    const match = parts.length ? new RegExp(`^${escape(begin)}${texts.join("")}$`, "s").exec(message) : null;
    if (!match) continue;
    const insert = (_: string, name: string) => translate(match.groups![name], templates).replace(TWO_WORDS, "$1, $2");
    return korean.replace(new RegExp(PLACEHOLDER, "g"), insert);
  }
  return null;
}

function escape(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}
