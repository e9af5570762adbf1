/** Light or dark, as the reader chose it. */

import { useEffect, useState } from "preact/hooks";
import type { Theme } from "../colour";

const CHANGED = "jumok-theme";

export function getTheme(): Theme {
  return document.documentElement.dataset.theme === "dark" ? "dark" : "light";
}

export function switchTheme(): void {
  const theme = getTheme() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("jumok-theme", theme);
  } catch {} // a browser may refuse to store anything; the choice then holds for this page
  dispatchEvent(new Event(CHANGED));
}

export function useTheme(): Theme {
  const [theme, setTheme] = useState(getTheme());
  useEffect(() => {
    const update = () => setTheme(getTheme());
    addEventListener(CHANGED, update);
    return () => removeEventListener(CHANGED, update);
  }, []);
  return theme;
}
