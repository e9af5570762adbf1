/** The two languages of the page. */

import { en, type Words } from "./words.en";
import { ko } from "./words.ko";
import type { Language } from "./protocol";

export type { Words };

export const WORDS: Record<Language, Words> = { en, ko };

/** Return the first language of the browser that the page has; English if it has none. */
export function chooseLanguage(preferred: readonly string[]): Language {
  for (const tag of preferred) {
    const language = tag.slice(0, 2).toLowerCase();
    if (language === "ko" || language === "en") return language;
  }
  return "en";
}
